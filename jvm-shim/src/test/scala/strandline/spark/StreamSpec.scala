package strandline.spark

import java.nio.file.Files
import java.util.concurrent.atomic.AtomicInteger

import scala.collection.mutable

import org.apache.spark.TaskContext
import org.apache.spark.sql.{DataFrame, Row, SparkSession}
import org.apache.spark.sql.streaming.{StreamingQuery, StreamingQueryException, Trigger}
import org.apache.spark.sql.types._
import org.scalatest.funsuite.AnyFunSuite

/** What the query suites share: a session, scripted sources, and queries whose every batch is recorded. */
abstract class StreamSpec extends AnyFunSuite {
  lazy val spark: SparkSession = StreamSpec.session
  private val names = new AtomicInteger()

  def freshName(): String = s"${getClass.getSimpleName}-${names.incrementAndGet()}"

  def script(domain: String, fields: (String, DataType)*): Script = Script(freshName(), domain, fields: _*)

  def read(script: Script): DataFrame = spark.readStream.format("strandline-scripted").option("script", script.name).load()

  def tempDir(): String = Files.createTempDirectory("strandline").toString

  /** Runs `frame` until nothing is left to read, and gives each batch's rows with the output property that its tasks saw. */
  def run(
      frame: DataFrame,
      mode: String = "append",
      checkpoint: String = tempDir(),
      trigger: Trigger = Trigger.ProcessingTime(0),
      options: Map[String, String] = Map.empty)(play: StreamingQuery => Unit): Seq[Batch] = {
    val batches = mutable.ArrayBuffer.empty[Batch]
    val writer = frame.writeStream
      .outputMode(mode)
      .trigger(trigger)
      .option("checkpointLocation", checkpoint)
      .foreachBatch { (rows: DataFrame, id: Long) =>
        val seen = rows.sparkSession.sparkContext
          .parallelize(Seq(1), 1)
          .map(_ => Option(TaskContext.get().getLocalProperty(OutputFrontier.Property)))
          .collect()
          .head
        batches += Batch(id, rows.collect().toSeq, seen)
        ()
      }
    options.foreach { case (key, value) => spark.conf.set(key, value) }
    try {
      val query = writer.start()
      try play(query)
      finally query.stop()
    } finally options.keys.foreach(spark.conf.unset)
    batches.toSeq
  }

  /** Runs all that the scripts hold. */
  def runAll(frame: DataFrame, mode: String = "append", checkpoint: String = tempDir(), options: Map[String, String] = Map.empty): Seq[Batch] =
    run(frame, mode, checkpoint, options = options)(_.processAllAvailable())

  /** The message of the error that running `frame` ends with. */
  def failure(frame: DataFrame, mode: String = "append"): String =
    intercept[StreamingQueryException](runAll(frame, mode)).getMessage

  def at(text: String): java.sql.Timestamp = java.sql.Timestamp.from(java.time.Instant.parse(text))

  def micros(text: String): Long = java.time.Instant.parse(text).getEpochSecond * 1000000L
}

final case class Batch(id: Long, rows: Seq[Row], output: Option[String])

object StreamSpec {
  // Named in spark.sql.extensions as well as in META-INF/services: the tests show that loading it twice is harmless.
  lazy val session: SparkSession = SparkSession
    .builder()
    .master("local[2]")
    .config("spark.sql.extensions", classOf[StrandlineExtensions].getName)
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.sql.session.timeZone", "UTC")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.streaming.stopTimeout", "30s")
    .config("spark.sql.warehouse.dir", Files.createTempDirectory("strandline-warehouse").toString)
    .getOrCreate()
}
