package strandline.spark.state.cache

import java.util.{LinkedHashMap, Map => JMap}

/** What has been worked out lately, so that it need not be again: of at most [[LruCache.Most]] keys, for queries come and go. */
private[spark] final class LruCache[K, V] {
  private val kept = new LinkedHashMap[K, V](16, 0.75f, true) {
    override def removeEldestEntry(eldest: JMap.Entry[K, V]): Boolean = size > LruCache.Most
  }

  /** What `value` has been for this key, or is now. It is worked out under no lock: two who ask at once may both do so. */
  def get(key: K)(value: => V): V = synchronized(Option.when(kept.containsKey(key))(kept.get(key))).getOrElse {
    val found = value
    synchronized(kept.put(key, found))
    found
  }
}

private[spark] object LruCache {
  val Most = 10000
}
