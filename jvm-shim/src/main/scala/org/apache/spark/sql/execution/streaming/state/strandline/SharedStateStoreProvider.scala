package org.apache.spark.sql.execution.streaming.state.strandline

import java.util.TreeMap

import org.apache.hadoop.conf.Configuration
import org.apache.spark.internal.LogEntry
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.{
  HDFSBackedStateStoreProvider, KeyStateEncoderSpec, KeyValueChecksum, KeyValueIntegrityVerifier, PrefixKeyScanStateEncoderSpec,
  ReadStateStore, StateSchemaProvider, StateStore, StateStoreConf, StateStoreId, StateStoreRow, StateStoreRowWithChecksum,
  UnsafeRowPair, UnsafeRowWrapper
}
import org.apache.spark.sql.types.StructType
import org.apache.spark.util.SizeEstimator

/** A store that can remove all keys with a prefix at once. */
trait PrefixRemoval {

  /** Removes all keys with that prefix. Returns the removed rows in one pair that is reused. */
  def removePrefix(prefix: UnsafeRow): Iterator[UnsafeRowPair]
}

/**
 * Spark's HDFS-backed state store, but its versions in memory share their rows ([[SharedStateMap]]). Spark copies all rows for
 * each batch that reads them, and once more for each batch that writes.
 *
 * Spark's own code reads and writes the files, so a query may continue with either store. The class name must not change: where
 * a session sets it as its provider class, checkpoints record it.
 */
final class SharedStateStoreProvider extends HDFSBackedStateStoreProvider {
  private var empty: SharedStateMap = _
  private var valueOf: (UnsafeRowPair => UnsafeRowWrapper) = _
  // As many versions as Spark's store keeps. That store has the same maps, but shows them only to its tests.
  private val committed = new TreeMap[Long, SharedStateMap]
  private var versionsKept = 0
  // The version that was read from files. Spark keeps it as its own map until the next commit.
  private var loaded: Option[(Long, SharedStateMap)] = None
  private var hits = 0L

  override def init(
      id: StateStoreId,
      keySchema: StructType,
      valueSchema: StructType,
      encoder: KeyStateEncoderSpec,
      useColumnFamilies: Boolean,
      conf: StateStoreConf,
      hadoopConf: Configuration,
      useMultipleValuesPerKey: Boolean,
      schemaProvider: Option[StateSchemaProvider]): Unit = {
    super.init(id, keySchema, valueSchema, encoder, useColumnFamilies, conf, hadoopConf, useMultipleValuesPerKey, schemaProvider)
    versionsKept = conf.maxVersionsToRetainInMemory
    val prefix = encoder match {
      case PrefixKeyScanStateEncoderSpec(_, columns) => columns
      case _ => 0
    }
    val verifier =
      () => KeyValueIntegrityVerifier.create(id.toString, conf.rowChecksumEnabled, conf.rowChecksumReadVerificationRatio)
    empty = SharedStateMap.empty(keySchema, prefix, verifier)
    valueOf = pair =>
      if (conf.rowChecksumEnabled) StateStoreRowWithChecksum(pair.value, KeyValueChecksum.create(pair.key, Some(pair.value)))
      else StateStoreRow(pair.value)
  }

  override def getStore(version: Long, uniqueId: Option[String], forceSnapshotOnCommit: Boolean, loadEmpty: Boolean): StateStore =
    // For arguments that Spark's store refuses, its own code runs.
    if (uniqueId.isDefined || loadEmpty || version < 0) super.getStore(version, uniqueId, forceSnapshotOnCommit, loadEmpty)
    else {
      val map = rows(version).fork()
      new HDFSBackedStateStore(version, map, forceSnapshotOnCommit) with PrefixRemoval {
        override def commit(): Long = {
          val version = super.commit()
          keep(version, map)
          version
        }

        override def removePrefix(prefix: UnsafeRow): Iterator[UnsafeRowPair] = map.removePrefix(prefix)(remove(_))
      }
    }

  override def getReadStore(version: Long, uniqueId: Option[String]): ReadStateStore =
    if (version < 0) super.getReadStore(version, uniqueId) else new HDFSBackedReadStateStore(version, rows(version).fork())

  /** Every query that continues reads its state from files. Spark warns of that, and says that it is normal. */
  override protected def logWarning(entry: LogEntry): Unit =
    if (entry.message.contains("doesn't exist in loadedMaps")) logInfo(entry) else super.logWarning(entry)

  private def keep(version: Long, map: SharedStateMap): Unit = synchronized {
    committed.put(version, map)
    while (committed.size > versionsKept) committed.pollFirstEntry()
  }

  private def rows(version: Long): SharedStateMap = synchronized {
    if (version == 0) empty
    else
      (Option(committed.get(version)), loaded) match {
        case (Some(map), _) =>
          loaded = None
          hits += 1
          map
        case (_, Some((`version`, map))) =>
          hits += 1
          map
        case _ =>
          val map = empty.fork()
          super.getReadStore(version, None).iterator().foreach(pair => map.put(pair.key, valueOf(pair)))
          loaded = Some(version -> map)
          map
      }
  }

  override def getMetricsForProvider(): Map[String, Long] = synchronized {
    val metrics = super.getMetricsForProvider()
    val newest = Option(committed.lastEntry) // the other versions share nearly all rows with it
    val changed = Map("loadedMapCacheHitCount" -> (metrics("loadedMapCacheHitCount") + hits)) ++
      newest.map(version => "memoryUsedBytes" -> SizeEstimator.estimate(version.getValue)) ++
      Option.when(loaded.isEmpty)("numSnapshotsAutoRepaired" -> 0L) // not in this batch
    metrics ++ changed
  }

  override def close(): Unit = synchronized {
    loaded = None
    committed.clear()
    super.close()
  }
}
