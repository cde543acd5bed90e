package strandline.spark.planner

import org.apache.spark.sql.catalyst.expressions.{Alias, Attribute, AttributeReference, Expression, NamedExpression, PythonUDTF}
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.util.QuotingUtils
import org.apache.spark.sql.streaming.OutputMode
import strandline.spark.errors.Errors
import strandline.spark.exec.MarkedOperator
import strandline.spark.plan.{FrontierSource, OperatorMark, TimeTransformNode}
import strandline.spark.time.TimeColumn

/**
 * Refuses operators whose result depends on where a batch ends: Spark evaluates them over the rows of one batch, as if these were
 * all rows.
 *
 * A function over the rows of a group is such an operator. It is exact where all rows of a time come in one batch, as from a
 * `hold`, and the time is in the group. So this rule follows the time down to the operator that waits for it. It looks at the
 * analysed plan of the whole query: the optimizer removes operators from the plan of a batch whose source has no rows.
 */
private[spark] object BatchBoundaries {
  private val OnceABatch = "Spark calls the function once in each batch in which there are rows, with the rows of that batch only"

  def check(analysed: LogicalPlan, mode: OutputMode): Unit = analysed.foreach {
    case numbered: AttachDistributedSequence if isOurs(numbered) =>
      throw Errors.operatorUnsupported("zipWithIndex", "Spark numbers the rows of each batch from 0",
        "Number the rows of a time when it is complete, with on_complete(df, function, schema) of pyspark_strandline.")
    case WholeTableFunction(name, rows) if isOurs(rows) =>
      throw Errors.operatorUnsupported(s"The table function $name over a whole table", OnceABatch,
        "Call a function for each complete time, with on_complete(df, function, schema, key=...) of pyspark_strandline.")
    case GroupFunction(name, groups) if groups.exists { case (_, rows) => isOurs(rows) } =>
      val isExact = groups match {
        case Seq((keys, rows)) => keys.exists(comesWhole(_, rows, mode))
        case _ => false // two sides may close the same time in different batches
      }
      if (!isExact) throw refusedFunction(name, groups)
    case _ =>
  }

  private def isOurs(plan: LogicalPlan): Boolean = plan.exists(FrontierSource.statesFrontier)

  /** Matches functions over the rows of a group: what the user has called, and for each side its keys and its rows. */
  private object GroupFunction {
    def unapply(plan: LogicalPlan): Option[(String, Seq[(Seq[Attribute], LogicalPlan)])] = plan match {
      case g: FlatMapGroupsInPandas => Some("applyInPandas" -> Seq(g.groupingAttributes -> g.child))
      case g: FlatMapGroupsInArrow => Some("applyInArrow" -> Seq(g.groupingAttributes -> g.child))
      case g: FlatMapCoGroupsInPandas => Some("applyInPandas" -> Seq(g.leftAttributes -> g.left, g.rightAttributes -> g.right))
      case g: FlatMapCoGroupsInArrow => Some("applyInArrow" -> Seq(g.leftAttributes -> g.left, g.rightAttributes -> g.right))
      case g: MapGroups => Some("mapGroups" -> Seq(g.groupingAttributes -> g.child))
      case g: FlatMapGroupsInR => Some("gapply" -> Seq(g.groupingAttributes -> g.child))
      case g: FlatMapGroupsInRWithArrow => Some("gapply" -> Seq(g.groupingAttributes -> g.child))
      case _ => None
    }
  }

  /**
   * Matches a table function of Python that gets a table's rows in one partition, and so believes that it gets all. Its name, and
   * the rows.
   */
  private object WholeTableFunction {
    def unapply(plan: LogicalPlan): Option[(String, LogicalPlan)] = plan match {
      case LateralJoin(rows, lateral, _, _) if isGathered(rows) =>
        lateral.plan.collectFirst {
          case Generate(f: PythonUDTF, _, _, _, _, _) if f.tableArguments.exists(_.contains(true)) => f.name -> rows
        }
      case _ => None
    }

    private def isGathered(rows: LogicalPlan): Boolean = rows match {
      case _: RepartitionOperation => true
      case _: Project | _: SubqueryAlias => isGathered(rows.children.head)
      case _ => false
    }
  }

  /** Whether all rows of `plan` with one value of `time` come in one batch. */
  private def comesWhole(time: Attribute, plan: LogicalPlan, mode: OutputMode): Boolean = plan match {
    case project: Project => valueOf(time, project.projectList, project.child).exists(comesWhole(_, project.child, mode))
    case marked: Deduplicate if markOf(marked.keys).isDefined =>
      markOf(marked.keys).contains(MarkedOperator.Hold) && marked.keys.exists(key =>
        key.exprId == time.exprId && TimeColumn.of(key).isDefined)
    case aggregate: Aggregate =>
      // A group of several times closes with the first of them.
      val times = aggregate.groupingExpressions.collect { case a: Attribute if TimeColumn.of(a).isDefined => a }
      mode == OutputMode.Append() && times.length == 1 && valueOf(time, aggregate.aggregateExpressions, aggregate).exists(
        _.exprId == times.head.exprId)
    case join: Join if join.children.count(_.isStreaming) > 1 => false
    case _: Join | _: Filter | _: SubqueryAlias | _: View | _: TimeTransformNode | _: EventTimeWatermark | _: Deduplicate |
        _: Generate | _: Sort |
        _: RepartitionOperation | _: RebalancePartitions | _: AppendColumns | _: CollectMetrics | _: ResolvedHint =>
      plan.children.exists(child => child.outputSet.contains(time) && child.isStreaming && comesWhole(time, child, mode))
    case _ => false
  }

  /** Returns which operator of ours a `dropDuplicates` stands for, if any. */
  private def markOf(keys: Seq[Attribute]): Option[String] =
    keys.map(_.metadata).find(_.contains(OperatorMark.Key)).map(_.getString(OperatorMark.Key))

  /** Returns the column of the input of which `a` is the value, under this or another name. */
  private def valueOf(a: Attribute, columns: Seq[NamedExpression], below: LogicalPlan): Option[Attribute] =
    columns.find(_.exprId == a.exprId).map(named).collect {
      case value: Attribute if below.inputSet.contains(value) || below.outputSet.contains(value) => value
    }

  private def named(e: Expression): Expression = e match {
    case Alias(child, _) => named(child)
    case other => other
  }

  private def refusedFunction(name: String, groups: Seq[(Seq[Attribute], LogicalPlan)]): Throwable = {
    val (keys, rows) = groups.head
    val time = rows.output.find(a => TimeColumn.of(a).exists(_.windows.isEmpty))
    val names = (time.toSeq ++ keys.filterNot(key => time.exists(_.exprId == key.exprId))).map(inPython(_, rows)).mkString(", ")
    val sides = if (groups.length > 1) "cogroup" else "groupBy"
    val called = s"$sides(${keys.map(_.name).mkString(", ")}).$name"
    val remedy = (groups, name) match {
      case (Seq(_), "mapGroups") =>
        s"Group by the time in an aggregation (groupBy($names).agg(...)), or use pyspark_strandline's on_complete. Both wait " +
          "until the time is complete."
      case (Seq(_), "gapply") =>
        s"Group by the time in an aggregation (groupBy($names).agg(...)), which waits until the time is complete."
      case (Seq(_), _) =>
        s"Let the rows wait until their time is complete, and group by the time: from pyspark_strandline import hold; " +
          s"hold(df).groupBy($names).$name(function, schema). " +
          "Or call on_complete(df, function, schema, key=...) of pyspark_strandline. A window is no such time: use " +
          "truncate(df, \"1 hour\") before."
      case _ =>
        "Unite both sides, with a column that names the side (select(lit(\"left\").alias(\"side\"), ...).unionByName(..., " +
          "allowMissingColumns=True)), and let the rows wait until their time is complete: " +
          s"from pyspark_strandline import hold; hold(both).groupBy($names).$name(function, schema). Or join them on equal times."
    }
    Errors.operatorUnsupported(called, OnceABatch, remedy)
  }

  /** Returns what names a key in Python: a column, or an expression, which Spark has put into a projection above the rows. */
  private def inPython(key: Attribute, rows: LogicalPlan): String = {
    val computed = rows match {
      case Project(columns, _) => columns.collectFirst { case alias: Alias if alias.exprId == key.exprId => alias.child }
      case _ => None
    }
    computed match {
      case Some(value) => s"F.expr(${quotedInPython(value.transform { case a: AttributeReference => a.withQualifier(Nil) }.sql)})"
      case None if key.name.matches("[A-Za-z_][A-Za-z0-9_]*") => quotedInPython(key.name)
      case None => quotedInPython(QuotingUtils.quoteIdentifier(key.name))
    }
  }

  private def quotedInPython(text: String): String = "\"" + text.replace("\\", "\\\\").replace("\"", "\\\"") + "\""
}
