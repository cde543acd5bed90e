package strandline.spark.progress

import java.util.{Locale, UUID, WeakHashMap}

import scala.jdk.CollectionConverters._
import scala.util.Try

import org.apache.spark.sql.connector.read.streaming.SparkDataStream
import org.apache.spark.sql.execution.datasources.v2.StreamingDataSourceV2ScanRelation
import org.apache.spark.sql.execution.streaming.Sink
import org.apache.spark.sql.execution.streaming.runtime.{StreamExecution, StreamProgress}
import org.apache.spark.sql.execution.streaming.sources.WriteToMicroBatchDataSource
import org.json4s._
import strandline.spark.batch.{BatchFrontiers, OutputFrontier}
import strandline.spark.plan.FrontierSource

/**
 * A source of a batch: where the batch starts and ends in it, as the offsets say, and its options that reports need. `isOurs`: it
 * reads channels, so that logs say what waits in it.
 */
private[spark] final case class PlannedSource(name: String, start: Option[String], end: Option[String],
    options: Map[String, String], isOurs: Boolean) {
  def toJson: JValue = JObject(
    "name" -> JString(name),
    "channels" -> JBool(isOurs),
    "start" -> start.fold[JValue](JNull)(JString(_)),
    "end" -> end.fold[JValue](JNull)(JString(_)),
    "options" -> JObject(options.toList.sorted.map { case (key, value) => key -> JString(value) }))
}

/**
 * What is known of a batch when it is planned. `frontiers`: if a source states one. `sources` are in the plan's order. `output`
 * is what [[OutputFrontier]] has published: the frontier of the query's output, or of each of its outputs.
 */
private[spark] final case class PlannedBatch(batch: Long, frontiers: Option[BatchFrontiers],
    sources: Seq[(SparkDataStream, PlannedSource)], output: Option[String], sink: JValue) {
  def indexOf(stream: SparkDataStream): Option[Int] = Some(sources.indexWhere(_._1 eq stream)).filter(_ >= 0)
}

/** Remembers the newest batches of each query, for reports on progress. An entry lives as long as its query. */
private[spark] object PlannedBatches {
  private val Kept = 2
  private val Shown = Set("path", "channels", "maxfilespertrigger", "maxbytespertrigger")
  private val Written = Set("path", "outputs", "producer", "policy", "node")
  private val planned = new WeakHashMap[StreamExecution, List[PlannedBatch]]

  /**
   * Remembers the batch that `query` plans now. Its thread calls this, so nothing here waits, and nothing here fails the batch.
   */
  def remember(query: StreamExecution, frontiers: Option[BatchFrontiers]): Unit = Try {
    val context = query.getLatestExecutionContext()
    val before = synchronized(Option(planned.get(query)).getOrElse(Nil))
    if (!before.headOption.exists(_.batch == context.batchId)) {
      val sources = sourcesOf(query, context.startOffsets, context.endOffsets)
      val output = Option(query.sparkSession.sparkContext.getLocalProperty(OutputFrontier.Property))
      synchronized(planned.put(query,
          (PlannedBatch(context.batchId, frontiers, sources, output, sinkOf(query)) :: before).take(Kept)))
    }
  }

  /** Returns what is known of a batch of the run with that id. */
  def of(run: UUID, batch: Long): Option[PlannedBatch] = synchronized {
    planned.asScala.collectFirst { case (query, batches) if query.runId == run => batches.find(_.batch == batch) }.flatten
  }

  /** Returns every source of the query between two offsets, in the plan's order. The query's sources are made already. */
  def sourcesOf(query: StreamExecution, start: StreamProgress, end: StreamProgress): Seq[(SparkDataStream, PlannedSource)] = {
    val options = optionsOf(query)
    BatchFrontiers.sourcesOf(query).map { source =>
      val offset = end.get(source)
      val ours = options.get(source)
      source -> PlannedSource(BatchFrontiers.describe(source, offset), start.get(source).map(_.json), offset.map(_.json),
        ours.getOrElse(Map.empty), ours.isDefined)
    }
  }

  /**
   * Returns what is known of where the query writes. `{"options"}`: into channels, by the options without those of the storage.
   * `{"v1": true}`: to a sink that may read a batch's rows several times. `{}`: elsewhere.
   */
  def sinkOf(query: StreamExecution): JValue = query.sink match {
    case _: Sink => JObject("v1" -> JBool(true))
    case sink if FrontierSource.isOurs(sink) =>
      query.logicalPlan match {
        case write: WriteToMicroBatchDataSource => JObject("options" -> JObject(write.writeOptions.toList.collect {
            case (key, value) if Written(key.toLowerCase(Locale.ROOT)) => key.toLowerCase(Locale.ROOT) -> JString(value)
          }.sortBy(_._1)))
        case _ => JObject()
      }
    case _ => JObject()
  }

  private def optionsOf(query: StreamExecution): Map[SparkDataStream, Map[String, String]] = query.logicalPlan.collect {
    case relation: StreamingDataSourceV2ScanRelation if FrontierSource.statesFrontier(relation.relation.table) =>
      val options = relation.relation.options.asCaseSensitiveMap.asScala
      relation.stream -> options.filter { case (key, _) => Shown(key.toLowerCase(Locale.ROOT)) }.toMap
  }.toMap
}
