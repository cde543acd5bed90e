package strandline.spark.state.cache

import java.util.LinkedHashMap

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.execution.streaming.state.{StateStore, StateStoreProviderId}

/**
 * The bytes that an executor keeps for each of its stores, or parts of stores: at most `limit` altogether. Beyond the limit,
 * the least recently used stores are forgotten first. Stores that the executor has unloaded, such as those of ended queries,
 * are forgotten when the number of entries has doubled since the last check.
 */
private[spark] final class CacheBudget(limit: Long, forget: StorePart => Unit,
    isLoaded: StateStoreProviderId => Boolean = StateStore.isLoaded) {
  private val sizes = new LinkedHashMap[StorePart, Long](16, 0.75f, true)
  private var total = 0L
  private var most = CacheBudget.Least

  /** Records that a store was used, and how many bytes are kept for it. */
  def used(id: StorePart, bytes: Long): Unit = synchronized {
    remove(id)
    if (bytes > 0) sizes.put(id, bytes)
    total += bytes
    if (sizes.size > most) {
      sizes.keySet.asScala.toSeq.filterNot(part => isLoaded(part.id)).foreach(drop)
      most = (2 * sizes.size).max(CacheBudget.Least)
    }
    while (total > limit && !sizes.isEmpty) drop(sizes.keySet.iterator.next())
  }

  private def drop(id: StorePart): Unit = {
    remove(id)
    forget(id)
  }

  /** The number of stores for which something is kept. */
  def stores: Int = synchronized(sizes.size)

  def bytes: Long = synchronized(total)

  def clear(): Unit = synchronized {
    sizes.clear()
    total = 0
  }

  private def remove(id: StorePart): Unit = if (sizes.containsKey(id)) total -= sizes.remove(id)
}

private object CacheBudget {
  private val Least = 64
}
