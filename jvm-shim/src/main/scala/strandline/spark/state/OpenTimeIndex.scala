package strandline.spark.state

import java.util.concurrent.atomic.LongAdder

import scala.collection.immutable.HashSet
import scala.collection.mutable

import org.apache.spark.sql.catalyst.expressions.{BasePredicate, UnsafeRow}
import org.apache.spark.sql.execution.streaming.state.{ReadStateStore, StateStore, StateStoreProviderId, UnsafeRowPair}
import org.apache.spark.sql.execution.streaming.state.strandline.{PrefixRemoval, StreamingInternals}
import strandline.spark.state.cache.VersionCache
import strandline.spark.time.Antichain

/**
 * The times that the keys of one partition's store have, and how many keys there are, while a batch adds to them and closes some.
 *
 * They are a function of the store: an executor that does not have them (after a restart, or when a partition has moved) reads
 * them from the store's keys, once, and keeps them from batch to batch as long as it keeps the store. Each key that is read so is
 * given to `check`.
 */
final class OpenTimeIndex(
    store: ReadStateStore,
    id: StateStoreProviderId,
    checkpointId: Option[String],
    layout: StateLayout,
    isClosed: BasePredicate,
    end: Antichain,
    storeCounts: Boolean,
    check: UnsafeRow => Unit) {
  private val timesOf = layout.timesOf
  private val base = VersionCache.of(store, id, checkpointId)
  private val before =
    if (base.version == 0) OpenTimeIndex.Known(HashSet.empty, None, 0) else OpenTimeIndex.kept.get(base).getOrElse(OpenTimeIndex.kept.read(base, scan()))
  private val fresh = mutable.HashSet.empty[UnsafeRow]
  private var after = before.times
  private var last: UnsafeRow = _
  private var count = before.keys

  /** Notes that the store is to have `key`, which it has not when it `isNew`; one with a null for its time is never closed. */
  def add(key: UnsafeRow, isNew: => Boolean): Unit = {
    if (!storeCounts && isNew) count += 1
    val time = timesOf(key)
    // Rows mostly come with the time of the one before.
    if (time != last && !time.isNullAt(0)) {
      last = time.copy()
      if (!before.times.contains(last)) fresh += last
    }
  }

  /** Notes that the store is to lose `key`, should it have it, though its time is not closed. */
  def drop(key: UnsafeRow): Unit = if (!storeCounts && store.keyExists(key)) count -= 1

  /** The entries whose time is closed, which are left where they are. */
  def closing(): Iterator[UnsafeRowPair] = closedTimes().iterator.flatMap { time =>
    if (layout.prefix == 0) Option(store.get(time)).iterator.map(new UnsafeRowPair(time, _)) else store.prefixScan(time)
  }

  /** Removes the entries whose time is closed, and gives them. To be called once, when all is put; `written` is the store. */
  def removeClosed(written: StateStore): Iterator[UnsafeRowPair] = {
    val closed = closedTimes()
    after = (before.times ++ fresh) -- closed
    closed.iterator.flatMap(removed(_, written)).map { entry =>
      count -= 1
      entry
    }
  }

  /** How many times are open after this batch. */
  def size: Int = after.size

  /** How many keys the store has after this batch, if it does not count them itself. */
  def keys: Option[Long] = Option.unless(storeCounts)(count)

  /** Keeps the times for the next batch; to be called when the store has committed `version`. */
  def committed(version: Long, written: StateStore): Unit = {
    val made = VersionCache.committed(written, id, version)
    OpenTimeIndex.kept.written(made, OpenTimeIndex.Known(after, Some(end), count), base, before)
  }

  private def closedTimes(): Array[UnsafeRow] = {
    // What the same frontier left open before, it still does.
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
      // Not while they are scanned: Spark's own map in memory gives what is there then.
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

  /** The times of a store at a version, the frontier that has been asked of all of them, and how many keys the store has. */
  private final case class Known(times: HashSet[UnsafeRow], judged: Option[Antichain], keys: Long)

  private val kept = new VersionCache[Known]

  /** How often all keys of a store have been read. */
  private[spark] val scans = new LongAdder

  /** Forgets what is kept, as an executor's end would. */
  private[spark] def forget(): Unit = kept.clear()
}
