package strandline.spark.planner

import org.apache.spark.sql.catalyst.expressions.{
  Alias, Attribute, AttributeSet, Expression, ExprId, GetStructField, NamedExpression
}
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.streaming.operators.stateful._
import org.apache.spark.sql.execution.streaming.operators.stateful.flatmapgroupswithstate.FlatMapGroupsWithStateExecBase
import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinExec
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.TransformWithStateExecBase
import org.json4s.{JArray, JString}
import strandline.spark.errors.Errors
import strandline.spark.exec.MarkedOperator
import strandline.spark.exec.meet.MeetForm
import strandline.spark.plan.{OperatorMark, TagRule, TimeDistance, TimeExpressions, TimeTransformNode}
import strandline.spark.time.{Json, LeastStep, Sessions, Summary, TimeColumn, WindowKind, WindowStep, Windows}

/**
 * Refuses what a loop does not count. The source counts the times of the rows that the query has taken in, until the frontier
 * closes them on the way around. So an operator of a loop may keep and emit rows only at times that follow from those by the path
 * summary.
 */
private[spark] object LoopRule {

  /** In the metadata of a user function's time column: our own code checks that its times are those of its input. */
  val CheckedKey = "strandline.checked"

  private val PassingOption = "passing"

  def check(plan: SparkPlan): Unit = plan.foreach { node =>
    node match {
      case _: SessionWindowStateStoreSaveExec | _: SessionWindowStateStoreRestoreExec =>
        refuse("session_window keeps a session after the times of its rows")
      case _: StreamingDeduplicateWithinWatermarkExec =>
        refuse("dropDuplicatesWithinWatermark keeps a key after the time of its row")
      case _: TransformWithStateExecBase => refuse("transformWithState may set timers after the times of its rows")
      case _: FlatMapGroupsWithStateExecBase => refuse("flatMapGroupsWithState may set timeouts after the times of its rows")
      case join: StreamingSymmetricHashJoinExec if TimeDistance.sharedTimes(join.leftKeys.zip(join.rightKeys)).isEmpty =>
        refuse("A stream-stream join by a distance, or of times that came by different ways, keeps a row after its time")
      case dedup: StreamingDeduplicateExec if dedup.keyExpressions.exists(_.metadata.contains(OperatorMark.Meet)) =>
        val form = MeetForm.of(MarkedOperator.of(dedup), dedup.output)
        if (!form.isCounted)
          refuse(s"A meet of rows at times of ${form.domain} ($form) gives pairs at times that are no row's")
      case _ =>
    }
    for (attribute <- node.output; column <- TimeColumn.of(attribute) if windowsOf(column).exists(overlap))
      refuse(
        s"Column ${attribute.name} is of sliding windows or sessions, so a row may be kept after the least window of its time")
  }

  /**
   * Refuses times that a user declares instead of deriving them: as the output of a function, or as the metadata of an
   * expression. They may be later than the times of the rows that the query has taken in.
   *
   * It looks at the analysed plan of the whole query, because the optimizer removes declarations.
   */
  def checkTimes(analysed: LogicalPlan): Unit = {
    val sources = AttributeSet(analysed.collectLeaves().flatMap(_.output))
    analysed.foreach {
      case function @ TagRule.DeclaresOutput() =>
        for (time <- function.output.find(isUnchecked))
          refuse(s"The function of ${function.nodeName} creates the times of column ${time.name}")
      case node =>
        node.expressions.foreach(_.foreach {
          case alias: Alias if declares(alias) && !isField(alias.child, sources) =>
            refuse(s"Column ${alias.name} is declared to be a time, but is ${alias.child.sql.take(200)}")
          case _ =>
        })
    }
  }

  /**
   * Refuses operators that may emit something later than the source was told by its option `passing`: rows of the channels that
   * it names, or anything at a time that was moved. The source counts the times of the former for one batch only, and those of
   * all others until they are closed where they are read.
   *
   * It looks at the analysed plan of the whole query. Below such an operator, each branch takes the columns of the channels that
   * it reads out of the source's rows.
   */
  def checkPassing(analysed: LogicalPlan): Unit = {
    val sources = analysed.collectLeaves().collect { case relation: StreamingRelationV2 => relation }
    val promised = sources.flatMap(relation => Option(relation.extraOptions.get(PassingOption))).flatMap(Json.parse).collect {
      case JArray(names) => names.collect { case JString(name) => name }
    }
    if (promised.nonEmpty) {
      val (passing, columns) = (promised.flatten.toSet, sources.flatMap(_.output).map(a => a.exprId -> a.name).toMap)
      def refusePromise(what: String) = refuse(s"$what, but the query was started with the promise that no operator does")
      for (node <- analysed.collect { case node if node.isStreaming && waits(node) => node }; branch <- node.children
        if branch.isStreaming) {
        branchesOf(branch, columns).find(passing).foreach(channel =>
          refusePromise(s"${node.nodeName} may emit rows of channel $channel after the batch that takes them in"))
        branch.output.find(TimeColumn.of(_).exists(!_.summary.isIdentity)).foreach(time =>
          refusePromise(s"${node.nodeName} may emit rows at the times of column ${time.name}, which were moved"))
      }
    }
  }

  /** Whether an operator emits rows after the batch in which they came. Those that are not known may do so. */
  private def waits(node: LogicalPlan): Boolean = node match {
    case dedup: Deduplicate =>
      val marks = dedup.keys.map(_.metadata).filter(_.contains(OperatorMark.Key))
      marks.exists(mark => !mark.contains(OperatorMark.Meet) || !MeetForm.emitsAtOnce(mark.getString(OperatorMark.Meet)))
    case _: LeafNode | _: Project | _: Filter | _: SubqueryAlias | _: View | _: ResolvedHint | _: Union | _: Generate |
        _: RepartitionOperation | _: RebalancePartitions | _: TimeTransformNode =>
      false
    case join: Join => join.children.count(_.isStreaming) > 1
    case _ => true
  }

  /** The channels whose columns a plan takes out of the source's rows, or passes on as they are. */
  private def branchesOf(plan: LogicalPlan, columns: Map[ExprId, String]): Seq[String] = {
    val taken = plan.collect { case node if node.children.nonEmpty => node.expressions.flatMap(_.references) }.flatten
    (taken ++ plan.output).flatMap(a => columns.get(a.exprId)).distinct
  }

  /** Whether the alias has the tag of a time that does not follow from its child. */
  private def declares(alias: Alias): Boolean =
    alias.explicitMetadata.exists(TimeColumn.isTagged) && (alias.child match {
      case named: NamedExpression if TimeColumn.of(named.metadata).isDefined => false
      case other => TimeExpressions.columnOf(other).isEmpty && TimeExpressions.Transformed.unapply(other).isEmpty
    })

  /** Whether the expression is a field of a source's own column, as the times of a source of several channels are. */
  private def isField(expression: Expression, sources: AttributeSet): Boolean = expression match {
    case GetStructField(child, _, _) => isField(child, sources)
    case a: Attribute => sources.contains(a)
    case _ => false
  }

  private def isUnchecked(attribute: Attribute): Boolean =
    TimeColumn.of(attribute).isDefined && !attribute.metadata.contains(CheckedKey)

  private def overlap(windows: WindowKind): Boolean = windows match {
    case Windows(width, slide, _) => width != slide
    case Sessions => true
  }

  private def windowsOf(column: TimeColumn): Seq[WindowKind] = column.windows.toSeq ++ windowsOf(column.summary)

  private def windowsOf(summary: Summary): Seq[WindowKind] = summary.steps.flatMap {
    case WindowStep(_, windows) => Seq(windows)
    case LeastStep(paths, _) => paths.flatMap(windowsOf)
    case _ => Nil
  }

  private def refuse(what: String): Nothing =
    throw Errors.loopUnsupported(what,
      "Use hold, on_complete or a Processor, group by the time, or do this in another query, which reads a channel that the " +
        "loop writes.")
}
