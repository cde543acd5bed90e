package strandline.spark.state

import org.apache.spark.TaskContext
import org.apache.spark.sql.execution.streaming.operators.stateful.StreamingAggregationStateManager
import org.apache.spark.sql.execution.streaming.state.StateStoreProviderId
import strandline.spark.state.cache.StoreCache

/**
 * Keeps the state managers of an executor's aggregations from task to task. A new manager generates and compiles the code of
 * its projections, which takes milliseconds, longer than a small batch's rows.
 */
private[spark] object StateManagerCache {
  private final case class Place(store: StateStoreProviderId, reads: Boolean)

  private val idle = new StoreCache[Place, StreamingAggregationStateManager](_.store)

  /**
   * Returns the manager of the store's last task, or `own`, for the use of this task alone. A task may have two of them; one
   * `reads`.
   */
  def forTask(
      store: StateStoreProviderId, reads: Boolean, own: StreamingAggregationStateManager): StreamingAggregationStateManager = {
    val place = Place(store, reads)
    val manager = idle.remove(place).getOrElse(own)
    TaskContext.get().addTaskCompletionListener[Unit](_ => idle.put(place)(_ => manager))
    manager
  }
}
