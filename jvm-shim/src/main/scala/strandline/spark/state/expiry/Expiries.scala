package strandline.spark.state.expiry

import java.util.concurrent.atomic.LongAdder

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.{StateStore, StateStoreProviderId, UnsafeRowPair}
import strandline.spark.state.cache.{CacheBudget, VersionCache}
import strandline.spark.time.Antichain

/**
 * When the entries of one partition's store expire. With it, a batch looks only at the entries that it removes. Keys have
 * `fields` columns. If a store has several kinds of entries, this is one `part` of it. In a join, a key may have several
 * entries, one for each row.
 *
 * An executor keeps this in memory from task to task ([[ExpiryIndex]]), with at most `limit` bytes for this store. If not all
 * entries fit, those that expire last are left out; when the frontier has reached them, the store is read again. An executor
 * that knows nothing about the store's version (after a restart, or when the partition has moved) reads the store.
 *
 * A prolonged entry stays under its earlier expiry until that is closed. Then it is looked at, and [[prolonged]] puts it under
 * its current expiry. So there is one entry for each key, however often it is prolonged.
 */
private[spark] final class Expiries(
    store: StateStore,
    id: StateStoreProviderId,
    checkpointId: Option[String],
    frontier: Antichain,
    fields: Int,
    limit: Long = Expiries.limit,
    part: String = "") {
  import Expiries._

  private val base = VersionCache.of(store, id, checkpointId, part)
  private val before = if (base.version == 0) Some(Known(ExpiryIndex.empty, 0, 0, hasGone = false)) else kept.get(base)
  // If nothing is known, the store will be read, with all entries that were put.
  private val growing = before.map(known => new ExpiryIndex.Builder(known.index, limit, fields))
  private var asked: Option[Long] = None
  private var isLacking = false
  private var next = new ExpiryIndex.Builder(ExpiryIndex.empty, limit, fields)
  private var count = before.fold(0L)(_.keys)
  private var rowCount = before.fold(0L)(_.rows)
  private var hasGone = before.exists(_.hasGone)

  /** Records a new entry and its expiry. */
  def put(key: UnsafeRow, expiry: Long): Unit = {
    growing.foreach(_.add(expiry, key))
    count += 1
  }

  /** Records that an existing entry now expires earlier. */
  def expiresEarlier(key: UnsafeRow, expiry: Long): Unit = growing.foreach(_.add(expiry, key))

  /** Records that an entry was removed. */
  def removed(): Unit = count -= 1

  /** Records that an entry was removed that [[expired]] has not returned. It may still return its key. */
  def removedEarly(): Unit = {
    removed()
    hasGone = true
  }

  /** Records that an entry which [[expired]] returned expires only later. */
  def prolonged(key: UnsafeRow, expiry: Long): Unit = next.add(expiry, key)

  /** Whether it is known that the store had no entry with this expiry when the batch began. */
  def lacked(expiry: Long): Boolean = {
    // Most rows have the time of the row before.
    if (!asked.contains(expiry)) {
      asked = Some(expiry)
      isLacking = before.exists(!_.index.mayContain(expiry))
    }
    isLacking
  }

  /** Counts rows of entries that have several, also those that [[expired]] reads. A negative number: they were removed. */
  def addRows(number: Long): Unit = rowCount += number

  /** Whether it is known that each key that [[expired]] will return has one row. Call it before that, which may count anew. */
  def hasOneRowEach: Boolean = before.isDefined && !hasGone && count == rowCount

  def isClosed(expiry: Long): Boolean = !frontier.lessEqual(expiry)

  /**
   * Returns the keys of the entries that may have expired, in a row that is reused. Some keys may be gone. Call [[prolonged]] for
   * prolonged entries, and remove the others. Call it once, after all entries are put, and read it to its end. `expiryOf`
   * returns an entry's expiry.
   */
  def expired(expiryOf: UnsafeRowPair => Long): Iterator[UnsafeRow] =
    expired(store.iterator().map(pair => pair.key -> Iterator.single(expiryOf(pair))))

  /** The same. If the store must be read, `all` returns its keys, each with the expiries of its entries. */
  def expired(all: => Iterator[(UnsafeRow, Iterator[Long])]): Iterator[UnsafeRow] = growing.map(_.result()) match {
    case Some(index) if index.horizon.forall(!isClosed(_)) =>
      val (closed, rest) = index.closed(isClosed)
      next = new ExpiryIndex.Builder(rest, limit, fields)
      val key = new UnsafeRow(fields)
      closed.iterator.flatMap(run => Iterator.range(0, run.size).map(run.read(_, key)))
    case Some(_) if count == 0 => Iterator.empty
    case _ => read(all)
  }

  private def read(all: Iterator[(UnsafeRow, Iterator[Long])]): Iterator[UnsafeRow] = {
    scans.increment()
    count = 0
    rowCount = 0
    hasGone = false
    val closed = all.filter { case (key, times) =>
      var gone = false
      times.foreach { expiry =>
        count += 1
        if (isClosed(expiry)) gone = true else next.add(expiry, key)
      }
      gone
    }
    closed.map(_._1)
  }

  /** The number of entries in the store. */
  def keys: Long = count

  /** The number of rows that [[addRows]] has counted in all batches. It is right after [[expired]]. */
  def rows: Long = rowCount

  /** Keeps what is known for the next batch. Call it after the store has committed `version`. */
  def committed(version: Long): Unit = {
    val committedVersion = VersionCache.committed(store, id, version, part)
    val index = next.result()
    // If most entries belong to removed keys, it is cheaper to read the store again.
    if (index.size > 2 * count + Spare) kept.forget(base.of)
    else {
      val known = Known(index.within(limit, fields), count, rowCount, hasGone)
      before match {
        case Some(old) => kept.written(committedVersion, known, base, old)
        case None => kept.read(committedVersion, known)
      }
    }
    held.used(base.of, kept.all(base.of).flatMap(_.index.runs).distinctBy(System.identityHashCode).map(_.bytesTaken).sum)
  }
}

private[spark] object Expiries {

  /** `hasGone`: the index may have keys that are gone. */
  private final case class Known(index: ExpiryIndex, keys: Long, rows: Long, hasGone: Boolean)

  private val kept = new VersionCache[Known](most = 2)

  /** The limit in bytes for all stores of an executor. */
  private val Heap = Runtime.getRuntime.maxMemory / 16

  /** The limit in bytes for one store. An array must be able to hold a few times as much. */
  private val Most = 256L << 20

  /** This number of entries of removed keys is always acceptable. */
  private val Spare = 1000L

  private val held = new CacheBudget(Heap, kept.forget)

  /** The current limit for one store, of which two versions are kept. */
  private def limit: Long = (Heap / 2 / held.stores.max(1)).min(Most)

  /** How often all entries of a store were looked at. */
  val scans = new LongAdder

  /** The memory of everything that is kept, in bytes. */
  def bytesHeld: Long = held.bytes

  /** Forgets everything, as when an executor ends. */
  def forget(): Unit = {
    kept.clear()
    held.clear()
  }
}
