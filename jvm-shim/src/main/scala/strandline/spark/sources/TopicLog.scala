package strandline.spark.sources

import java.io.{InputStream, OutputStream}
import java.nio.charset.StandardCharsets.UTF_8

import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.checkpointing.HDFSMetadataLog
import org.json4s._
import strandline.spark.errors.Errors
import strandline.spark.time.Json

/**
 * The ids of the Kafka topics that a query reads, in the query's checkpoint: for each source, by its place in the plan, the
 * topics' ids. A batch that changes them writes a file before it runs, and the newest file counts.
 */
private[sources] final class TopicLog(session: SparkSession, path: String) extends HDFSMetadataLog[String](session, path) {
  override protected def serialize(text: String, out: OutputStream): Unit = out.write(text.getBytes(UTF_8))
  override protected def deserialize(in: InputStream): String = new String(in.readAllBytes(), UTF_8)

  /** The batch of the newest file, and what it states. */
  def newest(): Option[(Long, Map[Int, Map[String, String]])] = getLatest().map { case (batch, text) =>
    val fields = Json.parse(text).getOrElse(JNothing)
    val sources = (fields \ "strandline", fields \ "topics") match {
      case (JInt(version), JObject(each)) if version == 1 => each.map { case (place, ids) => place.toIntOption.zip(idsIn(ids)) }
      case _ => List(None)
    }
    if (sources.contains(None)) throw Errors.topicsInvalid(batchIdToPath(batch).toString, text)
    batch -> sources.flatten.toMap
  }

  private def idsIn(value: JValue): Option[Map[String, String]] = value match {
    case JObject(fields) if fields.forall(_._2.isInstanceOf[JString]) =>
      Some(fields.collect { case (topic, JString(id)) => topic -> id }.toMap)
    case _ => None
  }

  def write(batch: Long, sources: Map[Int, Map[String, String]]): Unit = {
    def ids(of: Map[String, String]) = JObject(of.toList.sorted.map { case (topic, id) => topic -> JString(id) })
    val topics = sources.toList.sortBy(_._1).map { case (place, of) => place.toString -> ids(of) }
    val text = Json.render(JObject("strandline" -> JInt(1), "topics" -> JObject(topics)))
    if (!add(batch, text)) {
      purgeAfter(batch - 1) // of another attempt, which saw fewer topics
      add(batch, text)
    }
    purge(batch)
  }
}
