package org.apache.spark.sql.execution.streaming.state.strandline

import java.nio.file.Files
import java.util.UUID

import scala.collection.mutable
import scala.util.Random

import org.apache.hadoop.conf.Configuration
import org.apache.logging.log4j.{Level, LogManager}
import org.apache.logging.log4j.core.{LogEvent, Logger}
import org.apache.logging.log4j.core.appender.AbstractAppender
import org.apache.logging.log4j.core.config.{Configurator, Property}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.classic
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.sql.execution.streaming.state.{
  HDFSBackedStateStoreProvider, PrefixKeyScanStateEncoderSpec, ReadStateStore, StateStore, StateStoreConf, StateStoreId,
  StateStoreProvider
}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types._
import _root_.strandline.spark.{Drawn, StreamSpec}

/**
 * A store whose versions share rows in memory. Its files are Spark's, in every version, and each of the two stores can continue
 * from the other.
 */
class SharedStateStoreProviderSpec extends StreamSpec {
  private type Model = Map[(Long, Long), Long]
  private val keys = new StructType().add("time", LongType).add("k", LongType)
  private val values = new StructType().add("n", LongType)
  private val seed = Drawn.seed

  private def row(values: Long*): UnsafeRow =
    UnsafeProjection.create(Array.fill[DataType](values.size)(LongType)).apply(InternalRow(values: _*)).copy()
  private def contents(store: ReadStateStore): Model =
    store.iterator().map(pair => (pair.key.getLong(0), pair.key.getLong(1)) -> pair.value.getLong(0)).toMap

  private def opened[A <: StateStoreProvider](provider: A, root: String, settings: (String, String)*): A = {
    spark.asInstanceOf[classic.SparkSession].streams.stateStoreCoordinator // the stores report to it
    val conf = new SQLConf
    settings.foreach { case (key, value) => conf.setConfString(key, value) }
    val hadoop = new Configuration
    hadoop.set(StreamExecution.RUN_ID_KEY, UUID.randomUUID().toString)
    provider.init(StateStoreId(root, 0, 0), keys, values, PrefixKeyScanStateEncoderSpec(keys, 1), false, new StateStoreConf(conf),
      hadoop)
    provider
  }

  private def step(store: StateStore, model: Model, random: Random): Model = {
    var now = model
    for (_ <- 1 to random.nextInt(12)) {
      val (time, k, n) = (random.nextInt(4).toLong, random.nextInt(5).toLong, random.nextInt(100).toLong)
      random.nextInt(6) match {
        case 0 => store.remove(row(time, k)); now -= ((time, k))
        case 1 =>
          store match {
            case whole: PrefixRemoval =>
              val removed = whole.removePrefix(row(time)).map(pair =>
                (pair.key.getLong(0), pair.key.getLong(1)) -> pair.value.getLong(0)).toMap
              assert(removed == now.filter(_._1._1 == time))
            case _ => store.prefixScan(row(time)).map(_.key.copy()).toSeq.foreach(store.remove(_))
          }
          now = now.filterNot(_._1._1 == time)
        case _ => store.put(row(time, k), row(n)); now += (time, k) -> n
      }
    }
    now
  }

  for (checksum <- Seq(false, true)) test(s"versions, snapshots and restarts, row checksums: $checksum (seed $seed)") {
    val random = new Random(seed)
    val settings = Seq(SQLConf.STATE_STORE_MIN_DELTAS_FOR_SNAPSHOT.key -> "2",
      SQLConf.STATE_STORE_ROW_CHECKSUM_ENABLED.key -> checksum.toString)
    val root = Files.createTempDirectory("strandline").toString
    def ours() = opened(new SharedStateStoreProvider, root, settings: _*)
    def sparks() = opened(new HDFSBackedStateStoreProvider, root, settings: _*)
    var provider: StateStoreProvider = ours()
    var versions = Vector[Model](Map.empty)
    for (_ <- 1 to 25) {
      val version = versions.size - 1
      if (random.nextInt(3) == 0) { // a task that fails, with its writes
        val failed = provider.getStore(version)
        step(failed, versions.last, random)
        failed.abort()
      }
      val read = provider.getReadStore(version)
      assert(contents(read) == versions.last)
      val store = provider.upgradeReadStoreToWriteStore(read, version)
      versions :+= step(store, versions.last, random)
      assert(contents(store) == versions.last && store.metrics.numKeys == versions.last.size)
      assert(store.commit() == version + 1)
      assert(contents(read) == versions(version))
      if (random.nextInt(4) == 0) { // a task that repeats the work of another
        val again = provider.getStore(version)
        step(again, versions(version), random)
        again.abort()
      }
      provider.doMaintenance()
      if (random.nextInt(5) == 0) {
        provider.close()
        provider = if (random.nextBoolean()) ours() else sparks()
      }
    }
    assert(Files.list(java.nio.file.Paths.get(root, "0", "0")).anyMatch(_.toString.endsWith(".snapshot")))
    for (reader <- Seq(ours(), sparks()); version <- versions.indices.takeRight(3))
      assert(contents(reader.getReadStore(version)) == versions(version))
  }

  test("the metrics show what is in memory, and whether it was read from files") {
    val root = Files.createTempDirectory("strandline").toString
    val provider = opened(new SharedStateStoreProvider, root)
    val first = provider.getStore(0)
    for (k <- 0L until 1000L) first.put(row(1, k), row(k))
    first.commit()
    val second = provider.getStore(1)
    second.put(row(2, 0), row(0))
    second.commit()
    val told = second.metrics
    assert(told.numKeys == 1001)
    // Two versions are in memory and share nearly everything, so one is counted.
    assert(told.memoryUsedBytes > 200000 && told.memoryUsedBytes < 400000)
    def count(provider: SharedStateStoreProvider, metric: String) = provider.getMetricsForProvider()(metric)
    assert(count(provider, "loadedMapCacheHitCount") == 1 && count(provider, "loadedMapCacheMissCount") == 0)
    val restarted = opened(new SharedStateStoreProvider, root)
    restarted.getReadStore(2, None)
    assert(contents(restarted.getStore(2)).size == 1001)
    assert(count(restarted, "loadedMapCacheHitCount") == 1 && count(restarted, "loadedMapCacheMissCount") == 1)
  }

  test("a query that continues is no warning, where Spark's store warns") {
    val root = Files.createTempDirectory("strandline").toString
    val first = opened(new SharedStateStoreProvider, root).getStore(0)
    first.put(row(1, 1), row(1))
    first.commit()
    def warnings(provider: StateStoreProvider): Seq[String] = {
      val told = mutable.Buffer.empty[String]
      val appender = new AbstractAppender("told", null, null, true, Array.empty[Property]) {
        override def append(event: LogEvent): Unit =
          if (event.getLevel == Level.WARN) told += event.getMessage.getFormattedMessage
      }
      appender.start()
      val state = classOf[HDFSBackedStateStoreProvider].getPackageName
      val root = LogManager.getRootLogger.asInstanceOf[Logger]
      root.addAppender(appender)
      Configurator.setLevel(state, Level.WARN) // the tests' own setting shows no logs of Spark
      try provider.getReadStore(1, None)
      finally {
        Configurator.setLevel(state, Level.OFF)
        root.removeAppender(appender)
      }
      told.filter(_.contains("loadedMaps")).toSeq
    }
    assert(warnings(opened(new HDFSBackedStateStoreProvider, root)).size == 1)
    assert(warnings(opened(new SharedStateStoreProvider, root)).isEmpty)
  }

  test("it refuses what Spark's store refuses, with the same message") {
    val provider = opened(new SharedStateStoreProvider, Files.createTempDirectory("strandline").toString)
    val plain = opened(new HDFSBackedStateStoreProvider, Files.createTempDirectory("strandline").toString)
    for (ask <- Seq[StateStoreProvider => Any](_.getStore(-1), _.getReadStore(-1), _.getStore(0, Some("id")),
        _.getStore(0, loadEmpty = true)))
      assert(intercept[Exception](ask(provider)).getMessage == intercept[Exception](ask(plain)).getMessage)
  }
}
