package strandline.spark.plan

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.logical.{Filter, LogicalPlan, UnaryNode}
import org.apache.spark.sql.catalyst.plans.physical.Partitioning
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.{SparkPlan, SparkStrategy, UnaryExecNode}
import strandline.spark.time.{Summary, TimeColumn}

/**
 * Says what its child has done to time columns: each of `times` gets the summary beside it; where there is none, it is no time any more.
 *
 * Rows pass as they are. It stands above a join that keeps rows while other times pass, so that what it gives is behind its
 * inputs' frontier by a known distance, above an outer join that gives rows without one of its times, and above a union of times
 * that were moved differently. Like Spark's `EventTimeWatermark` it keeps the columns and changes their metadata.
 *
 * `allowsFilterPushdown`: whether the optimizer may take a filter below it ([[PushFilterThroughTimeTransform]]).
 */
final case class TimeTransformNode(times: Seq[Attribute], summaries: Seq[Option[Summary]], child: LogicalPlan, allowsFilterPushdown: Boolean = false) extends UnaryNode {
  override val output: Seq[Attribute] = TimeTransformNode.retag(child.output, times, summaries)

  // It needs none of its columns: those that nothing above uses are to be pruned, as Spark has operators that take one time only.
  override def references: AttributeSet = AttributeSet.empty

  override protected def withNewChildInternal(newChild: LogicalPlan): TimeTransformNode = copy(child = newChild)
}

final case class TimeTransformExec(times: Seq[Attribute], summaries: Seq[Option[Summary]], child: SparkPlan) extends UnaryExecNode {
  override val output: Seq[Attribute] = TimeTransformNode.retag(child.output, times, summaries)
  override def outputPartitioning: Partitioning = child.outputPartitioning
  override def outputOrdering: Seq[SortOrder] = child.outputOrdering
  override protected def doExecute(): RDD[InternalRow] = child.execute()
  override protected def withNewChildInternal(newChild: SparkPlan): TimeTransformExec = copy(child = newChild)
}

object TimeTransformNode {

  /** The attributes with the summaries in their tags; where one is not known, without a tag. */
  def retag(output: Seq[Attribute], times: Seq[Attribute], summaries: Seq[Option[Summary]]): Seq[Attribute] = output.map { a =>
    times.indexWhere(_.exprId == a.exprId) match {
      case -1 => a
      case i =>
        val moved = for (column <- TimeColumn.of(a); summary <- summaries(i)) yield column.copy(summary = summary)
        a.withMetadata(moved.fold(TimeColumn.removeFrom(a.metadata))(_.addTo(a.metadata, TimeColumn.delayIn(a.metadata))))
    }
  }
}

/** Plans [[TimeTransformNode]]. */
object TimeTransformStrategy extends SparkStrategy {
  override def apply(plan: LogicalPlan): Seq[SparkPlan] = plan match {
    case TimeTransformNode(times, summaries, child, _) => TimeTransformExec(times, summaries, planLater(child)) :: Nil
    case _ => Nil
  }
}

/**
 * Takes filters below a [[TimeTransformNode]] that lets them pass. The state of a join has the columns that are asked of it, so whether a filter
 * passes is a matter of the checkpoint: it stays as it was in earlier versions, where most stayed above.
 */
object PushFilterThroughTimeTransform extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = plan.transformDown {
    case Filter(condition, moved: TimeTransformNode) if moved.allowsFilterPushdown =>
      val below = AttributeMap(moved.child.output.map(a => a -> a))
      moved.copy(child = Filter(condition.transform { case a: Attribute => below.getOrElse(a, a) }, moved.child))
  }
}
