package strandline.spark.exec

import org.apache.spark.sql.Row
import org.apache.spark.sql.functions._
import org.apache.spark.sql.types._
import strandline.spark.StreamSpec

/** An aggregation emits a group in the batch that closes its time, for every kind of time. */
class FrontierAggregationSpec extends StreamSpec {
  private val hour = 3600L * 1000000

  test(
    "a bare integer time is emitted in the batch whose frontier passes it, and a frontier that moves without rows makes a " +
      "batch") {
    val s = script("int64", "k" -> StringType)
    s.add("[0]", Row(1L, "a"), Row(2L, "a"), Row(1L, "b"))
      .add("[2]", Row(2L, "a"))
      .add("[3]")
    assert(
      emitted(read(s).groupBy("time", "k").count()) ==
        Seq(Set(), Set(Row(1L, "a", 1L), Row(1L, "b", 1L)), Set(Row(2L, "a", 2L))))
  }

  test("a timestamp is open while it equals the frontier") {
    val s = script("timestamp")
    val noon = micros("2013-01-01T12:00:00Z")
    s.add(s"[$noon]", Row(at("2013-01-01T12:00:00Z"))).add(s"[${noon + 1}]")
    assert(emitted(read(s).groupBy("time").count()) == Seq(Set(), Set(Row(at("2013-01-01T12:00:00Z"), 1L))))
  }

  test("small integers and unsigned ones are times") {
    for ((domain, value) <- Seq[(String, Int => Any)]("int8" -> (_.toByte), "int16" -> (_.toShort), "int32" -> identity)) {
      val s = script(domain)
      s.add("[-1]", Row(value(-2)), Row(value(3))).add("[4]")
      assert(emitted(read(s).groupBy("time").count()) == Seq(Set(Row(value(-2), 1L)), Set(Row(value(3), 1L))), domain)
    }
    val s = script("uint64")
    val big = BigInt(1) << 63
    s.add(s"[$big]", Row(new java.math.BigDecimal((big - 1).bigInteger)), Row(new java.math.BigDecimal(big.bigInteger)))
    assert(emitted(read(s).groupBy("time").count().select(col("time").cast("string"))) == Seq(Set(Row((big - 1).toString))))
  }

  test("a time of a product closes when no element of the frontier is at or below it") {
    val s = script("product(epoch int64, iter int64)")
    def row(epoch: Long, iter: Long) = Row(Row(epoch, iter))
    s.add("[[0,2],[1,0]]", row(0, 0), row(0, 1), row(0, 2), row(1, 0), row(1, 5))
      .add("[[0,3],[1,1],[2,0]]")
      .add("[[1,4]]")
      .add("[]")
    assert(
      emitted(read(s).groupBy("time").count().select("time")) ==
        Seq(Set(row(0, 0), row(0, 1)), Set(row(0, 2), row(1, 0)), Set(), Set(row(1, 5))))
  }

  test("a time of three coordinates, of a lexicographic order, and of a nesting of both") {
    val cube = script("product(a int64, b int64, c int64)")
    cube.add("[[0,1,1],[1,0,0]]", Row(Row(0L, 0L, 9L)), Row(Row(0L, 1L, 1L)), Row(Row(1L, 0L, 0L))).add("[]")
    assert(
      emitted(read(cube).groupBy("time").count().select("time")) ==
        Seq(Set(Row(Row(0L, 0L, 9L))), Set(Row(Row(0L, 1L, 1L)), Row(Row(1L, 0L, 0L)))))
    val lex = script("lex(tick int64, iter int64)")
    lex.add("[[1,4]]", Row(Row(0L, 99L)), Row(Row(1L, 3L)), Row(Row(1L, 4L)), Row(Row(2L, 0L))).add("[[2,1]]")
    assert(
      emitted(read(lex).groupBy("time").count().select("time")) ==
        Seq(Set(Row(Row(0L, 99L)), Row(Row(1L, 3L))), Set(Row(Row(1L, 4L)), Row(Row(2L, 0L)))))
    val nested = script("product(event timestamp, loop lex(tick int64, iter int64))")
    def row(text: String, tick: Long, iter: Long) = Row(Row(at(text), Row(tick, iter)))
    val (early, late) = ("2013-01-01T00:00:00Z", "2013-01-02T00:00:00Z")
    nested.add(s"[[${micros(early)},[1,2]]]", row(early, 1, 1), row(late, 0, 7), row(late, 1, 2)).add(
      s"[[${micros(late)},[1,3]]]")
    assert(
      emitted(read(nested).groupBy("time").count().select("time")) ==
        Seq(Set(row(early, 1, 1), row(late, 0, 7)), Set(row(late, 1, 2))))
  }

  test("a tumbling window closes when its end is at the frontier") {
    val s = script("timestamp")
    val start = micros("2013-01-01T00:00:00Z")
    s.add(s"[${start + hour - 1}]", Row(at("2013-01-01T00:00:00Z")), Row(at("2013-01-01T00:59:59Z")),
      Row(at("2013-01-01T01:00:00Z")))
      .add(s"[${start + hour}]")
    assert(
      emitted(read(s).groupBy(window(col("time"), "1 hour")).count().select(col("window.start").as("time"), col("count"))) ==
        Seq(Set(), Set(Row(at("2013-01-01T00:00:00Z"), 2L))))
  }

  test("sliding windows with an offset close at their own ends") {
    val s = script("timestamp")
    val start = micros("2013-01-01T00:00:00Z")
    s.add(s"[${start + 35 * hour / 60}]", Row(at("2013-01-01T00:20:00Z"))).add(s"[${start + 2 * hour}]")
    // Windows of 30 minutes start at 5, 25 and 45 past, so only [0:05, 0:35) contains 0:20.
    val windows = read(s).groupBy(window(col("time"), "30 minutes", "20 minutes", "5 minutes")).count()
    assert(
      emitted(windows.select(col("window.end").as("time"), col("count"))) == Seq(Set(Row(at("2013-01-01T00:35:00Z"), 1L)), Set()))
    val overlapping = read(s).groupBy(window(col("time"), "1 hour", "20 minutes")).count()
    assert(
      emitted(overlapping.select(col("window.end"))) ==
        Seq(Set(), Seq("00:40", "01:00", "01:20").map(t => Row(at(s"2013-01-01T$t:00Z"))).toSet))
  }

  test("windows over one coordinate of a product close when no open time is in them, also in a chain") {
    val s = script("product(hour timestamp, carrier int64)", "n" -> LongType)
    val start = micros("2013-01-01T00:00:00Z")
    def row(text: String, carrier: Long) = Row(Row(at(text), carrier), 1L)
    s.add(s"[[$start,2],[${start + 24 * hour},1]]", row("2013-01-01T10:00:00Z", 1), row("2013-01-01T11:00:00Z", 2))
      .add(s"[[${start + 11 * hour},2],[${start + 24 * hour},1]]", row("2013-01-01T11:00:00Z", 3))
      .add(s"[[${start + 24 * hour},1]]")
    val hourly = read(s).groupBy("time").agg(sum("n").as("n"))
    val daily = hourly.groupBy(window(col("time.hour"), "1 day")).agg(sum("n").as("n"))
    assert(emitted(daily.select(col("window.start").as("time"), col("n"))) == Seq(Set(), Set(),
      Set(Row(at("2013-01-01T00:00:00Z"), 3L))))
  }

  test("two and three chained aggregations close in the same batch") {
    val s = script("timestamp", "k" -> LongType)
    val start = micros("2013-01-01T00:00:00Z")
    s.add(s"[${start + hour}]", Row(at("2013-01-01T00:10:00Z"), 1L), Row(at("2013-01-01T00:20:00Z"), 2L),
      Row(at("2013-01-01T23:10:00Z"), 1L))
      .add(s"[${start + 24 * hour}]", Row(at("2013-01-01T05:10:00Z"), 1L))
    val hourly = read(s).groupBy(window(col("time"), "1 hour"), col("k")).count()
    val perHour = hourly.groupBy("window").agg(sum("count").as("n"))
    val daily = perHour.groupBy(window(col("window.start"), "1 day")).agg(sum("n").as("n"), count("*").as("hours"))
    assert(emitted(perHour.select(col("n"))) == Seq(Set(Row(2L)), Set(Row(1L))))
    assert(
      emitted(daily.select(col("window.start").as("time"), col("n"), col("hours"))) ==
        Seq(Set(), Set(Row(at("2013-01-01T00:00:00Z"), 4L, 3L))))
    val byWindowTime = hourly.select(window_time(col("window")).as("time"), col("count")).groupBy(window(col("time"), "1 day"))
    assert(emitted(byWindowTime.agg(sum("count"))).map(_.map(_.getLong(1))) == Seq(Set(), Set(4L)))
  }

  test("a struct time is kept through two aggregations") {
    val s = script("product(epoch int64, iter int64)", "k" -> LongType)
    s.add("[[0,1],[1,0]]", Row(Row(0L, 0L), 1L), Row(Row(0L, 0L), 2L), Row(Row(1L, 0L), 1L)).add("[]")
    val chained = read(s).groupBy("time", "k").count().groupBy("time").agg(count("*").as("n"))
    assert(emitted(chained) == Seq(Set(Row(Row(0L, 0L), 2L)), Set(Row(Row(1L, 0L), 1L))))
  }

  test("a union waits for its slowest source, also if it is idle") {
    val (fast, slow) = (script("int64"), script("int64"))
    slow.add("[2]")
    fast.add("[10]", Row(1L), Row(3L)).add("[11]", Row(10L)).add("[]")
    val batches = runAll(read(fast).union(read(slow)).groupBy("time").count())
    assert(batches.map(_.rows.toSet) == Seq(Set(Row(1L, 1L)), Set(), Set()))
    // The slow source wakes up. Its rows are not late, whatever the other sources stated.
    slow.add("[]", Row(3L))
    assert(
      emitted(read(slow).union(read(fast)).groupBy("time").count()).flatten.toSet == Set(Row(1L, 1L), Row(3L, 2L), Row(10L, 1L)))
  }

  test("update mode emits changed groups and forgets closed ones") {
    val s = script("int64")
    s.add("[2]", Row(1L), Row(2L)).add("[2]", Row(2L)).add("[3]", Row(2L), Row(5L))
    val checkpoint = tempDir()
    var kept = Seq.empty[Long]
    val batches = run(read(s).groupBy("time").count(), "update", checkpoint) { query =>
      query.processAllAvailable()
      kept = query.recentProgress.toSeq.filter(_.stateOperators.nonEmpty).map(_.stateOperators.head.numRowsTotal)
    }
    assert(batches.map(_.rows.toSet) == Seq(Set(Row(1L, 1L), Row(2L, 1L)), Set(Row(2L, 2L)), Set(Row(2L, 3L), Row(5L, 1L))))
    assert(kept.last == 1)
  }

  test("update mode without a time in the key keeps every group; complete mode is Spark's own") {
    val s = script("int64", "k" -> StringType)
    s.add("[2]", Row(1L, "a")).add("[]", Row(2L, "a"))
    assert(emitted(read(s).groupBy("k").count(), "update") == Seq(Set(Row("a", 1L)), Set(Row("a", 2L))))
    assert(emitted(read(s).groupBy("time").count(), "complete") == Seq(Set(Row(1L, 1L)), Set(Row(1L, 1L), Row(2L, 1L))))
  }

  test("a key of two times closes with the first of them") {
    val s = script("timestamp")
    val start = micros("2013-01-01T00:00:00Z")
    s.add(s"[${start + 1}]", Row(at("2013-01-01T00:00:00Z")))
    assert(emitted(read(s).groupBy(window(col("time"), "1 hour"), col("time")).count().select("count")) == Seq(Set(Row(1L))))
  }

  test("a restart replays the last batch with the same frontier, in both checkpoint formats and with RocksDB") {
    val rocksDb = "spark.sql.streaming.stateStore.providerClass" ->
      "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    val formats = Seq(Seq.empty, Seq(rocksDb, "spark.sql.streaming.stateStore.checkpointFormatVersion" -> "2"))
    for (settings <- formats) withConf(settings: _*) {
      val s = script("int64")
      s.add("[2]", Row(1L), Row(2L)).add("[3]", Row(3L))
      val checkpoint = tempDir()
      val frame = read(s).groupBy("time").count()
      assert(emitted(frame, checkpoint = checkpoint) == Seq(Set(Row(1L, 1L)), Set(Row(2L, 1L))))
      val commits = java.nio.file.Paths.get(checkpoint, "commits")
      java.nio.file.Files.delete(commits.resolve("1"))
      java.nio.file.Files.deleteIfExists(commits.resolve(".1.crc"))
      s.add("[]")
      val replayed = runAll(frame, checkpoint = checkpoint)
      assert(replayed.map(b => b.id -> b.rows.toSet) == Seq(1L -> Set(Row(2L, 1L)), 2L -> Set(Row(3L, 1L))))
    }
  }

  test("availableNow runs all batches and leaves no closed group in the state") {
    val s = script("int64")
    s.add("[2]", Row(1L), Row(2L)).add("[3]").add("[]", Row(7L))
    val batches =
      run(read(s).groupBy("time").count(), trigger = org.apache.spark.sql.streaming.Trigger.AvailableNow())(_.awaitTermination())
    assert(batches.map(_.rows.toSet) == Seq(Set(Row(1L, 1L)), Set(Row(2L, 1L)), Set(Row(7L, 1L))))
  }

  test("SQL over a view of the stream, with the window's start as the time") {
    val s = script("timestamp")
    val start = micros("2013-01-01T00:00:00Z")
    s.add(s"[${start + hour}]", Row(at("2013-01-01T00:10:00Z")))
    read(s).createOrReplaceTempView("flights_stream")
    val frame = spark.sql("SELECT window.start AS time, count(*) AS n FROM flights_stream GROUP BY window(time, '1 hour')")
    assert(emitted(frame) == Seq(Set(Row(at("2013-01-01T00:00:00Z"), 1L))))
  }
}
