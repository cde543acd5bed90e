package strandline.spark.exec.best

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.physical.Partitioning
import org.apache.spark.sql.execution.{SparkPlan, UnaryExecNode}
import org.apache.spark.sql.execution.metric.{SQLMetric, SQLMetrics}
import org.apache.spark.sql.execution.streaming.state.strandline.{SparkInternals, StreamingInternals}
import strandline.spark.exec.OperatorKey

/**
 * Below the exchange of [[BestExec]]: of a task's rows of one key and time, the best one passes. No other could improve on it.
 *
 * The rows of different times all pass, because each time must reach the guard and the state in its order. A row that is neither
 * better nor worse than others fails the batch here, before it could be left out.
 */
final case class BestOfTaskExec(key: OperatorKey, order: BestOrder, child: SparkPlan) extends UnaryExecNode {
  override def output: Seq[Attribute] = child.output
  override def outputPartitioning: Partitioning = child.outputPartitioning
  override lazy val metrics: Map[String, SQLMetric] =
    Map("numOutputRows" -> SQLMetrics.createMetric(sparkContext, "number of output rows"))

  override protected def doExecute(): RDD[InternalRow] = {
    val (of, by, columns, passed) = (key, order, output, longMetric("numOutputRows"))
    StreamingInternals.mapPartitions(child.execute()) { rows =>
      new BestOfTask(rows.asInstanceOf[Iterator[UnsafeRow]], of, by, columns).map { row =>
        passed += 1
        row
      }
    }
  }

  override def simpleString(maxFields: Int): String = s"StrandlineBestOfTask $order"

  override protected def withNewChildInternal(newChild: SparkPlan): BestOfTaskExec = copy(child = newChild)
}

/**
 * The best row of each key and time of `rows`. At most about `mostBytes` of rows are in memory: then these come out, and the best
 * of the rest after them.
 */
private[best] final class BestOfTask(
    rows: Iterator[UnsafeRow],
    key: OperatorKey,
    order: BestOrder,
    columns: Seq[Attribute],
    mostBytes: Long = BestOfTask.MostBytes)
    extends Iterator[UnsafeRow] {
  private val keyOf = UnsafeProjection.create(key.by.map(SparkInternals.normalized(_)) :+ key.time, columns)
  private val ordering = RowOrdering.create(order.by, columns)
  private val check = order.check(columns)
  private var best: Iterator[UnsafeRow] = Iterator.empty

  override def hasNext: Boolean = {
    if (!best.hasNext && rows.hasNext) best = taken()
    best.hasNext
  }

  override def next(): UnsafeRow = if (hasNext) best.next() else throw new NoSuchElementException("all rows have been given")

  private def taken(): Iterator[UnsafeRow] = {
    val found = new BestRows
    var bytes = 0L
    while (bytes < mostBytes && rows.hasNext) {
      val row = rows.next()
      check(row)
      val its = keyOf(row)
      val before = found.get(its)
      if (before == null) {
        found.add(its.copy(), row.copy())
        bytes += its.getSizeInBytes + row.getSizeInBytes + BestOfTask.BytesOfAnEntry
      } else if (ordering.compare(row, before) < 0) {
        bytes += (row.getSizeInBytes - before.getSizeInBytes).max(0)
        before.copyFrom(row)
      }
    }
    found.iterator
  }
}

private[best] object BestOfTask {
  private val MostBytes = 16L << 20

  // Two rows, their arrays, and a slot of the map with its entry.
  private val BytesOfAnEntry = 180L
}
