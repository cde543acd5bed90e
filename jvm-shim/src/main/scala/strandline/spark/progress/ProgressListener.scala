package strandline.spark.progress

import java.time.Instant
import java.util.{LinkedHashMap, UUID, Map => JMap}

import scala.collection.mutable
import scala.util.Try

import org.apache.spark.scheduler._
import org.apache.spark.sql.execution.streaming.runtime.{IncrementalExecution, MicroBatchExecution, StreamExecution}
import org.apache.spark.sql.execution.streaming.state.strandline.SparkInternals
import org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionEnd
import org.apache.spark.sql.streaming.StreamingQueryListener
import org.json4s._
import strandline.spark.time.Json

/**
 * Collects what the batches of streaming queries do: their stages' tasks while they run, and their plans' counts when they end.
 *
 * All its work is on Spark's listener thread, which no batch waits for. With `detailed` it follows tasks, so that times are
 * known; without, counts of rows only. `active` returns the query with an id that runs now.
 */
private[progress] final class ProgressListener(@volatile var detailed: Boolean, active: UUID => Option[StreamExecution])
    extends SparkListener {
  import ProgressListener._

  private val queries = new LinkedHashMap[String, QueryFacts](16, 0.75f, true) {
    override def removeEldestEntry(eldest: JMap.Entry[String, QueryFacts]): Boolean = size > MaxQueries
  }
  private val stages = mutable.HashMap.empty[Int, StageFigures]
  private val running = mutable.LinkedHashMap.empty[UUID, Running]
  private val news = mutable.LinkedHashMap.empty[Long, JObject]
  private var number = 0L

  override def onJobStart(job: SparkListenerJobStart): Unit = for {
    properties <- Option(job.properties)
    query <- Option(properties.getProperty(StreamExecution.QUERY_ID_KEY))
    batch <- Option(properties.getProperty(MicroBatchExecution.BATCH_ID_KEY)).flatMap(_.toLongOption)
  } synchronized {
    val known = queries.computeIfAbsent(query, _ => new QueryFacts)
    if (known.batch != batch) {
      forgetStages(known)
      known.batch = batch
      known.began = job.time
    }
    for (info <- job.stageInfos if detailed && !stages.contains(info.stageId)) {
      val figures = new StageFigures(info.stageId, SparkInternals.shuffleOf(info), info.numTasks)
      stages(info.stageId) = figures
      known.stages += figures
    }
  }

  override def onTaskStart(task: SparkListenerTaskStart): Unit =
    if (detailed) synchronized(stages.get(task.stageId).foreach(_.started(task.taskInfo.taskId, task.taskInfo.launchTime)))

  override def onTaskEnd(task: SparkListenerTaskEnd): Unit =
    if (detailed) synchronized(stages.get(task.stageId).foreach(_.ended(task)))

  override def onExecutorMetricsUpdate(update: SparkListenerExecutorMetricsUpdate): Unit =
    if (detailed) synchronized {
      for ((task, stage, _, values) <- update.accumUpdates) stages.get(stage).foreach(_.told(task, values))
    }

  override def onOtherEvent(event: SparkListenerEvent): Unit = event match {
    case end: SparkListenerSQLExecutionEnd if end.errorMessage.forall(_.isEmpty) =>
      SparkInternals.executionOf(end) match {
        // The plan is not changed any more, and nobody else waits for this thread.
        case Some(execution: IncrementalExecution) => ended(execution, end.time)
        case _ =>
      }
    case event: StreamingQueryListener.QueryProgressEvent if event.progress.durationMs.containsKey("addBatch") =>
      val progress = event.progress
      change(progress.id.toString) { known =>
        known.name = Option(progress.name)
        known.durations(progress.batchId) = Option(progress.durationMs.get("triggerExecution")).fold(0L)(_.longValue)
        if (known.durations.size > MaxBatches) known.durations.remove(known.durations.head._1)
        tell(known, progress.batchId)
      }
    case event: StreamingQueryListener.QueryStartedEvent =>
      val at = Try(Instant.parse(event.timestamp).toEpochMilli).getOrElse(System.currentTimeMillis())
      active(event.id).filter(_.runId == event.runId).foreach(began(_, at))
      synchronized(add(startOf(event.id.toString, event.runId.toString, Option(event.name), at)))
    case event: StreamingQueryListener.QueryTerminatedEvent =>
      val ended = synchronized(running.remove(event.runId))
      // What it was is kept: there is nobody to ask any more.
      val opened = ended.flatMap(each => Try(OpenedQuery.of(each.query)).toOption.flatten)
      synchronized(add(JObject(
            "terminated" -> JString(event.id.toString),
            "run" -> JString(event.runId.toString),
            "error" -> event.exception.fold[JValue](JNull)(JString(_)),
            "opened" -> opened.getOrElse(JNull))))
    case _ =>
  }

  /** Remembers a query that runs, so that something is known of it also when it ends at once. */
  def began(query: StreamExecution, at: Long): Unit = synchronized {
    running.getOrElseUpdate(query.runId, Running(query, at))
    if (running.size > MaxQueries) running.remove(running.head._1) // an end that was not told, as Spark drops events under load
  }

  /** The queries that run, in the form of the news of their start. */
  def started: Seq[JObject] = synchronized(running.values.toList).map { each =>
    startOf(each.query.id.toString, each.query.runId.toString, Option(each.query.name), each.at)
  }

  private def startOf(query: String, run: String, name: Option[String], at: Long): JObject =
    JObject("started" -> JString(query), "run" -> JString(run), "name" -> name.fold[JValue](JNull)(JString(_)), "at" -> JInt(at))

  private def change(query: String)(act: QueryFacts => Unit): Unit =
    synchronized(act(queries.computeIfAbsent(query, _ => new QueryFacts)))

  /** Keeps what is known of a batch. Spark nests two executions of one plan, and the inner one ends first. */
  private def ended(execution: IncrementalExecution, at: Long): Unit = {
    val (query, run, batch) = (execution.queryId.toString, execution.runId.toString, execution.currentBatchId)
    if (!synchronized(Option(queries.get(query)).flatMap(_.ended.get(batch)).exists(_.run == run)))
      Try(facts(execution, "ended", at)).foreach { value =>
        change(query) { known =>
          known.ended.remove(batch) // of an earlier run
          known.ended += batch -> EndedBatch(run, value)
          if (known.ended.size > MaxBatches) known.ended.remove(known.ended.head._1)
          forgetStages(known)
          tell(known, batch)
        }
      }
  }

  /** A batch is news when Spark has said how long it took, and its plan's counts are known: they come in either order. */
  private def tell(known: QueryFacts, batch: Long): Unit =
    for (duration <- known.durations.get(batch); each <- known.ended.get(batch) if !each.told) {
      known.ended(batch) = each.copy(facts = JObject(), told = true)
      known.durations.remove(batch)
      add(JObject("facts" -> each.facts, "ms" -> JInt(duration), "name" -> known.name.fold[JValue](JNull)(JString(_))))
    }

  private def add(event: JObject): Unit = {
    news += number -> event
    number += 1
    if (news.size > MaxNews) news.remove(news.head._1)
  }

  /** Returns what has happened from number `from` on, as JSON, and the number to ask for next. */
  def newsSince(from: Long): String = {
    val (next, found) = synchronized((number, news.iterator.collect { case (at, event) if at >= from => event }.toList))
    Json.render(JObject("next" -> JInt(next), "news" -> JArray(found)))
  }

  /** Returns the batch that `query` runs now, as JSON. None if it runs none whose tasks have begun. */
  def running(query: StreamExecution): Option[String] = {
    val begun = synchronized(Option(queries.get(query.id.toString)).filterNot(known =>
        known.ended.get(known.batch).exists(_.run == query.runId.toString)).map(_.batch))
    for {
      execution <- Option(query.lastExecution)
      // The jobs of this batch have begun. So its plan is made, and to look at it is not to make it.
      if begun.contains(execution.currentBatchId)
    } yield Json.render(facts(execution, "running", System.currentTimeMillis()))
  }

  private def facts(execution: IncrementalExecution, state: String, now: Long): JObject = {
    val planned = PlannedBatches.of(execution.runId, execution.currentBatchId)
    val report = new PlanReport(execution.executedPlan, planned)
    val query = execution.queryId.toString
    synchronized {
      val known = Option(queries.get(query)).filter(_.batch == execution.currentBatchId)
      val stages = known.toSeq.flatMap(_.stages)
      // The root's stage writes no shuffle. Of several such ones, as subqueries have, it is the newest.
      val root = stages.filter(_.shuffle.isEmpty).maxByOption(_.stage)
      val fragments = report.fragments.zipWithIndex.map {
        case (_, 0) => root
        case (shuffle, _) => shuffle.flatMap(id => stages.find(_.shuffle.contains(id)))
      }
      // What no fragment writes: the stages of each action on the rows of a batch, and of what the plan broadcasts.
      val others = stages.filterNot(fragments.flatten.contains).filter(_.hasBegun)
      JObject(
        "query" -> JString(query),
        "run" -> JString(execution.runId.toString),
        "batch" -> JInt(execution.currentBatchId),
        "state" -> JString(state),
        "at" -> JInt(now),
        "began" -> known.fold[JValue](JNull)(each => JInt(each.began)),
        "detailed" -> JBool(detailed),
        "operators" -> report.operators,
        "fragments" -> JArray(fragments.map(_.fold[JValue](JNull)(_.toJson(now))).toList),
        "others" -> JArray(others.map(_.toJson(now)).toList),
        "sink" -> planned.fold[JValue](JObject())(_.sink),
        "output" -> planned.flatMap(_.output).flatMap(Json.parse).getOrElse(JNull),
        "sources" -> JArray(planned.toList.flatMap(_.sources).map(_._2.toJson)))
    }
  }

  private def forgetStages(known: QueryFacts): Unit = {
    known.stages.foreach(each => stages.remove(each.stage))
    known.stages.clear()
  }
}

private object ProgressListener {
  private val MaxQueries = 256
  private val MaxBatches = 64
  private val MaxNews = 1024

  private final case class Running(query: StreamExecution, at: Long)

  private final case class EndedBatch(run: String, facts: JObject, told: Boolean = false)

  private final class QueryFacts {
    var batch: Long = -1
    var began: Long = 0
    var name: Option[String] = None
    val durations = mutable.LinkedHashMap.empty[Long, Long]
    val stages = mutable.ArrayBuffer.empty[StageFigures]
    val ended = mutable.LinkedHashMap.empty[Long, EndedBatch]
  }
}
