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

/** How the state stores of our own operators are set: what is written is the same as with the session's settings. */
private[spark] object StateStoreSettings {

  /** Whether our store stands in for Spark's default one. Read when a query starts; what is on disk is the same either way. */
  val Shared: ConfigEntry[Boolean] = SQLConf
    .buildConf("spark.strandline.stateStore.shared")
    .doc("Whether the versions of a state store in memory share their rows, where Spark's default store would copy them for each batch.")
    .version("4.2.0")
    .booleanConf
    .createWithDefault(true)

  def conf(session: SparkSession, options: Map[String, String]): StateStoreConf = {
    val settings = session.sessionState.conf.clone()
    // RocksDB would read each key before it writes or removes it, only to count; the operators count themselves.
    settings.setConfString("spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows", "false")
    shared(settings)
    new StateStoreConf(settings, options)
  }

  /** Of a join, whose stores count their rows themselves. */
  def joinConf(session: SparkSession): StateStoreConf = new StateStoreConf(shared(session.sessionState.conf.clone()))

  private def shared(settings: SQLConf): SQLConf = {
    if (settings.getConf(Shared) && settings.stateStoreProviderClass == classOf[HDFSBackedStateStoreProvider].getName)
      settings.setConf(SQLConf.STATE_STORE_PROVIDER_CLASS, classOf[SharedStateStoreProvider].getName)
    settings
  }
}

/** Rows with the store that they are written to. */
private final class OperatorStoreRDD(
    rows: RDD[InternalRow],
    info: StatefulOperatorStateInfo,
    keys: StructType,
    values: StructType,
    encoder: KeyStateEncoderSpec,
    session: SparkSession,
    options: Map[String, String],
    update: (StateStore, Iterator[InternalRow]) => Iterator[InternalRow])
    extends StateStoreRDD[InternalRow, InternalRow](
      rows,
      update,
      info.checkpointLocation,
      info.queryRunId,
      info.operatorId,
      info.storeVersion,
      info.stateStoreCkptIds,
      info.stateSchemaMetadata,
      keys,
      values,
      encoder,
      session.sessionState,
      Some(session.streams.stateStoreCoordinator),
      extraOptions = options) {
  override protected val storeConf: StateStoreConf = StateStoreSettings.conf(session, options)
}

/** Rows with the store that is read for them. */
private final class OperatorReadStoreRDD(
    rows: RDD[InternalRow],
    info: StatefulOperatorStateInfo,
    keys: StructType,
    values: StructType,
    encoder: KeyStateEncoderSpec,
    session: SparkSession,
    read: (ReadStateStore, Iterator[InternalRow]) => Iterator[InternalRow])
    extends ReadStateStoreRDD[InternalRow, InternalRow](
      rows,
      read,
      info.checkpointLocation,
      info.queryRunId,
      info.operatorId,
      info.storeVersion,
      info.stateStoreCkptIds,
      info.stateSchemaMetadata,
      keys,
      values,
      encoder,
      session.sessionState,
      Some(session.streams.stateStoreCoordinator)) {
  override protected val storeConf: StateStoreConf = StateStoreSettings.conf(session, Map.empty)
}
