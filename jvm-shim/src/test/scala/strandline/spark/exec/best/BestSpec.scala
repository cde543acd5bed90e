package strandline.spark.exec.best

import scala.util.Random

import org.apache.spark.sql.{DataFrame, Row}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.execution.exchange.ShuffleExchangeExec
import org.apache.spark.sql.execution.streaming.runtime.StreamingQueryWrapper
import org.apache.spark.sql.functions._
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String
import strandline.spark.{Script, StreamSpec}
import strandline.spark.exec.{MarkedOperator, OperatorKey}
import strandline.spark.plan.OperatorMark

/** The best rows of keys: what passes, and how many rows are exchanged for it. */
class BestSpec extends StreamSpec {
  private val domain = "product(outer int64, iter int64)"

  private def best(s: Script): DataFrame = best(read(s))

  private def best(rows: DataFrame): DataFrame = {
    val mark = new MetadataBuilder().putString(OperatorMark.Key, MarkedOperator.Best).putString(OperatorMark.Order,
      """{"order":[["n","min"]],"last":"last"}""").build()
    rows.select(col("time"), col("k"), col("n"), isnull(col("time")).as("last"), lit(0L).as("mark", mark)).dropDuplicates("time",
      "mark", "k").drop("mark")
  }

  private def row(outer: Long, iter: Long, k: String, n: Any): Row = Row(Row(outer, iter), k, n)
  private def passed(outer: Long, iter: Long, k: String, n: Long, last: Boolean = false): Row = Row(Row(outer, iter), k, n, last)

  /** Runs `frame`. Returns the rows of each batch, and how many rows the last one exchanged. */
  private def exchanging(frame: DataFrame): (Seq[Set[Row]], Long) = {
    var exchanged = -1L
    val batches = run(frame) { query =>
      query.processAllAvailable()
      val plan = query.asInstanceOf[StreamingQueryWrapper].streamingQuery.lastExecution.executedPlan
      exchanged = plan.collect { case exchange: ShuffleExchangeExec => exchange.metrics("shuffleRecordsWritten").value }.sum
    }
    (batches.map(_.rows.toSet), exchanged)
  }

  test("a task sends one row of each key and time to the exchange") {
    val s = script(domain, "k" -> StringType, "n" -> LongType)
    s.add("[[0,1]]",
      (for (k <- Seq("a", "b"); n <- 1L to 500L) yield row(0, 1, k, n)) ++ Seq(row(0, 2, "a", 0L), row(1, 1, "a", 7L)): _*)
    val (batches, exchanged) = exchanging(best(s))
    assert(batches == Seq(Set(passed(0, 1, "a", 1), passed(0, 1, "b", 1), passed(0, 2, "a", 0), passed(1, 1, "a", 7))))
    // Two tasks read the rows: the first one has those of "a" at (0, 1) and one of "b", the second one has the others.
    assert(exchanged <= 5)
  }

  test("a row passes if it is better than all before, and the best one comes out at the end") {
    val s = script(domain, "k" -> StringType, "n" -> LongType)
    s.add("[[0,1]]", row(0, 1, "a", 5L), row(0, 1, "a", 6L), row(0, 2, "a", 5L), row(0, 3, "a", 4L))
      .add("[[0,4]]", row(0, 4, "a", 4L), row(0, 4, "a", 9L), row(0, 4, "b", 9L))
      .add("[]")
    val end = Long.MaxValue
    assert(
      emitted(best(s)) == Seq(
        Set(passed(0, 1, "a", 5), passed(0, 3, "a", 4)),
        Set(passed(0, 4, "b", 9)),
        Set(passed(0, end, "a", 4, last = true), passed(0, end, "b", 9, last = true))))
  }

  test("an operator below an exchange of another one can be compared with others") {
    val s = script(domain, "k" -> StringType, "n" -> LongType)
    s.add("[[0,2]]", row(0, 1, "a", 5L), row(0, 1, "b", 6L)).add("[]")
    def marked(kind: String) = new MetadataBuilder().putString(OperatorMark.Key, kind).build()
    val held = read(s).select(col("time"), lit(0L).as("mark", marked(MarkedOperator.Hold)), col("k"), col("n")).dropDuplicates(
      "time", "mark", "k").drop("mark")
    assert(emitted(held.groupBy("time").agg(sum("n"))) == Seq(Set(Row(Row(0L, 1L), 11L)), Set()))
    assert(emitted(best(held)).map(_.size) == Seq(2, 2))
  }

  test("a row that is worse than another one of its task fails the batch all the same: a null, a closed time") {
    val s = script(domain, "k" -> StringType, "n" -> LongType)
    s.add("[[0,1]]", row(0, 1, "a", 1L), row(0, 1, "a", null))
    assert(failure(best(s)).contains("STRANDLINE_RESULT_INVALID"))
    val late = script(domain, "k" -> StringType, "n" -> LongType)
    late.add("[[0,3]]", row(0, 3, "a", 1L)).add("[[0,4]]", row(0, 4, "a", 1L), row(0, 2, "a", 9L))
    assert(failure(best(late)).contains("STRANDLINE_ROW_BEHIND_FRONTIER"))
  }

  test("whatever fits in memory, the best row of each key and time comes out of a task") {
    val r = new Random(3)
    def column(name: String, kind: DataType) = AttributeReference(name, kind)()
    val time = column("time", new StructType().add("outer", LongType).add("iter", LongType))
    val (k, f, n, text) = (column("k", StringType), column("f", DoubleType), column("n", LongType), column("text", StringType))
    val (last, mark) = (column("last", BooleanType), column("mark", LongType))
    val columns = Seq(time, k, f, n, text, last, mark)
    val order = BestOrder(Seq(SortOrder(n, Descending), SortOrder(text, Ascending)), last)
    val unsafe = UnsafeProjection.create(columns, columns)
    def string = UTF8String.fromString("x" * r.nextInt(3))
    for (bytes <- Seq(1L, 2000L, 1L << 20)) {
      val rows = Seq.fill(2000)(InternalRow(InternalRow(r.nextLong(2), r.nextLong(3)), if (r.nextBoolean()) string else null,
          Seq(0.0, -0.0, Double.NaN)(r.nextInt(3)), r.nextLong(9), string, false, 0L))
      def group(row: InternalRow) = (row.getStruct(0, 2).getLong(0), row.getStruct(0, 2).getLong(1),
        Option(row.getUTF8String(1)).map(_.toString), row.getDouble(2) + 0.0)
      def rank(row: InternalRow) = (-row.getLong(3), row.getUTF8String(4).toString)
      def bestOf(all: Seq[InternalRow]) = all.groupBy(row => group(row).toString).map { case (of, its) =>
        of -> its.map(rank).min
      }
      // The iterator may reuse a row, so each one is copied.
      val out = new BestOfTask(rows.iterator.map(unsafe(_)), OperatorKey(time, mark, Seq(k, f)), order, columns, bytes).map(
        _.copy(): InternalRow).toSeq
      assert(bestOf(out) == bestOf(rows), bytes)
      if (bytes == 1L) assert(out.size == rows.size)
      else if (bytes > 2000L) assert(out.size == bestOf(rows).size)
      else assert(out.size < rows.size)
    }
  }
}
