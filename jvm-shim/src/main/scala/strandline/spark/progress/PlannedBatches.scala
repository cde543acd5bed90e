package strandline.spark.progress

import java.util.{UUID, WeakHashMap}

import scala.jdk.CollectionConverters._
import scala.util.Try

import org.apache.spark.sql.connector.read.streaming.SparkDataStream
import org.apache.spark.sql.execution.datasources.v2.StreamingDataSourceV2ScanRelation
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.json4s._
import strandline.spark.batch.{BatchFrontiers, OutputFrontier}

/** A source of a batch: where the batch starts and ends in it, as the offsets say, and its options that reports need. */
private[spark] final case class PlannedSource(name: String, start: Option[String], end: Option[String], options: Map[String, String]) {
  def toJson: JValue = JObject(
    "name" -> JString(name),
    "start" -> start.fold[JValue](JNull)(JString(_)),
    "end" -> end.fold[JValue](JNull)(JString(_)),
    "options" -> JObject(options.toList.sorted.map { case (key, value) => key -> JString(value) })
  )
}

/**
 * What is known of a batch when it is planned. `sources` are in the plan's order. `output` is what [[OutputFrontier]] has published:
 * the frontier of the query's output, or of each of its outputs.
 */
private[spark] final case class PlannedBatch(batch: Long, frontiers: BatchFrontiers, sources: Seq[(SparkDataStream, PlannedSource)], output: Option[String]) {
  def indexOf(stream: SparkDataStream): Option[Int] = Some(sources.indexWhere(_._1 eq stream)).filter(_ >= 0)
}

/** Remembers the newest batches of each query, for reports on progress. An entry lives as long as its query. */
private[spark] object PlannedBatches {
  private val Kept = 2
  private val Shown = Set("path", "channels", "maxfilespertrigger", "maxbytespertrigger")
  private val planned = new WeakHashMap[StreamExecution, List[PlannedBatch]]

  /** Remembers the batch that `query` plans now. Its thread calls this, so nothing here waits, and nothing here fails the batch. */
  def remember(query: StreamExecution, frontiers: BatchFrontiers): Unit = Try {
    val context = query.getLatestExecutionContext()
    val before = synchronized(Option(planned.get(query)).getOrElse(Nil))
    if (!before.headOption.exists(_.batch == context.batchId)) {
      val options = optionsOf(query)
      val sources = BatchFrontiers.sourcesOf(query).map { source =>
        val name = frontiers.sources.get(source).fold(source.toString)(_.name)
        source -> PlannedSource(
          name,
          context.startOffsets.get(source).map(_.json),
          context.endOffsets.get(source).map(_.json),
          options.getOrElse(source, Map.empty)
        )
      }
      val output = Option(query.sparkSession.sparkContext.getLocalProperty(OutputFrontier.Property))
      synchronized(planned.put(query, (PlannedBatch(context.batchId, frontiers, sources, output) :: before).take(Kept)))
    }
  }

  /** Returns what is known of a batch of the run with that id. */
  def of(run: UUID, batch: Long): Option[PlannedBatch] = synchronized {
    planned.asScala.collectFirst { case (query, batches) if query.runId == run => batches.find(_.batch == batch) }.flatten
  }

  private def optionsOf(query: StreamExecution): Map[SparkDataStream, Map[String, String]] = query.logicalPlan.collect {
    case relation: StreamingDataSourceV2ScanRelation =>
      val options = relation.relation.options.asCaseSensitiveMap.asScala
      relation.stream -> options.filter { case (key, _) => Shown(key.toLowerCase(java.util.Locale.ROOT)) }.toMap
  }.toMap
}
