package strandline.spark

import java.util.concurrent.atomic.LongAdder

import org.apache.spark.sql.execution.streaming.state._

/**
 * What is known of when the entries of one partition's store expire, so that a batch that lets none go does not look at them.
 *
 * It is a lower bound of all expiries, and the number of entries put. A look at all entries makes both exact. An executor that knows
 * nothing of the store's version (after a restart, or when the partition has moved) looks once.
 */
private[spark] final class Expiries(store: StateStore, id: StateStoreProviderId, checkpointId: Option[String], frontier: Antichain) {
  import Expiries._

  private val base = PerVersion.of(store, id, checkpointId)
  private val before = if (base.version == 0) Some(Known(Long.MaxValue, 0)) else kept.get(base)
  private var (least, count) = (Long.MaxValue, 0L)

  /** Notes that an entry was put which expires then. */
  def put(expiry: Long): Unit = {
    if (expiry < least) least = expiry
    count += 1
  }

  def isClosed(expiry: Long): Boolean = !frontier.lessEqual(expiry)

  /** Whether an entry may have expired. If so all must be looked at, and [[stays]] be called for each that has not. To be called when all is put. */
  def mayClose(): Boolean = before match {
    case Some(known) if known.keys + count == 0 || !isClosed(known.least.min(least)) =>
      least = known.least.min(least)
      count += known.keys
      false
    case _ =>
      scans.increment()
      least = Long.MaxValue
      count = 0
      true
  }

  /** Notes that there is an entry which expires then. */
  def stays(expiry: Long): Unit = put(expiry)

  /** How many entries there are, where none was put twice. */
  def keys: Long = count

  /** Keeps what is known for the next batch; to be called when the store has committed `version`. */
  def committed(version: Long): Unit = {
    val made = PerVersion.committed(store, id, version)
    before match {
      case Some(known) => kept.written(made, Known(least, count), base, known)
      case None => kept.read(made, Known(least, count))
    }
    ()
  }
}

private[spark] object Expiries {
  private final case class Known(least: Long, keys: Long)

  private val kept = new PerVersion[Known]

  /** How often all entries of a store have been looked at. */
  val scans = new LongAdder

  /** Forgets what is kept, as an executor's end would. */
  def forget(): Unit = kept.clear()
}
