package org.apache.spark.sql.execution.streaming.state.strandline

import org.apache.spark.internal.config.ConfigEntry
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperatorStateInfo
import org.apache.spark.sql.execution.streaming.state.{
  HDFSBackedStateStoreProvider, KeyStateEncoderSpec, ReadStateStore, ReadStateStoreRDD, StateStore, StateStoreConf, StateStoreRDD
}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.StructType

/** State-store configuration of Strandline's operators. The on-disk format is unchanged. */
private[spark] object StateStoreSettings {

  /** Whether Strandline's store replaces Spark's default store. A query reads the setting when it starts. */
  val Shared: ConfigEntry[Boolean] = SQLConf
    .buildConf("spark.strandline.stateStore.shared")
    .doc("Whether the versions of a state store in memory share their rows, where Spark's default store would copy them for each batch.")
    .version("4.2.0")
    .booleanConf
    .createWithDefault(true)

  def conf(session: SparkSession, options: Map[String, String]): StateStoreConf = {
    val settings = session.sessionState.conf.clone()
    // RocksDB would read each key before each write and removal, only to count rows. The operators count their rows themselves.
    settings.setConfString("spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows", "false")
    shared(settings)
    new StateStoreConf(settings, options)
  }

  /** The configuration of a join, whose stores count their rows. */
  def joinConf(session: SparkSession): StateStoreConf = new StateStoreConf(shared(session.sessionState.conf.clone()))

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

/** Maps each partition with the store that it writes to. */
private final class OperatorStoreRDD(
    rows: RDD[InternalRow],
    operator: OperatorStore,
    update: (StateStore, Iterator[InternalRow]) => Iterator[InternalRow])
    extends StateStoreRDD[InternalRow, InternalRow](
      rows,
      update,
      operator.info.checkpointLocation,
      operator.info.queryRunId,
      operator.info.operatorId,
      operator.info.storeVersion,
      operator.info.stateStoreCkptIds,
      operator.info.stateSchemaMetadata,
      operator.keys,
      operator.values,
      operator.encoder,
      operator.session.sessionState,
      Some(operator.session.streams.stateStoreCoordinator),
      extraOptions = operator.options) {
  override protected val storeConf: StateStoreConf = operator.conf
}

/** Maps each partition with the store that it reads. */
private final class OperatorReadStoreRDD(
    rows: RDD[InternalRow],
    operator: OperatorStore,
    read: (ReadStateStore, Iterator[InternalRow]) => Iterator[InternalRow])
    extends ReadStateStoreRDD[InternalRow, InternalRow](
      rows,
      read,
      operator.info.checkpointLocation,
      operator.info.queryRunId,
      operator.info.operatorId,
      operator.info.storeVersion,
      operator.info.stateStoreCkptIds,
      operator.info.stateSchemaMetadata,
      operator.keys,
      operator.values,
      operator.encoder,
      operator.session.sessionState,
      Some(operator.session.streams.stateStoreCoordinator)) {
  override protected val storeConf: StateStoreConf = operator.conf
}
