package strandline.spark.planner

import org.apache.spark.sql.{DataFrame, Row}
import org.apache.spark.sql.functions._
import org.apache.spark.sql.streaming._
import org.apache.spark.sql.types._
import strandline.spark.{Script, StreamSpec}
import strandline.spark.time.{Sessions, WindowStep}

/**
 * Operators over timestamps that Spark closes by a scalar watermark: session windows, deduplication within a delay, user state.
 */
class ArbitraryStateSpec extends StreamSpec {
  private val origin = micros("2013-01-01T00:00:00Z")
  private val second = 1000000L

  /** A number of seconds after the origin, as a row's time and as an element of a frontier. */
  private def t(seconds: Double) = at(java.time.Instant.ofEpochMilli(origin / 1000 + (seconds * 1000).toLong).toString)
  private def f(seconds: Double) = s"[${origin + (seconds * second).toLong}]"
  private def seconds(row: Row, i: Int) = (row.getTimestamp(i).getTime - origin / 1000) / 1000.0

  private def keyed(): Script = script("timestamp", "k" -> StringType)

  /** Returns the sessions of each batch: (key, start, end, rows). */
  private def sessions(frame: DataFrame): Seq[Set[(String, Double, Double, Long)]] = {
    val counted = frame.groupBy(session_window(col("time"), "10 seconds").as("s"), col("k")).count()
    val flat = counted.select(col("k"), col("s.start"), col("s.end"), col("count"))
    runAll(flat).map(_.rows.map(r => (r.getString(0), seconds(r, 1), seconds(r, 2), r.getLong(3))).toSet)
  }

  test("a session is emitted whole in the batch that closes its end, and not while a row may prolong it") {
    val s = keyed()
    s.add(f(5), Row(t(0), "a"), Row(t(4), "a"), Row(t(2), "b"))
      .add(f(12), Row(t(11), "a"))
      .add(f(12.001))
      .add(f(21.001), Row(t(30), "a"))
      .add("[]")
    assert(sessions(read(s)) == Seq(
      Set(),
      Set(),
      Set(("b", 2.0, 12.0, 1L)),
      Set(("a", 0.0, 21.0, 3L)),
      Set(("a", 30.0, 40.0, 1L))))
  }

  test("a row at exactly the end of a session prolongs it, as within one batch") {
    val (parted, whole) = (keyed(), keyed())
    parted.add(f(10), Row(t(0), "a")).add("[]", Row(t(10), "a"))
    whole.add("[]", Row(t(0), "a"), Row(t(10), "a"))
    assert(sessions(read(parted)) == Seq(Set(), Set(("a", 0.0, 20.0, 2L))))
    assert(sessions(read(whole)) == Seq(Set(("a", 0.0, 20.0, 2L))))
  }

  test("a session's end is a time, and a time derived from it closes in the same batch") {
    val s = keyed()
    val counted = read(s).groupBy(session_window(col("time"), "10 seconds").as("s"), col("k")).count()
    val ends = counted.select(col("s.end").as("end"), col("k"))
    assert(tag(ends, "end").map(_.summary.steps) == Some(Seq(WindowStep("end", Sessions))))
    val starts = counted.select(col("s.start").as("start"))
    assert(tag(starts, "start").isEmpty)
    s.add(f(15), Row(t(0), "a"), Row(t(1), "b")).add(f(60), Row(t(20), "a"))
    val chained = ends.groupBy(window(col("end"), "30 seconds"), lit(1)).count().select(col("window.start"), col("count"))
    assert(runAll(chained).map(_.rows.map(r => (seconds(r, 0), r.getLong(1))).toSet) == Seq(Set(), Set((0.0, 2L), (30.0, 1L))))
  }

  test("a session over a product's coordinate closes by its projection") {
    val s = script("product(event timestamp, iter int64)", "k" -> StringType)
    def row(sec: Double, iter: Long) = Row(Row(t(sec), iter), "a")
    s.add(s"[[${origin + 10 * second + 1},5],[${origin + 20 * second},0]]", row(0, 0), row(12, 9)).add("[]")
    val counted =
      read(s).groupBy(session_window(col("time.event"), "10 seconds").as("s"), col("k")).count().select("s.start", "count")
    assert(runAll(counted).map(_.rows.map(r => (seconds(r, 0), r.getLong(1)))) == Seq(Seq((0.0, 1L)), Seq((12.0, 1L))))
  }

  test("session windows in complete mode are Spark's own") {
    val s = keyed()
    s.add(f(15), Row(t(0), "a")).add(f(60), Row(t(20), "a"))
    val counted = read(s).groupBy(session_window(col("time"), "10 seconds"), col("k")).count()
    assert(runAll(counted, mode = "complete").map(_.rows.size) == Seq(1, 2))
  }

  test("dropDuplicatesWithinWatermark remembers a key until no row can come within the delay, and no longer") {
    val s = keyed()
    s.add(f(5), Row(t(0), "a"), Row(t(3), "a"))
      .add(f(10), Row(t(9), "a"), Row(t(5), "b"))
      .add(f(10.001), Row(t(10), "a"))
      .add(f(12), Row(t(11), "a"), Row(t(12), "b"))
      .add("[]")
    var kept = Seq.empty[Long]
    val batches = run(read(s).withWatermark("time", "10 seconds").dropDuplicatesWithinWatermark("k")) { query =>
      query.processAllAvailable()
      kept = query.recentProgress.toSeq.filter(_.stateOperators.nonEmpty).map(_.stateOperators.head.numRowsTotal)
    }
    assert(batches.map(_.rows.map(r => (seconds(r, 0), r.getString(1)))) == Seq(Seq((0.0, "a")), Seq((5.0, "b")), Seq(),
      Seq((11.0, "a")), Seq()))
    assert(kept == Seq(1, 2, 1, 2, 0))
  }

  test("a row beyond the delay is no duplicate, wherever batches end") {
    val rows =
      Seq(Row(t(0), "a"), Row(t(4), "a"), Row(t(11), "a"), Row(t(12), "b"), Row(t(20), "a"), Row(t(22), "a"), Row(t(22), "b"))
    val (whole, parted, late) = (keyed(), keyed(), keyed())
    whole.add("[]", rows: _*)
    rows.init.foreach(row => parted.add(f(0), row))
    parted.add("[]", rows.last)
    rows.init.foreach(row => late.add(f(seconds(row, 0)), row))
    late.add("[]", rows.last)
    for (s <- Seq(whole, parted, late)) {
      val once = read(s).coalesce(1).withWatermark("time", "10 seconds").dropDuplicatesWithinWatermark("k")
      val found = runAll(once).flatMap(_.rows).map(r => (seconds(r, 0), r.getString(1)))
      assert(found.sorted == Seq((0.0, "a"), (11.0, "a"), (12.0, "b"), (22.0, "a")))
    }
  }

  test("a key that counts from a later row is remembered from there, over restarts, and forgotten then") {
    val s = keyed()
    s.add(f(0), Row(t(0), "a"), Row(t(11), "a")).add(f(15), Row(t(15), "a")).add(f(21), Row(t(21), "a")).add(f(22)).add("[]",
      Row(t(23), "a"))
    var kept = Seq.empty[Long]
    val batches = run(read(s).coalesce(1).withWatermark("time", "10 seconds").dropDuplicatesWithinWatermark("k")) { query =>
      query.processAllAvailable()
      kept = query.recentProgress.toSeq.filter(_.stateOperators.nonEmpty).map(_.stateOperators.head.numRowsTotal)
    }
    assert(batches.map(_.rows.map(seconds(_, 0))) == Seq(Seq(0.0, 11.0), Seq(), Seq(), Seq(), Seq(23.0)))
    assert(kept == Seq(1, 1, 1, 0, 0))
  }

  test("the output of dropDuplicatesWithinWatermark is aggregated in the batch that closes it") {
    val s = keyed()
    s.add(f(5), Row(t(0), "a"), Row(t(1), "b")).add("[]", Row(t(6), "a"), Row(t(7), "c"))
    val frame = read(s).withWatermark("time", "10 seconds").dropDuplicatesWithinWatermark("k").groupBy("time").count()
    assert(runAll(frame).map(_.rows.map(r => (seconds(r, 0), r.getLong(1))).toSet) == Seq(Set((0.0, 1L), (1.0, 1L)),
      Set((7.0, 1L))))
  }

  test("dropDuplicatesWithinWatermark needs a timestamp") {
    val s = script("product(event timestamp, iter int64)", "k" -> StringType)
    s.add("[]", Row(Row(t(0), 0L), "a"))
    val message = failure(read(s).dropDuplicatesWithinWatermark("k"))
    assert(message.contains("[STRANDLINE_OPERATOR_UNSUPPORTED]") && message.contains("dropDuplicatesWithinWatermark"))
  }

  private def withTimers(frame: DataFrame, mode: TimeMode = TimeMode.EventTime()): DataFrame = {
    import spark.implicits._
    frame.select("time", "k").as[(java.sql.Timestamp, String)].groupByKey(_._2)
      .transformWithState(new AlarmProcessor, mode, OutputMode.Append()).toDF("k", "at", "watermark")
  }

  private val rocks = "spark.sql.streaming.stateStore.providerClass" ->
    "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

  test("a timer of transformWithState fires in the batch whose frontier passes it, to the millisecond") {
    withConf(rocks) {
      val s = keyed()
      s.add(f(5), Row(t(1), "a"), Row(t(2), "b"))
        .add(f(11)) // a's timer is at 11, which is still open
        .add(f(11.001))
        .add(f(11.5), Row(t(11.4), "c"))
        .add("[]")
      val fired =
        runAll(withTimers(read(s))).map(_.rows.map(r => (r.getString(0), (r.getLong(1) - origin / 1000) / 1000.0)).toSet)
      assert(fired == Seq(Set(), Set(), Set(("a", 11.0)), Set(), Set(("b", 12.0), ("c", 21.4))))
    }
  }

  test("rows behind the frontier fail the batch before transformWithState can drop them") {
    withConf(rocks) {
      val s = keyed()
      s.add(f(5), Row(t(1), "a")).add(f(9), Row(t(4), "a"))
      assert(failure(withTimers(read(s))).contains("[STRANDLINE_ROW_BEHIND_FRONTIER]"))
    }
  }

  test("timers over other times than timestamps are refused") {
    withConf(rocks) {
      val s = script("product(event timestamp, iter int64)", "k" -> StringType)
      s.add("[]", Row(Row(t(0), 0L), "a"))
      import spark.implicits._
      val frame = read(s).select(col("time"), col("time.event").as("event"), col("k")).as[(Pair, java.sql.Timestamp, String)]
        .groupByKey(_._3).transformWithState(new PairProcessor, TimeMode.EventTime(), OutputMode.Append()).toDF()
      val message = failure(frame)
      assert(message.contains("[STRANDLINE_OPERATOR_UNSUPPORTED]") && message.contains("timers are timestamps"))
    }
  }

  test("flatMapGroupsWithState is Spark's own, but its event-time timeout is refused") {
    import spark.implicits._
    val s = keyed()
    s.add(f(5), Row(t(1), "a"), Row(t(2), "b")).add(f(9), Row(t(6), "a"))
    def counted(timeout: GroupStateTimeout) = read(s).select("k").as[String].groupByKey(identity)
      .flatMapGroupsWithState[Long, (String, Long)](OutputMode.Append(), timeout) {
        (k: String, rows: Iterator[String], state: GroupState[Long]) =>
          state.update(state.getOption.getOrElse(0L) + rows.size)
          Iterator((k, state.get))
      }.toDF()
    assert(emitted(counted(GroupStateTimeout.NoTimeout)) == Seq(Set(Row("a", 1L), Row("b", 1L)), Set(Row("a", 2L))))
    val frame = read(s).as[(java.sql.Timestamp, String)].groupByKey(_._2)
      .flatMapGroupsWithState[Long, String](OutputMode.Append(), GroupStateTimeout.EventTimeTimeout) {
        (k: String, _: Iterator[(java.sql.Timestamp, String)], _: GroupState[Long]) => Iterator(k)
      }.toDF()
    val message = failure(frame)
    assert(message.contains("[STRANDLINE_OPERATOR_UNSUPPORTED]") && message.contains("transformWithState"))
  }
}

final case class Pair(event: java.sql.Timestamp, iter: Long)

/** Sets a timer ten seconds after each row, and emits a row when it fires. */
class AlarmProcessor extends StatefulProcessor[String, (java.sql.Timestamp, String), (String, Long, Long)] {
  override def init(outputMode: OutputMode, timeMode: TimeMode): Unit = ()
  override def handleInputRows(
      key: String, rows: Iterator[(java.sql.Timestamp, String)], timers: TimerValues): Iterator[(String, Long, Long)] = {
    rows.foreach(row => getHandle.registerTimer(row._1.getTime + 10000))
    Iterator.empty
  }
  override def handleExpiredTimer(key: String, timers: TimerValues, expired: ExpiredTimerInfo): Iterator[(String, Long, Long)] =
    Iterator((key, expired.getExpiryTimeInMs(), timers.getCurrentWatermarkInMs()))
}

class PairProcessor extends StatefulProcessor[String, (Pair, java.sql.Timestamp, String), String] {
  override def init(outputMode: OutputMode, timeMode: TimeMode): Unit = ()
  override def handleInputRows(
      key: String, rows: Iterator[(Pair, java.sql.Timestamp, String)], timers: TimerValues): Iterator[String] = Iterator(key)
}
