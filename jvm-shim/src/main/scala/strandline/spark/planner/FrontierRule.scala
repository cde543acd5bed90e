package strandline.spark.planner

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.logical.EventTimeWatermark
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.connector.catalog.Table
import org.apache.spark.sql.connector.read.streaming.SparkDataStream
import org.apache.spark.sql.execution._
import org.apache.spark.sql.execution.datasources.v2.WriteToDataSourceV2Exec
import org.apache.spark.sql.execution.python.streaming.{FlatMapGroupsInPandasWithStateExec, TransformWithStateInPySparkExec}
import org.apache.spark.sql.execution.streaming.Sink
import org.apache.spark.sql.execution.streaming.operators.stateful._
import org.apache.spark.sql.execution.streaming.operators.stateful.flatmapgroupswithstate.{
  FlatMapGroupsWithStateExec, FlatMapGroupsWithStateExecBase
}
import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinExec
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.{
  TransformWithStateExec, TransformWithStateExecBase
}
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.sql.execution.streaming.sources.MicroBatchWrite
import org.apache.spark.sql.execution.streaming.state.strandline.SinkWrite
import org.apache.spark.sql.streaming.OutputMode
import strandline.spark.batch.{BatchFrontiers, GuardExec, OutputFrontier, SourceFrontier}
import strandline.spark.errors.Errors
import strandline.spark.exec.{
  FrontierDeduplicateExec, FrontierDeduplicateWithinExec, FrontierRestoreExec, FrontierSaveExec, FrontierSessionRestoreExec,
  FrontierSessionSaveExec, MarkedOperator, MarkedOperatorExec
}
import strandline.spark.exec.join.FrontierJoin
import strandline.spark.plan.{FieldTags, FrontierSource, OperatorMark, TimeTransformExec}
import strandline.spark.progress.PlannedBatches
import strandline.spark.state.{StateLayout, TimedState}
import strandline.spark.tables.TableVersionRule
import strandline.spark.time.{ClosedBy, InputFrontiers, Scalar, TimeColumn}

/**
 * Rewrites a micro-batch's physical plan so that its stateful operators close by the sources' frontiers.
 *
 * It runs where Spark inserts columnar transitions: after Spark has set up the state and the exchanges, before code generation.
 * It does not change plans of queries without a frontier.
 */
final case class FrontierRule(session: SparkSession) extends ColumnarRule {
  override def preColumnarTransitions: Rule[SparkPlan] = new Rule[SparkPlan] {
    override val ruleName: String = classOf[FrontierRule].getName

    override def apply(plan: SparkPlan): SparkPlan =
      BatchFrontiers.activeQuery(session).fold(plan) { query =>
        val isBatch = FrontierRule.isBatchOf(query, plan)
        // Any plan on the batch's thread triggers this. Adaptive execution passes single stages, which may have neither a
        // source nor the sink. The published frontier belongs to the query and the batch, not to the plan.
        if (isBatch || BatchFrontiers.inBatch(query, session.sparkContext))
          BatchFrontiers.of(query) match {
            case Some(frontiers) =>
              if (frontiers.feedback.isDefined && !FrontierSource.isOurs(query.sink))
                throw Errors.loopOpen(FrontierRule.nameOf(query.sink))
              if (frontiers.feedback.isDefined) {
                LoopRule.checkTimes(query.analyzedPlan)
                LoopRule.checkPassing(query.analyzedPlan)
              }
              if (isBatch) BatchBoundaries.check(query.analyzedPlan, query.outputMode)
              OutputFrontier.publish(session.sparkContext, query, frontiers, Option.when(isBatch)(plan),
                TableVersionRule.versionsOf(query).map(_.toJson))
              PlannedBatches.remember(query, Some(frontiers))
              if (!isBatch) plan
              else {
                val rewritten = FrontierRule.rewrite(FieldTags.withoutFieldTags(plan), frontiers)
                val written = FrontierRule.writing(query, rewritten)
                if (frontiers.feedback.isDefined) KeptBroadcasts.in(query, written) else written
              }
            case None =>
              OutputFrontier.withdraw(session.sparkContext)
              PlannedBatches.remember(query, None)
              if (isBatch) {
                FrontierRule.refuseTimesWithoutFrontier(plan)
                FrontierRule.writing(query, plan)
              } else plan
          }
        else plan
      }
  }
}

object FrontierRule {
  private val MicrosPerMilli = 1000L

  /** The name of a sink for people. One of Spark's first kind of sink, such as that of `foreachBatch`, has none. */
  private def nameOf(sink: Table): String = sink match {
    case first: Sink => first.getClass.getSimpleName.stripSuffix("$").stripSuffix("Sink")
    case other => other.name
  }

  /**
   * Whether `plan` is the batch's own plan. The same thread also plans scalar subqueries, and what a user's `foreachBatch` runs
   * on the batch's rows.
   */
  private def isBatchOf(query: StreamExecution, plan: SparkPlan): Boolean = {
    lazy val sources = BatchFrontiers.sourcesOf(query).toSet[SparkDataStream]
    plan.exists {
      case operator: StatefulOperator => operator.stateInfo.exists(_.queryRunId == query.runId)
      case write: WriteToDataSourceV2Exec => write.batchWrite.isInstanceOf[MicroBatchWrite]
      case scan: StreamSourceAwareSparkPlan => scan.getStream.exists(sources)
      case _ => false
    }
  }

  private def rewrite(plan: SparkPlan, frontiers: BatchFrontiers): SparkPlan = {
    refuseUntimed(plan)
    if (frontiers.feedback.isDefined) LoopRule.check(plan)
    val delays = delaysOf(plan)
    val complete = plan.collect {
      case save: StateStoreSaveExec if save.outputMode.contains(OutputMode.Complete()) => operatorOf(save)
      case save: SessionWindowStateStoreSaveExec if save.outputMode.contains(OutputMode.Complete()) => operatorOf(save)
    }.toSet
    val marked = plan.collect { case moved: TimeTransformExec => joinsBelow(moved) }.flatten.toSet
    val rewritten = plan.transformUp {
      case scan: StreamSourceAwareSparkPlan =>
        scan.getStream.flatMap(frontiers.sources.get).fold[SparkPlan](scan)(source => guardSource(scan, source))
      case restore: StateStoreRestoreExec =>
        val input = guardInput(restore.child, frontiers)
        val state = timed(restore, restore.keyExpressions, frontiers, mayBegin = !complete(operatorOf(restore)))._2
        state.fold(restore.withNewChildren(Seq(input))) { s =>
          new FrontierRestoreExec(restore.keyExpressions, restore.stateInfo, restore.stateFormatVersion, input, s.layout)
        }
      case save: StateStoreSaveExec if complete(operatorOf(save)) =>
        val (_, state) = timed(save, save.keyExpressions, frontiers, mayBegin = false)
        state.fold[SparkPlan](save)(s => FrontierSaveExec(save, save.child, None, Some(s)))
      case save: StateStoreSaveExec =>
        val (predicate, state) = timed(save, save.keyExpressions, frontiers)
        FrontierSaveExec(save, save.child, predicate, state)
      case dedup: StreamingDeduplicateExec if dedup.keyExpressions.exists(_.metadata.contains(OperatorMark.Key)) =>
        val operator = MarkedOperator.of(dedup)
        MarkedOperatorPlanner.plan(operator, operator.column.frontier(frontiers.end), frontiers.end, guardInput(_, frontiers))
      case dedup: StreamingDeduplicateExec =>
        val (predicate, state) = timed(dedup, dedup.keyExpressions, frontiers)
        FrontierDeduplicateExec(dedup, guardInput(dedup.child, frontiers), predicate, state)
      case dedup: StreamingDeduplicateWithinWatermarkExec => deduplicateWithin(dedup, delays(operatorOf(dedup)), frontiers)
      case restore: SessionWindowStateStoreRestoreExec =>
        val input = guardInput(restore.child, frontiers)
        if (complete(operatorOf(restore))) restore.copy(eventTimeWatermarkForLateEvents = None, child = input)
        else FrontierSessionRestoreExec(restore, input)
      case save: SessionWindowStateStoreSaveExec if complete(operatorOf(save)) => save
      case save: SessionWindowStateStoreSaveExec =>
        val ended = TimeColumn.of(save.sessionExpression).map(column =>
          ClosedBy(column.time(save.sessionExpression), column.frontier(frontiers.end)))
        FrontierSessionSaveExec(save, save.child,
          ended.getOrElse(throw Errors.operatorUnsupported(nameOf(save), "it is not over a time column")))
      case join: StreamingSymmetricHashJoinExec =>
        FrontierJoin(join, frontiers, marked(operatorOf(join)), guardInput(join.left, frontiers),
          guardInput(join.right, frontiers))
      case operator: TransformWithStateExec => ArbitraryState.transformWithState(guardFirst(operator, frontiers), frontiers)
      case operator: TransformWithStateInPySparkExec =>
        ArbitraryState.transformWithState(guardFirst(operator, frontiers), frontiers)
      case operator: FlatMapGroupsWithStateExec => ArbitraryState.flatMapGroups(guardFirst(operator, frontiers))
      case operator: FlatMapGroupsInPandasWithStateExec => ArbitraryState.flatMapGroups(guardFirst(operator, frontiers))
      case update: UpdateEventTimeColumnExec => guardInput(update.child, frontiers)
      case watermark: EventTimeWatermarkExec => watermark.child
    }
    refuseWhatIsLeft(rewritten)
    ReadToEnd(rewritten)
  }

  /** Lets our own code send the rows to our sink, also those of an ingest. */
  private def writing(query: StreamExecution, plan: SparkPlan): SparkPlan = plan match {
    case write: WriteToDataSourceV2Exec if FrontierSource.isOurs(query.sink) =>
      write.batchWrite match {
        case batch: MicroBatchWrite => write.copy(batchWrite = new SinkWrite(batch, KeptWriters.of(query, _)))
        case _ => write
      }
    case other => other
  }

  /** Guards a source's rows by its own frontier, which is a stronger check than the meet of all frontiers. */
  private def guardSource(scan: SparkPlan, source: SourceFrontier): SparkPlan = guard(scan, source.start, source.name)

  /** Guards the input of a stateful operator, because a user's function may have created new times. */
  private def guardInput(child: SparkPlan, frontiers: BatchFrontiers): SparkPlan =
    guard(child, frontiers.start, "the input of a stateful operator")

  private def guard(child: SparkPlan, start: InputFrontiers, source: String): SparkPlan = {
    val (times, promised) = child.output.flatMap(a => TimeColumn.of(a).map(c => (c.time(a), c.frontier(start)))).unzip
    if (times.isEmpty) child else GuardExec(times, promised, source, child)
  }

  private def guardFirst[P <: SparkPlan](operator: P, frontiers: BatchFrontiers): P =
    operator.withNewChildren(guardInput(operator.children.head, frontiers) +: operator.children.tail).asInstanceOf[P]

  /** Returns the joins whose rows `plan` emits unchanged; several below a union. Not those below another stateful operator. */
  private def joinsBelow(plan: SparkPlan): Seq[Long] = plan match {
    case join: StreamingSymmetricHashJoinExec => Seq(operatorOf(join))
    case _: StatefulOperator => Nil
    case other => other.children.flatMap(joinsBelow)
  }

  private def operatorOf(operator: StatefulOperator): Long = operator.getStateInfo.operatorId

  /** Returns the delay, in microseconds, that `withWatermark` gives to each `dropDuplicatesWithinWatermark` above it. */
  private def delaysOf(plan: SparkPlan): Map[Long, Long] = plan.collect { case dedup: StreamingDeduplicateWithinWatermarkExec =>
    val delay =
      dedup.child.output.map(_.metadata).find(_.contains(EventTimeWatermark.delayKey)).map(_.getLong(EventTimeWatermark.delayKey))
    operatorOf(dedup) -> delay.getOrElse(0L) * MicrosPerMilli
  }.toMap

  private def deduplicateWithin(
      dedup: StreamingDeduplicateWithinWatermarkExec, delay: Long, frontiers: BatchFrontiers): SparkPlan = {
    def refuse(why: String) = throw Errors.operatorUnsupported(nameOf(dedup), why)
    dedup.child.output.flatMap(a => TimeColumn.of(a).map(a -> _)) match {
      case Seq((time, column)) if column.domain == Scalar.timestamp && column.windows.isEmpty =>
        val (child, frontier) = (guardInput(dedup.child, frontiers), column.frontier(frontiers.end))
        new FrontierDeduplicateWithinExec(dedup.keyExpressions, child, dedup.stateInfo, None, None, time, delay, frontier)
      case Seq((time, column)) => refuse(s"its time column ${time.name} is $column, but a delay needs a timestamp")
      case Seq() => refuse("its input has no time column")
      case several => refuse(s"its input has several time columns: ${several.map(_._1.name).mkString(", ")}")
    }
  }

  /**
   * Returns the predicate for an operator's closed keys, and its state by time if possible. See [[StateLayout]] for `mayBegin`.
   */
  private def timed(
      operator: StatefulOperator,
      keys: Seq[Attribute],
      frontiers: BatchFrontiers,
      mayBegin: Boolean = true): (Option[Expression], Option[TimedState]) = {
    val (predicate, info) = (closed(keys, frontiers), operator.getStateInfo)
    val state = for {
      layout <- StateLayout.of(keys, info, operator.session.sessionState.newHadoopConf(), mayBegin)
      closed <- predicate
    } yield new TimedState(layout, keys, closed, frontiers.end, info, operator.conf.stateStoreProviderClass)
    (predicate, state)
  }

  /** Returns the predicate "this key is closed": one of its times is closed. A row of that key would have all of them. */
  private def closed(keys: Seq[Attribute], frontiers: BatchFrontiers): Option[Expression] = {
    val each = for {
      key <- keys
      column <- TimeColumn.of(key)
    } yield ClosedBy(column.time(key), column.frontier(frontiers.end)): Expression
    each.reduceOption(Or(_, _))
  }

  /** Refuses every stateful operator that would still follow the scalar watermark. */
  private def refuseWhatIsLeft(plan: SparkPlan): Unit = plan.foreach {
    // Spark looks at one aggregation of a plan, and does not see the one that the optimizer makes of EXCEPT.
    case save: FrontierSaveExec if save.closed.isEmpty && save.outputMode.contains(OutputMode.Append()) =>
      throw Errors.aggregationWithoutTime(save.keyExpressions.map(_.name).mkString(", "))
    case _: FrontierSaveExec | _: FrontierDeduplicateExec | _: MarkedOperatorExec | _: StateStoreRestoreExec |
        _: StreamingGlobalLimitExec =>
    case _: FrontierSessionSaveExec | _: SessionWindowStateStoreRestoreExec | _: FrontierDeduplicateWithinExec =>
    case _: StreamingSymmetricHashJoinExec => // FrontierJoin has refused unsupported joins
    case _: TransformWithStateExecBase | _: FlatMapGroupsWithStateExecBase => // ArbitraryState has refused unsupported ones
    case save: StateStoreSaveExec if save.outputMode.contains(OutputMode.Complete()) =>
    case save: SessionWindowStateStoreSaveExec if save.outputMode.contains(OutputMode.Complete()) =>
    case operator: StatefulOperator =>
      throw Errors.operatorUnsupported(nameOf(operator), "it knows only Spark's scalar watermark")
    case _ =>
  }

  /** Refuses an event time column for the result of arbitrary state if the column is not a time. */
  private def refuseUntimed(plan: SparkPlan): Unit = plan.foreach {
    case update: UpdateEventTimeColumnExec if update.output.forall(TimeColumn.of(_).isEmpty) =>
      throw Errors.operatorUnsupported(
        s"The event time column ${update.eventTime.name} of a user's state",
        "its values are not known to be the source's times",
        "Declare it in the output schema with metadata=domain_metadata(\"timestamp\").")
    case _ =>
  }

  private def nameOf(operator: StatefulOperator): String = operator match {
    case _: SessionWindowStateStoreSaveExec | _: SessionWindowStateStoreRestoreExec => "session_window"
    case _: StreamingDeduplicateWithinWatermarkExec => "dropDuplicatesWithinWatermark"
    case writer: StateStoreWriter => writer.shortName.stripSuffix("Exec")
    case other => other.nodeName
  }

  /** Refuses a tag without a source that states a frontier, because the operator would follow the scalar watermark. */
  private def refuseTimesWithoutFrontier(plan: SparkPlan): Unit =
    if (!plan.exists(_.isInstanceOf[EventTimeWatermarkExec])) plan.foreach {
      case save: StateStoreSaveExec if save.outputMode.contains(OutputMode.Complete()) =>
      case _: StateStoreRestoreExec | _: StreamingGlobalLimitExec =>
      case operator: StatefulOperator =>
        for (input <- operator.children; time <- input.output.find(TimeColumn.of(_).isDefined)) throw Errors.noFrontier(time.name)
      case _ =>
    }
}
