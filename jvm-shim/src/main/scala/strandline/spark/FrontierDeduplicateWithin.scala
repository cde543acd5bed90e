package strandline.spark

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.streaming.operators.stateful.{StatefulOperatorStateInfo, StreamingDeduplicateWithinWatermarkExec}
import org.apache.spark.sql.execution.streaming.state.StateStore

/**
 * Spark's `dropDuplicatesWithinWatermark`: a key is remembered until no row can come any more within `delay` of the time at which it
 * was first seen. The state is Spark's own: the key, and the time plus the delay.
 */
final class FrontierDeduplicateWithinExec(
    keyExpressions: Seq[Attribute],
    child: SparkPlan,
    stateInfo: Option[StatefulOperatorStateInfo],
    eventTimeWatermarkForLateEvents: Option[Long],
    eventTimeWatermarkForEviction: Option[Long],
    val time: Attribute,
    val delayMicros: Long,
    val frontier: Antichain)
    extends StreamingDeduplicateWithinWatermarkExec(keyExpressions, child, stateInfo, eventTimeWatermarkForLateEvents, eventTimeWatermarkForEviction)
    with OwnNode {

  override lazy val watermarkPredicateForDataForLateEvents: Option[BasePredicate] = None

  private lazy val timeAt = child.output.indexWhere(_.exprId == time.exprId)

  override protected def putDupInfoIntoState(store: StateStore, data: UnsafeRow, key: UnsafeRow, reused: Option[UnsafeRow]): Unit = {
    val (seen, value) = (data.getLong(timeAt), reused.get)
    value.setLong(0, if (seen > Long.MaxValue - delayMicros) Long.MaxValue else seen + delayMicros)
    store.put(key, value)
  }

  override protected def evictDupInfoFromState(store: StateStore): Unit = {
    val removed = longMetric("numRemovedStateRows")
    store.iterator().foreach { pair =>
      if (!frontier.lessEqual(pair.value.getLong(0))) {
        store.remove(pair.key)
        removed += 1
      }
    }
  }

  override def shouldRunAnotherBatch(newInputWatermark: Long): Boolean = false

  override protected def otherCopyArgs: Seq[AnyRef] = Seq(time, Long.box(delayMicros), frontier)

  override protected def withNewChildInternal(newChild: SparkPlan): StreamingDeduplicateWithinWatermarkExec =
    new FrontierDeduplicateWithinExec(
      keyExpressions,
      newChild,
      stateInfo,
      eventTimeWatermarkForLateEvents,
      eventTimeWatermarkForEviction,
      time,
      delayMicros,
      frontier)
}
