package strandline.spark

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.connector.read.streaming.SparkDataStream
import org.apache.spark.sql.execution._
import org.apache.spark.sql.execution.datasources.v2.WriteToDataSourceV2Exec
import org.apache.spark.sql.execution.streaming.operators.stateful._
import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinExec
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.sql.execution.streaming.sources.MicroBatchWrite
import org.apache.spark.sql.streaming.OutputMode

/**
 * Rewrites a micro-batch's physical plan, so that its stateful operators close by the sources' frontiers.
 *
 * It runs where Spark inserts columnar transitions: after the state's bookkeeping and the exchanges, before code generation. A plan
 * that is not of a query with a frontier is left exactly as it is.
 */
final case class FrontierRule(session: SparkSession) extends ColumnarRule {
  override def preColumnarTransitions: Rule[SparkPlan] = new Rule[SparkPlan] {
    override val ruleName: String = "strandline.spark.FrontierRule"

    override def apply(plan: SparkPlan): SparkPlan =
      BatchFrontiers.activeQuery(session).filter(FrontierRule.isBatchOf(_, plan)).fold(plan) { query =>
        BatchFrontiers.of(query) match {
          case Some(frontiers) =>
            OutputFrontier.publish(session.sparkContext, plan, frontiers)
            FrontierRule.rewrite(plan, frontiers)
          case None =>
            OutputFrontier.withdraw(session.sparkContext)
            FrontierRule.refuseTimesWithoutFrontier(plan)
            plan
        }
      }
  }
}

object FrontierRule {

  /**
   * Whether `plan` is the batch's own plan. Other plans are made on the same thread: of scalar subqueries, and of what the user's
   * `foreachBatch` runs on the batch's rows.
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
    val rewritten = plan.transformUp {
      case scan: StreamSourceAwareSparkPlan =>
        scan.getStream.flatMap(frontiers.sources.get).fold[SparkPlan](scan)(source => guardSource(scan, source))
      case restore: StateStoreRestoreExec => restore.withNewChildren(Seq(guardInput(restore.child, frontiers)))
      case save: StateStoreSaveExec if save.outputMode.contains(OutputMode.Complete()) => save
      case save: StateStoreSaveExec => FrontierSaveExec(save, save.child, closed(save.keyExpressions, frontiers))
      case dedup: StreamingDeduplicateExec =>
        FrontierDeduplicateExec(dedup, guardInput(dedup.child, frontiers), closed(dedup.keyExpressions, frontiers))
      case join: StreamingSymmetricHashJoinExec =>
        FrontierJoin(join, frontiers).withNewChildren(Seq(guardInput(join.left, frontiers), guardInput(join.right, frontiers)))
    }
    refuseWhatIsLeft(rewritten)
    rewritten
  }

  /** Above a source: its own promise, which is stronger than that of all sources together. */
  private def guardSource(scan: SparkPlan, source: SourceFrontier): SparkPlan = guard(scan, source.start, source.name)

  /** Before a stateful operator: times that a user's function made anew keep the promise too. */
  private def guardInput(child: SparkPlan, frontiers: BatchFrontiers): SparkPlan =
    guard(child, frontiers.start, "the input of a stateful operator")

  private def guard(child: SparkPlan, start: Antichain, source: String): SparkPlan = {
    val (times, promised) = child.output.flatMap(a => TimeColumn.of(a).map(c => (c.time(a), c.frontier(start)))).unzip
    if (times.isEmpty) child else GuardExec(times, promised, source, child)
  }

  /** The predicate "this key is closed": one of its times is, for a row at that key has all of them. */
  private def closed(keys: Seq[Attribute], frontiers: BatchFrontiers): Option[Expression] = {
    val each = for {
      key <- keys
      column <- TimeColumn.of(key)
    } yield ClosedBy(column.time(key), column.frontier(frontiers.end)): Expression
    each.reduceOption(Or(_, _))
  }

  /** No stateful operator may be left to the scalar watermark. */
  private def refuseWhatIsLeft(plan: SparkPlan): Unit = plan.foreach {
    case _: FrontierSaveExec | _: FrontierDeduplicateExec | _: StateStoreRestoreExec | _: StreamingGlobalLimitExec =>
    case _: StreamingSymmetricHashJoinExec => // FrontierJoin has refused what it cannot do
    case save: StateStoreSaveExec if save.outputMode.contains(OutputMode.Complete()) =>
    case watermark: EventTimeWatermarkExec => throw Errors.watermarkUnsupported(watermark.eventTime.name)
    case operator: StatefulOperator =>
      throw Errors.operatorUnsupported(nameOf(operator), "it knows only Spark's scalar watermark")
    case _ =>
  }

  private def nameOf(operator: StatefulOperator): String = operator match {
    case _: SessionWindowStateStoreSaveExec | _: SessionWindowStateStoreRestoreExec => "session_window"
    case _: StreamingDeduplicateWithinWatermarkExec => "dropDuplicatesWithinWatermark"
    case writer: StateStoreWriter => writer.shortName.stripSuffix("Exec")
    case other => other.nodeName
  }

  /** The tag alone, without a source that states a frontier, must not fall back to the scalar watermark. */
  private def refuseTimesWithoutFrontier(plan: SparkPlan): Unit =
    if (!plan.exists(_.isInstanceOf[EventTimeWatermarkExec])) plan.foreach {
      case save: StateStoreSaveExec if save.outputMode.contains(OutputMode.Complete()) =>
      case _: StateStoreRestoreExec | _: StreamingGlobalLimitExec =>
      case operator: StatefulOperator =>
        for (input <- operator.children; time <- input.output.find(TimeColumn.of(_).isDefined)) throw Errors.noFrontier(time.name)
      case _ =>
    }
}
