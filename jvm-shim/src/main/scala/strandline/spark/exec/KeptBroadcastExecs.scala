package strandline.spark.exec

import org.apache.spark.broadcast.Broadcast
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.plans.physical.{BroadcastMode, BroadcastPartitioning, Partitioning}
import org.apache.spark.sql.execution.{LeafExecNode, SparkPlan, UnaryExecNode}

/** Rows that are broadcast: they have no RDD. */
private[exec] trait BroadcastRows extends SparkPlan {
  override protected def doExecute(): RDD[InternalRow] =
    throw new UnsupportedOperationException(s"$nodeName has only a broadcast")
}

/** Broadcasts the rows of `child`, and gives the broadcast to `keep` for later batches. */
final case class KeepBroadcastExec(child: SparkPlan, @transient keep: Broadcast[Any] => Unit)
    extends UnaryExecNode with BroadcastRows {
  override def output: Seq[Attribute] = child.output
  override def outputPartitioning: Partitioning = child.outputPartitioning

  override def doExecuteBroadcast[T](): Broadcast[T] = {
    val made = child.executeBroadcast[Any]()
    keep(made)
    made.asInstanceOf[Broadcast[T]]
  }

  override protected def stringArgs: Iterator[Any] = Iterator.empty

  override protected def withNewChildInternal(newChild: SparkPlan): KeepBroadcastExec = copy(child = newChild)
}

/** The rows that an earlier batch has broadcast. */
final case class KeptBroadcastExec(output: Seq[Attribute], mode: BroadcastMode, rows: Broadcast[Any])
    extends LeafExecNode with BroadcastRows {
  override def outputPartitioning: Partitioning = BroadcastPartitioning(mode)

  override def doExecuteBroadcast[T](): Broadcast[T] = rows.asInstanceOf[Broadcast[T]]

  override protected def stringArgs: Iterator[Any] = Iterator(output)
}
