package strandline.spark.tables

import org.apache.spark.sql.DataFrame
import org.apache.spark.sql.classic
import org.apache.spark.sql.functions._
import strandline.spark.StreamSpec

/** What a query's results depend on beside its channels and tables, in words. */
class DependenceSpec extends StreamSpec {
  private def told(frame: DataFrame): Seq[String] =
    Dependence.of(frame.asInstanceOf[classic.DataFrame].queryExecution.withCachedData)

  private def only(frame: DataFrame, words: String*): Unit = {
    val found = told(frame)
    assert(found.size == words.size, found)
    for ((text, word) <- found.zip(words)) assert(text.contains(word), found)
  }

  private lazy val numbers = spark.range(9).toDF()

  test("what is a function of its rows is not named") {
    val by = numbers.groupBy(col("id") % 2)
    only(numbers.where("id > 3").select(col("id") + 1))
    only(by.agg(sum("id"), sort_array(collect_list("id")), size(collect_set("id"))))
    only(numbers.orderBy("id").limit(3))
    only(numbers.withColumn("twice", udf((n: Long) => n * 2).apply(col("id"))))
    only(numbers.dropDuplicates())
    only(numbers.where("id IN (SELECT id FROM range(3))"))
  }

  test("functions that are not deterministic, wherever they are") {
    only(numbers.withColumn("r", rand() * 2 + 1), "rand()")
    only(numbers.withColumn("r", rand(7)), "rand()")
    only(numbers.withColumn("r", expr("uuid()")), "uuid()")
    only(numbers.withColumn("r", monotonically_increasing_id()), "monotonically_increasing_id()")
    only(numbers.withColumn("r", udf((n: Long) => n * 2).withName("mine").asNondeterministic().apply(col("id"))), "mine()")
    only(numbers.join(numbers.withColumn("r", rand()).withColumnRenamed("id", "k"), col("id") === col("k")), "rand()")
    only(numbers.where("id IN (SELECT id + uuid() FROM range(3))"), "uuid()")
    only(numbers.groupBy(col("id") % 2).agg(first("id")), "first()")
    only(numbers.withColumn("r", rand()).groupBy(col("id") % 2).agg(collect_list("id"), sort_array(collect_list("r"))),
      "collect_list()", "rand()")
  }

  test("aggregates that depend on the order of rows") {
    val by = numbers.withColumn("x", col("id").cast("double")).groupBy(col("id") % 2)
    only(by.agg(sum("x"), stddev("x"), percentile(col("x"), lit(0.5)), approx_count_distinct("id")))
    only(by.agg(percentile_approx(col("id"), lit(0.5), lit(100))), "percentile_approx() (an approximation")
    only(by.agg(hll_sketch_agg("id")), "hll_sketch_agg() (an approximation")
    only(by.agg(expr("histogram_numeric(x, 3)")), "histogram_numeric()")
    only(by.agg(expr("listagg(string(id), ',')")), "listagg()")
    only(by.agg(max_by(col("id"), col("x")), min_by(col("id"), col("x"))), "max_by() (which of equals",
      "min_by() (which of equals")
    only(by.agg(expr("mode(id)")), "mode() (which of equals")
    only(by.agg(expr("max_by(id, x, 2)")), "max_by() (which of equals")
  }

  test("decisions by a sum of floating-point numbers, wherever they are") {
    val by = numbers.withColumn("x", col("id").cast("double")).groupBy((col("id") % 2).as("k"))
    def decided(function: String) = s"a rounded, converted or compared $function() of floating-point numbers"
    only(by.agg(avg("x").cast("decimal(10,2)")), decided("avg"))
    only(by.agg(round(sum("x"), 2)), decided("sum"))
    only(by.agg(round(corr("x", "x"), 2)), decided("corr"))
    val sums = by.agg(sum("x").as("s"), count("x").as("n"), max("x").as("most"), median(col("x")).as("middle"))
    only(sums.withColumn("s", col("s").cast("long")), decided("sum"))
    only(sums.where(col("s") > 3), decided("sum"))
    only(sums.select((col("s") * 2 + 1).as("t")).union(sums.select("s")).select(format_number(col("t"), 2)), decided("sum"))
    only(sums.groupBy("s").count(), "groups by sum()")
    only(sums.join(sums.withColumnRenamed("s", "other"), col("s") === col("other")), decided("sum"))
    only(sums.select(round(col("most"), 2), round(col("middle")), col("n").cast("string"), col("s") / col("n"), col("s").isNull))
    only(sums.select("s").distinct(), "groups by sum()")
    only(sums.agg(count_distinct(col("s"))), decided("sum"))
    only(sums.select(explode(array(col("s"))).as("each")).select(round(col("each"))), decided("sum"))
    sums.createOrReplaceTempView("sums_of_floats")
    only(spark.sql("SELECT k, round((SELECT max(s) FROM sums_of_floats)) AS r FROM sums_of_floats"), decided("sum"))
    only(numbers.where("id IN (SELECT s FROM sums_of_floats)"), decided("sum"))
    only(by.agg(round(avg("id"), 2)), decided("avg")) // Spark adds these integers as doubles
    only(by.agg(round(avg(col("id").cast("int")), 2)))
    only(by.agg(round(median(col("x")), 2)))
    val window = org.apache.spark.sql.expressions.Window.partitionBy("k").orderBy("s")
    only(sums.withColumn("r", rank().over(window)), decided("sum"))
    only(sums.orderBy("s").limit(1), decided("sum"))
    only(sums.orderBy("k", "n").select("s").limit(1))
    only(sums.select("k", "s").unpivot(Array(col("k")), Array(col("s")), "name", "value").select(round(col("value"))),
      decided("sum"))
    only(sums.select(udf((x: Double) => x).withName("mine").apply(col("s"))), decided("sum"))
    val deciding = Seq("rint(s)", "sign(s)", "s % 1", "pmod(s, 2)", "nullif(s, 1.5)", "k / nullif(s, 0)", "double(float(s))",
      "map(s, k)",
      "array_distinct(array(s, 1))", "transform(array(s), e -> round(e))", "filter(array(s), e -> e > 1)",
      "aggregate(array(s), 0D, (a, e) -> a + rint(e))",
      "map_filter(map(k, s), (k, v) -> v > 1)", "array_contains(array(s), 1.5)", "s IN (1, 2)", "hash(s)", "to_json(struct(s))",
      "width_bucket(s, 0, 9, 3)")
    for (expression <- deciding) withClue(expression)(only(sums.select(expr(expression)), decided("sum")))
    for (aggregate <- Seq("max(struct(s, k))", "max_by(k, s)", "approx_count_distinct(s)", "mode(s)",
        "sort_array(collect_set(s))", "count_if(s > 1)"))
      withClue(aggregate)(assert(Dependence.of(analyzed(sums.agg(expr(aggregate)))).exists(_.startsWith(decided("sum")))))
    only(spark.sql("SELECT k, r FROM sums_of_floats q, LATERAL (SELECT round(q.s + 1) AS r)"), decided("sum"))
    val passing = Seq("s * 2 - 1 / s", "-abs(s)", "sqrt(s) + pow(s, 2)", "ln(s)", "coalesce(s, 0)", "if(k = 1, s, 0)",
      "CASE WHEN n > 3 THEN s END", "nvl(s, 0)",
      "struct(s).s", "array(s)[0]", "element_at(map('a', s), 'a')", "greatest(s, 1)", "s IS NULL",
      "transform(array(s), e -> e + 1)", "size(array(s))",
      "sort_array(array(s))", "float(s)", "named_struct('a', s)", "aggregate(array(s), 0D, (a, e) -> a + e)",
      "concat(array(s), array(1D))", "avg(s) OVER (PARTITION BY k)")
    for (expression <- passing) withClue(expression)(only(sums.select(expr(expression))))
    only(sums.agg(max("s"), min("s"), avg("s"), count("s"), stddev("s"), percentile(col("s"), lit(0.5))))
  }

  test("texts that are equal and are spelled otherwise") {
    val texts = numbers.select(collate(col("id").cast("string"), "UTF8_LCASE").as("c"), col("id"))
    only(texts.agg(max("c"), min("c")), "max() (which of equals", "min() (which of equals")
    only(texts.groupBy("c").count(), "groups by text with a collation")
    only(texts.select("c").intersect(texts.select("c")), "distinct rows with text with a collation")
    only(texts.dropDuplicates("c", "id"), "dropDuplicates by text with a collation")
    only(texts.select("c").where(col("c") === "a").union(texts.select("c")))
    only(numbers.select(col("id").cast("string").as("c")).groupBy("c").agg(max("c")))
  }

  test("functions of a window that depend on the order of equals") {
    val ordered = org.apache.spark.sql.expressions.Window.partitionBy(col("id") % 2).orderBy(col("id") % 3)
    only(numbers.withColumn("r", row_number().over(ordered)), "row_number() (the order of equals)")
    only(numbers.withColumn("r", lag("id", 1).over(ordered)), "lag() (the order of equals)")
    only(numbers.withColumn("r", rank().over(ordered)))
  }

  test("the time, which a repeated batch keeps") {
    only(numbers.withColumn("now", current_timestamp()).withColumn("today", current_date()),
      "a repeated batch has the time of its first attempt")
    only(numbers.withColumn("now", expr("localtimestamp()")), "the current time")
  }

  test("rows in no order") {
    only(numbers.limit(3), "a limit without an order")
    only(numbers.offset(3), "an offset without an order")
    only(numbers.sample(0.5), "a sample")
    only(numbers.withColumn("k", col("id") % 2).dropDuplicates("k"), "dropDuplicates by some columns")
  }

  test("tables without a version") {
    val folder = tempDir() + "/t"
    numbers.write.parquet(folder)
    only(numbers.join(spark.read.parquet(folder), "id"), s"the parquet files file:$folder (no version")
    only(numbers.where("id = (SELECT max(id) FROM parquet.`" + folder + "`)"), "the parquet files")
    only(spark.createDataFrame(Seq((1, 2))), "rows that the program makes")
    val cached = spark.read.parquet(folder).cache()
    try {
      cached.count()
      only(numbers.join(cached, "id"), "the cached frame")
    } finally cached.unpersist()
  }
}
