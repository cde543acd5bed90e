package strandline.spark.batch

import org.apache.spark.metrics.source.CodegenMetrics
import org.apache.spark.sql.Row
import org.apache.spark.sql.functions._
import org.apache.spark.sql.types._
import strandline.spark.StreamSpec

/** Rows behind a frontier, and rows without a time, fail the batch by name. */
class GuardExecSpec extends StreamSpec {

  test("a row behind the start frontier fails the batch and names time, frontier and source") {
    val s = script("timestamp")
    val noon = micros("2013-01-01T12:00:00Z")
    s.add(s"[$noon]", Row(at("2013-01-01T11:00:00Z"))).add(s"[$noon]", Row(at("2013-01-01T11:59:59Z")))
    val message = failure(read(s).groupBy("time").count())
    assert(message.contains("[STRANDLINE_ROW_BEHIND_FRONTIER]"))
    assert(message.contains("2013-01-01T11:59:59Z") && message.contains("{2013-01-01T12:00:00Z}") && message.contains(s.name))
  }

  test("a row at the start frontier is accepted, and so is one that the end frontier closes") {
    val s = script("int64")
    s.add("[5]").add("[9]", Row(5L), Row(8L)).add("[9]", Row(9L))
    assert(emitted(read(s).groupBy("time").count()) == Seq(Set(), Set(Row(5L, 1L), Row(8L, 1L)), Set()))
  }

  test("a struct time behind an antichain is refused, one beside it is not") {
    val s = script("product(epoch int64, iter int64)")
    s.add("[[0,2],[1,0]]").add("[[0,2],[1,0]]", Row(Row(0L, 2L)), Row(Row(1L, 0L)), Row(Row(7L, 7L)))
    assert(runAll(read(s).groupBy("time").count()).flatMap(_.rows).isEmpty)
    s.add("[[0,2],[1,0]]", Row(Row(0L, 1L)))
    val message = failure(read(s).groupBy("time").count())
    assert(message.contains("[STRANDLINE_ROW_BEHIND_FRONTIER]") && message.contains("(epoch=0, iter=1)") && message.contains(
      "(epoch=1, iter=0)"))
  }

  test("it works without generated code") {
    withConf("spark.sql.codegen.wholeStage" -> "false", "spark.sql.codegen.factoryMode" -> "NO_CODEGEN") {
      val s = script("int32", "k" -> LongType)
      s.add("[5]", Row(4, 1L), Row(5, 1L)).add("[6]", Row(5, 1L))
      assert(emitted(read(s).groupBy("time").count()) == Seq(Set(Row(4, 1L)), Set(Row(5, 2L))))
      s.add("[6]", Row(5, 1L))
      assert(failure(read(s).groupBy("time").count()).contains("[STRANDLINE_ROW_BEHIND_FRONTIER]"))
      val struct = script("product(a int64, b int64)")
      struct.add("[[1,0]]", Row(Row(0L, 1L)), Row(Row(1L, 0L))).add("[[1,0]]", Row(Row(0L, 7L)))
      assert(failure(read(struct)).contains("(a=0, b=7)"))
      val holed = script("product(a int64, b int64)")
      holed.add("[[1,0]]", Row(Row(0L, null)))
      assert(failure(read(holed)).contains("[STRANDLINE_TIME_NULL]"))
    }
  }

  test("a moving frontier compiles no new code") {
    val s = script("product(a int64, b int64)")
    (1 to 3).foreach(n => s.add(s"[[$n,0],[0,$n]]", Row(Row(n.toLong, n.toLong))))
    val frame = read(s).groupBy("time").count()
    run(frame) { query =>
      query.processAllAvailable()
      val before = CodegenMetrics.METRIC_COMPILATION_TIME.getCount
      (4 to 6).foreach(n => s.add(s"[[$n,0],[0,$n]]", Row(Row(n.toLong, n.toLong))))
      query.processAllAvailable()
      assert(CodegenMetrics.METRIC_COMPILATION_TIME.getCount == before)
    }
  }

  test("a stateless query and complete mode are guarded too") {
    val s = script("int64", "k" -> LongType)
    s.add("[5]").add("[5]", Row(4L, 1L))
    assert(failure(read(s).select("k")).contains("[STRANDLINE_ROW_BEHIND_FRONTIER]"))
    assert(failure(read(s).groupBy("k").count(), "complete").contains("[STRANDLINE_ROW_BEHIND_FRONTIER]"))
  }

  test("each source is checked against its own frontier, although another one lags behind") {
    val (strict, lagging) = (script("int64"), script("int64"))
    strict.add("[5]").add("[5]", Row(4L))
    lagging.add("[0]").add("[0]", Row(4L))
    val message = failure(read(strict).union(read(lagging)).groupBy("time").count())
    assert(message.contains("[STRANDLINE_ROW_BEHIND_FRONTIER]") && message.contains(strict.name))
  }

  test("a null time, or a null coordinate, is refused also where the query filters nulls away") {
    val bare = script("timestamp")
    bare.add("[0]", Row(null: java.sql.Timestamp))
    assert(failure(read(bare).groupBy(window(col("time"), "1 hour")).count()).contains("[STRANDLINE_TIME_NULL]"))
    val struct = script("lex(tick int64, iter int64)")
    struct.add("[[0,0]]", Row(Row(1L, null)))
    assert(failure(read(struct).groupBy("time").count()).contains("[STRANDLINE_TIME_NULL]"))
  }

  test("a time that a user's function creates is checked before the next operator") {
    val s = script("int64")
    s.add("[5]").add("[6]", Row(7L))
    val tagged = new MetadataBuilder().putString("strandline.time", "int64").build()
    val earlier = read(s).select((col("time") - 4).as("time", tagged))
    val message = failure(earlier.groupBy("time").count())
    assert(message.contains("[STRANDLINE_ROW_BEHIND_FRONTIER]") && message.contains("the input of a stateful operator"))
    val later = read(s).select((col("time") + 4).as("time", tagged))
    assert(emitted(later.groupBy("time").count()).flatten.isEmpty)
  }

  test("the violation is counted, although its task failed") {
    val s = script("int64")
    s.add("[5]").add("[5]", Row(4L))
    val query = read(s).writeStream.format("noop").option("checkpointLocation", tempDir()).start()
    intercept[org.apache.spark.sql.streaming.StreamingQueryException](query.processAllAvailable())
    val plan = query.asInstanceOf[
      org.apache.spark.sql.execution.streaming.runtime.StreamingQueryWrapper].streamingQuery.lastExecution.executedPlan
    val guards = plan.collect { case g: GuardExec => g.metrics("numRowsBehindFrontier").value }
    assert(guards == Seq(1L))
  }

  test("a frontier that goes back is refused") {
    val s = script("int64")
    s.add("[5]").add("[4]")
    assert(failure(read(s).groupBy("time").count()).contains("[STRANDLINE_FRONTIER_REGRESSED]"))
  }

  test("an offset with an invalid frontier is refused") {
    val cases = Seq(
      """{"strandline":4,"step":%step,"domain":"int64","frontier":[1]}""" -> "newer",
      """{"strandline":3,"step":%step,"domain":"int64","frontier":[1]}""" -> "no inputs",
      """{"strandline":3,"step":%step,"domain":"int64","frontier":[1],"inputs":{"a":[[1,2]]}}""" -> "its input a",
      """{"strandline":2,"step":%step,"domain":"int64","frontier":[1]}""" -> "no feedback",
      """{"strandline":"1","step":%step,"domain":"int64","frontier":[1]}""" -> "protocol version",
      """{"strandline":1,"step":%step,"frontier":[1]}""" -> "no domain",
      """{"strandline":1,"step":%step,"domain":"int64"}""" -> "no frontier",
      """{"strandline":1,"step":%step,"domain":"int64","frontier":[[1,2]]}""" -> "not of int64")
    for ((template, why) <- cases) {
      val s = script("int64")
      s.offsetTemplate = Some(template)
      s.add("[1]", Row(1L))
      val message = failure(read(s).groupBy("time").count())
      assert(message.contains("[STRANDLINE_OFFSET_INVALID]") && message.contains(why), template)
    }
  }

  test("sources of two domains in one query are refused") {
    val (a, b) = (script("int64", "k" -> LongType), script("timestamp", "k" -> LongType))
    a.add("[1]", Row(1L, 1L))
    b.add("[1]", Row(at("2013-01-01T00:00:00Z"), 1L))
    assert(failure(read(a).select("k").union(read(b).select("k"))).contains("[STRANDLINE_TIME_DOMAIN_MISMATCH]"))
  }
}
