package strandline.spark.exec

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.streaming.operators.stateful._
import org.apache.spark.sql.execution.streaming.state.strandline.SparkInternals
import org.apache.spark.unsafe.map.strandline.TaskRows
import strandline.spark.compat.IdentityEquals
import strandline.spark.state.{TimedOperator, TimedState}

/** Spark's `dropDuplicates`. It forgets a key when the END frontier closes the key's time; a key without a time is kept. */
final class FrontierDeduplicateExec(
    keyExpressions: Seq[Attribute],
    child: SparkPlan,
    stateInfo: Option[StatefulOperatorStateInfo],
    eventTimeWatermarkForLateEvents: Option[Long],
    eventTimeWatermarkForEviction: Option[Long],
    val closed: Option[Expression],
    val timed: Option[TimedState])
    extends StreamingDeduplicateExec(keyExpressions, child, stateInfo, eventTimeWatermarkForLateEvents,
      eventTimeWatermarkForEviction) with TimedOperator with IdentityEquals {

  override lazy val watermarkPredicateForKeysForEviction: Option[BasePredicate] = closed.map(Predicate.create(_, keyExpressions))

  override lazy val watermarkPredicateForDataForLateEvents: Option[BasePredicate] = None

  override def customStatefulOperatorMetrics: Seq[StatefulOperatorCustomMetric] =
    super.customStatefulOperatorMetrics ++ timed.toSeq.flatMap(_ => timedMetrics)

  override protected def doExecute(): RDD[InternalRow] = timed.fold(super.doExecute())(execute)

  private def execute(state: TimedState): RDD[InternalRow] = {
    val (layout, pages) = (state.layout, conf.getConf(TaskRows.Pages))
    mapWithStore(child.execute(), layout.keySchema, schemaForValueRow, layout.encoder, extraOptionOnStateStore) {
      (store, rows) =>
        val times = state.open(store)
        val getKey = UnsafeProjection.create(keyExpressions.map(SparkInternals.normalized), child.output)
        val (updated, output, dropped) =
          (longMetric("numUpdatedStateRows"), longMetric("numOutputRows"), longMetric("numDroppedDuplicateRows"))
        // Keys whose time this batch opens and closes ([[OpenTimeIndex.passes]]). Those that do not fit go through the store.
        val passing = new TaskRows(pages)
        val distinct = rows.filter { row =>
          val key = getKey(row)
          val passed = if (times.passes(key)) passing.addKey(key) else None
          val isNew = !passed.getOrElse(store.keyExists(key))
          if (isNew) {
            if (passed.isEmpty) {
              times.add(key, isNew)
              putDupInfoIntoState(store, row.asInstanceOf[UnsafeRow], key, None)
              updated += 1
            }
            output += 1
          } else dropped += 1
          isNew
        }
        new CompletionIterator(distinct,
          taken => {
            longMetric("allUpdatesTimeMs") += taken
            evict(store, times)
            end(store, times, store.commit())
          })
    }
  }

  override protected def otherCopyArgs: Seq[AnyRef] = Seq(closed, timed)

  override protected def withNewChildInternal(newChild: SparkPlan): FrontierDeduplicateExec =
    FrontierDeduplicateExec(this, newChild, closed, timed)
}

object FrontierDeduplicateExec {
  def apply(dedup: StreamingDeduplicateExec, child: SparkPlan, closed: Option[Expression], timed: Option[TimedState])
      : FrontierDeduplicateExec =
    new FrontierDeduplicateExec(
      dedup.keyExpressions,
      child,
      dedup.stateInfo,
      dedup.eventTimeWatermarkForLateEvents,
      dedup.eventTimeWatermarkForEviction,
      closed,
      timed)
}
