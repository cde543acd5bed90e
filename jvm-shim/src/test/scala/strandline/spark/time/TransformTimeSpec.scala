package strandline.spark.time

import org.apache.spark.sql.{classic, Column, DataFrame, Row}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation
import org.apache.spark.sql.catalyst.expressions.{BoundReference, GenericInternalRow, UnsafeProjection}
import org.apache.spark.sql.catalyst.plans.logical.{Aggregate, UnresolvedDataSource}
import org.apache.spark.sql.catalyst.util.CaseInsensitiveMap
import org.apache.spark.sql.functions._
import org.apache.spark.sql.streaming.{OutputMode, TimeMode}
import org.apache.spark.sql.types._
import strandline.spark.StreamSpec
import strandline.spark.errors.StrandlineException
import strandline.spark.planner.AlarmProcessor

/** The function that transforms a row's time, and the tag of its result. */
class TransformTimeSpec extends StreamSpec {
  private val nested = "product(event timestamp, loop lex(outer uint64, inner int16), n int8)"

  private def move(time: Column, domain: String, steps: String): Column =
    call_function("strandline_move", time, lit(domain), lit(steps))

  /**
   * Evaluates the steps on a time, by generated code and by the interpreter. A struct is passed as the row of Spark's
   * operators.
   */
  private def evaluate(domain: String, steps: Step*)(value: Any): Seq[Any] = {
    val from = TimeDomain.parse(domain)
    val time = TransformTime(BoundReference(0, from.dataType, nullable = true), from, steps.map(_.asInstanceOf[TimeStep]))
    val row = UnsafeProjection.create(Array[DataType](from.dataType))(new GenericInternalRow(Array[Any](value))).copy()
    val generated = UnsafeProjection.create(Seq(time))(row).copy()
    def plain(found: Any, kind: DataType): Any = (found, kind) match {
      case (struct: InternalRow, fields: StructType) => fields.zipWithIndex.map { case (f, i) =>
          plain(struct.get(i, f.dataType), f.dataType)
        }.toSeq
      case (other, _) => other
    }
    val found = Seq(if (generated.isNullAt(0)) null else generated.get(0, time.dataType), time.eval(row))
    found.map(plain(_, time.dataType))
  }

  private def struct(values: Any*): InternalRow = new GenericInternalRow(values.toArray)

  test("generated code and the interpreter transform the times of every domain in the same way") {
    for ((name, one) <- Seq[(String, Any)]("int8" -> 1.toByte, "int16" -> 1.toShort, "int32" -> 1, "int64" -> 1L,
        "timestamp" -> 1L, "uint64" -> Decimal(BigDecimal(1), 20, 0))) {
      val six = one match {
        case _: Byte => 6.toByte; case _: Short => 6.toShort; case _: Int => 6; case _: Long => 6L;
        case _ => Decimal(BigDecimal(6), 20, 0)
      }
      assert(evaluate(name, ShiftStep(5))(one) == Seq(six, six), name)
      assert(evaluate(name, ShiftStep(5))(null) == Seq(null, null), name)
    }
    val time = struct(7200000001L, struct(Decimal(BigDecimal("18446744073709551614"), 20, 0), 3.toShort), -7.toByte)
    def loop(outer: String, inner: Int) = Seq[Any](Decimal(BigDecimal(outer), 20, 0), inner.toShort)
    val moved =
      evaluate(nested, ShiftStep(1, Seq("loop", "outer")), ShiftStep(2, Seq("N")), TruncateStep(3600000000L, 0, Seq("event")))(
        time)
    assert(moved.distinct == Seq(Seq[Any](7200000000L, loop("18446744073709551615", Short.MinValue), (-5).toByte)))
    assert(evaluate(nested, CoordinatesStep(Seq("event", "n")))(time).distinct == Seq(Seq[Any](7200000001L, (-7).toByte)))
    assert(evaluate(nested, CoordinateStep("loop"), CoordinateStep("outer"))(time).distinct == Seq(
      Decimal(BigDecimal("18446744073709551614"), 20, 0)))
    val entered = EnterStep(TimeDomain.parse(s"lex(o ${nested.dropRight(1)}, u uint64), i int8)"))
    val image =
      Seq[Any](Seq[Any](7200000001L, loop("18446744073709551614", 3), (-7).toByte, Decimal(BigDecimal(0), 20, 0)), 0.toByte)
    assert(evaluate(nested, entered)(time).distinct == Seq(image))
    assert(evaluate(nested, CoordinateStep("event"))(struct(1L, null, 0.toByte)) == Seq(null, null)) // a broken time stays broken
  }

  test("a time without an image stops the query with an error; it does not wrap, with ANSI arithmetic or without") {
    val frame = spark.range(120, 130, 1, 1).select(col("id").cast("tinyint").as("time"))
    for (ansi <- Seq("true", "false")) withConf("spark.sql.ansi.enabled" -> ansi) {
      val e =
        intercept[Exception](frame.where("time is not null").select(move(col("time"), "int8", """[{"shift":5}]""")).collect())
      val causes = Iterator.iterate[Throwable](e)(_.getCause).takeWhile(_ != null).toSeq
      assert(causes.exists(_.getMessage.contains("[STRANDLINE_TIME_OVERFLOW] A row's time 123, moved by 5, is outside int8.")), e)
    }
  }

  private def steps(frame: DataFrame, column: String): Option[(String, Seq[Step])] =
    tag(frame, column).map(c => c.domain.toString -> c.summary.steps)

  test("the result is a time, with its steps after those of its argument") {
    val frame = read(script(nested)).withColumn("time", move(col("time"), nested, """[{"coordinates":["event","n"]}]"""))
    val fewer = "product(event timestamp, n int8)"
    assert(steps(frame, "time").contains(fewer -> Seq(CoordinatesStep(Seq("event", "n")))))
    // As Python builds it: a batch frame already has the tag, and the name appears twice.
    val named = new MetadataBuilder().putString("strandline.time", fewer).putLong("spark.watermarkDelayMs", 0).build()
    val tagged =
      read(script(nested)).withColumn("time", move(col("time"), nested, """[{"coordinates":["event","n"]}]""").as("time", named))
    assert(steps(tagged, "time") == steps(frame, "time"))
    val again = frame.where("time.n > 0").select(move(col("time"), fewer, """[{"coordinate":"event"},{"shift":5}]""").as("at"))
    assert(steps(again, "at").contains("timestamp" -> Seq(CoordinatesStep(Seq("event", "n")), CoordinateStep("event"),
        ShiftStep(5))))
    val inside = again.select(move(col("at"), "timestamp",
        """[{"enter":"product(at timestamp, iter)"},{"shift":1,"coordinate":"iter"}]""").as("t"))
    assert(steps(inside, "t").map(_._1).contains("product(at timestamp, iter int64)"))
    assert(tag(again.groupBy(window(col("at"), "1 hour")).count(), "window").exists(_.windows.isDefined))
    val counts = read(script("timestamp")).groupBy(window(col("time"), "1 hour")).count()
    val days = counts.select(move(col("window.start"), "timestamp", """[{"truncate":86400000000,"offset":0}]""").as("day"))
    assert(steps(days, "day").map(_._2.size).contains(2))
  }

  test("a column that is not a time, or is of another domain, is refused") {
    val stream = read(script("timestamp", "other" -> TimestampType))
    def condition(time: Column, domain: String) =
      intercept[StrandlineException](stream.select(move(time, domain, """[{"shift":5}]""").as("t")).schema).getCondition
    assert(condition(col("other"), "timestamp") == "STRANDLINE_TIME_COLUMN_MISSING")
    assert(condition(date_trunc("hour", col("time")), "timestamp") == "STRANDLINE_TIME_COLUMN_MISSING")
    val pairs = read(script("product(a int64, b int64)"))
    val lex = intercept[StrandlineException](pairs.select(move(col("time"), "lex(a int64, b int64)",
          """[{"shift":1,"coordinate":"a"}]""").as("t")).schema)
    assert(lex.getCondition == "STRANDLINE_TIME_DOMAIN_MISMATCH")
    for ((domain, text) <-
        Seq("int64" -> "[]", "timestamp" -> """[{"window":"end","width":1,"slide":1,"offset":0}]""", "timestamp" -> "[1]"))
      intercept[Exception](stream.select(move(col("time"), domain, text).as("t")).schema)
    intercept[Exception](stream.select(call_function("strandline_move", col("time"))).schema)
  }

  test("a plan that is analysed at once, as in Spark Connect, gives the same result") {
    val s = script("timestamp")
    val session = spark.asInstanceOf[classic.SparkSession]
    val sql = """SELECT window.end AS time, n FROM (SELECT window, count(*) AS n FROM
      (SELECT strandline_move(time, 'timestamp', '[{"shift":7}]') AS time FROM t) u GROUP BY window(time, '10 seconds')) c"""
    val plan = session.sessionState.executePlan(session.sessionState.sqlParser.parsePlan(sql).transform {
      case _: UnresolvedRelation =>
        UnresolvedDataSource("strandline-scripted", None, CaseInsensitiveMap(Map("script" -> s.name)), isStreaming = true, Nil)
    }).analyzed
    assert(plan.exists(_.isInstanceOf[Aggregate]))
    assert(plan.output.map(TimeColumn.of(_).map(_.summary.steps.head)) == Seq(Some(ShiftStep(7)), None))
  }

  test("sides with different steps join when both frontiers have passed, and the output is behind the slower one") {
    val (left, right) =
      (script("product(a int64, b int64)", "l" -> LongType), script("product(a int64, b int64)", "r" -> LongType))
    left.add("[[1,0]]", Row(Row(1L, 1L), 1L), Row(Row(3L, 0L), 2L)).add("[[3,0]]").add("[]")
    right.add("[[1,0]]", Row(Row(2L, 1L), 10L)).add("[[3,0]]").add("[]")
    val later =
      read(left).withColumn("time", move(col("time"), "product(a int64, b int64)", """[{"shift":1,"coordinate":"a"}]"""))
    val joined =
      later.as("l").join(read(right).as("r"), expr("l.time = r.time"), "left_outer").select(coalesce(col("l"), lit(0L)).as("l"),
        coalesce(col("r"), lit(0L)).as("r"), col("l.time"))
    val batches = runAll(joined)
    // (4, 0) waits for the right side, whose frontier is not shifted.
    assert(batches.map(_.rows.map(r => r.getLong(0) -> r.getLong(1)).toSet) == Seq(Set(1L -> 10L), Set(), Set(2L -> 0L)))
    assert(batches.head.output.exists(_.contains(""""end":[[1,0]]""")), batches.head.output)
  }

  test("a union of times with different steps closes by the slower of them, also in a chain") {
    val s = script("int64", "n" -> LongType)
    s.add("[2]", Row(1L, 1L), Row(5L, 1L)).add("[5]").add("[]")
    def later(frame: DataFrame, by: Int) = frame.withColumn("time", move(col("time"), "int64", s"""[{"shift":$by}]"""))
    val rows = read(s)
    val counted = later(rows, 4).union(rows).union(later(rows, 3)).groupBy("time").agg(sum("n").as("n"))
    val batches = runAll(later(counted, 10))
    assert(batches.map(_.rows.toSet) == Seq(Set(Row(11L, 1L)), Set(Row(14L, 1L)), Set(Row(15L, 2L), Row(18L, 1L), Row(19L, 1L))))
    assert(batches.map(_.output.exists(_.contains("\"end\":[12]"))) == Seq(true, false, false))
  }

  test("a delay for dropDuplicatesWithinWatermark stays with a transformed time, and timers fire by the transformed frontier") {
    val delayed = read(script("timestamp")).withWatermark("time", "10 seconds")
    val later = delayed.withColumn("time", move(col("time"), "timestamp", """[{"shift":5000000}]"""))
    assert(later.schema("time").metadata.getLong("spark.watermarkDelayMs") == 10000)
    val rocksDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    withConf("spark.sql.streaming.stateStore.providerClass" -> rocksDB) {
      import spark.implicits._
      val s = script("timestamp", "k" -> StringType)
      val start = micros("2013-01-01T00:00:00Z")
      def frontier(seconds: Double) = s"[${start + (seconds * 1000000).toLong}]"
      // Nothing is closed after the first batch. Its shifted frontier is before the times that Spark's timers support.
      s.add(s"[${Long.MinValue}]", Row(at("2013-01-01T00:00:01Z"), "a")).add(frontier(11)).add(frontier(11.001))
      val moved = read(s).withColumn("time", move(col("time"), "timestamp", """[{"shift":5000000}]"""))
      val alarms = moved.as[(java.sql.Timestamp, String)].groupByKey(_._2).transformWithState(new AlarmProcessor,
        TimeMode.EventTime(), OutputMode.Append())
      // The row's time is 6 seconds, its timer at 16, and the frontier five seconds ahead of its source's.
      assert(runAll(alarms.toDF("k", "at", "watermark")).map(_.rows.size) == Seq(0, 0, 1))
    }
  }

  test("rows are guarded before the transformation by their frontier, and after it by the transformed one") {
    val s = script("int64")
    s.add("[5]", Row(7L)).add("[9]", Row(4L))
    val later = read(s).withColumn("time", move(col("time"), "int64", """[{"shift":100}]"""))
    val before = failure(later)
    assert(before.contains("STRANDLINE_ROW_BEHIND_FRONTIER") && before.contains("time 4 ") && before.contains("{5}"), before)
    val t = script("int64")
    t.add("[5]", Row(7L)).add("[9]", Row(6L))
    val moved = read(t).withColumn("time", move(col("time"), "int64", """[{"shift":100}]"""))
    // Tagged by hand, with a summary that the values do not follow.
    val tag = Metadata.fromJson("""{"strandline.time":"int64","strandline.summary":"[{\"shift\":100}]"}""")
    val lying = moved.withColumn("time", (col("time") - 50).as("time", tag)).groupBy("time").count()
    val after = failure(lying)
    assert(after.contains("STRANDLINE_ROW_BEHIND_FRONTIER") && after.contains("time 56 ") && after.contains("{105}"), after)
  }

  test("sides of different domains are not joined") {
    val (left, right) = (script("product(a int64, b int64)").add("[[0,0]]", Row(Row(1L, 1L))),
      script("product(a int64, b int64)").add("[[0,0]]", Row(Row(1L, 1L))))
    val scalar = read(left).select(move(col("time"), "product(a int64, b int64)", """[{"coordinate":"a"}]""").as("x"))
    val joined = scalar.join(read(right).as("r"), expr("x = r.time.a"))
    assert(failure(joined).contains("STRANDLINE_OPERATOR_UNSUPPORTED"))
  }
}
