package strandline.spark.batch

import org.apache.spark.sql.DataFrame
import org.apache.spark.sql.classic
import org.apache.spark.sql.functions._
import strandline.spark.StreamSpec

/** Whether a plan's rows have other roundings, or lists in another order, if their inputs come in another order. */
class RowOrderSpec extends StreamSpec {
  private def counts(frame: DataFrame): Boolean = RowOrder.counts(frame.asInstanceOf[classic.DataFrame].queryExecution.analyzed)

  private lazy val rows =
    spark.range(9).select(col("id"), col("id").cast("double").as("x"), col("id").cast("decimal(10,2)").as("d"))
  private def by = rows.groupBy(col("id") % 2)

  test("rows for themselves, and exact aggregates") {
    assert(!counts(rows.select(col("x") * 2 + sin(col("x")), expr("aggregate(array(x), 0D, (a, b) -> a + b)"))))
    assert(!counts(rows.join(rows.withColumnRenamed("x", "y"), "id").where("x < y").dropDuplicates("id")))
    assert(!counts(by.agg(count("x"), min("x"), max("x"), sum("id"), sum("d"), avg("d"), first("x"),
          max_by(col("x"), col("id")))))
    assert(!counts(rows.withColumn("n", udf((x: Double) => x + 1).apply(col("x")))))
    assert(!counts(rows.withColumn("n", expr("row_number() OVER (ORDER BY x)"))))
  }

  test("sums of floating-point numbers, lists, and functions over groups, wherever they are") {
    assert(counts(by.agg(sum("x"))))
    assert(counts(by.agg(avg("x").cast("decimal(10,2)"))))
    assert(counts(by.agg(avg("id"))))
    assert(counts(by.agg(stddev("x"))))
    assert(counts(by.agg(collect_list("id"))))
    assert(counts(rows.withColumn("n", expr("sum(x) OVER (PARTITION BY d)"))))
    assert(counts(rows.where("x < (SELECT sum(x) FROM VALUES (1D) AS t(x))")))
    val sparkSession = spark
    import sparkSession.implicits._
    assert(counts(rows.as[(Long, Double, BigDecimal)].groupByKey(_._1).mapGroups((k, all) => k -> all.map(_._2).sum).toDF()))
    val typed = rows.as[(Long, Double, BigDecimal)].groupByKey(_._1)
    assert(counts(typed.cogroup(typed)((_, left, _) => Iterator(left.map(_._2).sum)).toDF()))
    assert(counts(rows.as[(Long, Double, BigDecimal)].mapPartitions(_.map(_._2)).toDF()))
  }
}
