package strandline.spark

import java.nio.file.Files
import java.util.concurrent.atomic.AtomicInteger

import scala.collection.mutable

import org.apache.spark.TaskContext
import org.apache.spark.sql.{DataFrame, Row, SparkSession}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.classic
import org.apache.spark.sql.execution.streaming.runtime.StreamProgress
import org.apache.spark.sql.streaming.{StreamingQuery, StreamingQueryException, Trigger}
import org.apache.spark.sql.types._
import org.scalatest.funsuite.AnyFunSuite
import strandline.spark.batch.BatchFrontiers
import strandline.spark.time.TimeColumn

/**
 * One batch as its sink saw it: the rows, the output property of its tasks, and each scripted source's steps before and after.
 */
final case class Batch(id: Long, rows: Seq[Row], output: Option[String], from: Map[String, Int], until: Map[String, Int])

/** The base of the query suites: a session, scripted sources, and queries whose every batch is recorded. */
abstract class StreamSpec extends AnyFunSuite {
  lazy val spark: SparkSession = StreamSpec.session
  private val names = new AtomicInteger()

  def freshName(): String = s"${getClass.getSimpleName}-${names.incrementAndGet()}"

  def script(domain: String, fields: (String, DataType)*): Script = Script(freshName(), domain, fields: _*)

  def read(script: Script): DataFrame = spark.readStream.format("strandline-scripted").option("script", script.name).load()

  def tempDir(): String = Files.createTempDirectory("strandline").toString

  /** Runs `frame` during `play`, and returns its batches. */
  def run(frame: DataFrame, mode: String = "append", checkpoint: String = tempDir(),
      trigger: Trigger = Trigger.ProcessingTime(0))(
      play: StreamingQuery => Unit): Seq[Batch] = {
    val batches = mutable.ArrayBuffer.empty[Batch]
    val query = frame.writeStream
      .outputMode(mode)
      .trigger(trigger)
      .option("checkpointLocation", checkpoint)
      .foreachBatch { (rows: DataFrame, id: Long) =>
        val session = rows.sparkSession
        val collected = rows.collect().toSeq
        val seen = if (asksTasks) outputInTasks(session) else Option(session.sparkContext.getLocalProperty("strandline.output"))
        val context = BatchFrontiers.activeQuery(session.asInstanceOf[classic.SparkSession]).get.getLatestExecutionContext()
        batches += Batch(id, collected, seen, steps(context.startOffsets), steps(context.endOffsets))
        ()
      }
      .start()
    try play(query)
    finally query.stop()
    batches.toSeq
  }

  /**
   * Whether the output property is what a task sees, after a query of the user on the same thread. Both are jobs in each batch.
   */
  protected def asksTasks: Boolean = false

  private def outputInTasks(session: SparkSession): Option[String] = {
    assert(session.range(0, 3, 1, 1).groupBy().count().head().getLong(0) == 3)
    session.sparkContext.parallelize(Seq(1), 1).map(_ =>
      Option(TaskContext.get().getLocalProperty("strandline.output"))).collect().head
  }

  private def steps(
      progress: StreamProgress): Map[String, Int] = progress.iterator.collect { case (stream: ScriptedStream, offset) =>
    stream.script.name -> Script.stepOf(offset.json)
  }.toMap

  /** Runs `frame` until nothing is left to read. */
  def runAll(frame: DataFrame, mode: String = "append", checkpoint: String = tempDir()): Seq[Batch] =
    run(frame, mode, checkpoint)(_.processAllAvailable())

  /** Returns the rows of each batch as a set. */
  def emitted(frame: DataFrame, mode: String = "append", checkpoint: String = tempDir()): Seq[Set[Row]] =
    runAll(frame, mode, checkpoint).map(_.rows.toSet)

  /** Returns the message of the error that `frame` fails with. */
  def failure(frame: => DataFrame, mode: String = "append"): String =
    intercept[StreamingQueryException](runAll(frame, mode)).getMessage

  def withConf[T](settings: (String, String)*)(body: => T): T = {
    val before = settings.map { case (key, _) => key -> spark.conf.getOption(key) }
    settings.foreach { case (key, value) => spark.conf.set(key, value) }
    try body
    finally before.foreach { case (key, value) => value.fold(spark.conf.unset(key))(spark.conf.set(key, _)) }
  }

  def at(text: String): java.sql.Timestamp = java.sql.Timestamp.from(java.time.Instant.parse(text))

  def micros(text: String): Long = java.time.Instant.parse(text).getEpochSecond * 1000000L

  def analyzed(frame: DataFrame): LogicalPlan = frame.asInstanceOf[classic.DataFrame].queryExecution.analyzed

  /** Returns the tag of a column, from its schema. */
  def tag(frame: DataFrame, column: String): Option[TimeColumn] = TimeColumn.of(frame.schema(column).metadata)
}

object StreamSpec {

  /** The managers of checkpoint files that a local disk can have: Spark's default, and the one by Hadoop's `FileSystem`. */
  val FileManagers: Seq[String] =
    Seq("FileContextBased", "FileSystemBased").map(name =>
      s"org.apache.spark.sql.execution.streaming.checkpointing.${name}CheckpointFileManager")

  // Named in spark.sql.extensions as well as in META-INF/services, to show that loading it twice is harmless.
  lazy val session: SparkSession = SparkSession
    .builder()
    .master("local[2]")
    .config("spark.sql.extensions", classOf[StrandlineExtensions].getName)
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.sql.session.timeZone", "UTC")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.streaming.stopTimeout", "30s")
    .config("spark.sql.streaming.pollingDelay", "5ms")
    // Spark's default starts a process for each checkpoint file on a local disk. StateLayoutSpec runs with either.
    .config("spark.sql.streaming.checkpointFileManagerClass", FileManagers.last)
    // Hadoop's own starts a process for each file that it makes.
    .config("spark.hadoop.fs.file.impl", "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem")
    // Or a task asks the driver for each class that a compiler of generated code looks for in vain.
    .config("spark.sql.artifact.isolation.enabled", "false")
    .config("spark.sql.warehouse.dir", Files.createTempDirectory("strandline-warehouse").toString)
    .getOrCreate()
}
