package strandline.spark.state.cache

import java.util.LinkedHashMap

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.execution.streaming.state.{StateStore, StateStoreProviderId}

/**
 * How many bytes an executor keeps for each of its stores, or their parts: at most `limit` together. What is beyond is forgotten,
 * beginning with the store that has been used the longest time ago. Stores that the executor has no longer, as those of queries that have
 * ended, do not count: they go when twice as many are there as after the last look.
 */
private[spark] final class CacheBudget(limit: Long, forget: StorePart => Unit, isLoaded: StateStoreProviderId => Boolean = StateStore.isLoaded) {
  private val sizes = new LinkedHashMap[StorePart, Long](16, 0.75f, true)
  private var total = 0L
  private var most = CacheBudget.Least

  /** Notes that a store has been used, and what is kept for it. */
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

  /** For how many stores something is kept. */
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
