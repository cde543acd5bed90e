package strandline.spark.planner

import org.apache.spark.sql.Row
import org.apache.spark.sql.functions._
import org.apache.spark.sql.types._
import strandline.spark.{Batch, Script, StreamSpec}

/** Stateful operators other than aggregations: exact, or refused by name. */
class FrontierRuleSpec extends StreamSpec {

  test("dropDuplicates with the time forgets a key when its time closes") {
    val s = script("product(epoch int64, iter int64)", "k" -> LongType)
    def row(epoch: Long, k: Long) = Row(Row(epoch, 0L), k)
    s.add("[[1,0]]", row(0, 1), row(0, 1), row(1, 1)).add("[[1,0]]", row(1, 1), row(1, 2)).add("[[9,0]]")
    var kept = Seq.empty[Long]
    val batches = run(read(s).dropDuplicates("time", "k")) { query =>
      query.processAllAvailable()
      kept = query.recentProgress.toSeq.filter(_.stateOperators.nonEmpty).map(_.stateOperators.head.numRowsTotal)
    }
    assert(batches.map(_.rows.toSet) == Seq(Set(row(0, 1), row(1, 1)), Set(row(1, 2)), Set()))
    assert(kept == Seq(1, 2, 0))
  }

  test("dropDuplicates without the time keeps every key, as in Spark") {
    val s = script("int64", "k" -> LongType)
    s.add("[1]", Row(0L, 1L)).add("[9]", Row(5L, 1L), Row(5L, 2L))
    assert(emitted(read(s).dropDuplicates("k")) == Seq(Set(Row(0L, 1L)), Set(Row(5L, 2L))))
  }

  private def sides(): (Script, Script) = {
    val (left, right) = (script("int64", "a" -> StringType), script("int64", "b" -> StringType))
    left.add("[2]", Row(1L, "l1"), Row(3L, "l3")).add("[4]").add("[9]", Row(5L, "l5"))
    right.add("[2]", Row(1L, "r1"), Row(2L, "r2")).add("[4]", Row(3L, "r3")).add("[9]", Row(5L, "r5"), Row(6L, "r6"))
    (left, right)
  }

  /** Returns the joined rows with the batch's end frontier. Each batch has the same step of both sources. */
  private def joined(how: String): (Set[Row], Seq[Batch]) = {
    val (left, right) = sides()
    val batches = runAll(
      read(left)
        .as("l")
        .join(read(right).as("r"), expr("l.time = r.time"), how)
        .select(col("l.time"), col("a"), col("r.time").as("right"), col("b")))
    (batches.flatMap(_.rows).toSet, batches)
  }

  test("an inner join on equal times finds every match, within and across batches") {
    val (rows, _) = joined("inner")
    assert(rows == Set(Row(1L, "l1", 1L, "r1"), Row(3L, "l3", 3L, "r3"), Row(5L, "l5", 5L, "r5")))
  }

  test("outer joins emit unmatched rows in the batch that closes their time") {
    val matched = Set(Row(1L, "l1", 1L, "r1"), Row(3L, "l3", 3L, "r3"), Row(5L, "l5", 5L, "r5"))
    val lonely = Set(Row(null, null, 2L, "r2"), Row(null, null, 6L, "r6"))
    assert(joined("right_outer")._1 == matched ++ lonely)
    assert(joined("left_outer")._1 == matched)
    val (rows, batches) = joined("full_outer")
    assert(rows == matched ++ lonely)
    assert(batches.size == 3 && batches(1).rows.contains(Row(null, null, 2L, "r2")))
  }

  test("a join of windows, and an aggregation of a join's output, close in the same batch") {
    val (left, right) = (script("timestamp", "a" -> LongType), script("timestamp", "b" -> LongType))
    val (start, hour) = (micros("2013-01-01T00:00:00Z"), 3600L * 1000000)
    left.add(s"[${start + hour}]", Row(at("2013-01-01T00:10:00Z"), 1L))
    right.add(s"[${start + hour}]", Row(at("2013-01-01T00:20:00Z"), 2L), Row(at("2013-01-01T00:30:00Z"), 3L))
    def hourly(s: Script, value: String) = read(s).groupBy(window(col("time"), "1 hour").as("w")).agg(sum(value).as(value))
    val batches =
      runAll(hourly(left, "a").join(hourly(right, "b"), "w").groupBy("w").agg(sum(col("a") + col("b")).as("n")).select("n"))
    assert(batches.map(_.rows) == Seq(Seq(Row(6L))))
  }

  test("a join without a bound on the distance of two times is refused") {
    val (left, right) = sides()
    val (l, r) = (read(left).as("l"), read(right).as("r"))
    for (frame <- Seq(
        l.join(r, expr("a = b")),
        l.join(r, expr("a = b AND l.time + r.time > 7")),
        l.join(read(Script.plain(freshName(), "time" -> LongType).add("", Row(1L))).as("r"), expr("l.time = r.time")))) {
      val message = failure(frame)
      assert(message.contains("[STRANDLINE_OPERATOR_UNSUPPORTED]") && message.contains("join"))
    }
  }

  test("a global limit is left to Spark") {
    val s = script("int64")
    s.add("[1]", Row(1L), Row(2L)).add("[9]", Row(3L), Row(4L))
    assert(runAll(read(s).limit(3)).flatMap(_.rows).size == 3)
  }

  test("a tagged time without a source that states a frontier is refused before a stateful operator") {
    val tagged = new MetadataBuilder().putString("strandline.time", "int64").putLong("spark.watermarkDelayMs", 0).build()
    val s =
      Script.register(new Script(freshName(), StructType(Seq(StructField("time", LongType, nullable = true, tagged))), None))
    s.add("", Row(1L))
    for (frame <- Seq(read(s).groupBy("time").count(), read(s).dropDuplicates("time"),
        read(s).as("l").join(read(s).as("r"), expr("l.time = r.time"))))
      assert(failure(frame).contains("[STRANDLINE_NO_FRONTIER]"))
  }
}
