package org.apache.spark.sql.execution.streaming.state.strandline

import org.apache.hadoop.conf.Configuration
import org.apache.spark.{Partition, TaskContext}
import org.apache.spark.internal.config.ConfigEntry
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperatorStateInfo
import org.apache.spark.sql.execution.streaming.state.{
  HDFSBackedStateStoreProvider, KeyStateEncoderSpec, ReadStateStore, StateStore, StateStoreConf, StateStoreId,
  StateStoreProviderId, StateStoreThreadLocalTracker
}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.StructType

/** State-store configuration of Strandline's operators. The on-disk format is unchanged. */
private[spark] object StateStoreSettings {

  /** Whether Strandline's store replaces Spark's default store. A query reads the setting when it starts. */
  val Shared: ConfigEntry[Boolean] = SQLConf
    .buildConf("spark.strandline.stateStore.shared")
    .doc(
      "Whether the versions of a state store in memory share their rows, where Spark's default store would copy them for each " +
        "batch.")
    .version("4.2.0")
    .booleanConf
    .createWithDefault(true)

  def conf(session: SparkSession, options: Map[String, String]): StateStoreConf =
    new StateStoreConf(shared(uncounted(session.sessionState.conf.clone())), options)

  /** The configuration of a join, whose stores count their rows unless the operator does. */
  def joinConf(session: SparkSession, countsRows: Boolean): StateStoreConf = {
    val settings = shared(session.sessionState.conf.clone())
    new StateStoreConf(if (countsRows) uncounted(settings) else settings)
  }

  /** RocksDB would read each key before each write and removal, only to count rows. Operators count their rows themselves. */
  private def uncounted(settings: SQLConf): SQLConf = {
    settings.setConfString("spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows", "false")
    settings
  }

  private def shared(settings: SQLConf): SQLConf = {
    if (settings.getConf(Shared) && settings.stateStoreProviderClass == classOf[HDFSBackedStateStoreProvider].getName)
      settings.setConf(SQLConf.STATE_STORE_PROVIDER_CLASS, classOf[SharedStateStoreProvider].getName)
    settings
  }
}

/** The state store of an operator: its place, and how its rows are encoded. */
final case class OperatorStore(
    info: StatefulOperatorStateInfo,
    keys: StructType,
    values: StructType,
    encoder: KeyStateEncoderSpec,
    session: SparkSession,
    options: Map[String, String] = Map.empty) {
  private[strandline] def conf: StateStoreConf = StateStoreSettings.conf(session, options)
}

/** The rows of an operator, computed where its stores are. Spark's own would send Hadoop's configuration for each. */
private sealed abstract class StoreRDD(rows: RDD[InternalRow], @transient private val operator: OperatorStore)
    extends RDD[InternalRow](rows) {
  @transient private val coordinator = operator.session.streams.stateStoreCoordinator
  private val hadoopConf = HadoopSettings.broadcast(operator.session, operator.info.queryRunId)
  protected val info: StatefulOperatorStateInfo = operator.info
  protected val keys: StructType = operator.keys
  protected val values: StructType = operator.values
  protected val encoder: KeyStateEncoderSpec = operator.encoder
  protected val storeConf: StateStoreConf = operator.conf

  protected def id(partition: Partition): StateStoreProviderId =
    StateStoreProviderId(StateStoreId(info.checkpointLocation, info.operatorId, partition.index), info.queryRunId)

  protected def checkpoint(partition: Partition): Option[String] = info.stateStoreCkptIds.map(_.apply(partition.index).head)

  protected def hadoop: Configuration = hadoopConf.value.value

  override protected def getPartitions: Array[Partition] = firstParent[InternalRow].partitions

  override def getPreferredLocations(partition: Partition): Seq[String] = coordinator.getLocation(id(partition)).toSeq
}

/** Maps each partition with the store that it writes to. */
private final class OperatorStoreRDD(
    rows: RDD[InternalRow],
    operator: OperatorStore,
    update: (StateStore, Iterator[InternalRow]) => Iterator[InternalRow])
    extends StoreRDD(rows, operator) {

  override def compute(partition: Partition, context: TaskContext): Iterator[InternalRow] = {
    val input = firstParent[InternalRow].iterator(partition, context)
    val (store, at) = (id(partition), checkpoint(partition))
    val opened = StateStoreThreadLocalTracker.getStore match {
      case Some(read) =>
        StateStore.getWriteStore(read, store, keys, values, encoder, info.storeVersion, at, info.stateSchemaMetadata,
          useColumnFamilies = false, storeConf, hadoop)
      case None =>
        StateStore.get(store, keys, values, encoder, info.storeVersion, at, info.stateSchemaMetadata, useColumnFamilies = false,
          storeConf, hadoop)
    }
    if (storeConf.unloadOnCommit) context.addTaskCompletionListener[Unit](_ => StateStore.doMaintenanceAndUnload(store))
    update(opened, input)
  }
}

/** Maps each partition with the store that it reads. */
private final class OperatorReadStoreRDD(
    rows: RDD[InternalRow],
    operator: OperatorStore,
    read: (ReadStateStore, Iterator[InternalRow]) => Iterator[InternalRow])
    extends StoreRDD(rows, operator) {

  override def compute(partition: Partition, context: TaskContext): Iterator[InternalRow] = {
    val input = firstParent[InternalRow].iterator(partition, context)
    val opened = StateStore.getReadOnly(
      id(partition), keys, values, encoder, info.storeVersion, checkpoint(partition), info.stateSchemaMetadata,
      useColumnFamilies = false, storeConf, hadoop)
    StateStoreThreadLocalTracker.setStore(opened)
    read(opened, input)
  }
}
