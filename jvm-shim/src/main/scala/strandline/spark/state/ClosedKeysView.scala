package strandline.spark.state

import org.apache.spark.sql.execution.streaming.state.{StateStore, StateStoreIterator, UnsafeRowPair, WrappedReadStateStore}

/**
 * A view of a store that contains only the closed keys. Spark's aggregation reads it when it looks for keys to emit and remove.
 */
private[spark] final class ClosedKeysView(store: StateStore, closing: Iterator[UnsafeRowPair])
    extends WrappedReadStateStore(store) {
  override def iterator(colFamilyName: String): StateStoreIterator[UnsafeRowPair] = new StateStoreIterator(closing)
}
