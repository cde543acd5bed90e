package strandline.spark

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, UnaryNode}
import org.apache.spark.sql.catalyst.plans.physical.Partitioning
import org.apache.spark.sql.execution.{SparkPlan, SparkStrategy, UnaryExecNode}

/**
 * Says what its child has done to time columns: each of `times` gets the tag that [[MovedTimes.retag]] makes of it.
 *
 * Rows pass as they are. It stands above a join that keeps rows while other times pass, so that what it gives is behind its
 * inputs' frontier by a known distance. Like Spark's `EventTimeWatermark` it keeps the columns and changes their metadata.
 */
final case class MovedTimes(times: Seq[Attribute], shifts: Seq[Option[Long]], child: LogicalPlan) extends UnaryNode {
  override val output: Seq[Attribute] = MovedTimes.retag(child.output, times, shifts)

  override protected def withNewChildInternal(newChild: LogicalPlan): MovedTimes = copy(child = newChild)
}

final case class MovedTimesExec(times: Seq[Attribute], shifts: Seq[Option[Long]], child: SparkPlan) extends UnaryExecNode {
  override val output: Seq[Attribute] = MovedTimes.retag(child.output, times, shifts)
  override def outputPartitioning: Partitioning = child.outputPartitioning
  override def outputOrdering: Seq[SortOrder] = child.outputOrdering
  override protected def doExecute(): RDD[InternalRow] = child.execute()
  override protected def withNewChildInternal(newChild: SparkPlan): MovedTimesExec = copy(child = newChild)
}

object MovedTimes {

  /** The attributes with the shift added to the tag; where it is not known, without a tag. */
  def retag(output: Seq[Attribute], times: Seq[Attribute], shifts: Seq[Option[Long]]): Seq[Attribute] = output.map { a =>
    times.indexWhere(_.exprId == a.exprId) match {
      case -1 => a
      case i =>
        val moved = for (column <- TimeColumn.of(a); shift <- shifts(i)) yield column.copy(summary = column.summary :+ ShiftStep(shift))
        a.withMetadata(moved.fold(TimeColumn.removeFrom(a.metadata))(_.addTo(a.metadata)))
    }
  }
}

/** Plans [[MovedTimes]]. */
object MovedTimesStrategy extends SparkStrategy {
  override def apply(plan: LogicalPlan): Seq[SparkPlan] = plan match {
    case MovedTimes(times, shifts, child) => MovedTimesExec(times, shifts, planLater(child)) :: Nil
    case _ => Nil
  }
}
