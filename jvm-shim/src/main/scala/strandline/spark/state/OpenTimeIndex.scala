package strandline.spark.state

import java.util.concurrent.atomic.LongAdder

import scala.collection.immutable.HashSet
import scala.collection.mutable

import org.apache.spark.sql.catalyst.expressions.{BasePredicate, UnsafeRow}
import org.apache.spark.sql.execution.streaming.state.{ReadStateStore, StateStore, StateStoreProviderId, UnsafeRowPair}
import org.apache.spark.sql.execution.streaming.state.strandline.{PrefixRemoval, StreamingInternals}
import strandline.spark.state.cache.VersionCache
import strandline.spark.time.InputFrontiers

/**
 * The times of the keys in one partition's store, and the number of keys, while a batch adds keys and closes times.
 *
 * The store's content determines both. An executor that does not have them (after a restart, or when a partition has moved)
 * reads them once from the store's keys. Then it keeps them from batch to batch, as long as it keeps the store. `check` is
 * called with each key that is read.
 */
final class OpenTimeIndex(
    store: ReadStateStore,
    id: StateStoreProviderId,
    checkpointId: Option[String],
    layout: StateLayout,
    isClosed: BasePredicate,
    end: InputFrontiers,
    storeCounts: Boolean,
    check: UnsafeRow => Unit) {
  private val timesOf = layout.timesOf
  private val base = VersionCache.of(store, id, checkpointId)
  private val before =
    if (base.version == 0) OpenTimeIndex.Known(HashSet.empty, None, 0)
    else OpenTimeIndex.kept.get(base).getOrElse(OpenTimeIndex.kept.read(base, scan()))
  private val fresh = mutable.HashSet.empty[UnsafeRow]
  private var after = before.times
  private var last: UnsafeRow = _
  private var asked: UnsafeRow = _
  private var isPassing = false
  private var count = before.keys

  /**
   * Whether this batch opens and closes the key's time. The store has no key of such a time, so nothing of it needs to be put and
   * removed again. With RocksDB that would leave a file of removals. Files of different times do not overlap, so RocksDB would
   * never merge them: each batch would leave an open file, for ever.
   */
  def passes(key: UnsafeRow): Boolean = {
    val time = timesOf(key)
    if (time != asked) {
      asked = time.copy()
      isPassing = !time.isNullAt(0) && !before.times.contains(asked) && isClosed.eval(asked)
    }
    isPassing
  }

  /** Records a key about to be put; `isNew`: not stored yet. A key with a null time is never closed. */
  def add(key: UnsafeRow, isNew: => Boolean): Unit = {
    if (!storeCounts && isNew) count += 1
    val time = timesOf(key)
    // Most rows have the time of the row before.
    if (time != last && !time.isNullAt(0)) {
      last = time.copy()
      if (!before.times.contains(last)) fresh += last
    }
  }

  /** Records that `key` is about to be removed although its time is open. The store may not have it. */
  def drop(key: UnsafeRow): Unit = if (!storeCounts && store.keyExists(key)) count -= 1

  /** The times of the keys so far, those that the batch closes among them. The rows are valid until the batch ends. */
  def open: Iterator[UnsafeRow] = before.times.iterator ++ fresh.iterator

  /** Returns the entries of closed times. They stay in the store. */
  def closing(): Iterator[UnsafeRowPair] = closedTimes().iterator.flatMap { time =>
    if (layout.prefix == 0) Option(store.get(time)).iterator.map(new UnsafeRowPair(time, _)) else store.prefixScan(time)
  }

  /**
   * Removes the entries of closed times and returns them. Call it once, after all keys are put. `written` is the same store.
   */
  def removeClosed(written: StateStore): Iterator[UnsafeRowPair] = {
    val closed = closedTimes()
    after = (before.times ++ fresh) -- closed
    closed.iterator.flatMap(removed(_, written)).map { entry =>
      count -= 1
      entry
    }
  }

  /** The number of open times after this batch. */
  def size: Int = after.size

  /** The number of keys after this batch, unless the store counts them itself. */
  def keys: Option[Long] = Option.unless(storeCounts)(count)

  /** Keeps the times for the next batch. Call it after the store has committed `version`. */
  def committed(version: Long, written: StateStore): Unit = {
    val made = VersionCache.committed(written, id, version)
    OpenTimeIndex.kept.written(made, OpenTimeIndex.Known(after, Some(end), count), base, before)
  }

  private def closedTimes(): Array[UnsafeRow] = {
    // Frontiers that were tested before leave the same times open again.
    val asked = if (before.judged.contains(end)) fresh.iterator else before.times.iterator ++ fresh.iterator
    asked.filter(isClosed.eval(_)).toArray
  }

  private def removed(time: UnsafeRow, written: StateStore): Iterator[UnsafeRowPair] = written match {
    case _ if layout.prefix == 0 =>
      val value = Option(written.get(time))
      written.remove(time)
      value.iterator.map(new UnsafeRowPair(time, _))
    case whole: PrefixRemoval => whole.removePrefix(time)
    case _ if StreamingInternals.scansSnapshots(written) =>
      written.prefixScan(time).map { entry =>
        written.remove(entry.key)
        entry
      }
    case _ =>
      // Not during the scan, because an iterator of Spark's map in memory sees the removals.
      val keys = written.prefixScan(time).map(_.key.copy()).toArray
      keys.iterator.map { key =>
        val entry = new UnsafeRowPair(key, written.get(key))
        written.remove(key)
        entry
      }
  }

  private def scan(): OpenTimeIndex.Known = {
    OpenTimeIndex.scans.increment()
    val times = mutable.HashSet.empty[UnsafeRow]
    var keys = 0L
    store.iterator().foreach { pair =>
      check(pair.key)
      keys += 1
      val time = timesOf(pair.key)
      if (!time.isNullAt(0) && !times.contains(time)) times += time.copy()
    }
    OpenTimeIndex.Known(HashSet.from(times), None, keys)
  }
}

object OpenTimeIndex {

  /** The times of one version of a store, the frontiers against which all of them were tested, and the number of keys. */
  private final case class Known(times: HashSet[UnsafeRow], judged: Option[InputFrontiers], keys: Long)

  private val kept = new VersionCache[Known]

  /** How often all keys of a store were read. */
  private[spark] val scans = new LongAdder

  /** Forgets everything, as when an executor ends. */
  private[spark] def forget(): Unit = kept.clear()
}
