package strandline.spark.state.cache

import java.util.concurrent.ConcurrentHashMap

import org.apache.spark.sql.execution.streaming.state.{StateStore, StateStoreProviderId}

/**
 * Values that an executor keeps from task to task for the state stores that it has loaded.
 *
 * Values of unloaded stores are removed when the number of entries has doubled since the last check. So the checks cost a task
 * constant time on average, however many stores there are.
 */
private[spark] final class StoreCache[K, V <: AnyRef](storeOf: K => StateStoreProviderId,
    isLoaded: StateStoreProviderId => Boolean = StateStore.isLoaded) {
  private val kept = new ConcurrentHashMap[K, V]
  @volatile private var limit = StoreCache.Least

  def get(key: K): Option[V] = Option(kept.get(key))

  def remove(key: K): Option[V] = Option(kept.remove(key))

  /** Replaces what is kept by `value` of it. The store must be loaded. */
  def put(key: K)(value: Option[V] => V): Unit = {
    kept.compute(key, (_, old) => value(Option(old)))
    if (kept.size > limit) forgetUnloaded()
  }

  def size: Int = kept.size

  def clear(): Unit = kept.clear()

  private def forgetUnloaded(): Unit = synchronized {
    if (kept.size > limit) {
      kept.keySet.removeIf(key => !isLoaded(storeOf(key)))
      limit = (2 * kept.size).max(StoreCache.Least)
    }
  }
}

private object StoreCache {
  private val Least = 64
}
