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
  KeyStateEncoderSpec, ReadStateStore, RocksDBStateStoreProvider, StateStore, StateStoreConf, StateStoreId,
  StateStoreThreadLocalTracker
}
import org.apache.spark.sql.types.StructType
import org.apache.spark.util.{SerializableConfiguration, Utils}

/** The few members of Spark that are visible only inside its streaming package. */
object StreamingInternals {

  /**
   * Maps each partition with its store.
   *
   * Spark hands the store of an operator that reads to the next that writes in the same task, whichever that is, and again to all
   * after it: with RocksDB the second of two operators without an exchange between them fails, and a store that is handed to nobody
   * stays locked. Here it goes to its own operator only.
   */
  def mapPartitionsWithStore(
      rows: RDD[InternalRow],
      info: StatefulOperatorStateInfo,
      keys: StructType,
      values: StructType,
      encoder: KeyStateEncoderSpec,
      session: SparkSession,
      options: Map[String, String] = Map.empty)(update: (StateStore, Iterator[InternalRow]) => Iterator[InternalRow]): RDD[InternalRow] =
    new OperatorStoreRDD(
      handedOver(rows, info.operatorId),
      info,
      keys,
      values,
      encoder,
      session,
      options,
      rows.sparkContext.clean { (store: StateStore, input: Iterator[InternalRow]) =>
        StateStoreThreadLocalTracker.clearStore()
        TaskContext.get().addTaskCompletionListener[Unit](_ => if (!store.hasCommitted) store.abort())
        update(store, input)
      }
    )

  private def handedOver(rows: RDD[InternalRow], operator: Long): RDD[InternalRow] = rows.mapPartitionsWithIndex { (partition, input) =>
    // Not the last that was opened: what a coalesce reads is opened with the first row that is asked for.
    ReadStores.take(operator, partition).fold(StateStoreThreadLocalTracker.clearStore())(StateStoreThreadLocalTracker.setStore)
    input
  }

  /** The same, to read only; the operator above that writes takes the same instance over. */
  def mapPartitionsWithReadStore(
      rows: RDD[InternalRow],
      info: StatefulOperatorStateInfo,
      keys: StructType,
      values: StructType,
      encoder: KeyStateEncoderSpec,
      session: SparkSession)(read: (ReadStateStore, Iterator[InternalRow]) => Iterator[InternalRow]): RDD[InternalRow] =
    new OperatorReadStoreRDD(
      rows,
      info,
      keys,
      values,
      encoder,
      session,
      rows.sparkContext.clean { (store: ReadStateStore, input: Iterator[InternalRow]) =>
        ReadStores.opened(store)
        read(store, input)
      }
    )

  /**
   * Joins the partitions of two sides that have one operator's state, each where its stores are; `join` is given the partition's
   * number and what it opens them with.
   */
  def zipPartitionsWithStores(left: RDD[InternalRow], right: RDD[InternalRow], info: StatefulOperatorStateInfo, stores: Seq[String], session: SparkSession)(
      join: (Int, Iterator[InternalRow], Iterator[InternalRow], StateStoreConf, Configuration) => Iterator[InternalRow]): RDD[InternalRow] = {
    val conf = StateStoreSettings.joinConf(session)
    val hadoopConf = SerializableConfiguration.broadcast(session.sparkContext, session.sessionState.newHadoopConf())
    left.stateStoreAwareZipPartitions(right, info, stores, session.streams.stateStoreCoordinator) { (partition, leftRows, rightRows) =>
      join(partition, leftRows, rightRows, conf, hadoopConf.value.value)
    }
  }

  /** Whether a store knows how many rows it has. RocksDB does not here: see [[StateStoreSettings]]. */
  def countsRows(provider: String): Boolean = !classOf[RocksDBStateStoreProvider].isAssignableFrom(Utils.classForName[Any](provider))

  /** Whether a scan of the store gives what there is when it begins, whatever is removed meanwhile; iterators of RocksDB do. */
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
          tasks.remove(attempt).values.foreach(_.abort()) // nobody writes to them
        }
        mutable.Map.empty
      }
    )
    stores(store.id) = store
  }

  def take(operator: Long, partition: Int): Option[ReadStateStore] =
    Option(tasks.get(TaskContext.get().taskAttemptId())).flatMap { stores =>
      stores.keysIterator.find(id => id.operatorId == operator && id.partitionId == partition).flatMap(stores.remove)
    }
}
