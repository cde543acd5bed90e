package strandline.spark

import org.apache.spark.sql.{Row, SparkSessionExtensions}
import org.apache.spark.sql.functions._
import org.apache.spark.sql.types._
import strandline.spark.compat.{BuildInfo, SparkLine}
import strandline.spark.errors.{Errors, StrandlineException}

/** Loading, the Spark line, and sessions and queries without strandline. */
class StrandlineExtensionsSpec extends StreamSpec {

  private def rulesOf(extensions: SparkSessionExtensions, installs: (SparkSessionExtensions => Unit)*): Int = {
    installs.foreach(_(extensions))
    extensions.getClass.getMethods.find(_.getName == "buildColumnarRules").get.invoke(extensions, spark).asInstanceOf[Seq[_]].size
  }

  test("loading it twice adds its rules once") {
    val twice = Seq.fill(2)((e: SparkSessionExtensions) => new StrandlineExtensions().apply(e))
    assert(rulesOf(new SparkSessionExtensions, twice: _*) == 1)
  }

  test("another Spark line is refused by the first strandline stream, and by nothing else") {
    for (other <- Seq("4.1.9", "4.3.0", "5.2.0")) {
      val extensions = new SparkSessionExtensions
      assert(rulesOf(extensions, new StrandlineExtensions().install(_, other)) == 0)
    }
    val rule = SparkCheckRule(() => Some(Errors.sparkVersionMismatch("4.3.0")))
    val s = script("int64")
    val e = intercept[StrandlineException](rule(analyzed(read(s).groupBy("time").count())))
    assert(e.getCondition == "STRANDLINE_SPARK_VERSION_MISMATCH")
    assert(e.getMessage.contains("4.3.0") && e.getMessage.contains(BuildInfo.sparkVersion))
    val plain = analyzed(read(Script.plain(freshName(), "x" -> LongType)))
    assert(rule(plain) eq plain)
  }

  test("the line is major and minor: patch releases and vendors' builds are the same line") {
    assert(Seq("4.2.0", "4.2.7", "4.2.0-amzn-1", "4.2.1-SNAPSHOT").map(SparkLine.of).distinct == Seq("4.2"))
    assert(SparkLine.of("4.20.0") != "4.2")
  }

  test("a plain withWatermark query in the same session runs as without the extension") {
    val s = Script.plain(freshName(), "time" -> TimestampType)
    def minute(n: Int) = Row(at(f"2013-01-01T00:$n%02d:00Z"))
    val frame = read(s).withWatermark("time", "10 minutes").groupBy(window(col("time"), "5 minutes")).count()
    val batches = run(frame) { query =>
      for (rows <- Seq(Seq(minute(1), minute(3)), Seq(minute(30)), Seq(minute(2), minute(31)), Seq(minute(59)))) {
        s.add("", rows: _*)
        query.processAllAvailable()
      }
      val plan = query
        .asInstanceOf[org.apache.spark.sql.execution.streaming.runtime.StreamingQueryWrapper]
        .streamingQuery
        .lastExecution
        .executedPlan
      assert(!plan.exists(p => p.getClass.getName.startsWith("strandline")))
    }
    val rows = batches.flatMap(_.rows).map(r => r.getStruct(0).getTimestamp(0) -> r.getLong(1)).toMap
    // The row at minute 2 is late, so Spark drops it. Another batch runs for the new watermark. Both are Spark's own behaviour.
    assert(rows(at("2013-01-01T00:00:00Z")) == 2)
    assert(batches.size > s.size)
    assert(batches.forall(_.output.isEmpty))
  }
}
