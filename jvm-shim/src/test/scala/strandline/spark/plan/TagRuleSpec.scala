package strandline.spark.plan

import org.apache.spark.sql.{classic, AnalysisException, DataFrame, Row}
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.plans.logical.{Aggregate, EventTimeWatermark, UnresolvedDataSource}
import org.apache.spark.sql.catalyst.util.CaseInsensitiveMap
import org.apache.spark.sql.functions._
import org.apache.spark.sql.types._
import strandline.spark.{Script, StreamSpec}
import strandline.spark.compat.BuildInfo
import strandline.spark.errors.StrandlineException
import strandline.spark.time.{LeastStep, Scalar, ShiftStep, Summary, TimeColumn, TimeDomain, Windows, WindowStep}

/** Which columns of a plan are times, by their field metadata. */
class TagRuleSpec extends StreamSpec {
  private val second = 1000000L

  private def timestamps: DataFrame = read(script("timestamp", "k" -> LongType))

  test("a source's time column is tagged, and the source gets the extension's option") {
    val s = script("int64")
    val frame = read(s)
    assert(tag(frame, "time").contains(TimeColumn(TimeDomain.parse("int64"), Summary.identity)))
    assert(frame.schema("time").metadata.getLong(EventTimeWatermark.delayKey) == 0)
    s.add("[1]")
    runAll(frame)
    assert(s.options.get("strandline.extension").contains(BuildInfo.version))
  }

  test("a session with the extension hides every option of a storage, unless it has a pattern of its own") {
    val key = "spark.sql.redaction.options.regex"
    def shown = spark.readStream.format("rate").option("storage.AZURE_STORAGE_ACCOUNT_KEY", "hidden-value").load()
      .queryExecution.logical.toString
    spark.conf.unset(key)
    assert(!shown.contains("hidden-value"))
    assert(spark.conf.get(key).contains("storage"))
    spark.conf.set(key, "(?i)mine")
    try {
      shown
      assert(spark.conf.get(key) == "(?i)mine")
    } finally spark.conf.unset(key)
  }

  test("renaming, filtering, ordering by SQL and a join with a table keep the tag") {
    timestamps.createOrReplaceTempView("tagged_stream")
    val table = spark.range(3).withColumnRenamed("id", "k")
    for (frame <- Seq(
        timestamps.withColumnRenamed("time", "at").where("k > 1"),
        timestamps.select(col("time").as("at")),
        spark.sql("SELECT t.time AS at FROM (SELECT * FROM tagged_stream) t"),
        timestamps.join(table, "k").select(col("time").as("at"))))
      assert(tag(frame, "at").contains(TimeColumn(Scalar.timestamp, Summary.identity)))
  }

  test("an expression other than a window or its bounds loses the tag") {
    for (e <- Seq(date_trunc("hour", col("time")), col("time") + expr("interval 1 hour"), max(col("time")),
        col("time").cast("string"), coalesce(col("time"), current_timestamp()))) {
      val frame = timestamps.select(e.as("at"))
      assert(tag(frame, "at").isEmpty && !frame.schema("at").metadata.contains(EventTimeWatermark.delayKey), e)
    }
    val parts = read(script("product(event timestamp, iter int64)")).select(col("time.event").as("at"))
    assert(tag(parts, "at").isEmpty)
  }

  test("windows are recognised in the expressions of Spark's analyser") {
    val tumbling = timestamps.groupBy(window(col("time"), "10 seconds")).count()
    assert(tag(tumbling, "window").contains(TimeColumn(Scalar.timestamp, Summary.identity,
          Some(Windows(10 * second, 10 * second, 0)))))
    assert(!tumbling.schema("window").metadata.contains(TimeColumn.TimeKey))
    val sliding = timestamps.groupBy(window(col("time"), "10 seconds", "4 seconds", "1 second")).count()
    assert(tag(sliding, "window").flatMap(_.windows).contains(Windows(10 * second, 4 * second, second)))
    val negative = timestamps.groupBy(window(col("time"), "10 seconds", "10 seconds", "-3 seconds")).count()
    assert(tag(negative, "window").flatMap(_.windows).contains(Windows(10 * second, 10 * second, -3 * second)))
  }

  test("a window's bounds carry the path summary, through windows of windows") {
    val w = Windows(10 * second, 10 * second, 0)
    val counts = timestamps.groupBy(window(col("time"), "10 seconds")).count()
    val bounds = counts.select(col("window.start"), col("window.end").as("e"), window_time(col("window")).as("t"))
    assert(tag(bounds, "start").contains(TimeColumn(Scalar.timestamp, Summary(Seq(WindowStep("start", w))))))
    assert(tag(bounds, "e").contains(TimeColumn(Scalar.timestamp, Summary(Seq(WindowStep("end", w))))))
    assert(tag(bounds, "t").contains(TimeColumn(Scalar.timestamp, Summary(Seq(WindowStep("time", w))))))
    val minute = Windows(60 * second, 60 * second, 0)
    for (again <- Seq(window(col("window"), "1 minute"), window(window_time(col("window")), "1 minute"))) {
      val twice = counts.groupBy(again).count().select("window.end")
      assert(tag(twice, "end").contains(TimeColumn(Scalar.timestamp,
            Summary(Seq(WindowStep("time", w), WindowStep("end", minute))))))
    }
    assert(bounds.schema("start").metadata.getString(
      "strandline.summary") == """[{"window":"start","width":10000000,"slide":10000000,"offset":0}]""")
  }

  test("a plan that is analysed at once, as in Spark Connect, gets the same tags") {
    val s = script("timestamp")
    val session = spark.asInstanceOf[classic.SparkSession]
    def whole(sql: String) = session.sessionState.executePlan(session.sessionState.sqlParser.parsePlan(sql).transform {
      case _: UnresolvedRelation =>
        UnresolvedDataSource("strandline-scripted", None, CaseInsensitiveMap(Map("script" -> s.name)), isStreaming = true, Nil)
    }).analyzed
    for (width <- Seq("'10 seconds'", "'10 seconds', '5 seconds'")) {
      val plan =
        whole(s"SELECT window.start AS time, n FROM (SELECT window, count(*) AS n FROM t GROUP BY window(time, $width)) c")
      val keys = plan.collect { case a: Aggregate =>
        a.groupingExpressions.collect { case k: Attribute => TimeColumn.of(k).flatMap(_.windows) }
      }
      assert(keys.flatten.flatten.collect { case w: Windows => w.width } == Seq(10 * second))
      assert(plan.output.map(TimeColumn.of(_).map(_.summary.steps.size)) == Seq(Some(1), None))
    }
  }

  test("withWatermark on the time column leaves its tag as it is; on another column it is refused") {
    val frame = timestamps.withWatermark("time", "10 minutes").groupBy("time").count()
    assert(tag(frame, "time") == tag(timestamps, "time"))
    assert(frame.schema("time").metadata.getLong(EventTimeWatermark.delayKey) == 600000)
    val e = intercept[StrandlineException](read(script("timestamp", "other" -> TimestampType)).withWatermark("other", "1 minute"))
    assert(e.getCondition == "STRANDLINE_WATERMARK_UNSUPPORTED" && e.getSqlState == "0A000")
  }

  test("a union's times have the least of its inputs' summaries; a column without times in one input is refused") {
    val counts = timestamps.groupBy(window(col("time"), "1 hour")).count()
    val starts = counts.select(col("window.start").as("time"))
    val hour = Windows(3600 * second, 3600 * second, 0)
    val both = Summary(Seq(LeastStep(Seq(Summary.identity, Summary(Seq(WindowStep("start", hour)))))))
    for (union <- Seq(timestamps.select("time").union(starts),
        timestamps.select("time").union(starts).union(starts).union(timestamps.select("time"))))
      assert(tag(union, "time").contains(TimeColumn(Scalar.timestamp, both)))
    assert(tag(timestamps.union(timestamps), "time").contains(TimeColumn(Scalar.timestamp, Summary.identity)))
    val plain = read(Script.plain(freshName(), "time" -> TimestampType))
    val days = timestamps.groupBy(window(col("time"), "1 day")).count()
    for ((first, other) <-
        Seq((timestamps.select("time"), plain), (counts, days), (read(script("product(a int64)")), read(script("lex(a int64)")))))
      assert(intercept[StrandlineException](first.union(other)).getCondition == "STRANDLINE_UNION_MISMATCH")
    assert(tag(plain.union(timestamps.select("time")), "time").isEmpty)
  }

  test("a time column of another type than its domain's is refused") {
    val tagged = new MetadataBuilder().putString("strandline.time", "product(a int64, b int64)").build()
    val s =
      Script.register(new Script(freshName(), StructType(Seq(StructField("time", LongType, nullable = true, tagged))), None))
    s.states = true
    assert(intercept[StrandlineException](read(s)).getCondition == "STRANDLINE_TIME_TYPE_MISMATCH")
  }

  test("grouping by something that is not a time stays refused by Spark's checker in append mode") {
    val frame = timestamps.groupBy(date_trunc("hour", col("time"))).count()
    assert(intercept[AnalysisException](runAll(frame)).getMessage.contains("STRANDLINE_AGGREGATION_WITHOUT_TIME"))
  }

  test("a tag inside a struct does not count, whatever happened to the struct") {
    val s = timestamps
    val latest = s.groupBy(window(col("time"), "1 hour"), col("k")).agg(max(struct("time", "k")).as("m"),
      collect_list(struct("time", "k")).as("all"))
    val schema = s.schema
    for (frame <- Seq(
        latest.select("m.time"),
        latest.select("m.*"),
        latest.select(inline(col("all"))),
        latest.select(explode(col("all")).as("one")).select("one.time"),
        latest.select(col("all").getItem(0).getField("time").as("time")),
        s.select(struct("time", "k").as("s")).select("s.time"),
        s.select(struct("time", "k").as("s")).select(col("s.time").as("a").as("time")),
        s.select(from_json(lit("{}"), schema).as("parsed")).select("parsed.time"),
        s.select(col("time").as("time", org.apache.spark.sql.types.Metadata.empty))))
      assert(tag(frame, "time").isEmpty && !frame.schema("time").metadata.contains(EventTimeWatermark.delayKey), analyzed(frame))
    // An alias of an alias is still the same column.
    assert(tag(s.select(col("time").as("a").as("b")), "b").contains(TimeColumn(Scalar.timestamp, Summary.identity)))
  }

  test("a field that the optimizer takes out of a struct has no tag in the running plan") {
    val s = script("timestamp", "k" -> LongType)
    val later = script("timestamp", "k" -> LongType)
    def hour(h: Int, m: Int) = at(f"2013-01-01T$h%02d:$m%02d:00Z")
    s.add(s"[${micros("2013-01-01T01:30:00Z")}]", Row(hour(1, 5), 1L)).add(s"[${micros("2013-01-01T03:00:00Z")}]")
    later.add(s"[${micros("2013-01-01T01:30:00Z")}]").add(s"[${micros("2013-01-01T03:00:00Z")}]", Row(hour(2, 0), 1L))
    // The group of 1 o'clock comes out when 01:05 is long closed. If m.time were a time, it would be behind the join's
    // frontier.
    val latest = read(s).groupBy(window(col("time"), "1 hour"), col("k")).agg(max(struct("time", "k")).as("m"))
      .select(col("window.end").as("end"), col("k"), col("m"))
    val joined = latest.as("l").join(read(later).as("r"), expr("l.end = r.time AND l.k = r.k")).select(col("m.time").as("first"),
      col("r.time"))
    assert(runAll(joined).flatMap(_.rows) == Seq(Row(hour(1, 5), hour(2, 0))))
  }

  test(
    "rollup and cube have groups that no time closes, so their time has no tag; grouping sets that all contain the time " +
      "keep it") {
    val s = timestamps
    assert(tag(s.rollup("time", "k").count(), "time").isEmpty)
    assert(tag(s.cube(window(col("time"), "1 hour"), col("k")).count(), "window").isEmpty)
    assert(tag(s.withColumn("j", col("k")).groupBy("time").count(), "time").isDefined)
    s.createOrReplaceTempView("grouped_stream")
    val sets = spark.sql("SELECT time, k, count(*) AS n FROM grouped_stream GROUP BY GROUPING SETS ((time, k), (time))")
    assert(tag(sets, "time").contains(TimeColumn(Scalar.timestamp, Summary.identity)))
    assert(tag(spark.sql("SELECT time, k, count(*) AS n FROM grouped_stream GROUP BY time, ROLLUP(k)"), "time").isDefined)
    assert(intercept[AnalysisException](runAll(s.rollup("time", "k").count())).getMessage.contains(
        "STRANDLINE_AGGREGATION_WITHOUT_TIME"))
  }

  test("rollup over a time counts every group in update and complete mode") {
    for ((mode, groups) <- Seq("update" -> 3, "complete" -> 5)) {
      val s = script("int64", "k" -> LongType)
      s.add("[2]", Row(1L, 1L)).add("[3]", Row(2L, 1L))
      val batches = emitted(read(s).rollup("time", "k").count(), mode)
      assert(batches.head == Set(Row(1L, 1L, 1L), Row(1L, null, 1L), Row(null, null, 1L)))
      assert(batches(1).contains(Row(null, null, 2L)) && batches(1).size == groups, mode)
    }
  }

  test("a schema with our tag does not make a source state frontiers, and a table with it has no stream of times") {
    val s = timestamps
    val folder = tempDir()
    val files = spark.readStream.schema(s.schema).json(folder)
    val table = spark.createDataFrame(java.util.List.of[Row](), s.schema)
    // Alone they behave as in Spark. Beside our stream, the union says what does not match.
    assert(intercept[StrandlineException](s.union(files)).getCondition == "STRANDLINE_UNION_MISMATCH")
    assert(tag(files.union(s), "time").isEmpty)
    val joined = s.as("l").join(table.as("r"), "k").select(col("l.time").as("a"), col("r.time").as("b"))
    assert(tag(joined, "a").isDefined && tag(joined, "b").isEmpty)
    assert(tag(s.join(table.select(col("time").as("b"), col("k")), "k").where("k > 1").select("b"), "b").isEmpty)
  }

  test("a watermark of another stream is refused wherever it stands in the query") {
    val other = read(Script.plain(freshName(), "other" -> TimestampType)).withWatermark("other", "1 second")
    for (frame <- Seq[() => DataFrame](
        () => timestamps.select(lit(1L).as("n")).union(other.select(lit(2L).as("n"))),
        () => other.dropDuplicates("other").select(lit(1L).as("n")).union(timestamps.select(col("k").as("n"))),
        () => timestamps.join(other, expr("k = 1"))))
      assert(intercept[StrandlineException](frame()).getCondition == "STRANDLINE_WATERMARK_UNSUPPORTED")
  }

  test("a row that waits for one time has no other time, unless it was derived from that one") {
    val (a, b) = (timestamps, timestamps)
    def both(key: String) =
      a.withColumn("w", window(col("time"), "1 hour")).as("a").join(b.withColumn("w", window(col("time"), "1 hour")).as("b"),
        expr(key))
    val byWindow = both("a.w = b.w AND a.k = b.k")
    assert(tag(byWindow.select("a.time"), "time").isEmpty && tag(byWindow.select("b.time"), "time").isEmpty)
    assert(tag(byWindow.select("a.w"), "w").isDefined && tag(byWindow.select("b.w.start"), "start").isDefined)
    val byTime = both("a.time = b.time AND a.k = b.k")
    for (column <- Seq("a.time", "b.time", "a.w", "b.w")) assert(tag(byTime.select(col(column).as("c")), "c").isDefined, column)
    // Still the same time after a renaming, or out of a sliding window.
    val renamed =
      a.select(col("time").as("t"), col("k")).select(col("t"), window(col("t"), "10 seconds", "5 seconds").as("w"), col("k"))
    val sliding = renamed.as("a").join(b.as("b"), expr("a.t = b.time")).select("a.w")
    assert(tag(sliding, "w").isDefined)
    // Two unrelated times of one row.
    val pairs = a.as("a").join(b.as("b"), expr("a.k = b.k AND a.time BETWEEN b.time AND b.time + INTERVAL 1 HOUR"))
      .select(col("a.time").as("x"), window(col("b.time"), "1 minute").as("w"), col("a.k"))
    assert(tag(pairs, "x").isDefined && tag(pairs, "w").isDefined)
    val again = pairs.join(timestamps.as("c"), expr("x = c.time"))
    assert(tag(again.select("x"), "x").isDefined && tag(again.select("w"), "w").isEmpty)
  }

  test("the delay of withWatermark on a time stays with times derived from it") {
    val s = timestamps.withWatermark("time", "10 minutes")
    def delay(frame: DataFrame, column: String) = frame.schema(column).metadata.getLong(EventTimeWatermark.delayKey)
    val steps = """[{"shift":1}]"""
    val moved = s.select(expr(s"strandline_move(time, 'timestamp', '$steps')").as("time"))
    for ((frame, column) <- Seq(
        s.select("time").union(moved) -> "time",
        moved -> "time",
        s.groupBy(window(col("time"), "1 hour")).count().select(window_time(col("window")).as("t")) -> "t",
        s.as("l").join(timestamps.as("r"), expr("l.time BETWEEN r.time AND r.time + INTERVAL 1 HOUR")).select(
          "l.time") -> "time")) assert(delay(frame, column) == 600000, analyzed(frame))
  }

  test("a common table expression keeps its times") {
    timestamps.createOrReplaceTempView("cte_stream")
    val frame = spark.sql(
      "WITH x AS (SELECT time AS at, k FROM cte_stream WHERE k > 0), y AS (SELECT * FROM x) SELECT at, window(at, '1 hour') " +
        "AS w, count(*) AS n FROM y GROUP BY at, window(at, '1 hour')")
    assert(tag(frame, "at").contains(TimeColumn(Scalar.timestamp, Summary.identity)) && tag(frame, "w").isDefined,
      analyzed(frame))
    val twice =
      spark.sql("WITH x AS (SELECT time AS at, k FROM cte_stream) SELECT a.at FROM x a JOIN x b ON a.at = b.at AND a.k = b.k")
    assert(tag(twice, "at").contains(TimeColumn(Scalar.timestamp, Summary.identity)), analyzed(twice))
  }

  test("a lateral subquery yields no times, and a view stored as SQL yields the times of its query as analysed now") {
    val s = timestamps
    s.select(from_json(lit("{}"), s.schema).as("j"), col("time"), col("k")).createOrReplaceTempView("lateral_stream")
    val lateral =
      spark.sql("SELECT l.time AS a, s.time AS b, s.k FROM (SELECT * FROM lateral_stream) s, LATERAL (SELECT j.time) l")
    assert(tag(lateral, "a").isEmpty && tag(lateral, "b").isDefined, analyzed(lateral))
    assert(intercept[AnalysisException](runAll(lateral.groupBy("a").count())).getMessage.contains(
        "STRANDLINE_AGGREGATION_WITHOUT_TIME"))

    s.createOrReplaceTempView("view_below")
    spark.sql("CREATE OR REPLACE TEMP VIEW view_above AS SELECT time, k, window(time, '1 hour') AS w FROM view_below")
    assert(tag(spark.table("view_above"), "time").contains(TimeColumn(Scalar.timestamp, Summary.identity)))
    assert(tag(spark.table("view_above"), "w").flatMap(_.windows).isDefined, analyzed(spark.table("view_above")))
    val hour = """[{"truncate":3600000000,"offset":0}]"""
    s.withColumn("time", expr(s"strandline_move(time, 'timestamp', '$hour')")).createOrReplaceTempView("view_below")
    assert(tag(spark.table("view_above"), "time").map(_.summary).contains(Summary.parse(hour)))
    s.selectExpr("time - INTERVAL 1 HOUR AS time", "k").createOrReplaceTempView("view_below")
    assert(tag(spark.table("view_above"), "time").isEmpty && tag(spark.table("view_above"), "w").isEmpty)
  }

  test("an equality of two columns of one side does not make a join on equal times") {
    val a = timestamps.withColumn("t2", col("time"))
    for (condition <- Seq("a.time = a.t2", "a.t2 = a.time")) {
      val joined = a.as("a").join(timestamps.as("b"),
        expr(s"$condition AND a.k = b.k AND a.time BETWEEN b.time - INTERVAL 1 HOUR AND b.time")).select("a.time")
      assert(tag(joined, "time").map(_.summary).contains(Summary(Seq(ShiftStep(-3600 * second)))), condition)
    }
  }

  test("a time beside a session is behind when the session comes out") {
    val sessions = timestamps.groupBy(session_window(col("time"), "1 hour"), col("time")).count()
    assert(tag(sessions.select("time"), "time").isEmpty)
    assert(tag(sessions.select("session_window.end"), "end").isDefined)
  }

  test("an unused time of a row that waited for a window is pruned, because Spark's join accepts one time on a side") {
    val (a, b) = (script("timestamp", "k" -> LongType), script("timestamp", "k" -> LongType))
    def hour(h: Int, m: Int) = at(f"2013-01-01T$h%02d:$m%02d:00Z")
    a.add(s"[${micros("2013-01-01T01:30:00Z")}]", Row(hour(1, 5), 1L)).add(s"[${micros("2013-01-01T03:00:00Z")}]")
    b.add(s"[${micros("2013-01-01T01:30:00Z")}]").add(s"[${micros("2013-01-01T03:00:00Z")}]", Row(hour(1, 40), 1L))
    def windowed(s: Script) = read(s).withColumn("w", window(col("time"), "1 hour"))
    val joined = windowed(a).as("a").join(windowed(b).as("b"), expr("a.w = b.w AND a.k = b.k")).select(col("a.k"),
      col("a.w.start").as("start"))
    assert(runAll(joined).flatMap(_.rows) == Seq(Row(1L, hour(1, 0))))
  }
}
