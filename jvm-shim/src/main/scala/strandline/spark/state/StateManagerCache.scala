package strandline.spark.state

import org.apache.spark.TaskContext
import org.apache.spark.sql.execution.streaming.operators.stateful.StreamingAggregationStateManager
import org.apache.spark.sql.execution.streaming.state.StateStoreProviderId
import strandline.spark.state.cache.StoreCache

/**
 * The state managers of an executor's aggregations, from task to task: one that comes with its task would write and load the code of
 * its projections anew, which takes milliseconds, more than a small batch's rows.
 */
private[spark] object StateManagerCache {
  private final case class Place(store: StateStoreProviderId, reads: Boolean)

  private val idle = new StoreCache[Place, StreamingAggregationStateManager](_.store)

  /** The one that the store's last task had, for this task alone, or `own`. Of two in a task, one `reads`. */
  def forTask(store: StateStoreProviderId, reads: Boolean, own: StreamingAggregationStateManager): StreamingAggregationStateManager = {
    val place = Place(store, reads)
    val manager = idle.remove(place).getOrElse(own)
    TaskContext.get().addTaskCompletionListener[Unit](_ => idle.put(place)(_ => manager))
    manager
  }
}
