package strandline.spark

import java.util.concurrent.atomic.LongAdder

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state._

/**
 * When the entries of one partition's store expire, so that a batch looks at those that it lets go, and at no others. Keys have
 * `fields` columns.
 *
 * An executor keeps this from task to task in its memory ([[ExpiryIndex]]), all stores together in a sixteenth of the heap, `limit` bytes for this one. What does
 * not fit is what expires last: the store is read again when the frontier has come to it. An executor that knows nothing of the
 * store's version (after a restart, or when the partition has moved) reads it once.
 */
private[spark] final class Expiries(
    store: StateStore,
    id: StateStoreProviderId,
    checkpointId: Option[String],
    frontier: Antichain,
    fields: Int,
    limit: Long = Expiries.limit) {
  import Expiries._

  private val base = PerVersion.of(store, id, checkpointId)
  private val before = if (base.version == 0) Some(Known(ExpiryIndex.empty, 0)) else kept.get(base)
  // With nothing known the store will be read, with all that has been put.
  private val builder = before.map(known => new ExpiryIndex.Builder(known.index, limit, fields))
  private var after = ExpiryIndex.empty
  private var count = before.fold(0L)(_.keys)

  /** Notes that an entry with this key was put which expires then. `isNew`: the store had none with this key. */
  def put(key: UnsafeRow, expiry: Long, isNew: Boolean): Unit = {
    builder.foreach(_.add(expiry, key))
    if (isNew) count += 1
  }

  /** Notes that an entry was removed. */
  def removed(): Unit = count -= 1

  def isClosed(expiry: Long): Boolean = !frontier.lessEqual(expiry)

  /**
   * The keys whose entries may have expired, in a row that is used again: an entry that was put anew, or has been removed, may be found
   * under an expiry that it had before. To be called once, when all is put, and to be taken to its end. Those that have expired are to
   * be removed meanwhile. `expiryOf` tells when an entry expires.
   */
  def expired(expiryOf: UnsafeRowPair => Long): Iterator[UnsafeRow] = builder.map(_.result()) match {
    case Some(index) if index.horizon.forall(!isClosed(_)) =>
      val (closed, rest) = index.closed(isClosed)
      after = rest
      val key = new UnsafeRow(fields)
      closed.iterator.flatMap(run => Iterator.range(0, run.size).map(run.read(_, key)))
    case Some(_) if count == 0 => Iterator.empty
    case _ => read(expiryOf)
  }

  private def read(expiryOf: UnsafeRowPair => Long): Iterator[UnsafeRow] = {
    scans.increment()
    count = 0
    val builder = new ExpiryIndex.Builder(ExpiryIndex.empty, limit, fields)
    val closed = store.iterator().filter { pair =>
      val expiry = expiryOf(pair)
      count += 1
      val gone = isClosed(expiry)
      if (!gone) builder.add(expiry, pair.key)
      gone
    }
    closed.map(_.key) ++ {
      after = builder.result()
      Iterator.empty
    }
  }

  /** How many entries the store has. */
  def keys: Long = count

  /** Keeps what is known for the next batch; to be called when the store has committed `version`. */
  def committed(version: Long): Unit = {
    val (made, known) = (PerVersion.committed(store, id, version), Known(after.within(limit, fields), count))
    before match {
      case Some(old) => kept.written(made, known, base, old)
      case None => kept.read(made, known)
    }
    ()
  }
}

private[spark] object Expiries {
  private final case class Known(index: ExpiryIndex, keys: Long)

  private val kept = new PerVersion[Known]

  /** What all stores of an executor may take for this, in bytes. */
  private val Heap = Runtime.getRuntime.maxMemory / 16

  /** What one store may take; an array must hold a few times as much. */
  private val Most = 256L << 20

  /** What a store may take now. */
  private def limit: Long = (Heap / kept.size.max(1)).min(Most)

  /** How often all entries of a store have been looked at. */
  val scans = new LongAdder

  /** Forgets what is kept, as an executor's end would. */
  def forget(): Unit = kept.clear()
}
