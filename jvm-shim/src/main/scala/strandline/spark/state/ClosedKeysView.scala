package strandline.spark.state

import org.apache.spark.sql.execution.streaming.state.{StateStore, StateStoreIterator, UnsafeRowPair, WrappedReadStateStore}

/** A store as Spark's aggregation is to see it when it looks for what is closed: only that is in it. */
private[spark] final class ClosedKeysView(store: StateStore, closing: Iterator[UnsafeRowPair]) extends WrappedReadStateStore(store) {
  override def iterator(colFamilyName: String): StateStoreIterator[UnsafeRowPair] = new StateStoreIterator(closing)
}
