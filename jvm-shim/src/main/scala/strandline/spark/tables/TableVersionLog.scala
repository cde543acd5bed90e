package strandline.spark.tables

import java.io.{InputStream, OutputStream}
import java.nio.charset.StandardCharsets.UTF_8

import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.checkpointing.HDFSMetadataLog
import org.json4s._
import strandline.spark.errors.Errors
import strandline.spark.time.Json

/**
 * The versions of the tables that each batch of a query reads, in the query's checkpoint: a file for each batch, written before
 * the batch runs, as Spark writes its offsets.
 *
 * A file has Spark's clock of its batch. A batch of the same number with another clock is another one: its offsets were removed
 * from the checkpoint, or never written.
 */
private[tables] final class TableVersionLog(session: SparkSession, path: String) extends HDFSMetadataLog[String](session, path) {

  override protected def serialize(text: String, out: OutputStream): Unit = out.write(text.getBytes(UTF_8))
  override protected def deserialize(in: InputStream): String = new String(in.readAllBytes(), UTF_8)

  /** Returns what a batch has begun with; none if it is planned for the first time. */
  def begun(batch: Long, clock: Long): Option[Seq[TableVersion]] = get(batch).flatMap { text =>
    val fields = Json.parse(text).getOrElse(JNothing)
    (fields \ "strandline", fields \ "clock", fields \ "tables") match {
      case (JInt(version), JInt(began), JArray(each)) if version == 1 && each.forall(TableVersion.fromJson(_).isDefined) =>
        Option.when(began == clock)(each.flatMap(TableVersion.fromJson))
      case _ => throw Errors.tableVersionsInvalid(file(batch), text)
    }
  }

  /** Writes what a batch begins with, and removes what Spark can repeat no more. */
  def begin(batch: Long, clock: Long, tables: Seq[TableVersion]): Unit = {
    val text =
      Json.render(JObject("strandline" -> JInt(1), "clock" -> JInt(clock), "tables" -> JArray(tables.map(_.toJson).toList)))
    if (!add(batch, text)) {
      purgeAfter(batch - 1) // of another batch of that number
      add(batch, text)
    }
    purge(batch - session.sessionState.conf.minBatchesToRetain)
  }

  def file(batch: Long): String = batchIdToPath(batch).toString
}
