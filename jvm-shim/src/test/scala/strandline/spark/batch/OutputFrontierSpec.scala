package strandline.spark.batch

import org.apache.spark.scheduler.{SparkListener, SparkListenerJobStart}
import org.apache.spark.sql.{DataFrame, Row}
import org.apache.spark.sql.execution.streaming.state.strandline.SparkListeners
import org.apache.spark.sql.functions._
import org.apache.spark.sql.types._
import org.json4s._
import strandline.spark.{Batch, Script, StreamSpec}
import strandline.spark.time.{Antichain, Json, Scalar, Summary}

/** The property `strandline.output`, as the batch's tasks read it. */
class OutputFrontierSpec extends StreamSpec {
  private val hour = 3600L * 1000000

  /** The frontiers that were published, without what else the sink gets for loops. */
  private def outputs(batches: Seq[Batch]): Seq[JValue] = batches.map(whole).map(_.removeField { case (name, _) =>
    Set("summary", "reads", "positions", "checkpoint", "otherSources", "running", "state")(name)
  })

  override protected def asksTasks: Boolean = true

  private def whole(batch: Batch): JValue = Json.parse(batch.output.get).get

  private def json(text: String): JValue = Json.parse(text).get

  private def error(output: JValue): String = (output \ "error").asInstanceOf[JString].s

  test("a stateless query passes its source's frontier on") {
    val s = script("product(epoch int64, iter int64)", "k" -> LongType)
    s.add("[[0,1],[1,0]]", Row(Row(0L, 0L), 1L)).add("[]")
    val least = s"[${Long.MinValue},${Long.MinValue}]"
    assert(
      outputs(runAll(read(s).where(col("k") > 5))) == Seq(
        json(s"""{"domain":"product(epoch int64, iter int64)","start":[$least],"end":[[0,1],[1,0]]}"""),
        json("""{"domain":"product(epoch int64, iter int64)","start":[[0,1],[1,0]],"end":[]}""")))
  }

  test("the sink learns which channels the query reads, and how its times have moved") {
    val s = script("product(epoch int64, iter int64)")
    s.add("[[0,1]]", Row(Row(0L, 0L)))
    val output = whole(runAll(read(s).select(
          expr("""strandline_move(time, 'product(epoch int64, iter int64)', '[{"shift":1,"coordinate":"iter"}]')""").as(
            "time"))).head)
    assert(output \ "summary" == json("""[{"shift":1,"coordinate":"iter"}]"""))
    assert(output \ "reads" == JArray(List(JString(s.name))))
    assert(output \ "feedback" == JNothing)
  }

  test("the sink learns how far the query has read each channel") {
    val s = script("int64")
    s.offsetTemplate =
      Some("""{"strandline":1,"channel":"c1","commit":4,"file":2,"domain":"int64","step":%step,"frontier":%frontier}""")
    s.add("[3]", Row(1L))
    assert(whole(runAll(read(s)).head) \ "positions" == json("""[{"table":"c1","commit":4,"file":2,"domain":"int64"}]"""))
    val several = script("int64")
    several.offsetTemplate = Some(
      """{"strandline":1,"domain":"int64","step":%step,"frontier":%frontier,"channels":{"a":{"channel":"c1",""" +
        """"commit":4,"file":1,"snapshot":3,"after":"e5","began":{"snapshot":3}},"b":{"channel":"c2"}}}""")
    several.add("[3]", Row(1L))
    assert(whole(runAll(read(several)).head) \ "positions" == json(
      """[{"table":"c1","commit":4,"file":1,"after":"e5","snapshot":3,"began":{"snapshot":3},"domain":"int64"}]"""))
  }

  test("with the first batch the sink learns of sources that are no channels, and which queries run") {
    val s = script("int64")
    s.offsetTemplate =
      Some("""{"strandline":1,"channel":"c1","commit":4,"file":%step,"domain":"int64","step":%step,"frontier":%frontier}""")
    s.add("[3]", Row(1L)).add("[4]")
    val other = Script.plain(freshName(), "time" -> LongType)
    other.add("[]", Row(1L))
    val untagged = read(s).select(col("time").as("time", Metadata.empty))
    val batches = runAll(untagged.union(read(other))).map(whole)
    assert(batches.head \ "otherSources" == JInt(1))
    assert((batches.head \ "running").children.nonEmpty)
    assert(batches.drop(1).forall(each => each \ "running" == JNothing && each \ "otherSources" == JNothing))
  }

  test("the first batch tells whether operators keep state, and whether it depends on how rows are cut into batches") {
    def state(frame: Script => DataFrame): JValue = {
      val s = script("timestamp", "k" -> StringType)
      s.add(s"[${2 * hour}]", Row(new java.sql.Timestamp(hour / 1000), "x"))
      whole(runAll(frame(s)).head) \ "state"
    }
    assert(state(read(_).select("time")) == JString("none"))
    assert(state(read(_).groupBy("time").count()) == JString("rows"))
    assert(state(read(_).dropDuplicates("time", "k")) == JString("rows"))
    assert(state(s => read(s).withWatermark("time", "1 hour").dropDuplicatesWithinWatermark("k")) == JString("batches"))
  }

  test("a sink's tasks see it even if the optimizer removes the source") {
    val s = script("int64")
    s.add("[3]", Row(1L))
    val seen = new java.util.concurrent.LinkedBlockingQueue[String]()
    val listener = new SparkListener {
      override def onJobStart(job: SparkListenerJobStart): Unit =
        Option(job.properties.getProperty("strandline.output")).foreach(seen.add)
    }
    spark.sparkContext.addSparkListener(listener)
    try {
      val query = read(s).where(lit(false)).writeStream.format("noop").option("checkpointLocation", tempDir()).start()
      query.processAllAvailable()
      query.stop()
      assert(json(seen.poll(10, java.util.concurrent.TimeUnit.SECONDS)) \ "end" == json("[3]"))
    } finally spark.sparkContext.removeSparkListener(listener)
  }

  test("a window's start and end have the frontier of the windows that are still open") {
    val s = script("timestamp")
    val start = micros("2013-01-01T00:00:00Z")
    s.add(s"[${start + hour / 2}]").add(s"[${start + hour}]")
    val counts = read(s).groupBy(window(col("time"), "1 hour")).count()
    def ends(column: String) = outputs(runAll(counts.select(col(column).as("time"), col("count")))).map(o => (o \ "end")(0))
    assert(ends("window.start") == Seq(JInt(start), JInt(start + hour)))
    assert(ends("window.end") == Seq(JInt(start + hour), JInt(start + 2 * hour)))
    val times = outputs(runAll(counts.select(window_time(col("window")).as("time")))).map(o => (o \ "end")(0))
    assert(times == Seq(JInt(start + hour - 1), JInt(start + 2 * hour - 1)))
  }

  test("a union's frontier is that of its slowest source, also if it is idle") {
    val (fast, slow) = (script("int64"), script("int64"))
    slow.add("[2]")
    fast.add("[10]", Row(1L)).add("[11]")
    val ends = outputs(runAll(read(fast).union(read(slow)))).map(_ \ "end")
    assert(ends == Seq(json("[2]"), json("[2]")))
  }

  test("a plan without an output frontier says why") {
    val s = script("timestamp", "k" -> LongType)
    s.add("[5]", Row(at("2013-01-01T00:00:00Z"), 1L))
    def errorOf(columns: org.apache.spark.sql.Column*) = error(outputs(runAll(read(s).select(columns: _*))).head)
    assert(errorOf(col("k")).contains("No column"))
    assert(errorOf(date_trunc("hour", col("time")).as("time")).contains("No column"))
    assert(errorOf(window(col("time"), "1 hour").getField("start"), window(col("time"), "1 hour").getField("end")).contains(
        "Several columns"))
    assert(errorOf(col("time"), col("time").as("again")).contains("Several columns of the output are times: time, again"))
    val windows = read(s).groupBy(window(col("time"), "1 hour")).count()
    assert(error(outputs(runAll(windows)).head).contains("Column window is a window"))
    assert(error(outputs(runAll(windows, "complete")).head).contains("complete"))
  }

  test("a query without a strandline source has none, also if a batch with one has started it") {
    val (ours, plain) = (script("int64"), Script.plain(freshName(), "x" -> LongType))
    ours.add("[5]", Row(7L))
    plain.add("", Row(1L))
    var inner = Seq.empty[Batch]
    val query = read(ours).writeStream
      .option("checkpointLocation", tempDir())
      .foreachBatch { (_: org.apache.spark.sql.DataFrame, _: Long) => inner = runAll(read(plain)) }
      .start()
    query.processAllAvailable()
    query.stop()
    assert(inner.map(b => b.rows -> b.output) == Seq(Seq(Row(1L)) -> None))
  }

  /** Returns the property in the tasks of each job of `frame`, in order, with a sink of its own. */
  private def seenByJobs(frame: DataFrame): Seq[String] = {
    val seen = new java.util.concurrent.ConcurrentLinkedQueue[String]()
    val listener = new SparkListener {
      override def onJobStart(job: SparkListenerJobStart): Unit =
        seen.add(String.valueOf(job.properties.getProperty("strandline.output")))
    }
    spark.sparkContext.addSparkListener(listener)
    try {
      val query = frame.writeStream.format("noop").option("checkpointLocation", tempDir()).start()
      query.processAllAvailable()
      query.stop()
      SparkListeners.drain(spark.sparkContext)
    } finally spark.sparkContext.removeSparkListener(listener)
    import scala.jdk.CollectionConverters._
    seen.asScala.toSeq
  }

  test("adaptive execution plans stage after stage, and no single stage determines the output frontier") {
    val start = micros("2013-01-01T00:00:00Z")
    val table = spark.range(5).withColumnRenamed("id", "k").withColumn("name", lit("x"))
    for {
      adaptive <- Seq("true", "false")
      shuffled <- Seq[DataFrame => DataFrame](_.repartition(2), _.repartitionByRange(2, col("k")), _.hint("rebalance"),
        _.join(table.hint("merge"), "k"))
    } withConf("spark.sql.adaptive.enabled" -> adaptive, "spark.sql.autoBroadcastJoinThreshold" -> "-1") {
      val s = script("timestamp", "k" -> LongType)
      s.add(s"[${start + hour / 2}]", Row(at("2013-01-01T00:40:00Z"), 1L)).add(s"[${start + 2 * hour}]",
        Row(at("2013-01-01T02:40:00Z"), 1L))
      val steps = s"""[{"truncate":$hour,"offset":0}]"""
      val frame = shuffled(read(s)).withColumn("time", expr(s"strandline_move(time, 'timestamp', '$steps')"))
      val least = Summary.parse(steps).results(Antichain.least(Scalar.timestamp)).toJson
      val seen = seenByJobs(frame).map(json).distinct
      assert(seen.map(_ \ "end") == Seq(json(s"[$start]"), json(s"[${start + 2 * hour}]")))
      assert(seen.map(_ \ "start") == Seq(least, json(s"[$start]")))
    }
  }

  test("an offset that looks like ours does not count if the source is foreign") {
    val s = Script.plain(freshName(), "x" -> LongType)
    s.offsetTemplate = Some("""{"strandline":{"0":%step},"step":%step}""")
    s.add("", Row(1L)).add("", Row(2L))
    assert(runAll(read(s)).flatMap(_.rows) == Seq(Row(1L), Row(2L)))
  }
}
