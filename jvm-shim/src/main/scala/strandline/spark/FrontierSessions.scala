package strandline.spark

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.streaming.operators.stateful.{SessionWindowStateStoreSaveExec, StatefulOperatorStateInfo}
import org.apache.spark.sql.streaming.OutputMode

/**
 * Spark's session windows, emitted and forgotten when the END frontier closes their end: no row can come any more that would
 * prolong them. A subclass for the same reasons as [[FrontierSaveExec]].
 */
final class FrontierSessionSaveExec(
    keyWithoutSessionExpressions: Seq[Attribute],
    sessionExpression: Attribute,
    stateInfo: Option[StatefulOperatorStateInfo],
    outputMode: Option[OutputMode],
    eventTimeWatermarkForLateEvents: Option[Long],
    eventTimeWatermarkForEviction: Option[Long],
    stateFormatVersion: Int,
    child: SparkPlan,
    val closed: Expression)
    extends SessionWindowStateStoreSaveExec(
      keyWithoutSessionExpressions,
      sessionExpression,
      stateInfo,
      outputMode,
      eventTimeWatermarkForLateEvents,
      eventTimeWatermarkForEviction,
      stateFormatVersion,
      child)
    with OwnNode {

  override lazy val watermarkPredicateForDataForEviction: Option[BasePredicate] = Some(Predicate.create(closed, child.output))

  override def shouldRunAnotherBatch(newInputWatermark: Long): Boolean = false

  override protected def otherCopyArgs: Seq[AnyRef] = closed :: Nil

  override protected def withNewChildInternal(newChild: SparkPlan): SparkPlan = FrontierSessionSaveExec(this, newChild, closed)
}

object FrontierSessionSaveExec {
  def apply(save: SessionWindowStateStoreSaveExec, child: SparkPlan, closed: Expression): FrontierSessionSaveExec =
    new FrontierSessionSaveExec(
      save.keyWithoutSessionExpressions,
      save.sessionExpression,
      save.stateInfo,
      save.outputMode,
      save.eventTimeWatermarkForLateEvents,
      save.eventTimeWatermarkForEviction,
      save.stateFormatVersion,
      child,
      closed
    )
}
