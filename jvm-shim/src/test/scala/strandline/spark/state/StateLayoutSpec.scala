package strandline.spark.state

import java.nio.file.{Files, Path, Paths}

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.{DataFrame, Row}
import org.apache.spark.sql.functions._
import org.apache.spark.sql.types._
import strandline.spark.{Drawn, Script, StreamSpec}
import strandline.spark.exec.MarkedOperator
import strandline.spark.plan.OperatorMark

/**
 * A checkpoint determines how its state is encoded. Every output mode obeys it, and a state with an unknown encoding is not
 * read.
 */
class StateLayoutSpec extends StreamSpec {
  private val modes = Seq("append", "update", "complete")
  private val rocksDb =
    "spark.sql.streaming.stateStore.providerClass" -> "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
  private val changelog = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled" -> "true"
  private val stores: Seq[(String, Seq[(String, String)])] = Seq(
    "HDFS-backed" -> Nil,
    "RocksDB" -> Seq(rocksDb),
    "RocksDB with changelogs and checkpoint ids, files by FileContext" -> Seq(
      rocksDb,
      changelog,
      "spark.sql.streaming.stateStore.checkpointFormatVersion" -> "2",
      "spark.sql.streaming.checkpointFileManagerClass" -> StreamSpec.FileManagers.head))

  private type Groups = Map[(String, Long), Long]

  private def sums(s: Script): DataFrame = read(s).groupBy("k", "time").agg(sum("n"))

  /** Returns what a batch emits in that mode, and the state that it leaves. */
  private def expected(mode: String, before: Groups, rows: Seq[(Long, String, Long)], frontier: Long): (Set[Row], Groups) = {
    val after = rows.foldLeft(before) { case (groups, (time, k, n)) =>
      groups.updated((k, time), groups.getOrElse((k, time), 0L) + n)
    }
    val (closed, open) = after.partition(_._1._2 < frontier)
    def shown(groups: Groups) = groups.map { case ((k, time), n) => Row(k, time, n) }.toSet
    val touched = rows.map { case (time, k, _) => (k, time) }.toSet
    mode match {
      case "append" => (shown(closed), open)
      case "update" => (shown(after.filter(group => touched(group._1))), open)
      case "complete" => (shown(after), after)
    }
  }

  private def metadata(checkpoint: String): Path = Paths.get(checkpoint, "state", "0", "_metadata", "metadata")

  private def prefix(checkpoint: String): Int =
    """"numColsPrefixKey":(\d)""".r.findFirstMatchIn(Files.readString(metadata(checkpoint))).get.group(1).toInt

  // Each pair of modes with one of the stores.
  private val pairs = for ((store, i) <- stores.zipWithIndex; (first, j) <- modes.zipWithIndex)
    yield (store, first, modes((i + j + 1) % modes.size))
  for (((store, settings), first, then) <- Drawn(pairs, 3))
    test(s"a checkpoint that was begun in $first mode goes on in $then mode: $store") {
      withConf(settings: _*) {
        val batches = Seq(
          Seq((1L, "x", 1L), (2L, "x", 2L), (2L, "y", 3L), (5L, "z", 4L)) -> 2L,
          Seq((2L, "x", 5L), (5L, "z", 6L), (6L, "w", 7L)) -> 3L,
          Seq((5L, "z", 8L), (9L, "x", 9L)) -> 6L)
        val (s, checkpoint) = (script("int64", "k" -> StringType, "n" -> LongType), tempDir())
        var state: Groups = Map.empty
        for (((rows, frontier), mode) <- batches.zip(Seq(first, then, first))) {
          s.add(s"[$frontier]", rows.map { case (time, k, n) => Row(time, k, n) }: _*)
          val (output, left) = expected(mode, state, rows, frontier)
          assert(emitted(sums(s), mode, checkpoint) == Seq(output), s"in $mode mode")
          state = left
        }
        assert(prefix(checkpoint) == (if (first == "complete") 0 else 1))
      }
    }

  private def rewrite(file: Path, text: String): Unit = {
    Files.writeString(file, text)
    Files.deleteIfExists(file.resolveSibling(s".${file.getFileName}.crc"))
    ()
  }

  /** Returns the message of a query whose metadata file was damaged between two runs. */
  private def spoilt(frame: Script => DataFrame, mode: String = "append")(spoil: Path => Unit): String = {
    val (s, checkpoint) = (script("int64", "k" -> StringType, "n" -> LongType), tempDir())
    s.add("[2]", Row(1L, "x", 1L), Row(2L, "x", 2L), Row(2L, "y", 3L))
    emitted(frame(s), mode, checkpoint)
    spoil(metadata(checkpoint))
    s.add("[3]", Row(2L, "x", 5L))
    val before = state(checkpoint)
    val told = (1 to 2).map { _ => // the refusal changes nothing that would let the next start continue
      intercept[org.apache.spark.sql.streaming.StreamingQueryException](runAll(frame(s), mode, checkpoint)).getMessage
    }
    assert(state(checkpoint) == before)
    assert(told.forall(_.contains("[STRANDLINE_STATE_METADATA_INVALID] The state of operator 0 ")), told)
    assert(told.forall(_.contains(s"$checkpoint/state/0")), told)
    told.head
  }

  /** Returns the files that hold the rows. */
  private def state(checkpoint: String): Set[String] =
    Files.walk(Paths.get(checkpoint, "state", "0")).iterator.asScala.map(_.toString).filter(
      _.matches(".*\\.(delta|snapshot|zip|changelog)")).toSet

  for (((store, settings), mode) <- Seq(stores.head -> "append") ++ modes.map(stores(1) -> _))
    test(s"a state without its metadata stops the query: $store, $mode mode") {
      withConf(settings: _*) {
        val told = spoilt(sums, mode) { file =>
          Files.delete(file)
          Files.deleteIfExists(file.resolveSibling(".metadata.crc"))
          ()
        }
        assert(told.contains("there is no metadata file"), told)
      }
    }

  test("a state whose metadata cannot be read, or is impossible, stops the query") {
    assert(spoilt(sums)(rewrite(_, "v1\n{")).contains("its metadata file cannot be read"))
    assert(spoilt(sums)(rewrite(_, "")).contains("its metadata file cannot be read"))
    def other(file: Path) = rewrite(file, Files.readString(file).replace("\"numColsPrefixKey\":1", "\"numColsPrefixKey\":2"))
    assert(spoilt(sums)(other).contains("a prefix of 2 key columns instead of 1 or none"))
  }

  test("a state that was begun by time stops a query whose key has no time any more") {
    for (mode <- Seq("update", "complete")) withConf(rocksDb) {
      val (s, checkpoint) = (script("int64", "k" -> StringType, "n" -> LongType), tempDir())
      s.add("[2]", Row(1L, "x", 1L), Row(2L, "x", 2L))
      emitted(read(s).groupBy("time", "k").agg(sum("n")), "update", checkpoint)
      s.add("[3]", Row(2L, "x", 5L))
      val untimed = read(s).select(col("time").as("time", Metadata.empty), col("k"), col("n")).groupBy("time", "k").agg(sum("n"))
      val told = intercept[org.apache.spark.sql.streaming.StreamingQueryException](runAll(untimed, mode, checkpoint)).getMessage
      assert(told.contains("a prefix of 1 key columns instead of none"), told)
    }
  }

  test("a state whose encoding an earlier release could not note stops the query with RocksDB, and is read without") {
    def noted(file: Path): Unit = {
      Files.copy(file, file.resolveSibling(".metadata.0f-2.tmp"))
      rewrite(file, Files.readString(file).replace("\"numColsPrefixKey\":1", "\"numColsPrefixKey\":0"))
    }
    withConf(rocksDb)(assert(spoilt(sums)(noted).contains("an earlier release has encoded its keys with a prefix,")))
    withConf(rocksDb) {
      val (s, checkpoint) = (script("int64", "k" -> StringType, "n" -> LongType), tempDir())
      s.add("[2]", Row(1L, "x", 1L), Row(2L, "x", 2L))
      emitted(read(s).groupBy("time", "k").agg(sum("n")), "update", checkpoint)
      noted(metadata(checkpoint))
      s.add("[3]", Row(2L, "x", 5L))
      val untimed = read(s).select(col("time").as("time", Metadata.empty), col("k"), col("n")).groupBy("time", "k").agg(sum("n"))
      val told =
        intercept[org.apache.spark.sql.streaming.StreamingQueryException](runAll(untimed, "update", checkpoint)).getMessage
      assert(told.contains("an earlier release has encoded its keys with a prefix,"), told)
    }
    val (s, checkpoint) = (script("int64", "k" -> StringType, "n" -> LongType), tempDir())
    s.add("[2]", Row(1L, "x", 1L), Row(2L, "x", 2L))
    emitted(sums(s), checkpoint = checkpoint)
    noted(metadata(checkpoint))
    s.add("[3]", Row(2L, "x", 5L))
    assert(emitted(sums(s), checkpoint = checkpoint) == Seq(Set(Row("x", 2L, 7L))))
  }

  test("a marked operator without its prefix stops the query") {
    val mark = new MetadataBuilder().putString(OperatorMark.Key, MarkedOperator.Hold).build()
    def held(s: Script) = read(s).select(col("time"), lit(0L).as("mark", mark), col("k")).dropDuplicates("time", "mark", "k")
    def other(file: Path) = rewrite(file, Files.readString(file).replace("\"numColsPrefixKey\":1", "\"numColsPrefixKey\":0"))
    assert(spoilt(held)(other).contains("a prefix of 0 key columns instead of 1"))
  }

  test("a first batch that failed leaves no encoding behind") {
    val (s, checkpoint) = (script("int64", "k" -> StringType, "n" -> LongType), tempDir())
    s.add("[2]", Row(1L, "x", 1L), Row(2L, "x", 2L))
    val fails = udf((n: Long) => if (n > 0) throw new IllegalStateException("on purpose") else n)
    intercept[org.apache.spark.sql.streaming.StreamingQueryException](runAll(sums(s).select(fails(col("sum(n)"))), "complete",
        checkpoint))
    assert(prefix(checkpoint) == 0)
    assert(emitted(sums(s), checkpoint = checkpoint) == Seq(Set(Row("x", 1L, 1L))))
    assert(prefix(checkpoint) == 1)
  }

  test("what a first batch that was killed left behind does not count later") {
    withConf(rocksDb) {
      val (s, checkpoint) = (script("int64", "k" -> StringType, "n" -> LongType), tempDir())
      s.add("[2]", Row(1L, "x", 1L), Row(2L, "x", 2L))
      val fails = udf((n: Long) => if (n > 0) throw new IllegalStateException("on purpose") else n)
      intercept[org.apache.spark.sql.streaming.StreamingQueryException](runAll(sums(s).select(fails(col("sum(n)"))), "append",
          checkpoint))
      val file = metadata(checkpoint)
      Files.copy(file, file.resolveSibling(".metadata.0f-2.tmp"))
      rewrite(file, Files.readString(file).replace("\"numColsPrefixKey\":1", "\"numColsPrefixKey\":0"))
      assert(emitted(sums(s), "complete", checkpoint) == Seq(Set(Row("x", 1L, 1L), Row("x", 2L, 2L))))
      s.add("[3]", Row(2L, "x", 5L))
      assert(emitted(sums(s), "complete", checkpoint) == Seq(Set(Row("x", 1L, 1L), Row("x", 2L, 7L))))
    }
  }
}
