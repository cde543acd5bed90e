package strandline.spark

import org.apache.spark.sql.Row
import org.apache.spark.sql.types._

/** Aggregations emit a group in the batch that closes its time, over every kind of time. */
class AggregationSpec extends StreamSpec {

  private def emitted(batches: Seq[Batch]): Seq[Set[Row]] = batches.map(_.rows.toSet)

  test("a bare integer time is emitted in the batch whose frontier passes it") {
    val s = script("int64", "k" -> StringType)
    s.add("[0]", Row(1L, "a"), Row(2L, "a"), Row(1L, "b"))
      .add("[2]", Row(2L, "a"))
      .add("[3]")
    assert(
      emitted(runAll(read(s).groupBy("time", "k").count())) ==
        Seq(Set(), Set(Row(1L, "a", 1L), Row(1L, "b", 1L)), Set(Row(2L, "a", 2L)))
    )
  }

  test("a timestamp is open while it equals the frontier") {
    val s = script("timestamp")
    val noon = micros("2013-01-01T12:00:00Z")
    s.add(s"[$noon]", Row(at("2013-01-01T12:00:00Z"))).add(s"[${noon + 1}]")
    assert(emitted(runAll(read(s).groupBy("time").count())) == Seq(Set(), Set(Row(at("2013-01-01T12:00:00Z"), 1L))))
  }
}
