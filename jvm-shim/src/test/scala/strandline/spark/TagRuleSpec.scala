package strandline.spark

import org.apache.spark.sql.{classic, AnalysisException, DataFrame}
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.plans.logical.{Aggregate, EventTimeWatermark, UnresolvedDataSource}
import org.apache.spark.sql.catalyst.util.CaseInsensitiveMap
import org.apache.spark.sql.functions._
import org.apache.spark.sql.types._

/** Which columns of a plan are times, as their field metadata says. */
class TagRuleSpec extends StreamSpec {
  private val second = 1000000L

  private def timestamps: DataFrame = read(script("timestamp", "k" -> LongType))

  test("a source's time column is tagged, and knows that the extension is there") {
    val s = script("int64")
    val frame = read(s)
    assert(tag(frame, "time").contains(TimeColumn(TimeDomain.parse("int64"), Summary.identity)))
    assert(frame.schema("time").metadata.getLong(EventTimeWatermark.delayKey) == 0)
    s.add("[1]")
    runAll(frame)
    assert(s.options.get("strandline.extension").contains(BuildInfo.version))
  }

  test("renaming, filtering, ordering by SQL and a join with a table keep the tag") {
    timestamps.createOrReplaceTempView("tagged_stream")
    val table = spark.range(3).withColumnRenamed("id", "k")
    for (frame <- Seq(
        timestamps.withColumnRenamed("time", "at").where("k > 1"),
        timestamps.select(col("time").as("at")),
        spark.sql("SELECT t.time AS at FROM (SELECT * FROM tagged_stream) t"),
        timestamps.join(table, "k").select(col("time").as("at"))
      )) assert(tag(frame, "at").contains(TimeColumn(Scalar.timestamp, Summary.identity)))
  }

  test("an expression other than a window or its bounds loses the tag") {
    for (e <- Seq(date_trunc("hour", col("time")), col("time") + expr("interval 1 hour"), max(col("time")), col("time").cast("string"), coalesce(col("time"), current_timestamp()))) {
      val frame = timestamps.select(e.as("at"))
      assert(tag(frame, "at").isEmpty && !frame.schema("at").metadata.contains(EventTimeWatermark.delayKey), e)
    }
    val parts = read(script("product(event timestamp, iter int64)")).select(col("time.event").as("at"))
    assert(tag(parts, "at").isEmpty)
  }

  test("windows are read out of what Spark's analyser made of them") {
    val tumbling = timestamps.groupBy(window(col("time"), "10 seconds")).count()
    assert(tag(tumbling, "window").contains(TimeColumn(Scalar.timestamp, Summary.identity, Some(Windows(10 * second, 10 * second, 0)))))
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
      assert(tag(twice, "end").contains(TimeColumn(Scalar.timestamp, Summary(Seq(WindowStep("time", w), WindowStep("end", minute))))))
    }
    assert(bounds.schema("start").metadata.getString("strandline.summary") == """[{"window":"start","width":10000000,"slide":10000000,"offset":0}]""")
  }

  test("a plan that is analysed in one go, as Spark Connect sends it, is tagged alike") {
    val s = script("timestamp")
    val session = spark.asInstanceOf[classic.SparkSession]
    def whole(sql: String) = session.sessionState.executePlan(session.sessionState.sqlParser.parsePlan(sql).transform {
      case _: UnresolvedRelation =>
        UnresolvedDataSource("strandline-scripted", None, CaseInsensitiveMap(Map("script" -> s.name)), isStreaming = true, Nil)
    }).analyzed
    for (width <- Seq("'10 seconds'", "'10 seconds', '5 seconds'")) {
      val plan = whole(s"SELECT window.start AS time, n FROM (SELECT window, count(*) AS n FROM t GROUP BY window(time, $width)) c")
      val keys = plan.collect { case a: Aggregate => a.groupingExpressions.collect { case k: Attribute => TimeColumn.of(k).flatMap(_.windows) } }
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

  test("a union's times have come by any of its inputs' ways; columns that are no such times are refused") {
    val counts = timestamps.groupBy(window(col("time"), "1 hour")).count()
    val starts = counts.select(col("window.start").as("time"))
    val hour = Windows(3600 * second, 3600 * second, 0)
    val both = Summary(Seq(LeastStep(Seq(Summary.identity, Summary(Seq(WindowStep("start", hour)))))))
    for (union <- Seq(timestamps.select("time").union(starts), timestamps.select("time").union(starts).union(starts).union(timestamps.select("time"))))
      assert(tag(union, "time").contains(TimeColumn(Scalar.timestamp, both)))
    assert(tag(timestamps.union(timestamps), "time").contains(TimeColumn(Scalar.timestamp, Summary.identity)))
    val plain = read(Script.plain(freshName(), "time" -> TimestampType))
    val days = timestamps.groupBy(window(col("time"), "1 day")).count()
    for ((first, other) <- Seq((timestamps.select("time"), plain), (counts, days), (read(script("product(a int64)")), read(script("lex(a int64)")))))
      assert(intercept[StrandlineException](first.union(other)).getCondition == "STRANDLINE_UNION_MISMATCH")
    assert(tag(plain.union(timestamps.select("time")), "time").isEmpty)
  }

  test("a time column of another type than its domain's is refused") {
    val tagged = new MetadataBuilder().putString("strandline.time", "product(a int64, b int64)").build()
    val s = Script.register(new Script(freshName(), StructType(Seq(StructField("time", LongType, nullable = true, tagged))), None))
    assert(intercept[StrandlineException](read(s)).getCondition == "STRANDLINE_TIME_TYPE_MISMATCH")
  }

  test("grouping by something that is not a time stays refused by Spark's checker in append mode") {
    val frame = timestamps.groupBy(date_trunc("hour", col("time"))).count()
    assert(intercept[AnalysisException](runAll(frame)).getMessage.contains("without watermark"))
  }
}
