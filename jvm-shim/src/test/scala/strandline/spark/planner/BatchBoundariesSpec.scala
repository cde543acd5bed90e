package strandline.spark.planner

import org.apache.spark.sql.{DataFrame, Row}
import org.apache.spark.sql.functions._
import org.apache.spark.sql.types._
import strandline.spark.StreamSpec

/** Functions over the rows of a group, in Scala. test_batch_ends.py has Python's, and all other operators. */
class BatchBoundariesSpec extends StreamSpec {
  private def rows(): DataFrame = {
    val s = script("int64", "k" -> LongType)
    s.add("[1]", Row(0L, 1L), Row(1L, 1L)).add("[2]", Row(1L, 1L)).add("[]", Row(2L, 2L))
    read(s)
  }

  private def counted(frame: DataFrame): DataFrame = {
    import spark.implicits._
    frame.select("time", "k").groupBy("time").as[Long, (Long, Long)].mapGroups((time, rows) => (time, rows.size)).toDF("time",
      "n")
  }

  test("mapGroups is refused, because a group may have rows in several batches") {
    val message = failure(counted(rows()))
    assert(message.contains("[STRANDLINE_OPERATOR_UNSUPPORTED] groupBy(time).mapGroups"))
  }

  test("mapGroups by the time is exact above an aggregation by the time, in output mode append alone") {
    def sums = counted(rows().groupBy("time", "k").agg(count(lit(1)).as("n")))
    assert(runAll(sums).map(_.rows.toSet) == Seq(Set(Row(0L, 1L)), Set(Row(1L, 1L)), Set(Row(2L, 1L))))
    assert(failure(sums, mode = "update").contains("[STRANDLINE_OPERATOR_UNSUPPORTED]"))
  }

  test("mapGroups over a stream without a frontier is Spark's own") {
    import spark.implicits._
    val rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 2).load().groupByKey(_.getLong(1)).mapGroups(
      (value, rows) => (value, rows.size)).toDF()
    run(rate)(query => while (query.lastProgress == null) Thread.sleep(10))
  }
}
