package strandline.spark.sources

import java.util.{Collections, WeakHashMap}

import org.apache.hadoop.fs.Path
import org.apache.spark.internal.Logging
import org.apache.spark.sql.connector.read.streaming.Offset
import org.apache.spark.sql.execution.datasources.v2.StreamingDataSourceV2ScanRelation
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.json4s._
import strandline.spark.errors.Errors
import strandline.spark.time.Json

/**
 * Refuses a Kafka topic that was deleted and made anew.
 *
 * Spark knows a topic by its name, and continues at the offset that its checkpoint has. If the new topic has as many messages by
 * then, its first ones would be missing, and nobody would say so. Each batch compares the topics' ids with those that the
 * checkpoint has. With `failOnDataLoss=false` it warns.
 */
private[spark] object TopicIdentity extends Logging {
  private final class Known(val log: TopicLog, var sources: Map[Int, Map[String, String]], var since: Long, var batch: Long = -1L)
  private val known = Collections.synchronizedMap(new WeakHashMap[StreamExecution, Known])

  def check(query: StreamExecution): Unit = {
    val sources = query.logicalPlan.collect {
      case relation: StreamingDataSourceV2ScanRelation if KafkaTopics.isKafka(relation.stream) =>
        relation.stream -> relation.relation.options
    }.distinctBy(_._1)
    if (sources.nonEmpty) {
      val context = query.getLatestExecutionContext()
      val has = known.computeIfAbsent(query, read)
      if (has.batch != context.batchId) {
        val now = sources.zipWithIndex.map { case ((source, options), place) =>
          val before = has.sources.getOrElse(place, Map.empty)
          val (start, end) = (topicsIn(context.startOffsets.get(source)), topicsIn(context.endOffsets.get(source)))
          val ids = KafkaTopics.idsOf(source, start ++ end)
          val compared = if (has.since == context.batchId) start ++ end else start // this batch itself was tried, with these ids
          for {
            topic <- compared.toSeq.sorted
            (was, is) <- before.get(topic).zip(ids.get(topic))
            if was != is
            error = Errors.topicMadeAnew(context.batchId, topic, was, is, has.since,
              startsAfter(context.startOffsets.get(source), topic))
          } if (options.getBoolean("failOnDataLoss", true)) throw error
          else logWarning(s"${error.getMessage} It goes on, because failOnDataLoss is false.")
          // A topic that does not answer keeps its id: Spark says what it thinks of that.
          place -> (before.filter { case (topic, _) => start(topic) || end(topic) } ++ ids)
        }.toMap
        if (now != has.sources) {
          has.log.write(context.batchId, now)
          has.sources = now
          has.since = context.batchId
        }
        has.batch = context.batchId
      }
    }
  }

  private def read(query: StreamExecution): Known = {
    val log = new TopicLog(query.sparkSession, new Path(query.resolvedCheckpointRoot, "strandline/topics").toString)
    val newest = log.newest()
    new Known(log, newest.fold(Map.empty[Int, Map[String, String]])(_._2), newest.fold(0L)(_._1))
  }

  /** The partitions and offsets of Spark's offset of a Kafka source: `{"topic": {"0": 5}}`. */
  private def fieldsOf(offset: Option[Offset]): List[(String, JValue)] = offset.flatMap(each => Json.parse(each.json)) match {
    case Some(JObject(fields)) => fields
    case _ => Nil
  }

  private def topicsIn(offset: Option[Offset]): Set[String] = fieldsOf(offset).map(_._1).toSet

  /** Returns `startingOffsets` of a query that reads all of the topic, and of the others what this batch begins with. */
  private def startsAfter(offset: Option[Offset], topic: String): String = Json.render(JObject(fieldsOf(offset).map {
    case (`topic`, JObject(partitions)) => topic -> JObject(partitions.map { case (partition, _) => partition -> JInt(-2) })
    case other => other
  }))
}
