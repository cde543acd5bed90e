package strandline.spark

import org.apache.spark.sql.execution.streaming.state._

/** A store as Spark's aggregation is to see it when it looks for what is closed: only that is in it. */
private[spark] final class ClosingStore(store: StateStore, closing: Iterator[UnsafeRowPair]) extends WrappedReadStateStore(store) {
  override def iterator(colFamilyName: String): StateStoreIterator[UnsafeRowPair] = new StateStoreIterator(closing)
}
