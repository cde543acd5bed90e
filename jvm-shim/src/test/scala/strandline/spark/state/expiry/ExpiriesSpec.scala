package strandline.spark.state.expiry

import org.apache.spark.sql.{DataFrame, Row}
import org.apache.spark.sql.functions._
import org.apache.spark.sql.types._
import strandline.spark.{Drawn, Script, StreamSpec}

/**
 * A batch looks only at the entries that it removes, in both of Spark's stores. An executor that knows nothing looks at all of
 * them once.
 */
class ExpiriesSpec extends StreamSpec {
  private val rocksDb =
    "spark.sql.streaming.stateStore.providerClass" -> "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
  private val stores: Seq[(String, Seq[(String, String)])] = Seq(
    "HDFS-backed" -> Nil,
    "RocksDB" -> Seq(rocksDb),
    "RocksDB with checkpoint ids" -> Seq(rocksDb, "spark.sql.streaming.stateStore.checkpointFormatVersion" -> "2"))
  private def second(n: Double) = new java.sql.Timestamp((n * 1000).toLong)
  private def micros(n: Double) = s"[${(n * 1e6).toLong}]"

  /** Returns the output of each batch, how often it looked at a whole store, and the reported number of entries at the end. */
  private def play(frame: DataFrame, s: Script, checkpoint: String)(
      steps: (Double, Seq[(Double, String)])*): (Seq[Set[Row]], Seq[Long], Long) = {
    var looks = Seq.empty[Long]
    var told = 0L
    def add(step: (Double, Seq[(Double, String)])) =
      s.add(micros(step._1), step._2.map { case (time, k) => Row(second(time), k) }: _*)
    var before = Expiries.scans.sum
    add(steps.head) // a query that begins with nothing may run an empty batch
    val batches = run(frame, checkpoint = checkpoint) { query =>
      for (step <- steps) {
        if (step ne steps.head) add(step)
        query.processAllAvailable()
        looks :+= Expiries.scans.sum - before
        before = Expiries.scans.sum
      }
      told = query.recentProgress.filter(_.stateOperators.nonEmpty).last.stateOperators.head.numRowsTotal
    }
    (batches.map(_.rows.toSet), looks, told)
  }

  for ((store, settings) <- Drawn(stores, 1)) {
    test(s"dropDuplicatesWithinWatermark: $store") {
      withConf(settings: _*) {
        val (s, checkpoint) = (script("timestamp", "k" -> StringType), tempDir())
        val distinct = read(s).withWatermark("time", "2 seconds").dropDuplicatesWithinWatermark("k").select("k")
        val first = play(distinct, s, checkpoint)(1.0 -> Seq(1.0 -> "a", 5.0 -> "b"), 2.0 -> Nil,
          2.5 -> Seq(4.0 -> "c", 4.0 -> "a"), 4.0 -> Seq(4.0 -> "a"))
        // A row beyond the delay is no duplicate, although its key is not forgotten yet: a at 4.0, c at 7.0.
        assert(first == ((Seq(Set(Row("a"), Row("b")), Set.empty, Set(Row("c"), Row("a")), Set.empty), Seq(0, 0, 0, 0), 3L)))
        val second =
          play(distinct, s, checkpoint)(5.0 -> Seq(6.0 -> "a", 6.0 -> "b"), 5.5 -> Nil, 6.5 -> Seq(7.0 -> "c"), 6.5 -> Nil)
        assert(second == ((Seq(Set.empty, Set.empty, Set(Row("c")), Set.empty), Seq(2, 0, 0, 0), 2L)))
      }
    }

    test(s"no batch looks through the state, however many actions it has: $store") {
      withConf(settings: _*) {
        def ones = (script("timestamp", "k" -> StringType), script("timestamp", "k" -> StringType))
        val (left, right) = ones
        val distinct = read(left).withWatermark("time", "2 seconds").dropDuplicatesWithinWatermark("k").as("l")
        val joined = distinct.join(read(right).as("r"),
          expr("l.k = r.k AND r.time BETWEEN l.time AND l.time + INTERVAL 2 SECONDS"), "left_outer")
        val looks = Expiries.scans.sum
        var batches = Seq.empty[Seq[Set[Row]]]
        for (n <- 0 until 4) {
          left.add(micros(n), Row(second(n), "a"), Row(second(n + 0.5), s"b$n"))
          right.add(micros(n), Row(second(n + 0.25), "a"))
        }
        val query = joined.select("l.k", "r.time").writeStream.option("checkpointLocation", tempDir()).foreachBatch {
          (rows: DataFrame, _: Long) =>
            batches :+= Seq.fill(3)(rows.collect().toSet)
        }.start()
        try query.processAllAvailable()
        finally query.stop()
        assert(batches.size == 4 && batches.forall(_.distinct.size == 1) && batches.exists(_.head.exists(_.isNullAt(1))))
        assert(Expiries.scans.sum == looks)
      }
    }

    test(s"session windows: $store") {
      withConf(settings: _*) {
        val (s, checkpoint) = (script("timestamp", "k" -> StringType), tempDir())
        val sessions = read(s).groupBy(session_window(col("time"), "2 seconds"), col("k")).count().select("k", "count")
        val first =
          play(sessions, s, checkpoint)(1.0 -> Seq(1.0 -> "a", 5.0 -> "b"), 2.0 -> Nil, 2.5 -> Seq(4.0 -> "c"), 4.0 -> Nil)
        assert(first == ((Seq(Set.empty, Set.empty, Set.empty, Set(Row("a", 1L))), Seq(0, 0, 0, 0), 2L)))
        val second = play(sessions, s, checkpoint)(5.0 -> Seq(6.0 -> "b"), 5.5 -> Nil, 6.5 -> Seq(7.0 -> "c"), 7.5 -> Nil)
        assert(second == ((Seq(Set.empty, Set.empty, Set(Row("c", 1L)), Set.empty), Seq(2, 0, 0, 0), 2L)))
      }
    }

    test(
      s"a session that is prolonged again and again is looked at when what it had before has closed, and emitted once: $store") {
      withConf(settings: _*) {
        val (s, checkpoint) = (script("timestamp", "k" -> StringType), tempDir())
        val sessions = read(s).groupBy(session_window(col("time"), "2 seconds"), col("k")).count().select("k", "count")
        val prolonged = play(sessions, s, checkpoint)(
          0.5 -> Seq(1.0 -> "a", 1.0 -> "b"),
          0.5 -> Seq(2.0 -> "a"),
          0.5 -> Seq(3.5 -> "a", 0.75 -> "b"),
          4.5 -> Nil,
          5.5 -> Nil,
          5.75 -> Nil)
        val (b, a) = (Set(Row("b", 2L)), Set(Row("a", 3L)))
        assert(prolonged == ((Seq(Set.empty, Set.empty, Set.empty, b, Set.empty, a), Seq(0, 0, 0, 0, 0, 0), 0L)))
      }
    }
  }
}
