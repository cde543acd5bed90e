package strandline.spark.batch

import java.util.UUID

import scala.collection.immutable.VectorMap
import scala.util.Try

import org.apache.spark.SparkContext
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.connector.read.streaming.{Offset, SparkDataStream}
import org.apache.spark.sql.execution.datasources.v2.StreamingDataSourceV2ScanRelation
import org.apache.spark.sql.execution.streaming.runtime.{
  MicroBatchExecution, StreamExecution, StreamingExecutionRelation, StreamProgress
}
import org.apache.spark.sql.execution.streaming.state.strandline.SparkInternals
import org.json4s._
import strandline.spark.errors.Errors
import strandline.spark.plan.FrontierSource
import strandline.spark.time.{Antichain, InputFrontiers, Json, TimeDomain}

/**
 * A source's frontiers before and after a batch, and the source's name in messages.
 *
 * `channels`: the ids of the channels that it reads. `feedback`: for each channel of the loop that the query writes, by name, its
 * id and the path summary that the rows must take to it. `loop`: what the query states to the other queries of the loop.
 * `positions`: how far it has read each channel, and where the channel is.
 */
final case class SourceFrontier(name: String, start: InputFrontiers, end: InputFrontiers, channels: Seq[String],
    feedback: Option[JObject], loop: Option[JObject] = None, positions: Seq[JObject] = Nil)

/**
 * The frontiers of one micro-batch: of each source that states one, the meet of all of them, and those of the inputs of sources
 * of several channels.
 *
 * They are read from the offsets that Spark has logged for the batch, so a replayed batch has the same frontiers. Every source
 * of the query counts. An idle source is no longer in the plan, but it still holds times back. A source without a frontier, or
 * without an offset yet, closes nothing. The sources are in the plan's order, which is the same in every run of the query.
 */
final case class BatchFrontiers(start: InputFrontiers, end: InputFrontiers, sources: VectorMap[SparkDataStream, SourceFrontier]) {
  def domain: TimeDomain = end.domain

  /** The feedback channels of the query, if it is a loop. */
  val feedback: Option[JObject] = sources.values.flatMap(_.feedback).headOption

  /** What the query states to the other queries of its loop. */
  val loop: Option[JObject] = sources.values.flatMap(_.loop).headOption

  /** The ids of all channels that the query reads. */
  def channels: Seq[String] = sources.values.flatMap(_.channels).toSeq

  /**
   * How far the query has read each channel: the channel's id, and after the batch the commit and the file of the offset. They
   * are in the order of the sources, so that a sink can tell two sources that read one channel.
   */
  def positions: Seq[JObject] = sources.values.flatMap(_.positions).toSeq

  /** How many sources have no such position, because they are not ours. */
  def otherSources: Int = sources.values.count(_.positions.isEmpty)
}

object BatchFrontiers {

  /** Returns the streaming query whose batch this thread runs. */
  def activeQuery(session: SparkSession): Option[StreamExecution] = for {
    text <- Option(session.sparkContext.getLocalProperty(StreamExecution.QUERY_ID_KEY))
    id <- Try(UUID.fromString(text)).toOption
    query <- SparkInternals.activeQuery(session, id)
  } yield query

  /** Whether this thread plans the batch that `query` has begun. Only then are the batch's offsets known. */
  def inBatch(query: StreamExecution, context: SparkContext): Boolean = {
    val batch = query.getLatestExecutionContext()
    batch.endOffsets.nonEmpty && context.getLocalProperty(MicroBatchExecution.BATCH_ID_KEY) == batch.batchId.toString
  }

  /** Whether a query writes to our sink, or reads a source that states frontiers. */
  def isOurs(query: StreamExecution): Boolean = FrontierSource.isOurs(query.sink) || leavesOf(query).exists(_._2)

  /**
   * Whether the query of this thread's batch follows the frontiers of its inputs, as its offsets say. Outside of batches: yes.
   */
  def areByInput(session: SparkSession): Boolean =
    activeQuery(session).filter(inBatch(_, session.sparkContext)).flatMap(of).forall(_.end.inputs.nonEmpty)

  /** Returns every source of the query, in the plan's order. */
  def sourcesOf(query: StreamExecution): Seq[SparkDataStream] = leavesOf(query).map(_._1)

  /** Returns every source of the query, in the plan's order, and whether it states frontiers. */
  private def leavesOf(query: StreamExecution): Seq[(SparkDataStream, Boolean)] = {
    val plan: LogicalPlan = query.logicalPlan
    plan.collect {
      case relation: StreamingDataSourceV2ScanRelation =>
        relation.stream -> FrontierSource.statesFrontier(relation.relation.table)
      case relation: StreamingExecutionRelation => relation.source -> false
    }.distinct
  }

  /** Returns the frontiers of the batch that `query` is about to run. None: no source states one. */
  def of(query: StreamExecution): Option[BatchFrontiers] = {
    val context = query.getLatestExecutionContext()
    val (sources, states) = leavesOf(query).unzip
    def statedIn(offsets: StreamProgress) =
      sources.lazyZip(states).map((source, isOurs) => offsets.get(source).filter(_ => isOurs).map(stated(source, _)))
    val starts = statedIn(context.startOffsets)
    val ends = statedIn(context.endOffsets)
    (ends ++ starts).flatten.headOption.map { case (domain, _) =>
      for (case (other, _) <- (ends ++ starts).flatten if other != domain)
        throw Errors.domainMismatch(s"The query's sources have times of $domain and of $other.")
      val least = InputFrontiers(Antichain.least(domain))
      val (paths, lossy) = (pathsOf(query), lossyIn(query))
      val each = sources.lazyZip(starts).lazyZip(ends).map { (source, start, end) =>
        val fields =
          context.endOffsets.get(source).orElse(context.startOffsets.get(source)).flatMap(fieldsOf).getOrElse(Map.empty)
        def objectAt(key: String) = fields.get(key).collect { case given: JObject => given }
        val name = describe(source, context.endOffsets.get(source))
        val frontier = SourceFrontier(name, start.fold(least)(_._2), end.fold(least)(_._2), channelsIn(fields),
          objectAt("feedback"), objectAt("loop"), positionsIn(fields, paths.getOrElse(source, Map.empty), lossy.contains(source)))
        val moves = ("", frontier.start.all, frontier.end.all) +: frontier.start.inputs.toSeq.map { case (input, before) =>
          (s", in its input $input,", before, frontier.end.of(input))
        }
        for ((where, before, after) <- moves if !before.dominates(after))
          throw Errors.frontierRegressed(name + where, before.toString, after.toString)
        source -> frontier
      }
      if (each.exists(_._2.feedback.nonEmpty) && each.size > 1)
        throw Errors.loopUnsupported(s"The query has ${each.size} streaming sources",
          "Read all channels by one read_channels, so that the loop counts what may come from each.")
      BatchFrontiers(InputFrontiers.together(each.map(_._2.start)), InputFrontiers.together(each.map(_._2.end)),
        VectorMap.from(each))
    }
  }

  /**
   * Returns domain and frontiers of one of our offsets: `{"strandline": 1, ..., "domain": text, "frontier": [times], "inputs":
   * {name: [times]}}`. Only sources of several channels have inputs.
   */
  private def stated(source: SparkDataStream, offset: Offset): (TimeDomain, InputFrontiers) = {
    def fail(why: String) = throw Errors.offsetInvalid(describe(source, Some(offset)), why)
    val fields = fieldsOf(offset).getOrElse(fail("is not a JSON object"))
    fields.get("strandline") match {
      case Some(JInt(version)) if version == 1 =>
      case Some(JInt(version)) if version == 2 =>
        if (!fields.get("feedback").exists(_.isInstanceOf[JObject])) fail("has the protocol version 2 of a loop, but no feedback")
      case Some(JInt(version)) if version == 3 =>
        if (!fields.get("inputs").exists(_.isInstanceOf[JObject]))
          fail("has the protocol version 3 of several inputs, but no inputs")
      case Some(JInt(version)) if version > 3 => fail(s"has the protocol version $version, newer than this extension's 3")
      case Some(other) => fail(s"has the protocol version ${Json.render(other)}")
      case None => fail("has no protocol version")
    }
    val domain = fields.get("domain") match {
      case Some(JString(text)) => TimeDomain.parse(text)
      case _ => fail("has no domain")
    }
    def read(json: JValue, of: String) =
      Antichain.fromJson(domain, json).fold(why => fail(s"has a frontier$of that is not of $domain: $why"), identity)
    val frontier = fields.get("frontier").fold[Antichain](fail("has no frontier"))(read(_, ""))
    val inputs = fields.get("inputs") match {
      case None => Map.empty[String, Antichain]
      case Some(JObject(each)) => each.map { case (name, json) => name -> read(json, s" of its input $name") }.toMap
      case Some(_) => fail("has inputs that are not an object")
    }
    domain -> InputFrontiers(frontier, inputs)
  }

  private def fieldsOf(offset: Offset): Option[Map[String, JValue]] = Option(offset.json).flatMap(Json.parse).collect {
    case JObject(fields) => fields.toMap
  }

  /** Returns the ids of the channels that an offset has positions in. */
  private def channelsIn(fields: Map[String, JValue]): Seq[String] = fields.get("channels") match {
    case Some(JObject(each)) =>
      each.collect { case (_, JObject(position)) => position.toMap.get("channel") }.collect { case Some(JString(id)) => id }
    case _ => fields.get("channel").collect { case JString(id) => id }.toSeq
  }

  /**
   * Returns the paths that the options of each of our sources name, by the channel's name; a source of one channel has no names.
   */
  private def pathsOf(query: StreamExecution): Map[SparkDataStream, Map[String, String]] = query.logicalPlan.collect {
    case relation: StreamingDataSourceV2ScanRelation if FrontierSource.statesFrontier(relation.relation.table) =>
      val options = relation.relation.options
      val several = Option(options.get("channels")).flatMap(Json.parse).collect { case JObject(each) =>
        each.collect { case (name, JString(path)) => name -> path }
      }
      relation.stream -> (several.getOrElse(Nil) ++ Option(options.get("path")).map("" -> _)).toMap
  }.toMap

  /**
   * Returns our sources that skip files which do not exist. Their offsets do not say it of a batch that was planned with another
   * option.
   */
  private def lossyIn(query: StreamExecution): Set[SparkDataStream] = query.logicalPlan.collect {
    case relation: StreamingDataSourceV2ScanRelation
        if FrontierSource.statesFrontier(relation.relation.table) && Option(
          relation.relation.options.get("failOnDataLoss")).exists(_.trim.equalsIgnoreCase("false")) => relation.stream
  }.toSet

  private def positionsIn(fields: Map[String, JValue], paths: Map[String, String], lossy: Boolean): Seq[JObject] = {
    val inputs = fields.get("inputs").collect { case JObject(each) => each.map(_._1).toSet }.getOrElse(Set.empty)
    def position(name: String, offset: Map[String, JValue]): Option[JObject] =
      Seq("channel", "commit", "file").map(offset.getOrElse(_, JNothing)) match {
        case Seq(table: JString, commit: JInt, file: JInt) =>
          Some(JObject(List("table" -> table, "commit" -> commit, "file" -> file) ++ Seq("after", "snapshot", "began").flatMap(
              key => offset.get(key).map(key -> _)) ++ Option.when(lossy)("lossy" -> JBool(true)) ++ paths.get(name).map(
              "path" -> JString(_)) ++ Option.when(inputs(name))("input" -> JString(name)) ++ fields.get("domain").map(
              "domain" -> _)))
        case _ => None
      }
    fields.get("channels") match {
      case Some(JObject(each)) => each.collect { case (name, JObject(offset)) => position(name, offset.toMap) }.flatten
      case _ => position("", fields).toList
    }
  }

  def describe(source: SparkDataStream, offset: Option[Offset]): String =
    offset.flatMap(fieldsOf).flatMap(_.get("channel")) match {
      case Some(JString(channel)) => s"the source of channel $channel"
      case _ => s"the source $source"
    }
}
