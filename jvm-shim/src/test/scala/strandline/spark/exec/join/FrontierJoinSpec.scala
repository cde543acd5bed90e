package strandline.spark.exec.join

import scala.collection.mutable
import scala.util.Random

import org.apache.spark.sql.{classic, AnalysisException, DataFrame, Row}
import org.apache.spark.sql.catalyst.plans.logical.{Filter, Join}
import org.apache.spark.sql.functions._
import org.apache.spark.sql.types._
import strandline.spark.{Drawn, Script, StreamSpec}
import strandline.spark.plan.TimeDistance
import strandline.spark.state.expiry.Expiries
import strandline.spark.time.ShiftStep

/** Stream-stream joins by a distance of times, compared with their definition. */
class FrontierJoinSpec extends StreamSpec {
  private val seed = Drawn.seed

  private case class Side(script: Script, rows: Seq[Seq[Long]], frontiers: Seq[Long]) {
    def batchOf(time: Long): Int = rows.indexWhere(_.contains(time))

    /** Adds the rows and the frontiers of some batches. */
    def play(batches: Range): Unit = batches.foreach { i =>
      script.add(if (frontiers(i) == Long.MaxValue) "[]" else s"[${frontiers(i)}]", rows(i).map(t => Row(t, t)): _*)
    }
  }

  private val rocksDb =
    "spark.sql.streaming.stateStore.providerClass" -> "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
  private val stores: Seq[(String, Seq[(String, String)])] = Seq(
    "HDFS-backed" -> Nil,
    "HDFS-backed, Spark's own" -> Seq("spark.strandline.stateStore.shared" -> "false"),
    "RocksDB" -> Seq(rocksDb),
    "RocksDB with checkpoint ids" -> Seq(rocksDb, "spark.sql.streaming.stateStore.checkpointFormatVersion" -> "2"),
    "RocksDB with one store for both sides" -> Seq(rocksDb, "spark.sql.streaming.join.stateFormatVersion" -> "3"),
    "RocksDB with one store and checkpoint ids" -> Seq(
      rocksDb,
      "spark.sql.streaming.join.stateFormatVersion" -> "3",
      "spark.sql.streaming.stateStore.checkpointFormatVersion" -> "2"))

  /**
   * Generates times that appear once each, in a batch before whose start they are open, and the frontiers after the batches.
   */
  private def sides(r: Random): (Side, Side, Seq[Long]) = {
    val batches = 4 + r.nextInt(3)
    val frontiers = Seq.fill(batches - 1)(r.nextInt(30).toLong).sorted :+ Long.MaxValue
    def side(field: String) = {
      val s = script("int64", field -> LongType)
      val times = r.shuffle((0L until 36L).toList).take(18)
      val rows = Seq.fill(batches)(mutable.ArrayBuffer.empty[Long])
      for (t <- times) {
        val open = (0 until batches).filter(i => i == 0 || frontiers(i - 1) <= t)
        rows(open(r.nextInt(open.size))) += t
      }
      Side(s, rows.map(_.toSeq), frontiers)
    }
    (side("a"), side("b"), frontiers)
  }

  /**
   * Returns the batch in which `time`, which came in batch `came`, has no more matches to wait for: its frontier closes `time +
   * reach`.
   */
  private def letGo(time: Long, came: Int, reach: Long, frontiers: Seq[Long]): Int =
    frontiers.indices.find(i => i >= came && frontiers(i) > time + reach).get

  private def expected(
      how: String, left: Side, right: Side, low: Long, high: Long, frontiers: Seq[Long], keys: Int = 1): Seq[Set[Row]] = {
    val pairs = for (l <- left.rows.flatten; r <- right.rows.flatten if l - r >= low && l - r <= high && l % keys == r % keys)
      yield (l, r)
    val (metLeft, metRight) = (pairs.map(_._1).toSet, pairs.map(_._2).toSet)
    val matched = pairs.map { case (l, r) => (left.batchOf(l).max(right.batchOf(r)), Row(l, r)) }
    val lonelyLeft = for (l <- left.rows.flatten if !metLeft(l)) yield (letGo(l, left.batchOf(l), -low, frontiers), Row(l, null))
    val lonelyRight = for (r <- right.rows.flatten if !metRight(r))
      yield (letGo(r, right.batchOf(r), high, frontiers), Row(null, r))
    val rows = how match {
      case "inner" => matched
      case "left_outer" => matched ++ lonelyLeft
      case "right_outer" => matched ++ lonelyRight
      case "full_outer" => matched ++ lonelyLeft ++ lonelyRight
      case "left_semi" =>
        metLeft.toSeq.map(l => (pairs.filter(_._1 == l).map(p => left.batchOf(l).max(right.batchOf(p._2))).min, Row(l)))
    }
    frontiers.indices.map(i => rows.collect { case (`i`, row) => row }.toSet)
  }

  /** Returns the number of rows that the state has after each batch. */
  private def kept(how: String, left: Side, right: Side, low: Long, high: Long, frontiers: Seq[Long], keys: Int): Seq[Int] = {
    def remaining(side: Side, batch: Int, reach: Long) = side.rows.flatten.filter { time =>
      side.batchOf(time) <= batch && letGo(time, side.batchOf(time), reach, frontiers) > batch
    }
    frontiers.indices.map { batch =>
      val (ofLeft, ofRight) = (remaining(left, batch, -low), remaining(right, batch, high))
      def isMet(l: Long) = right.rows.take(batch + 1).flatten.exists(r => l - r >= low && l - r <= high && l % keys == r % keys)
      (if (how == "left_semi") ofLeft.filterNot(isMet) else ofLeft).size + ofRight.size
    }
  }

  private val kinds =
    for (how <- Seq("inner", "left_outer", "right_outer", "full_outer", "left_semi"); onEqualTimes <- Seq(false, true))
      yield (how, onEqualTimes)

  for ((how, onEqualTimes) <- Drawn(kinds, 2))
    test(
      s"$how on ${if (onEqualTimes) "equal times" else "a distance"}: every row comes out in the batch in which it is " +
        "certain, and no batch looks through the state") {
      val r = new Random(seed + how.hashCode + onEqualTimes.hashCode)
      for (_ <- 1 to Option(System.getProperty("strandline.runs")).fold(1)(_.toInt)) {
        val (store, ofStore) = stores(r.nextInt(stores.length))
        // Without pages, rows that a batch takes in and releases go through the state too.
        val settings = ofStore :+ "spark.strandline.taskRows.pages" -> Seq("0", "4")(r.nextInt(2))
        val (left, right, frontiers) = sides(r)
        val low = if (onEqualTimes) 0L else r.nextInt(9).toLong - 6
        val high = if (onEqualTimes) 0L else low + r.nextInt(6)
        // With one key, only the times decide.
        val keys = 1 + r.nextInt(3)
        def side(s: Side, field: String) = read(s.script).withColumn("k", expr(s"$field % $keys"))
        val onTimes = if (onEqualTimes) "l.time = r.time" else s"l.time >= r.time + $low AND r.time >= l.time - $high"
        val joined = side(left, "a").as("l").join(side(right, "b").as("r"), expr(s"l.k = r.k AND $onTimes"), how)
        val shown = if (how == "left_semi") joined.select("a") else joined.select("a", "b")
        val (checkpoint, restart) = (tempDir(), 1 + r.nextInt(frontiers.length - 1))
        val looks = Expiries.scans.sum
        val counted = mutable.Map.empty[Long, Long]
        def go(batches: Range): Seq[Set[Row]] = {
          Seq(left, right).foreach(_.play(batches))
          val found = run(shown, checkpoint = checkpoint) { query =>
            query.processAllAvailable()
            counted ++= query.recentProgress.collect {
              case p if p.stateOperators.nonEmpty =>
                p.batchId -> p.stateOperators.head.numRowsTotal
            }
          }
          found.foreach(batch => assert(batch.rows.distinct == batch.rows))
          found.map(_.rows.toSet)
        }
        withConf(settings: _*) {
          val before = go(0 until restart)
          assert(Expiries.scans.sum == looks)
          val found = before ++ go(restart until frontiers.length)
          val plan = s"-Dstrandline.seed=$seed: $store, $settings, $onTimes, $keys keys, frontiers $frontiers, $restart before " +
            "the restart"
          assert(found == expected(how, left, right, low, high, frontiers, keys), plan)
          assert(Expiries.scans.sum - looks <= 4, plan) // two sides in two partitions, after the restart
          if (!store.contains("one store")) // which counts its other entries too
            assert(counted == kept(how, left, right, low, high, frontiers, keys).zipWithIndex.map(_.swap).map { case (i, n) =>
                i.toLong -> n.toLong
              }.toMap, plan)
        }
      }
    }

  for ((store, ofStore) <- Drawn(stores, 2))
    test(s"a key of one row, and then of several, leaves the state with all its rows: $store") {
      // Times 1 to 4 have one row each. Time 2 gets another one, and time 3 gets two, by the batch that closes time 2.
      val batches =
        Seq[(Long, Seq[Long])](1L -> Seq(1L, 2L, 3L, 4L), 2L -> Seq(2L), 3L -> Seq(3L, 3L), 4L -> Nil, Long.MaxValue -> Nil)
      val kept = Seq(4L, 4L, 4L, 1L, 0L) // after each batch
      withConf(ofStore :+ "spark.strandline.taskRows.pages" -> "0": _*) {
        for (how <- Seq("inner", "left_outer"); restart <- Seq(2, batches.length)) {
          val (left, right, checkpoint) = (script("int64", "a" -> LongType), script("int64", "b" -> LongType), tempDir())
          val counted = mutable.Map.empty[Long, Long]
          def go(some: Range): Seq[Row] = {
            for (i <- some; (frontier, times) = batches(i); next = if (frontier == Long.MaxValue) "[]" else s"[$frontier]") {
              left.add(next, times.map(time => Row(time, time)): _*)
              right.add(next)
            }
            val joined = read(left).as("l").join(read(right).as("r"), expr("l.time = r.time"), how).select("a", "b")
            run(joined, checkpoint = checkpoint) { query =>
              query.processAllAvailable()
              for (p <- query.recentProgress; operator <- p.stateOperators) counted(p.batchId) = operator.numRowsTotal
            }.flatMap(_.rows)
          }
          val found = go(0 until restart) ++ go(restart until batches.length)
          val all = for ((_, times) <- batches; time <- times) yield Row(time, null)
          assert(found.sortBy(_.toString) == (if (how == "inner") Nil else all.sortBy(_.toString)), (how, restart))
          if (!store.contains("one store")) // which counts its other entries too
            assert(batches.indices.map(i => counted(i.toLong)) == kept, (how, restart))
        }
      }
    }

  for ((store, ofStore) <- Drawn(stores, 2); condition <- Seq("", " AND l.a = r.b"))
    test(s"a key whose rows have left before its time closes is not counted again: $store$condition") {
      // The frontier after each batch, the left times, the right times, and the rows that are kept then. A semi join's left row
      // leaves when it has met a right one.
      val batches = Seq[(Long, Seq[Long], Seq[Long], Long)]((1L, Seq(1L, 2L, 3L, 4L), Nil, 4L), (1L, Nil, Seq(1L, 2L), 4L),
        (2L, Seq(5L), Nil, 4L), (3L, Nil, Seq(4L), 4L - 1), (4L, Nil, Nil, 2L), (Long.MaxValue, Nil, Nil, 0L))
      withConf(ofStore :+ "spark.strandline.taskRows.pages" -> "0": _*) {
        for (restart <- Seq(3, batches.length)) {
          val (left, right, checkpoint) = (script("int64", "a" -> LongType), script("int64", "b" -> LongType), tempDir())
          val counted = mutable.Map.empty[Long, (Long, Long)]
          def go(some: Range): Seq[Row] = {
            for (i <- some; (frontier, l, r, _) = batches(i); next = if (frontier == Long.MaxValue) "[]" else s"[$frontier]") {
              left.add(next, l.map(time => Row(time, time)): _*)
              right.add(next, r.map(time => Row(time, time)): _*)
            }
            val joined = read(left).as("l").join(read(right).as("r"), expr(s"l.time = r.time$condition"), "left_semi").select("a")
            run(joined, checkpoint = checkpoint) { query =>
              query.processAllAvailable()
              for (p <- query.recentProgress; operator <- p.stateOperators)
                counted(p.batchId) = operator.numRowsTotal -> operator.numRowsRemoved
            }.flatMap(_.rows)
          }
          val looks = Expiries.scans.sum
          val found = go(0 until restart)
          assert(Expiries.scans.sum == looks)
          assert((found ++ go(restart until batches.length)).map(_.getLong(0)).sorted == Seq(1L, 2L, 4L), restart)
          if (!store.contains("one store")) // which counts its other entries too
            assert(batches.indices.map(i => counted(i.toLong)._1) == batches.map(_._4), restart)
        }
      }
    }

  private val onPages = for (how <- Seq("inner", "left_outer", "full_outer", "left_semi");
    onTimes <- Seq("l.time = r.time", "l.time BETWEEN r.time AND r.time + 1")
    if how != "left_semi" || onTimes == "l.time = r.time") yield (how, onTimes)

  for ((how, onTimes) <- Drawn(onPages, 1))
    test(
      s"rows that one batch takes in and releases are kept in memory, and those that do not fit in the state: $how, $onTimes") {
      val times = 0L until 200L
      def joined() = {
        val left = script("int64", "a" -> LongType).add("[]", times.map(t => Row(t, t)): _*)
        val right = script("int64", "b" -> LongType).add("[]", times.filter(_ % 3 > 0).map(t => Row(t, t)): _*)
        def side(s: Script, field: String) =
          read(s).withColumn("k", expr(s"$field % 2")).withColumn("long", expr("repeat('x', 100000)"))
        val both = side(left, "a").as("l").join(side(right, "b").as("r"), expr(s"l.k = r.k AND $onTimes"), how)
        both.selectExpr((if (how == "left_semi") Seq("a") else Seq("a", "b")) :+ "length(l.long)": _*)
      }
      def found(pages: Int): (Seq[Row], Long) = withConf("spark.strandline.taskRows.pages" -> pages.toString) {
        var updated = 0L
        val rows = run(joined()) { query =>
          query.processAllAvailable()
          updated = query.recentProgress.flatMap(_.stateOperators).map(_.numRowsUpdated).sum
        }.flatMap(_.rows)
        (rows.sortBy(_.toString), updated)
      }
      val (all, updatedOfAll) = found(0)
      val (some, updatedOfSome) = found(1)
      val (none, updatedOfNone) = found(1000)
      assert(all == some && all == none)
      assert(updatedOfAll == 200 && updatedOfNone == 0 && updatedOfSome > 0 && updatedOfSome < 200, (updatedOfAll, updatedOfSome))
    }

  for (more <- Drawn(Seq("", " AND l.a < r.b", " AND l.a > 5 AND r.b < 30"), 1))
    test(s"a semi join emits each of the left rows of a key once, however many right rows it has: time$more") {
      for (pages <- Seq("0", "4")) withConf("spark.strandline.taskRows.pages" -> pages) {
        def side(field: String) = read(script("int64", field -> LongType).add("[]", (0L until 40L).map(n => Row(1L, n)): _*))
        val joined = side("a").as("l").join(side("b").as("r"), expr(s"l.time = r.time$more"), "left_semi").select("a")
        val expected = (0L until 40L).filter(a =>
          more.isEmpty || more.contains("<") && a < 39 && !more.contains(">") || more.contains(
            ">") && a > 5)
        assert(runAll(joined).flatMap(_.rows).map(_.getLong(0)).sorted == expected, pages)
      }
    }

  private val onNulls = for (how <- Seq("full_outer", "left_outer", "inner");
    onTimes <- Seq("l.time = r.time", "l.time BETWEEN r.time - 5 AND r.time + 5")) yield (how, onTimes)

  for ((how, onTimes) <- Drawn(onNulls, 2))
    test(s"a null in the key equals no other, and a row with one waits for nothing: $how, $onTimes") {
      val (left, right) = (script("int64", "a" -> LongType).add("[0]", Row(1L, 1L), Row(2L, 2L)).add("[]"),
        script("int64", "b" -> LongType).add("[0]", Row(1L, 11L), Row(2L, 12L)).add("[]"))
      def side(s: Script) = read(s).withColumn("k", expr("CASE WHEN time = 2 THEN 'k' END"))
      val joined = side(left).as("l").join(side(right).as("r"), expr(s"l.k = r.k AND $onTimes"), how).select("a", "b")
      val alone =
        Map("full_outer" -> Set(Row(1L, null), Row(null, 11L)), "left_outer" -> Set(Row(1L, null)), "inner" -> Set.empty[Row])
      assert(emitted(joined) == Seq(alone(how) + Row(2L, 12L), Set()))
    }

  test("a column that is never null on its side is null in a row without a partner") {
    val (left, right) = (script("int64", "a" -> LongType).add("[5]", Row(1L, 1L)).add("[]"),
      script("int64", "b" -> LongType).add("[5]", Row(2L, 2L)).add("[]"))
    def side(s: Script, name: String) = read(s).withColumn(name, lit("x")).withColumn(s"${name}s", struct(lit("y"))).as(name)
    val joined =
      side(left, "l").join(side(right, "r"), expr("l.time = r.time"), "full_outer").select("a", "l", "ls", "b", "r", "rs")
    assert(emitted(joined) == Seq(Set(Row(1L, "x", Row("y"), null, null, null), Row(null, null, null, 2L, "x", Row("y"))), Set()))
  }

  for (onTimes <- Drawn(Seq("l.time = r.time", "l.time BETWEEN r.time AND r.time + 1"), 1))
    test(s"a row without a match goes on by the time that it has: $onTimes") {
      def scripts() = (
        read(script("int64", "a" -> LongType).add("[0]", Row(1L, 1L), Row(5L, 5L)).add("[]")).as("l"),
        read(script("int64", "b" -> LongType).add("[0]", Row(5L, 15L)).add("[]")).as("r"),
        read(script("int64", "c" -> LongType).add("[0]", Row(1L, 21L)).add("[]")).as("o"))
      def joined(left: DataFrame, right: DataFrame) =
        left.join(right, expr(s"l.a % 2 = r.b % 2 AND $onTimes"), "left_outer").select(col("l.time").as("t"),
          col("r.time").as("t2"), col("b"))
      val (left, right, other) = scripts()
      assert(emitted(joined(left, right).dropDuplicates("t")).reduce(_ ++ _) == Set(Row(1L, null, null), Row(5L, 5L, 15L)))
      val (l, r, _) = scripts()
      val more = joined(l, r).drop("t2").join(other, expr("t = o.time"), "left_outer").select(col("t"), col("b"), col("c"),
        col("o.time").as("t3"))
      assert(emitted(more.dropDuplicates("t")).reduce(_ ++ _) == Set(Row(1L, null, 21L, 1L), Row(5L, 15L, null, null)))
      val (first, second, _) = scripts()
      assert(emitted(joined(first, second).groupBy("t", "t2").count()).reduce(_ ++ _) == Set(Row(1L, null, 1L), Row(5L, 5L, 1L)))
    }

  test("the times of a side that may lack a row close nothing, so operators that need them are refused before the query starts") {
    def joined(how: String, columns: String*) = {
      val (left, right) = (read(script("int64", "a" -> LongType)).as("l"), read(script("int64", "b" -> LongType)).as("r"))
      left.join(right, expr("l.time = r.time"), how).select(columns.map(col): _*)
    }
    for ((how, column) <-
        Seq("left_outer" -> "r.time", "right_outer" -> "l.time", "full_outer" -> "l.time", "full_outer" -> "r.time"))
      assert(intercept[AnalysisException](runAll(joined(how, column).groupBy("time").count())).getMessage.contains(
          "STRANDLINE_AGGREGATION_WITHOUT_TIME"), s"$how, $column")
    for ((how, column) <- Seq("left_outer" -> "l.time", "right_outer" -> "r.time"))
      assert(runAll(joined(how, column).groupBy("time").count()).forall(_.rows.isEmpty))
  }

  test("a filter above an outer join on equal times is pushed to its side, as without the node") {
    val (left, right) = (read(script("int64", "a" -> LongType)).as("l"), read(script("int64", "b" -> LongType)).as("r"))
    val filtered = left.join(right, expr("l.time = r.time"), "left_outer").where("a > 5").select("l.time", "b")
    val below = spark.asInstanceOf[classic.SparkSession].sessionState.optimizer.execute(analyzed(filtered)).collectFirst {
      case j: Join => j.left
    }.get
    assert(below.exists(_.isInstanceOf[Filter]) && below.output.map(_.name) == Seq("time"), below)
  }

  test("a left semi join by a distance stays above a union, although the optimizer would push it below") {
    val (left, right, frontiers) = sides(new Random(seed))
    Seq(left, right).foreach(_.play(frontiers.indices))
    val (both, other) = (read(left.script).union(read(left.script)), read(right.script))
    val joined = both.withColumn("k", expr("a * 0")).as("l").join(
      other.withColumn("k", expr("b * 0")).as("r"),
      expr("l.k = r.k AND l.time BETWEEN r.time - 2 AND r.time + 3"),
      "left_semi")
    assert(emitted(joined.select("a")) == expected("left_semi", left, right, -2, 3, frontiers), s"seed $seed")
  }

  private def distance(condition: String, domain: String = "timestamp"): Option[(Option[Long], Option[Long])] = {
    val frame = read(script(domain)).as("l").join(read(script(domain)).as("r"), expr(condition))
    val join = analyzed(frame).collectFirst { case j: Join => j }.get
    TimeDistance.of(join.left.output, join.right.output, join.condition.toSeq).map(d => (d.low, d.high))
  }

  test("distances are derived from conditions, also strict and reversed ones") {
    val minute = 60000000L
    assert(distance("l.time BETWEEN r.time - INTERVAL 5 MINUTES AND r.time + INTERVAL 1 HOUR").contains((Some(-5 * minute),
          Some(60 * minute))))
    assert(distance("l.time > r.time - INTERVAL '5' MINUTE AND r.time + INTERVAL '1' MINUTE > l.time").contains(
        (Some(1 - 5 * minute), Some(minute - 1))))
    assert(distance("l.time - r.time <= INTERVAL '2' MINUTE").contains((None, Some(2 * minute))))
    assert(distance("l.time - INTERVAL 1 DAY = r.time").contains((Some(1440 * minute), Some(1440 * minute))))
    assert(distance("l.time = r.time").contains((Some(0L), Some(0L))))
    assert(distance("l.time > r.time + INTERVAL '1' MONTH OR l.time < r.time").isEmpty)
    withConf("spark.sql.session.timeZone" -> "Europe/Berlin")(assert(distance("l.time - INTERVAL 1 DAY >= r.time").isEmpty))
    for (domain <- Seq("int8", "int16", "int32", "int64"))
      assert(distance("l.time BETWEEN r.time - 2 AND r.time + 3", domain).contains((Some(-2L), Some(3L))), domain)
    assert(distance("l.time <= CAST(r.time AS TINYINT)", "int64").isEmpty)
  }

  private def timed(name: String): DataFrame = read(script("timestamp")).select(col("time").as(name))

  test("a join's output is behind its inputs by the distance, and a time without a bound is not a time above it") {
    val (left, right) = (timed("a"), timed("b"))
    def tags(condition: String) =
      Seq("a", "b").map(tag(left.join(right, expr(condition)).select("a", "b"), _).map(_.summary.steps))
    val minute = 60000000L
    assert(tags("a BETWEEN b - INTERVAL 5 MINUTES AND b + INTERVAL 1 MINUTE") == Seq(Some(Seq(ShiftStep(-5 * minute))),
      Some(Seq(ShiftStep(-minute)))))
    assert(tags("a BETWEEN b + INTERVAL 1 MINUTE AND b + INTERVAL 2 MINUTES") == Seq(Some(Nil),
      Some(Seq(ShiftStep(-2 * minute)))))
    assert(tags("a >= b") == Seq(Some(Nil), None))
    assert(tags("a = b") == Seq(Some(Nil), Some(Nil)))
  }

  test("an aggregation over a join by distance closes when no pair of its time can come any more, and not earlier") {
    val hour = 3600L * 1000000
    val start = micros("2013-01-01T00:00:00Z")
    val (left, right) = (script("timestamp", "a" -> LongType), script("timestamp", "b" -> LongType))
    // A left row of the first hour can match right rows until half an hour after it.
    left.add(s"[${start + hour}]", Row(at("2013-01-01T00:50:00Z"), 1L)).add(s"[${start + 2 * hour}]").add("[]")
    right.add(s"[${start + hour}]").add(s"[${start + hour + hour / 2}]", Row(at("2013-01-01T01:10:00Z"), 1L)).add("[]")
    val joined =
      read(left).as("l").join(read(right).as("r"), expr("a = b AND r.time BETWEEN l.time AND l.time + INTERVAL 30 MINUTES"))
    val counted = joined.groupBy(window(col("l.time"), "1 hour")).count().select("window.start", "count")
    val batches = runAll(counted)
    assert(batches.map(_.rows) == Seq(Seq(), Seq(Row(at("2013-01-01T00:00:00Z"), 1L)), Seq()))
    assert(batches(0).output.exists(_.contains(s"${start}")), batches(0).output)
  }

  test("a self-join, and a join that is the whole query, have the right output frontier") {
    val minute = 60000000L
    val start = micros("2013-01-01T00:00:00Z")
    val s = script("timestamp", "k" -> LongType).add(s"[${start + 10 * minute}]", Row(at("2013-01-01T00:05:00Z"), 1L)).add("[]",
      Row(at("2013-01-01T00:14:00Z"), 1L))
    val rows = read(s)
    val near = expr("l.k = r.k AND r.time > l.time AND r.time <= l.time + INTERVAL 10 MINUTES")
    val batches = runAll(rows.as("l").join(rows.as("r"), near, "left_semi"))
    assert(batches.map(_.rows) == Seq(Seq(), Seq(Row(at("2013-01-01T00:05:00Z"), 1L))))
    assert(batches.head.output.exists(_.contains(s""""end":[$start]""")), batches.head.output)
  }

  test("outer joins without a bound on the side that waits are refused") {
    val (l, r) = (read(script("int64", "a" -> LongType).add("[]", Row(1L, 1L))).as("l"),
      read(script("int64", "b" -> LongType).add("[]", Row(1L, 1L))).as("r"))
    assert(failure(l.join(r, expr("a = b AND l.time <= r.time"), "full_outer")).matches(
        "(?s).*(STRANDLINE_OPERATOR_UNSUPPORTED|not supported).*"))
  }

  test("a column of intervals is not a constant, even if it stands on both sides") {
    for (interval <- Seq("make_interval(0, 1)", "make_dt_interval(1)")) {
      def side(name: String) = read(script("timestamp", "k" -> LongType).add("[]")).withColumn("iv", expr(interval)).as(name)
      val joined = side("l").join(side("r"),
        expr("l.k = r.k AND l.time + r.iv <= r.time + r.iv AND l.time + r.iv >= r.time + r.iv - INTERVAL 1 HOUR"))
      withConf("spark.sql.session.timeZone" -> "America/New_York") {
        assert(failure(joined.select("l.k")).contains("[STRANDLINE_OPERATOR_UNSUPPORTED]"), interval)
      }
    }
  }

  test("a bound that does not count is refused beside one that counts, because its side would be kept for ever") {
    def sides(domain: String) =
      (read(script(domain, "a" -> LongType).add("[]")).as("l"), read(script(domain, "b" -> LongType).add("[]")).as("r"))
    def message(domain: String, how: String, bound: String): String = {
      val (l, r) = sides(domain)
      failure(l.join(r, expr(s"a = b AND l.time >= r.time AND l.time <= $bound"), how).select("a"))
    }
    for (how <- Seq("inner", "left_outer", "left_semi")) withConf("spark.sql.session.timeZone" -> "America/New_York") {
      for ((bound, why) <- Seq("r.time + INTERVAL 1 DAY" -> "America/New_York", "r.time + INTERVAL 1 MONTH" -> "months",
          "r.time + make_ym_interval(0, 1)" -> "months")) {
        val told = message("timestamp", how, bound)
        assert(told.contains("[STRANDLINE_OPERATOR_UNSUPPORTED]") && told.contains(why), s"$how, $bound: $told")
      }
      withConf("spark.sql.ansi.enabled" -> "false")(assert(message("int64", how, "r.time + 1").contains("wraps around"), how))
    }
    // A single bound behaves as in Spark, whatever the condition says about other columns.
    val (l, r) = sides("int64")
    withConf("spark.sql.ansi.enabled" -> "false")(assert(runAll(l.join(r, expr("a + 1 = b + 1 AND l.time >= r.time")).select(
            "a")).forall(_.rows.isEmpty)))
  }
}
