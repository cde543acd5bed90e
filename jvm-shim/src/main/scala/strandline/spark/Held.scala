package strandline.spark

import java.util.LinkedHashMap

/**
 * How many bytes an executor keeps for each of its stores, or their parts: at most `limit` together. What is beyond is forgotten,
 * beginning with the store that has been used the longest time ago, as those of queries that have ended.
 */
private[spark] final class Held(limit: Long, forget: StorePart => Unit) {
  private val sizes = new LinkedHashMap[StorePart, Long](16, 0.75f, true)
  private var total = 0L

  /** Notes that a store has been used, and what is kept for it. */
  def used(id: StorePart, bytes: Long): Unit = synchronized {
    remove(id)
    sizes.put(id, bytes)
    total += bytes
    while (total > limit && !sizes.isEmpty) {
      val eldest = sizes.keySet.iterator.next()
      remove(eldest)
      forget(eldest)
    }
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
