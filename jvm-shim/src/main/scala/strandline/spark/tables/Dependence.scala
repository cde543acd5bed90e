package strandline.spark.tables

import java.util.{Collections, UUID, WeakHashMap}

import scala.util.Try

import org.apache.spark.internal.Logging
import org.apache.spark.sql.catalyst.catalog.HiveTableRelation
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.aggregate._
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.util.CollationFactory
import org.apache.spark.sql.execution.LogicalRDD
import org.apache.spark.sql.execution.columnar.InMemoryRelation
import org.apache.spark.sql.execution.datasources.{HadoopFsRelation, LogicalRelation}
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.sql.sources.DataSourceRegister
import org.apache.spark.sql.types.{DataType, StringType}
import strandline.spark.batch.RowOrder
import strandline.spark.plan.{FrontierSource, OperatorMark}

/**
 * Says once in each run of a query what its results depend on beside the channels and the versions of tables that it reads. Then
 * a repeated batch may give other rows. What a user's function does cannot be seen.
 */
private[spark] object Dependence extends Logging {
  private val told = Collections.synchronizedMap(new WeakHashMap[StreamExecution, UUID])

  def warn(query: StreamExecution): Unit = if (told.put(query, query.runId) != query.runId) {
    // A batch does not fail because of what is said of it. But that nothing could be said is said, too.
    val found = Try(of(query.getLatestExecutionContext().executionPlan.withCachedData)).recover { case error =>
      Seq(s"what its plan does not tell ($error)")
    }.get
    if (found.nonEmpty) {
      val name = Option(query.name).fold(query.id.toString)(name => s"$name (${query.id})")
      logWarning(
        s"Query $name: its results depend on more than the channels and tables that it reads: ${found.mkString("; ")}. See " +
          "docs/repeated-batches.md.")
    }
  }

  /** Returns in words what a plan depends on, subqueries included. */
  def of(plan: LogicalPlan): Seq[String] = {
    val nodes = plan.collectWithSubqueries { case node => node }
    val expressions = nodes.flatMap(node => node.expressions.flatMap(named))
    (expressions ++ new Roundings(plan).decisions ++ nodes.flatMap(unordered) ++ nodes.flatMap(unversioned)).distinct
  }

  private def named(expression: Expression): Seq[String] = expression match {
    // The order of these does not show in the result.
    case SortArray(aggregate, _) => inside(aggregate)
    case ArraySort(aggregate, function, _) => inside(aggregate) ++ named(function)
    case Size(aggregate, _) => inside(aggregate)
    case _: CurrentTimestampLike | _: CurrentDate | _: LocalTimestamp | _: CurrentBatchTimestamp =>
      Seq(
        "the current time (a repeated batch has the time of its first attempt; another division of the rows into batches " +
          "gives other times)")
    case udf: UserDefinedExpression if !udf.deterministic && udf.children.forall(_.deterministic) =>
      Seq(s"${udf.name}() (a function that is declared nondeterministic)")
    // Spark calls these deterministic, although they depend on the order of rows.
    case list @ (_: CollectList | _: CollectSet) =>
      s"${list.prettyName}() (the order of its elements)" +: list.children.flatMap(named)
    case one @ (_: First | _: Last | _: AnyValue) => s"${one.prettyName}() (which row comes first)" +: one.children.flatMap(named)
    case one: AggregateFunction if Seq("max_by", "min_by", "mode").contains(one.prettyName) =>
      s"${one.prettyName}() (which of equals it takes)" +: one.children.flatMap(named)
    case one @ (_: Max | _: Min) if hasCollation(one.dataType) =>
      s"${one.prettyName}() (which of equals it takes)" +: one.children.flatMap(named)
    case sketch: AggregateFunction if isApproximate(sketch) =>
      s"${sketch.prettyName}() (an approximation that depends on the order of rows)" +: sketch.children.flatMap(named)
    case ranked @ (_: RowNumber | _: NTile | _: FrameLessOffsetWindowFunction | _: NthValue) =>
      s"${ranked.prettyName}() (the order of equals)" +: ranked.children.flatMap(named)
    case other if !other.deterministic && other.children.forall(_.deterministic) && !other.isInstanceOf[PlanExpression[_]] =>
      Seq(s"${other.prettyName}() (a repeated batch has other values)")
    case other => other.children.flatMap(named)
  }

  private def isApproximate(function: AggregateFunction): Boolean =
    Seq("approx", "sketch", "histogram", "listagg", "string_agg").exists(
      function.prettyName.toLowerCase.contains(_)) && !function.isInstanceOf[HyperLogLogPlusPlus]

  private def inside(expression: Expression): Seq[String] = expression match {
    case list @ (_: CollectList | _: CollectSet) => list.children.flatMap(named)
    case call: AggregateExpression => inside(call.aggregateFunction) ++ call.filter.toSeq.flatMap(named)
    case other => named(other)
  }

  private def unordered(plan: LogicalPlan): Option[String] = plan match {
    case _: Sample => Some("a sample (which rows it takes)")
    case LocalLimit(_, child) if !isSorted(child) => Some("a limit without an order (which rows come first)")
    case Offset(_, child) if !isSorted(child) => Some("an offset without an order (which rows come first)")
    case aggregate: Aggregate if aggregate.groupingExpressions.exists(key => hasCollation(key.dataType)) =>
      Some(s"groups by $Spelling")
    case _: Distinct | _: Except | _: Intersect if plan.output.exists(column => hasCollation(column.dataType)) =>
      Some(s"distinct rows with $Spelling")
    case dedup: Deduplicate if dedup.keys.exists(key => hasCollation(key.dataType)) => Some(s"dropDuplicates by $Spelling")
    case dedup: Deduplicate if isPartial(dedup.keys, dedup) => Some("dropDuplicates by some columns (which row is kept)")
    case dedup: DeduplicateWithinWatermark if isPartial(dedup.keys, dedup) =>
      Some("dropDuplicatesWithinWatermark by some columns (which row is kept)")
    case _ => None
  }

  private val Spelling = "text with a collation (which of several spellings is kept)"

  private def hasCollation(kind: DataType): Boolean = RowOrder.parts(kind).exists {
    case text: StringType => !CollationFactory.fetchCollation(text.collationId).supportsBinaryEquality
    case _ => false
  }

  private val OuterTime = "_outer" // by this column and all of a row but its time, `iterate` drops rows that the loop has had

  /** Whether rows with the same keys may differ. Our own operators are written as such a node, and know what they do. */
  private def isPartial(keys: Seq[Attribute], plan: LogicalPlan): Boolean =
    !keys.exists(key => key.metadata.contains(OperatorMark.Key) || key.name == OuterTime) && !plan.outputSet.subsetOf(
      AttributeSet(keys))

  private def isSorted(plan: LogicalPlan): Boolean = plan match {
    case _: Sort => true
    case _: Project | _: Filter | _: SubqueryAlias | _: GlobalLimit | _: LocalLimit => isSorted(plan.children.head)
    case _ => false
  }

  private def unversioned(plan: LogicalPlan): Option[String] = {
    def now(what: String) = Some(s"$what (no version: a repeated batch reads what is there then)")
    plan match {
      case _ if plan.isStreaming || plan.children.nonEmpty => None
      case DeltaTable(_) | ChannelTable(_) => None
      case relation: LogicalRelation => relation.relation match {
          case files: HadoopFsRelation if DeltaTable.isFixed(files) => None
          case files: HadoopFsRelation =>
            now(s"the ${formatOf(files)} files ${files.location.rootPaths.map(_.toString).take(2).mkString(", ")}")
          case other => now(s"the table $other")
        }
      case relation: DataSourceV2Relation if FrontierSource.isOurs(relation.table) => None
      case relation: DataSourceV2Relation => now(s"the table ${relation.name}")
      case relation: HiveTableRelation => now(s"the Hive table ${relation.tableMeta.identifier.unquotedString}")
      case cached: InMemoryRelation => now(s"the cached frame${cached.cacheBuilder.tableName.fold("")(name => s" $name")}")
      case local: LocalRelation if local.data.nonEmpty =>
        Some("rows that the program makes (a program that is started again may make others)")
      case _: LogicalRDD =>
        Some("rows that the program makes, or a checkpoint of a frame (a program that is started again may make others)")
      case _ => None
    }
  }

  private def formatOf(files: HadoopFsRelation): String = files.fileFormat match {
    case named: DataSourceRegister => named.shortName()
    case other => other.toString
  }
}
