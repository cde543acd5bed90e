package strandline.spark.state.expiry

import java.util.concurrent.atomic.LongAdder

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.{StateStore, StateStoreProviderId, UnsafeRowPair}
import strandline.spark.state.cache.{CacheBudget, VersionCache}
import strandline.spark.time.Antichain

/**
 * When the entries of one partition's store expire, so that a batch looks at those that it lets go, and at no others. Keys have
 * `fields` columns. Of a store that has several kinds of entries this is one `part`; the rows of a join have several entries for a key.
 *
 * An executor keeps this from task to task in its memory ([[ExpiryIndex]]), in at most `limit` bytes for this store. What does not fit
 * is what expires last: the store is read again when the frontier has come to it. An executor that knows nothing of the store's version
 * (after a restart, or when the partition has moved) reads the store.
 *
 * An entry that is prolonged stays where it is, under its earlier expiry, until that has closed: then it is looked at, and
 * [[stays]] puts it under the one that it has by now. So there is one for each key, however often it is prolonged.
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
  private val before = if (base.version == 0) Some(Known(ExpiryIndex.empty, 0)) else kept.get(base)
  // With nothing known the store will be read, with all that has been put.
  private val grown = before.map(known => new ExpiryIndex.Builder(known.index, limit, fields))
  private var next = new ExpiryIndex.Builder(ExpiryIndex.empty, limit, fields)
  private var count = before.fold(0L)(_.keys)

  /** Notes that an entry was put which the store did not have, and which expires then. */
  def put(key: UnsafeRow, expiry: Long): Unit = {
    grown.foreach(_.add(expiry, key))
    count += 1
  }

  /** Notes that an entry which the store has had expires then, and so earlier than before. */
  def hastened(key: UnsafeRow, expiry: Long): Unit = grown.foreach(_.add(expiry, key))

  /** Notes that an entry was removed. */
  def removed(): Unit = count -= 1

  /** Notes that an entry which [[expired]] gave expires only then. */
  def stays(key: UnsafeRow, expiry: Long): Unit = next.add(expiry, key)

  def isClosed(expiry: Long): Boolean = !frontier.lessEqual(expiry)

  /**
   * The keys of the entries that may have expired, in a row that is used again: some may be gone, and for those that have been
   * prolonged [[stays]] is to be called. The others are to be removed. To be called once, when all is put, and to be taken to its end.
   * `expiryOf` tells when an entry expires.
   */
  def expired(expiryOf: UnsafeRowPair => Long): Iterator[UnsafeRow] =
    expired(store.iterator().map(pair => pair.key -> Iterator.single(expiryOf(pair))))

  /** The same, of the keys that `all` gives when the store has to be read, with the expiries of their entries. */
  def expired(all: => Iterator[(UnsafeRow, Iterator[Long])]): Iterator[UnsafeRow] = grown.map(_.result()) match {
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

  /** How many entries the store has. */
  def keys: Long = count

  /** Keeps what is known for the next batch; to be called when the store has committed `version`. */
  def committed(version: Long): Unit = {
    val made = VersionCache.committed(store, id, version, part)
    val index = next.result()
    // Where most are of keys that are gone it is cheaper to read the store anew.
    if (index.size > 2 * count + Spare) kept.forget(base.of)
    else {
      val known = Known(index.within(limit, fields), count)
      before match {
        case Some(old) => kept.written(made, known, base, old)
        case None => kept.read(made, known)
      }
    }
    held.used(base.of, kept.all(base.of).flatMap(_.index.runs).distinctBy(System.identityHashCode).map(_.bytesTaken).sum)
  }
}

private[spark] object Expiries {
  private final case class Known(index: ExpiryIndex, keys: Long)

  private val kept = new VersionCache[Known](most = 2)

  /** What all stores of an executor may take for this, in bytes. */
  private val Heap = Runtime.getRuntime.maxMemory / 16

  /** What one store may take; an array must hold a few times as much. */
  private val Most = 256L << 20

  /** So many entries of keys that are gone are never too many. */
  private val Spare = 1000L

  private val held = new CacheBudget(Heap, kept.forget)

  /** What a store may take now: two versions of it are kept. */
  private def limit: Long = (Heap / 2 / held.stores.max(1)).min(Most)

  /** How often all entries of a store have been looked at. */
  val scans = new LongAdder

  /** What is kept takes, in bytes. */
  def bytesHeld: Long = held.bytes

  /** Forgets what is kept, as an executor's end would. */
  def forget(): Unit = {
    kept.clear()
    held.clear()
  }
}
