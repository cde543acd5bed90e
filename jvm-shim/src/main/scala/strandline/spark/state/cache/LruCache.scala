package strandline.spark.state.cache

import java.util.{LinkedHashMap, Map => JMap}

/** The most recently used results, of at most [[LruCache.Most]] keys, because queries come and go. */
private[spark] final class LruCache[K, V] {
  private val kept = new LinkedHashMap[K, V](16, 0.75f, true) {
    override def removeEldestEntry(eldest: JMap.Entry[K, V]): Boolean = size > LruCache.Most
  }

  /**
   * Returns the kept result of this key, or computes `value`. No lock is held meanwhile, so two threads may both compute it.
   */
  def get(key: K)(value: => V): V = synchronized(Option.when(kept.containsKey(key))(kept.get(key))).getOrElse {
    val found = value
    synchronized(kept.put(key, found))
    found
  }
}

private[spark] object LruCache {
  val Most = 10000
}
