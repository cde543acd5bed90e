package strandline.spark

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.streaming.operators.stateful.{StateStoreSaveExec, StatefulOperatorStateInfo, StreamingDeduplicateExec}
import org.apache.spark.sql.streaming.OutputMode

/**
 * Spark's aggregation state, evicted and emitted by an exact frontier.
 *
 * `closed` says of a key that its time is closed by the END frontier; none (update mode without a time in the key) evicts nothing.
 * Only what asks for the watermark is overridden: rows behind the frontier do not come here ([[GuardExec]] stands before), and
 * no further batch is asked for, because everything that this batch closes goes out in it.
 *
 * A subclass of a case class: `copy` would give back the base class, so nothing may call it once the rule has run.
 */
final class FrontierSaveExec(
    keyExpressions: Seq[Attribute],
    stateInfo: Option[StatefulOperatorStateInfo],
    outputMode: Option[OutputMode],
    eventTimeWatermarkForLateEvents: Option[Long],
    eventTimeWatermarkForEviction: Option[Long],
    stateFormatVersion: Int,
    child: SparkPlan,
    val closed: Option[Expression])
    extends StateStoreSaveExec(
      keyExpressions,
      stateInfo,
      outputMode,
      eventTimeWatermarkForLateEvents,
      eventTimeWatermarkForEviction,
      stateFormatVersion,
      child) {

  override lazy val watermarkPredicateForKeysForEviction: Option[BasePredicate] = closed.map(Predicate.create(_, keyExpressions))

  // Append mode wants one; it lets every row through.
  override lazy val watermarkPredicateForDataForLateEvents: Option[BasePredicate] =
    closed.map(_ => Predicate.create(Literal.FalseLiteral, Nil))

  override def shouldRunAnotherBatch(newInputWatermark: Long): Boolean = false

  override protected def otherCopyArgs: Seq[AnyRef] = closed :: Nil

  override protected def withNewChildInternal(newChild: SparkPlan): FrontierSaveExec = FrontierSaveExec(this, newChild, closed)

  override def simpleString(maxFields: Int): String =
    s"$nodeName [${keyExpressions.mkString(", ")}], ${outputMode.mkString}, ${closed.fold("never closed")(_.toString)}"
}

object FrontierSaveExec {
  def apply(save: StateStoreSaveExec, child: SparkPlan, closed: Option[Expression]): FrontierSaveExec = new FrontierSaveExec(
    save.keyExpressions,
    save.stateInfo,
    save.outputMode,
    save.eventTimeWatermarkForLateEvents,
    save.eventTimeWatermarkForEviction,
    save.stateFormatVersion,
    child,
    closed
  )
}

/** Spark's `dropDuplicates`, whose keys are forgotten when the END frontier closes their time; without a time in the key, never. */
final class FrontierDeduplicateExec(
    keyExpressions: Seq[Attribute],
    child: SparkPlan,
    stateInfo: Option[StatefulOperatorStateInfo],
    eventTimeWatermarkForLateEvents: Option[Long],
    eventTimeWatermarkForEviction: Option[Long],
    val closed: Option[Expression])
    extends StreamingDeduplicateExec(keyExpressions, child, stateInfo, eventTimeWatermarkForLateEvents, eventTimeWatermarkForEviction) {

  override lazy val watermarkPredicateForKeysForEviction: Option[BasePredicate] = closed.map(Predicate.create(_, keyExpressions))

  override lazy val watermarkPredicateForDataForLateEvents: Option[BasePredicate] = None

  override def shouldRunAnotherBatch(newInputWatermark: Long): Boolean = false

  override protected def otherCopyArgs: Seq[AnyRef] = closed :: Nil

  override protected def withNewChildInternal(newChild: SparkPlan): FrontierDeduplicateExec =
    FrontierDeduplicateExec(this, newChild, closed)
}

object FrontierDeduplicateExec {
  def apply(dedup: StreamingDeduplicateExec, child: SparkPlan, closed: Option[Expression]): FrontierDeduplicateExec =
    new FrontierDeduplicateExec(
      dedup.keyExpressions,
      child,
      dedup.stateInfo,
      dedup.eventTimeWatermarkForLateEvents,
      dedup.eventTimeWatermarkForEviction,
      closed
    )
}
