package strandline.spark.exec.join

import scala.collection.mutable

import org.apache.hadoop.conf.Configuration
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperatorStateInfo
import org.apache.spark.sql.execution.streaming.operators.stateful.join._
import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinHelper._
import org.apache.spark.sql.execution.streaming.operators.stateful.join.SymmetricHashJoinStateManager.KeyToValuePair
import org.apache.spark.sql.execution.streaming.state.{
  KeyStateEncoderSpec, StateSchemaBroadcast, StateStore, StateStoreConf, StateStoreId, StateStoreProviderId
}
import org.apache.spark.sql.types._
import strandline.spark.state.expiry.Expiries
import strandline.spark.time.{Antichain, ClosedBy, Scalar}

/**
 * When a join releases the rows of one side: as soon as `closed` holds of their key (`byKey`), or of the rows themselves. Both
 * expressions are bound to that row. `expiry` is the time that decides, if it is a single number. Otherwise all rows are
 * tested, but only if the frontier has `moved`.
 */
private[spark] final case class ReleaseCondition(byKey: Boolean, closed: Expression, expiry: Option[Expression],
    frontier: Antichain, moved: Boolean)

private[spark] object ReleaseCondition {

  /** Returns the condition for `times` of a key or a row, each with its frontier. The first time that is closed decides. */
  def apply(byKey: Boolean, times: Seq[(Expression, Antichain)], moved: Boolean): Option[ReleaseCondition] =
    times.map { case (time, frontier) => ClosedBy(time, frontier): Expression }.reduceOption(Or(_, _)).map { closed =>
      val (time, frontier) = times.head
      val isNumber = times.length == 1 && frontier.domain.isInstanceOf[Scalar] && isIntegral(time.dataType)
      ReleaseCondition(byKey, closed, Option.when(isNumber)(time), frontier, moved)
    }

  private def isIntegral(kind: DataType): Boolean = kind match {
    case ByteType | ShortType | IntegerType | LongType | TimestampType => true
    case _ => false
  }
}

/**
 * What a task needs to open the state of a join's side. The stores are those of Spark's state formats 1 to 3. Formats 1 and 2
 * have a store for each side and kind; format 3 has one store.
 */
private[spark] final case class JoinSideSettings(
    side: JoinSide,
    rows: Seq[Attribute],
    keys: Seq[Expression],
    info: StatefulOperatorStateInfo,
    conf: StateStoreConf,
    hadoopConf: Configuration,
    partition: Int,
    checkpoint: JoinerStateStoreCheckpointId,
    format: Int,
    skippedNulls: Option[SQLMetric],
    stores: JoinStores,
    release: Option[ReleaseCondition]) {

  def open(): ExpiringJoinState = if (format < 3) new SeparateJoinState(this) else new CommonJoinState(this)
}

/** The stores that a task has opened, by name. */
private[spark] final class JoinStores extends JoinStateManagerStoreGenerator {
  private val opened = mutable.Map.empty[String, StateStore]

  def apply(name: String): StateStore = opened(name)

  override def getStore(
      id: StateStoreProviderId,
      keys: StructType,
      values: StructType,
      encoder: KeyStateEncoderSpec,
      version: Long,
      checkpointId: Option[String],
      schema: Option[StateSchemaBroadcast],
      useColumnFamilies: Boolean,
      useMultipleValuesPerKey: Boolean,
      conf: StateStoreConf,
      hadoopConf: Configuration): StateStore = {
    val store = super.getStore(id, keys, values, encoder, version, checkpointId, schema, useColumnFamilies,
      useMultipleValuesPerKey, conf, hadoopConf)
    opened(id.storeId.storeName) = store
    store
  }
}

/**
 * The kept rows of one side of a join, in the state of Spark's join: the number of rows of each key, and each row by key and
 * index. A batch looks only at the keys of the rows that it releases ([[Expiries]]); Spark's join looks at all keys.
 */
private[spark] trait ExpiringJoinState extends SymmetricHashJoinStateManagerBase {
  protected def settings: JoinSideSettings

  private lazy val byKey = settings.release.exists(_.byKey)

  private lazy val isClosed: UnsafeRow => Boolean = settings.release.fold((_: UnsafeRow) => false) { condition =>
    val predicate = Predicate.create(condition.closed, Nil) // already bound
    predicate.initialize(settings.partition)
    predicate.eval _
  }

  /** Returns the expiry of a key or a row. Without a time it never expires. */
  private lazy val expiryOf: UnsafeRow => Long = {
    val time = settings.release.flatMap(_.expiry).get
    row => Option(time.eval(row)).fold(Long.MaxValue)(_.asInstanceOf[Number].longValue)
  }

  private lazy val expiries: Option[Expiries] = settings.release.filter(_.expiry.isDefined).map { condition =>
    val name = if (settings.format < 3) SymmetricHashJoinStateManager.allStateStoreNames(settings.side).head
    else StateStoreId.DEFAULT_STORE_NAME
    val store = settings.stores(name)
    new Expiries(store, StateStoreProviderId(store.id, settings.info.queryRunId), settings.checkpoint.keyToNumValues,
      condition.frontier, settings.keys.length, part = settings.side.toString)
  }

  /** The number of rows, unless only the store knows it. Call it after all rows are released. */
  def rows: Option[Long] = expiries.map(known => if (byKey) known.rows else known.keys)

  /** Whether it is known that there was no row of this key when the batch began. */
  def lacked(key: UnsafeRow): Boolean = byKey && expiries.exists(_.lacked(expiryOf(key)))

  /** Whether this batch releases a row. */
  def isReleased(key: UnsafeRow, row: UnsafeRow): Boolean = isClosed(if (byKey) key else row)

  override def append(key: UnsafeRow, row: UnsafeRow, matched: Boolean): Unit = {
    val count = keyToNumValues.get(key)
    keyWithIndexToValue.put(key, count, row, matched)
    keyToNumValues.put(key, count + 1)
    expiries.foreach { known =>
      if (!byKey) known.put(key, expiryOf(row)) else if (count == 0) known.put(key, expiryOf(key))
      known.addRows(1)
    }
  }

  override protected def removeValueAtIndex(key: UnsafeRow, index: Long, count: Long): Long = {
    val left = super.removeValueAtIndex(key, index, count)
    expiries.foreach { known =>
      if (!byKey) known.removed() else if (left == 0) known.removedEarly()
      known.addRows(-1)
    }
    left
  }

  /** Removes the released rows, and returns how many there were. */
  def release(): Long = settings.release.fold(0L) { condition =>
    (expiries, byKey) match {
      case (None, _) if !condition.moved => 0
      case (None, true) => evictByKeyCondition(isClosed)
      case (None, false) => evictByValueCondition(isClosed)
      case (Some(known), true) =>
        val countOf = counts(known)
        expiredKeys(known).map { key =>
          val count = countOf(key)
          keyWithIndexToValue.removeAllValues(key, count)
          removeKey(key, count, known)
          count
        }.sum
      case (Some(known), false) => expiredRows(known).size.toLong
    }
  }

  /** Removes the released rows one by one, as they are read, and returns them in one object that is reused. */
  def releaseAndReturn(): Iterator[KeyToValuePair] = settings.release.fold(Iterator.empty[KeyToValuePair]) { condition =>
    (expiries, byKey) match {
      case (None, _) if !condition.moved => Iterator.empty
      case (None, true) => evictAndReturnByKeyCondition(isClosed)
      case (None, false) => evictAndReturnByValueCondition(isClosed)
      case (Some(known), true) =>
        val (entry, countOf) = (new KeyToValuePair(), counts(known))
        expiredKeys(known).flatMap { key =>
          val count = countOf(key)
          removeKey(key, count, known)
          keyWithIndexToValue.getAll(key, count).map { value =>
            keyWithIndexToValue.remove(key, value.valueIndex)
            entry.withNew(key, value.value, value.matched)
          }
        }
      case (Some(known), false) => expiredRows(known)
    }
  }

  /** Keeps what is known for the next batch. Call it after the commit. */
  def committed(): Unit = expiries.foreach(_.committed(settings.info.storeVersion + 1))

  /** Returns how to find the number of a key's rows. The store is not asked if it is known that each key has one. */
  private def counts(known: Expiries): UnsafeRow => Long = if (known.hasOneRowEach) _ => 1L else keyToNumValues.get(_)

  private def expiredKeys(known: Expiries): Iterator[UnsafeRow] =
    known.expired(keyToNumValues.iterator.map { entry =>
      known.addRows(entry.numValue)
      entry.key -> Iterator.single(expiryOf(entry.key))
    }).filter(isClosed)

  private def removeKey(key: UnsafeRow, count: Long, known: Expiries): Unit = if (count > 0) {
    keyToNumValues.remove(key)
    known.removed()
    known.addRows(-count)
  }

  private def expiredRows(known: Expiries): Iterator[KeyToValuePair] = {
    // A key has an entry for each of its rows. The first entry removes all expired rows of the key. A key that has other rows
    // is not looked at again.
    val done = mutable.HashSet.empty[UnsafeRow]
    def all = keyToNumValues.iterator.map(entry =>
      entry.key -> keyWithIndexToValue.getAll(entry.key, entry.numValue).map(value => expiryOf(value.value)))
    known.expired(all).filterNot(done).flatMap(key => expiredRowsOf(key)(done += key.copy()))
  }

  /** `others` is called at the end if the key has other rows. */
  private def expiredRowsOf(key: UnsafeRow)(others: => Unit): Iterator[KeyToValuePair] = {
    val entry = new KeyToValuePair()
    val before = keyToNumValues.get(key)
    var (count, index) = (before, 0L)
    def next(): Option[KeyToValuePair] = {
      while (index < count) {
        val value = keyWithIndexToValue.get(key, index)
        if (value == null) {
          handleNullValuePair(key, index, count)
          settings.skippedNulls.foreach(_ += 1)
          index += 1
        } else if (isClosed(value.value)) {
          count = removeValueAtIndex(key, index, count)
          return Some(entry.withNew(key, value.value, value.matched))
        } else index += 1
      }
      if (count > 0) others
      if (count < before) if (count > 0) keyToNumValues.put(key, count) else keyToNumValues.remove(key)
      None
    }
    Iterator.unfold(())(_ => next().map(_ -> (())))
  }
}

private[spark] final class SeparateJoinState(protected val settings: JoinSideSettings)
    extends SymmetricHashJoinStateManagerV1(
      settings.side,
      settings.rows,
      settings.keys,
      Some(settings.info),
      settings.conf,
      settings.hadoopConf,
      settings.partition,
      settings.checkpoint.keyToNumValues,
      settings.checkpoint.keyWithIndexToValue,
      settings.format,
      settings.skippedNulls,
      joinStoreGenerator = settings.stores) with ExpiringJoinState

private[spark] final class CommonJoinState(protected val settings: JoinSideSettings)
    extends SymmetricHashJoinStateManagerV2(
      settings.side,
      settings.rows,
      settings.keys,
      Some(settings.info),
      settings.conf,
      settings.hadoopConf,
      settings.partition,
      settings.checkpoint.keyToNumValues,
      settings.checkpoint.keyWithIndexToValue,
      settings.format,
      settings.skippedNulls,
      joinStoreGenerator = settings.stores) with ExpiringJoinState
