package org.apache.spark.sql.execution.streaming.state.strandline

import java.util.concurrent.ConcurrentHashMap

import scala.collection.mutable

import org.apache.hadoop.conf.Configuration
import org.apache.spark.TaskContext
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperatorStateInfo
import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinHelper._
import org.apache.spark.sql.execution.streaming.state.{
  ReadStateStore, RocksDBStateStoreProvider, StateStore, StateStoreConf, StateStoreId, StateStoreThreadLocalTracker
}
import org.apache.spark.util.Utils

/** Members of Spark that are visible only inside Spark's package `streaming`. */
object StreamingInternals {

  /**
   * Maps each partition with its store.
   *
   * Spark passes the store that a reading operator has opened to the next writing operator of the same task, and to all after
   * it, whichever they are. So with RocksDB the second of two operators without an exchange between them fails, and a store
   * that no operator takes stays locked. Here a store goes only to its own operator.
   */
  def mapPartitionsWithStore(rows: RDD[InternalRow], operator: OperatorStore)(
      update: (StateStore, Iterator[InternalRow]) => Iterator[InternalRow]): RDD[InternalRow] =
    new OperatorStoreRDD(
      passStoresOn(rows, operator.info.operatorId),
      operator,
      (store: StateStore, input: Iterator[InternalRow]) => {
        StateStoreThreadLocalTracker.clearStore()
        TaskContext.get().addTaskCompletionListener[Unit](_ => if (!store.hasCommitted) store.abort())
        update(store, input)
      })

  private def passStoresOn(
      rows: RDD[InternalRow], operator: Long): RDD[InternalRow] = rows.mapPartitionsWithIndexInternal { (partition, input) =>
    // Not the store that was opened last: a coalesce opens the store of its input with the first row.
    ReadStores.take(operator, partition).fold(StateStoreThreadLocalTracker.clearStore())(StateStoreThreadLocalTracker.setStore)
    input
  }

  /** Maps each partition. Spark's public way would look through the function's bytecode each time. */
  def mapPartitions(rows: RDD[InternalRow])(f: Iterator[InternalRow] => Iterator[InternalRow]): RDD[InternalRow] =
    rows.mapPartitionsInternal(f)

  /** Maps each partition with its store, to read only. The operator above that writes takes over the same store. */
  def mapPartitionsWithReadStore(rows: RDD[InternalRow], operator: OperatorStore)(
      read: (ReadStateStore, Iterator[InternalRow]) => Iterator[InternalRow]): RDD[InternalRow] =
    new OperatorReadStoreRDD(
      rows,
      operator,
      (store: ReadStateStore, input: Iterator[InternalRow]) => {
        ReadStores.opened(store)
        read(store, input)
      })

  /**
   * Joins the partitions of two sides that share one operator's state, where their stores are. `join` gets the partition's
   * number and what it needs to open the stores. `countsRows`: the operator counts its rows, so the stores need not.
   */
  def zipPartitionsWithStores(left: RDD[InternalRow], right: RDD[InternalRow], info: StatefulOperatorStateInfo,
      stores: Seq[String], countsRows: Boolean, session: SparkSession)(
      join: (Int, Iterator[InternalRow], Iterator[InternalRow], StateStoreConf,
          Configuration) => Iterator[InternalRow]): RDD[InternalRow] = {
    val conf = StateStoreSettings.joinConf(session, countsRows)
    val hadoopConf = HadoopSettings.broadcast(session, info.queryRunId)
    left.stateStoreAwareZipPartitions(right, info, stores, session.streams.stateStoreCoordinator) {
      (partition, leftRows, rightRows) =>
        join(partition, leftRows, rightRows, conf, hadoopConf.value.value)
    }
  }

  /** Whether a store of this class counts its rows. RocksDB does not, by [[StateStoreSettings]]. */
  def countsRows(provider: String): Boolean =
    !classOf[RocksDBStateStoreProvider].isAssignableFrom(Utils.classForName[Any](provider))

  /** Whether an iterator of the store still returns the rows that were there when it began, whatever is removed meanwhile. */
  def scansSnapshots(store: StateStore): Boolean = store.isInstanceOf[RocksDBStateStoreProvider#RocksDBStateStore]
}

/** The stores that tasks have opened to read, until the operator that writes takes them over. */
private object ReadStores {
  private val tasks = new ConcurrentHashMap[Long, mutable.Map[StateStoreId, ReadStateStore]]

  def opened(store: ReadStateStore): Unit = {
    val task = TaskContext.get()
    val stores = tasks.computeIfAbsent(
      task.taskAttemptId(),
      attempt => {
        task.addTaskCompletionListener[Unit] { _ =>
          StateStoreThreadLocalTracker.clearStore()
          tasks.remove(attempt).values.foreach(_.abort()) // no operator writes to them
        }
        mutable.Map.empty
      })
    stores(store.id) = store
  }

  def take(operator: Long, partition: Int): Option[ReadStateStore] =
    Option(tasks.get(TaskContext.get().taskAttemptId())).flatMap { stores =>
      stores.keysIterator.find(id => id.operatorId == operator && id.partitionId == partition).flatMap(stores.remove)
    }
}
