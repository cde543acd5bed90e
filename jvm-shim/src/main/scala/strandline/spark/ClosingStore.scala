package strandline.spark

import org.apache.spark.sql.execution.streaming.operators.stateful.{StatefulOperatorCustomMetric, StatefulOperatorCustomSumMetric}
import org.apache.spark.sql.execution.streaming.state._

/** A store as Spark's aggregation is to see it when it looks for what is closed: only that is in it. */
private[spark] final class ClosingStore(store: StateStore, closing: Iterator[UnsafeRowPair]) extends WrappedReadStateStore(store) {
  override def iterator(colFamilyName: String): StateStoreIterator[UnsafeRowPair] = new StateStoreIterator(closing)
}

/** What an operator with its state by time tells in the query's progress, besides what Spark's does. */
private[spark] object TimedMetrics {
  val OpenTimes = "numOpenTimes"

  def of(timed: Option[TimedState]): Seq[StatefulOperatorCustomMetric] =
    timed.map(_ => StatefulOperatorCustomSumMetric(OpenTimes, "number of open times in all partitions")).toSeq
}

/** `rows`, and then, once, what is to be done at their end. */
private[spark] final class Finishing[A](rows: Iterator[A], atEnd: () => Unit) extends Iterator[A] {
  private var ended = false

  override def hasNext: Boolean = rows.hasNext || {
    if (!ended) {
      ended = true
      atEnd()
    }
    false
  }

  override def next(): A = rows.next()
}
