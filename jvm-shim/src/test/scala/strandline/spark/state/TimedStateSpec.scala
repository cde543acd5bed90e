package strandline.spark.state

import java.nio.file.{Files, Path, Paths}

import scala.collection.mutable
import scala.util.Random

import org.apache.spark.sql.{DataFrame, Row}
import org.apache.spark.sql.functions._
import org.apache.spark.sql.types._
import strandline.spark.{Drawn, Script, StreamSpec}

/** State whose keys are found by their times, in each of Spark's stores, with the times kept in memory or read again. */
class TimedStateSpec extends StreamSpec {
  private val seed = Drawn.seed
  private val rocksDb =
    "spark.sql.streaming.stateStore.providerClass" -> "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
  private val stores: Seq[(String, Seq[(String, String)])] = Seq(
    "HDFS-backed" -> Nil,
    "HDFS-backed, Spark's own" -> Seq("spark.strandline.stateStore.shared" -> "false"),
    "RocksDB" -> Seq(rocksDb),
    "RocksDB with checkpoint ids" -> Seq(rocksDb, "spark.sql.streaming.stateStore.checkpointFormatVersion" -> "2"))

  private def pair(a: Long, b: Long): Row = Row(a, b)
  private def grid(): Script = script("product(a int64, b int64)", "k" -> StringType)

  private type Frontier = Seq[(Long, Long)]

  /** Plays random rows at open times, with a frontier that moves at random. If it `ends`, the last step closes everything. */
  private def play(s: Script, random: Random, steps: Int, from: Frontier = Seq((0L, 0L)), ends: Boolean = true)
      : Seq[(Seq[(Long, Long, String)], Frontier)] = {
    var frontier = from
    (1 to steps).map { n =>
      val rows = Seq.fill(random.nextInt(5)) {
        val (a, b) = frontier(random.nextInt(frontier.size))
        (a + random.nextInt(3), b + random.nextInt(3), Seq("x", "y", "z")(random.nextInt(3)))
      }
      val moved = if (n == steps && ends) Nil else frontier.map { case (a, b) => (a + random.nextInt(2), b + random.nextInt(2)) }
      frontier = moved.distinct.filterNot(t => moved.exists(u => u != t && u._1 <= t._1 && u._2 <= t._2)) match {
        case Seq((a, b)) if random.nextBoolean() => Seq((a, b + 1), (a + 1, b))
        case other => other
      }
      s.add(frontier.map { case (a, b) => s"[$a,$b]" }.mkString("[", ",", "]"),
        rows.map { case (a, b, k) => Row(pair(a, b), k) }: _*)
      rows -> frontier
    }
  }

  /** Returns each operator's number of state rows at the end, from the query's progress. */
  private def totals(frame: DataFrame, mode: String, checkpoint: String): Seq[Long] = {
    var told = Seq.empty[Long]
    run(frame, mode, checkpoint) { query =>
      query.processAllAvailable()
      told = query.recentProgress.filter(_.stateOperators.nonEmpty).last.stateOperators.toSeq.map(_.numRowsTotal)
    }
    told
  }

  private def open(frontier: Seq[(Long, Long)], a: Long, b: Long): Boolean = frontier.exists { case (x, y) => x <= a && y <= b }

  test("a batch that opens and closes its times leaves nothing in RocksDB, whatever the operator") {
    withConf(rocksDb) {
      def frames(s: Script) = {
        val rows = read(s)
        Seq[(String, String, DataFrame, Int)](
          ("append", "groups", rows.groupBy("time", "k").count(), 2),
          ("update", "groups", rows.groupBy("time", "k").count(), 2),
          ("append", "distinct", rows.dropDuplicates("time", "k"), 2),
          ("append", "joined", rows.as("l").join(read(s).as("r"), expr("l.time = r.time AND l.k = r.k")), 5))
      }
      for (n <- Drawn(frames(script("int64", "k" -> StringType)).indices, 1)) {
        val s = script("int64", "k" -> StringType)
        val (mode, what, frame, each) = frames(s)(n)
        for (time <- 0L until 12L) s.add(s"[${time + 1}]", Row(time, "x"), Row(time, "y"), Row(time, "x"))
        var kept = Seq.empty[Long]
        val batches = run(frame, mode, tempDir()) { query =>
          query.processAllAvailable()
          kept = query.recentProgress.toSeq.filter(_.stateOperators.nonEmpty).map(
            _.stateOperators.head.customMetrics.get("rocksdbFilesReused").toLong)
        }
        assert(batches.map(_.rows.length) == Seq.fill(12)(each), s"$what, $mode")
        assert(kept.last <= 2 * 8, s"$what, $mode: the files of each version: $kept")
      }
    }
  }

  for (((store, settings), n) <- Drawn(stores.zipWithIndex, 1)) {
    test(s"groups and duplicates close when their time does, in the batch that closes it: $store (seed $seed)") {
      withConf(settings: _*) {
        val random = new Random(seed)
        val (s, checkpoint, copies) = (grid(), tempDir(), tempDir())
        val sums = read(s).groupBy("k", "time").count().select("time.a", "time.b", "k", "count")
        val distinct = read(s).dropDuplicates("k", "time").groupBy("time").count().select("time.a", "time.b", "count")
        val groups = mutable.Map.empty[(Long, Long, String), Long]
        val script = play(s, random, 6)
        val found = emitted(sums, checkpoint = checkpoint)
        val unique = emitted(distinct, checkpoint = copies)
        val expected = script.map { case (rows, frontier) =>
          rows.foreach { case (a, b, k) => groups.updateWith((a, b, k))(n => Some(n.getOrElse(0L) + 1)) }
          val closed = groups.keySet.filterNot { case (a, b, _) => open(frontier, a, b) }.toSet
          val sums = closed.map { case key @ (a, b, k) => Row(a, b, k, groups(key)) }
          val counts = closed.groupBy { case (a, b, _) => (a, b) }.map { case ((a, b), keys) =>
            Row(a, b, keys.size.toLong)
          }.toSet
          closed.foreach(groups.remove)
          (sums, counts)
        }
        assert(found == expected.map(_._1))
        assert(unique == expected.map(_._2))
      }
    }

    val mode = Seq("append", "update")(n % 2) // so each kind of store has both
    test(s"the progress tells how many rows the state has, after a restart too: $mode, $store (seed $seed)") {
      withConf(settings: _*) {
        val random = new Random(seed)
        val (s, checkpoint) = (grid(), tempDir())
        val groups = read(s).groupBy("k", "time").count()
        val distinct = read(s).dropDuplicates("time").select("k", "time.a", "time.b")
        val frame = groups.select("k", "time.a", "time.b").union(distinct)
        var frontier: Frontier = Seq((0L, 0L))
        for (_ <- 1 to 2) {
          frontier = play(s, random, 3, frontier, ends = false).last._2
          val told = totals(frame, mode, checkpoint)
          val found = (0 to 1).map(n => spark.read.format("statestore").option("operatorId", n.toString).load(checkpoint).count())
          assert(told.sorted == found.sorted)
          OpenTimeIndex.forget()
        }
      }
    }

    test(s"a restart finds the open times in the state, and what it has forgotten too: $store") {
      withConf(settings: _*) {
        val (s, checkpoint) = (script("int64", "k" -> StringType), tempDir())
        val frame = read(s).groupBy("k", "time").count()
        s.add("[2]", Row(1L, "x"), Row(2L, "x"), Row(2L, "y"), Row(5L, "z"))
        assert(emitted(frame, checkpoint = checkpoint) == Seq(Set(Row("x", 1L, 1L))))
        s.add("[3]")
        OpenTimeIndex.forget()
        assert(emitted(frame, checkpoint = checkpoint) == Seq(Set(Row("x", 2L, 1L), Row("y", 2L, 1L))))
        s.add("[]", Row(5L, "z"))
        assert(emitted(frame, checkpoint = checkpoint) == Seq(Set(Row("z", 5L, 2L))))
      }
    }
  }

  for ((store, settings) <- Drawn(stores, 1))
    test(s"all keys are read once after a restart, however many actions a batch has: $store") {
      withConf(settings: _*) {
        val (s, checkpoint) = (script("int64", "k" -> StringType), tempDir())
        val sums = read(s).groupBy("k", "time").count()
        var batches = Seq.empty[Seq[Set[Row]]]
        def go() = {
          val query = sums.writeStream.outputMode("append").option("checkpointLocation", checkpoint).foreachBatch {
            (rows: DataFrame, _: Long) =>
              batches :+= Seq.fill(3)(rows.collect().toSet)
          }.start()
          try query.processAllAvailable()
          finally query.stop()
        }
        s.add("[2]", Row(1L, "x"), Row(2L, "x"), Row(2L, "y"), Row(5L, "z"))
        go()
        OpenTimeIndex.forget()
        val before = OpenTimeIndex.scans.sum
        s.add("[2]", Row(4L, "x")).add("[3]", Row(7L, "x")).add("[]")
        go()
        assert(OpenTimeIndex.scans.sum - before == 2) // one for each partition
        val closed = Seq(Set(Row("x", 1L, 1L)), Set.empty, Set(Row("x", 2L, 1L), Row("y", 2L, 1L)),
          Set(Row("z", 5L, 1L), Row("x", 4L, 1L), Row("x", 7L, 1L)))
        assert(batches == closed.map(Seq.fill(3)(_)))
      }
    }

  test("Spark's default store is replaced unless a setting says otherwise, which may change at a restart") {
    val (s, checkpoint) = (script("int64", "k" -> StringType), tempDir())
    def go(shared: Boolean)(step: => Unit): (Set[Row], Long) = withConf("spark.strandline.stateStore.shared" -> shared.toString) {
      step
      var told = 0L
      val batches = run(read(s).groupBy("k", "time").count(), checkpoint = checkpoint) { query =>
        query.processAllAvailable()
        told = query.recentProgress.flatMap(_.stateOperators).map(_.customMetrics.get("numSharedStateStores").longValue).last
      }
      (batches.flatMap(_.rows).toSet, told)
    }
    assert(go(shared = true)(s.add("[2]", Row(1L, "x"), Row(2L, "x"), Row(2L, "y"), Row(5L, "z"))) == (Set(Row("x", 1L,
        1L)) -> 2L))
    assert(go(shared = false)(s.add("[3]", Row(5L, "z"))) == (Set(Row("x", 2L, 1L), Row("y", 2L, 1L)) -> 0L))
    assert(go(shared = true)(s.add("[]", Row(5L, "z"))) == (Set(Row("z", 5L, 3L)) -> 2L))
    val wrong = intercept[Exception](withConf("spark.strandline.stateStore.shared" -> "perhaps")(()))
    assert(wrong.getMessage.contains("spark.strandline.stateStore.shared"))
  }

  test("two aggregations in a union keep their times apart") {
    for ((_, settings) <- Drawn(stores, 1)) withConf(settings: _*) {
      val (a, b, checkpoint) = (script("int64", "k" -> StringType), script("int64", "k" -> StringType), tempDir())
      def counts(s: Script) = read(s).groupBy("k", "time").count()
      val frame = counts(a).union(counts(b))
      a.add("[2]", Row(1L, "x"), Row(3L, "x"))
      b.add("[4]", Row(1L, "y"), Row(2L, "y"))
      def play() = runAll(frame, checkpoint = checkpoint).flatMap(_.rows).toSet
      assert(play() == Set(Row("x", 1L, 1L), Row("y", 1L, 1L)))
      a.add("[3]").add("[]", Row(3L, "x"))
      b.add("[]", Row(5L, "y"))
      assert(play() == Set(Row("y", 2L, 1L), Row("x", 3L, 2L), Row("y", 5L, 1L)))
    }
  }

  test("a key without a time, over rows that have lost their times, is kept") {
    val s = script("int64", "k" -> StringType)
    s.add("[2]", Row(1L, "x"), Row(1L, "x")).add("[]", Row(5L, "x"), Row(6L, "y"))
    assert(emitted(read(s).groupBy("k").count(), "update") == Seq(Set(Row("x", 2L)), Set(Row("x", 3L), Row("y", 1L))))
    assert(emitted(read(s).dropDuplicates("k").select("k")) == Seq(Set(Row("x")), Set(Row("y"))))
  }

  test("a key without a time, over a source that is idle while another continues") {
    val (idle, busy) = (script("int64", "k" -> StringType), script("int64", "k" -> StringType))
    idle.add("[1]", Row(1L, "x"))
    busy.add("[1]", Row(1L, "y"))
    val frame = read(idle).dropDuplicates("k").select("k").union(read(busy).select("k"))
    val batches = run(frame) { query =>
      query.processAllAvailable()
      busy.add("[2]", Row(1L, "z"))
      query.processAllAvailable()
    }
    assert(batches.map(_.rows.toSet) == Seq(Set(Row("x"), Row("y")), Set(Row("z"))))
    val counts = read(idle).groupBy("k").count().select("k").union(read(busy).groupBy("k").count().select("k"))
    assert(run(counts, "update") { query =>
      query.processAllAvailable()
      busy.add("[3]", Row(2L, "w"))
      query.processAllAvailable()
    }.last.rows == Seq(Row("w")))
  }

  test("an aggregation that Spark plans with a sort closes like any other") {
    val s = script("int64", "k" -> StringType)
    s.add("[2]", Row(1L, "x"), Row(1L, "y"), Row(3L, "z")).add("[]", Row(3L, "a"))
    assert(emitted(read(s).groupBy("time").agg(max("k"))) == Seq(Set(Row(1L, "y")), Set(Row(3L, "z"))))
  }

  test("the progress shows the open times, and update mode forgets closed groups") {
    val s = script("int64", "k" -> StringType)
    s.add("[2]", Row(1L, "x"), Row(2L, "x"), Row(2L, "y"), Row(5L, "z")).add("[3]")
    var open = Seq.empty[Long]
    run(read(s).groupBy("k", "time").count(), "update") { query =>
      query.processAllAvailable()
      open = query.recentProgress.toSeq.flatMap(_.stateOperators).map(_.customMetrics.get("numOpenTimes").longValue)
    }
    // Each of the two partitions counts its own times: x and y of time 2 may be in one partition or in two.
    assert(open.head >= 2 && open.last == 1)
  }

  test("a checkpoint that was begun without the times as prefix continues without it") {
    val (s, checkpoint) = (script("int64", "k" -> StringType), tempDir())
    val frame = read(s).groupBy("k", "time").count()
    s.add("[2]", Row(1L, "x"), Row(2L, "y"))
    assert(emitted(frame, checkpoint = checkpoint) == Seq(Set(Row("x", 1L, 1L))))
    rewrite(Paths.get(checkpoint, "state", "0", "_metadata", "metadata"), "\"numColsPrefixKey\":1", "\"numColsPrefixKey\":0")
    s.add("[3]")
    assert(emitted(frame, checkpoint = checkpoint) == Seq(Set(Row("y", 2L, 1L))))
  }

  test("Spark's state reader finds the keys, with the times first") {
    for ((_, settings) <- Drawn(stores, 1)) withConf(settings: _*) {
      val (s, checkpoint) = (script("int64", "k" -> StringType), tempDir())
      s.add("[2]", Row(1L, "x"), Row(2L, "y"), Row(2L, "y"))
      emitted(read(s).groupBy("k", "time").count(), checkpoint = checkpoint)
      val state: DataFrame = spark.read.format("statestore").load(checkpoint)
      assert(state.select("key.*", "value.*").collect().toSeq == Seq(Row(2L, "y", 2L)))
    }
  }

  test("a key of times only is looked up itself") {
    val s = script("timestamp")
    s.add("[2000000]", Row(new java.sql.Timestamp(1000)), Row(new java.sql.Timestamp(3000))).add("[]")
    val frame = read(s).groupBy(col("time"), window(col("time"), "2 seconds")).count().select("count")
    assert(runAll(frame).map(_.rows.size) == Seq(1, 1))
  }

  test("a damaged state stops the query, and no time counts as closed") {
    val (s, checkpoint) = (script("int64", "k" -> StringType), tempDir())
    val frame = read(s).groupBy("k", "time").count()
    s.add("[2]", Row(1L, "x"), Row(2L, "y"), Row(3L, "z"))
    emitted(frame, checkpoint = checkpoint)
    val deltas =
      Files.walk(Paths.get(checkpoint, "state", "0")).filter(_.toString.endsWith("1.delta")).toArray.map(_.asInstanceOf[Path])
    assert(deltas.length == 2)
    deltas.foreach { file =>
      val bytes = Files.readAllBytes(file)
      Files.write(file, bytes.take(bytes.length / 2))
      Files.deleteIfExists(file.resolveSibling(s".${file.getFileName}.crc"))
    }
    s.add("[]")
    val thrown = intercept[org.apache.spark.sql.streaming.StreamingQueryException](runAll(frame, checkpoint = checkpoint))
    assert(thrown.getMessage.contains("state"), thrown.getMessage)
  }

  private def rewrite(file: Path, from: String, to: String): Unit = {
    val text = Files.readString(file)
    assert(text.contains(from), text)
    Files.writeString(file, text.replace(from, to))
    Files.deleteIfExists(file.resolveSibling(s".${file.getFileName}.crc"))
    ()
  }
}
