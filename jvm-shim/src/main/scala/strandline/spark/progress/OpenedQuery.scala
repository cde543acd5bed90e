package strandline.spark.progress

import scala.util.Try

import org.apache.spark.sql.connector.read.streaming.SparkDataStream
import org.apache.spark.sql.execution.datasources.v2.StreamingDataSourceV2ScanRelation
import org.apache.spark.sql.execution.streaming.runtime.{StreamExecution, StreamingExecutionRelation, StreamProgress}
import org.json4s._

/** What is known of a query before its first batch: where it writes, and by its checkpoint what it has read. */
private[progress] object OpenedQuery {

  /** Returns it as JSON, with the newest batch that has committed, or -1. None: the query is still making its sources. */
  def of(query: StreamExecution): Option[JObject] =
    if (query.status.message.startsWith("Initializing")) None
    else {
      val nothing = new StreamProgress()
      val batch: Option[Long] = Try(query.commitLog.getLatestBatchId().map(_.asInstanceOf[Long])).toOption.flatten
      val read = batch.flatMap(id => Try(query.offsetLog.get(id).map(_.toStreamProgress(everySource(query)))).toOption.flatten)
      // A query that could not make its sources has none.
      val sources = Try(PlannedBatches.sourcesOf(query, nothing, read.getOrElse(nothing))).getOrElse(Nil)
      val sink = Try(PlannedBatches.sinkOf(query)).getOrElse(JObject())
      Some(JObject("batch" -> JInt(BigInt(batch.getOrElse(-1L))), "sources" -> JArray(sources.map(_._2.toJson).toList),
          "sink" -> sink))
    }

  /** Returns the sources as the offset log counts them: one that is in the plan twice, twice. */
  private def everySource(query: StreamExecution): Seq[SparkDataStream] = query.logicalPlan.collect {
    case relation: StreamingDataSourceV2ScanRelation => relation.stream
    case relation: StreamingExecutionRelation => relation.source
  }
}
