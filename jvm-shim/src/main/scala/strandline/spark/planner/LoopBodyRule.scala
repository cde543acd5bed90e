package strandline.spark.planner

import java.util.IdentityHashMap

import scala.collection.mutable

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans._
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2
import org.apache.spark.sql.types.{BooleanType, DataType, Metadata, MetadataBuilder, StructType}
import strandline.spark.errors.Errors
import strandline.spark.exec.MarkedOperator
import strandline.spark.exec.meet.MeetForm
import strandline.spark.plan.{FrontierSource, OperatorMark, TimeTransformNode, Untagged}
import strandline.spark.time.{TimeColumn, TransformTime}

/**
 * Checks the body of `iterate`, when `iterate` is called: what follows from the loop's rows must follow from each row by itself,
 * or from all rows of one round. Everything else depends on which rows came together, so it is refused.
 *
 * `iterate` puts a column with the metadata [[Mark]] above what the body has returned, and asks for the schema of that. This runs
 * in no query. In the schema, the column's metadata says under [[Computed]] which columns may get values that are in no table: a
 * loop over the others has finitely many rows, so it ends if it drops rows that it has had.
 */
object LoopBodyRule extends Rule[LogicalPlan] {
  val Mark = "strandline.body"
  val Computed = "strandline.computed"

  override def apply(plan: LogicalPlan): LogicalPlan = plan match {
    case asked @ Project(columns, body) if columns.exists(isMark) && asked.resolved =>
      asked.copy(projectList = columns.map {
        case alias: Alias if isMark(alias) => answered(alias, new LoopBody(alias.metadata.getMetadata(Mark)).computed(body))
        case other => other
      })
    case other => other
  }

  private def isMark(column: NamedExpression): Boolean = column match {
    case alias: Alias => alias.explicitMetadata.exists(known => known.contains(Mark) && !known.contains(Computed))
    case _ => false
  }

  private def answered(alias: Alias, computed: Seq[String]): Alias = {
    val metadata = new MetadataBuilder().withMetadata(alias.metadata).putStringArray(Computed, computed.toArray).build()
    Alias(alias.child, alias.name)(alias.exprId, alias.qualifier, Some(metadata), alias.nonInheritableMetadataKeys)
  }
}

/**
 * The rows that one way through a body gives: which columns are those of the loop's row, as they are, each by its path below the
 * source, and which ones may have values that are in no table.
 */
private final case class Way(same: Map[ExprId, String], computed: Set[ExprId])

/**
 * The plan of a body.
 *
 * `asked`: the option `channels` of the source whose rows are the loop's, the name of the `stream` among them and its `time`
 * column, whether a round has all its rows (`byRound`), whether rounds come in order or rows are not dropped (`inRounds`), and
 * whether something else ends the loop (`ends`).
 */
private final class LoopBody(asked: Metadata) {

  private val channels = asked.getString("channels")
  private val (stream, time) = (asked.getString("stream"), asked.getString("time"))
  private val timePath = s"$stream.$time"
  private var round: Option[String] = None // the path of the loop's own coordinate
  private val known = new IdentityHashMap[LogicalPlan, Seq[Way]]
  private val shared = mutable.Map.empty[Long, (Seq[Attribute], Seq[Way])]

  /** Checks the plan. Returns the columns that may get new values. */
  def computed(body: LogicalPlan): Seq[String] = {
    val ways = waysTo(body)
    if (ways.isEmpty) refuse("The body returns rows that do not follow from the loop's rows",
      "Begin with the rows that the body gets, and join tables to them.")
    LoopRule.checkTimes(body)
    val columns = body.output.filterNot(_.name == time)
    if (!asked.getBoolean("inRounds"))
      for (column <- columns if ways.exists(_.same.get(column.exprId).contains(timePath))) refuseRound(s"column ${column.name}")
    if (!asked.getBoolean("ends") && columns.nonEmpty && ways.exists(way =>
        columns.forall(a => way.same.get(a.exprId).contains(s"$stream.${a.name}"))))
      refuse("The body returns rows of the loop as they are, so they go round for ever",
        "Leave distinct=False out: then a row that the loop has had is dropped. Or return only rows that are new, or pass " +
          "until=….")
    columns.filter(a => ways.exists(_.computed(a.exprId))).map(_.name)
  }

  /** Returns the ways from the loop's rows to the rows of `plan`. None: `plan` is a table. */
  private def waysTo(plan: LogicalPlan): Seq[Way] = Option(known.get(plan)).getOrElse {
    val found = findWaysTo(plan)
    checkRound(plan)
    known.put(plan, found)
    found
  }

  private def findWaysTo(plan: LogicalPlan): Seq[Way] = {
    for (subquery <- plan.subqueries if subquery.isStreaming)
      refuse("The body has a subquery over the loop's rows",
        "Join tables to the loop's rows. What looks at several of its rows at once is another query, which reads the result.")
    plan match {
      case WithCTE(main, definitions) =>
        for (each <- definitions) shared(each.id) = (each.output, waysTo(each.child))
        waysTo(main)
      case reference: CTERelationRef =>
        val (output, ways) = shared.getOrElse(reference.cteId, (Nil, Nil))
        ways.map(renamed(_, output, reference.output))
      case table if !table.isStreaming => Nil
      case relation: StreamingRelationV2
          if FrontierSource.statesFrontier(relation) && channels == relation.extraOptions.get("channels") =>
        round = relation.output.find(_.name == stream).flatMap(struct => fieldOf(struct.dataType, time)).collect {
          case own: StructType => s"$timePath.${own.last.name}"
        }
        Seq(Way(relation.output.map(a => a.exprId -> a.name).toMap, Set.empty))
      case leaf: LeafNode => refuse(s"The body reads another stream (${leaf.nodeName})",
          "Pass its channel to iterate, as streams={\"edges\": path}: the body gets it as its second argument. Or join a table.")
      case Project(columns, child) => waysTo(child).map(among(columns, _))
      case aggregate: Aggregate => ofGroups(aggregate)
      case union: Union => union.children.flatMap(ofBranch(union, _))
      case join: Join => ofJoin(join)
      case generate: Generate =>
        waysTo(generate.child).map { way =>
          if (generate.generator.children.forall(isKnown(_, way))) way
          else way.copy(computed = way.computed ++ generate.generatorOutput.map(_.exprId))
        }
      case expand: Expand =>
        waysTo(expand.child).flatMap(way => expand.projections.map(row => of(row.zip(expand.output), way)).distinct)
      case hold: Deduplicate if operatorOf(hold).contains(MarkedOperator.Hold) => waysTo(hold.child)
      case meet: Deduplicate if operatorOf(meet).contains(MarkedOperator.Meet) => ofMeet(meet)
      case called: MapInArrow
          if called.output.exists(_.metadata.contains(LoopRule.CheckedKey)) && operatorsBelow(called).contains(
            MarkedOperator.Hold) =>
        checkRounds("on_complete", timed = true)
        waysTo(called.child).map(_ => Way(Map.empty, called.output.map(_.exprId).toSet))
      case same @ (_: Filter | _: SubqueryAlias | _: View | _: ResolvedHint | _: Repartition | _: RepartitionByExpression |
          _: RebalancePartitions | _: CollectMetrics | _: TimeTransformNode) =>
        waysTo(same.children.head)
      case other => refused(other)
    }
  }

  /**
   * Refuses expressions of the round. A row that is dropped when it comes again keeps the round in which it came first, and which
   * way brings it first depends on where a batch ends.
   */
  private def checkRound(plan: LogicalPlan): Unit =
    if (!asked.getBoolean("inRounds") && plan.isStreaming && plan.expressions.nonEmpty && plan.children.nonEmpty)
      for (way <- plan.children.filter(_.isStreaming).flatMap(waysTo); expression <- plan.expressions
        if looksAtRound(expression, way))
        refuseRound(shown(expression))

  private def refuseRound(where: String): Nothing =
    refuse(s"The body looks at the round of a row ($where), which depends on the way by which the row came first",
      "Pass until=3 for at most three rounds: the rounds of an outer time then come in order. Or pass distinct=False, where a " +
        "row comes once by each way. The outer coordinates may be used.")

  private def looksAtRound(expression: Expression, way: Way): Boolean = pathOf(expression, way) match {
    case Some(path) => round.exists(own => path == own || path.startsWith(s"$own."))
    case None if movesTime(expression) => false // which the caller refuses, because the time must come back as it is
    case None if expression.isInstanceOf[IsNull] => expression.children.exists(looksAtRound(_, way)) // a time is never null
    case None => expression.children.exists(child => pathOf(child, way).contains(timePath) || looksAtRound(child, way))
  }

  private def movesTime(expression: Expression): Boolean = expression match {
    case Alias(child, _) => movesTime(child)
    case _: TransformTime => true
    case _ => false
  }

  private def ofBranch(union: Union, branch: LogicalPlan): Seq[Way] = {
    val ways = waysTo(branch)
    if (ways.isEmpty)
      refuse(s"The body adds rows of a table (${namesOf(branch.output)}) that do not follow from the loop's rows",
        "Write them into the seed's channel.")
    ways.map(renamed(_, branch.output, union.output))
  }

  private def ofJoin(join: Join): Seq[Way] = (waysTo(join.left), waysTo(join.right)) match {
    case (left, right) if left.nonEmpty && right.nonEmpty =>
      refuse(
        s"The body joins the loop's rows with themselves${join.condition.fold("")(on => s" (${shown(on)})")}. Rows of " +
          "different rounds would not meet",
        "Use meet(…, within=\"outer\") of pyspark_strandline, with which rows of different rounds meet. Or join a table: for a " +
          "closure, the pairs that it begins with (path(x, z) :- path(x, y), edge(y, z)).")
    case (left, right) =>
      val keepsBoth = join.joinType match { case Inner | Cross => true; case _ => false }
      val keepsLoop = join.joinType match {
        case LeftOuter | LeftSemi | LeftAnti => left.nonEmpty
        case RightOuter => right.nonEmpty
        case _ => false
      }
      if (!keepsBoth && !keepsLoop)
        refuse(
          s"The body has a ${join.joinType.sql} join in which the loop's rows may be missing. It would give a table's rows in " +
            "every round",
          "Use an inner join, or an outer join that keeps the loop's rows.")
      left ++ right
  }

  /** Rows of different rounds meet, so what follows from a row is the same whichever way brings it first. */
  private def ofMeet(meet: Deduplicate): Seq[Way] = {
    val coordinates = meet.keys.flatMap(key => TimeColumn.of(key).map(_ => key.dataType)).collect { case s: StructType =>
      s.length
    }
    val mark = meet.keys.map(_.metadata).find(_.contains(OperatorMark.Meet)).get.getString(OperatorMark.Meet)
    if (!MeetForm.emitsAtOnce(mark))
      refuse("The body has a left_anti meet, whose rows a later round could take back",
        "Use a left anti join with a table. Or write the rules as a Program, which has strata.")
    if (!coordinates.contains(MeetForm.withinIn(mark) + 1))
      refuse("The body has a meet that keeps rows of other outer times",
        "Pass within= with all coordinates but the round, such as meet(…, within=\"outer\").")
    if (asked.getBoolean("byRound"))
      refuse(
        "The body has a meet, which pairs rows of different rounds, so a round has not all rows that follow from the one before",
        "Leave distinct=False out: then a row that the loop has had is dropped.")
    waysTo(meet.child)
  }

  private def ofGroups(aggregate: Aggregate): Seq[Way] = {
    val by = aggregate.groupingExpressions
    checkRounds(if (by.isEmpty) "an aggregation of all rows" else s"groupBy(${by.map(shown).mkString(", ")})",
      by.exists { case a: Attribute => TimeColumn.of(a).isDefined; case _ => false })
    waysTo(aggregate.child).map(among(aggregate.aggregateExpressions, _))
  }

  /** Refuses what looks at several rows, unless these are all rows of one round, and each round is well defined. */
  private def checkRounds(what: String, timed: Boolean): Unit = {
    if (!timed) refuse(s"The body has $what, without the time $time. It would look at whichever rows came together",
      s"Group by $time too: each group is then of one round. It needs distinct=False.")
    if (!asked.getBoolean("byRound"))
      refuse(
        s"The body has $what, which looks at all rows of a round. But rows that the loop has had are dropped, so a round has " +
          "those that came first by any way",
        "Pass distinct=False, and no best: then a round has all rows that follow from the round before. For a best row of " +
          "each key, use best= without an aggregation. " +
          "Or aggregate the result in another query.")
  }

  private def refused(plan: LogicalPlan): Nothing = {
    val another =
      "Leave it out, or do it in another query, which reads the result. In read_loop, operators work on each round by itself."
    plan match {
      case _: Deduplicate if operatorOf(plan).contains(MarkedOperator.Notify) =>
        refuse("The body has a Processor, whose state goes from round to round", "Use read_loop for the loop.")
      case _: Deduplicate | _: DeduplicateWithinWatermark =>
        refuse("The body drops equal rows (distinct or dropDuplicates)",
          "Leave it out: with distinct=True, the default, iterate drops every row that its outer time has had.")
      case _: Distinct =>
        refuse("The body drops equal rows (SELECT DISTINCT or UNION)",
          "Write SELECT and UNION ALL: with distinct=True, the default, iterate drops every row that its outer time has had.")
      case _: GlobalLimit | _: LocalLimit | _: Tail | _: Offset =>
        refuse("The body has a limit or an offset, which counts rows over all rounds", another)
      case _: Sort => refuse("The body sorts", another)
      case _: Sample => refuse("The body samples", another)
      case _: Window => refuse("The body has a window function, which looks at several rows at once", another)
      case _: EventTimeWatermark =>
        refuse("The body has withWatermark, a guessed progress", "Leave it out: the loop's own frontier is exact.")
      case _: Intersect | _: Except => refuse(s"The body has ${plan.nodeName.toUpperCase}, which looks at several rows at once",
          "Use a left semi or left anti join with a table.")
      case _ => refuse(s"The body has ${plan.nodeName}, which does not give rows from each of the loop's rows by itself",
          "Use projections, filters, explode, row-wise functions, unions, and joins with tables. Or use read_loop.")
    }
  }

  /** The columns that a projection or an aggregation gives of the rows of a way. */
  private def among(columns: Seq[NamedExpression], way: Way): Way = of(columns.map(column => column -> column.toAttribute), way)

  private def of(columns: Seq[(Expression, Attribute)], way: Way): Way = Way(
    columns.flatMap { case (value, column) => pathOf(value, way).map(column.exprId -> _) }.toMap,
    columns.collect { case (value, column) if !isKnown(value, way) => column.exprId }.toSet)

  private def fieldOf(kind: DataType, name: String): Option[DataType] = kind match {
    case struct: StructType => struct.find(_.name == name).map(_.dataType)
    case _ => None
  }

  private def renamed(way: Way, from: Seq[Attribute], to: Seq[Attribute]): Way = of(from.zip(to), way)

  /** Returns which column of the loop's row the expression is, as it is. */
  private def pathOf(expression: Expression, way: Way): Option[String] = expression match {
    case Alias(child, _) => pathOf(child, way)
    case Untagged(child) => pathOf(child, way)
    case a: Attribute => way.same.get(a.exprId)
    case GetStructField(child, at, _) =>
      pathOf(child, way).map(of => s"$of.${child.dataType.asInstanceOf[StructType].fieldNames(at)}")
    case _ => None
  }

  /** Whether all values of the expression are in the tables, in the seeds, or in the text of the query. */
  private def isKnown(expression: Expression, way: Way): Boolean = expression match {
    case a: Attribute => !way.computed(a.exprId)
    case _ if expression.dataType == BooleanType || expression.foldable => true
    case Alias(child, _) => isKnown(child, way)
    case Untagged(child) => isKnown(child, way)
    case field: GetStructField => isKnown(field.child, way)
    case cast: Cast => isKnown(cast.child, way)
    case CaseWhen(branches, otherwise) => (branches.map(_._2) ++ otherwise).forall(isKnown(_, way))
    case If(_, yes, no) => isKnown(yes, way) && isKnown(no, way)
    case _: Coalesce | _: Least | _: Greatest => expression.children.forall(isKnown(_, way))
    case struct: CreateNamedStruct => struct.valExprs.forall(isKnown(_, way))
    case _ => false
  }

  private def operatorOf(plan: LogicalPlan): Option[String] = plan match {
    case marked: Deduplicate => marked.keys.map(_.metadata).find(_.contains(OperatorMark.Key)).map(_.getString(OperatorMark.Key))
    case _ => None
  }

  private def operatorsBelow(plan: LogicalPlan): Option[String] = plan.children.iterator.map {
    case below @ (_: Project | _: SubqueryAlias | _: TimeTransformNode) => operatorsBelow(below)
    case below => operatorOf(below)
  }.collectFirst { case Some(operator) => operator }

  private def namesOf(output: Seq[Attribute]): String = output.map(_.name).mkString(", ")

  private def shown(expression: Expression): String = expression.transform { case a: AttributeReference =>
    a.withQualifier(Nil)
  }.sql.take(200)

  private def refuse(what: String, remedy: String): Nothing = throw Errors.loopBodyUnsupported(what, remedy)
}
