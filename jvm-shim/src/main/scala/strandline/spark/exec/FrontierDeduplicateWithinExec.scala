package strandline.spark.exec

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.types.DataTypeUtils.fromAttributes
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.streaming.operators.stateful._
import org.apache.spark.sql.execution.streaming.state.{NoPrefixKeyStateEncoderSpec, StateStore, StateStoreProviderId}
import org.apache.spark.sql.execution.streaming.state.strandline.{SparkInternals, StreamingInternals}
import strandline.spark.compat.IdentityEquals
import strandline.spark.state.TimedOperator
import strandline.spark.state.expiry.Expiries
import strandline.spark.time.Antichain

/**
 * Spark's `dropDuplicatesWithinWatermark`. It remembers a key until no row can come any more within `delay` after the time at
 * which the key was first seen. The state is that of Spark's operator: the key, and the time plus the delay. A batch looks only
 * at the keys that it forgets ([[Expiries]]).
 *
 * A row beyond the delay is no duplicate, and the key counts from it. Spark drops such a row if the key is not forgotten yet,
 * so there the result depends on where a batch ends.
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
    extends StreamingDeduplicateWithinWatermarkExec(keyExpressions, child, stateInfo, eventTimeWatermarkForLateEvents,
      eventTimeWatermarkForEviction) with TimedOperator with IdentityEquals {

  override lazy val watermarkPredicateForDataForLateEvents: Option[BasePredicate] = None

  override def customStatefulOperatorMetrics: Seq[StatefulOperatorCustomMetric] =
    super.customStatefulOperatorMetrics ++ storeMetrics

  override protected def doExecute(): RDD[InternalRow] = {
    val (info, keySchema) = (getStateInfo, fromAttributes(keyExpressions))
    val (run, checkpointIds) = (info.queryRunId, info.stateStoreCkptIds)
    val timeAt = child.output.indexWhere(_.exprId == time.exprId)
    val storeCounts = StreamingInternals.countsRows(conf.stateStoreProviderClass)
    mapWithStore(child.execute(), keySchema, schemaForValueRow, NoPrefixKeyStateEncoderSpec(keySchema)) {
      (store, rows) =>
        val expiries = new Expiries(store, StateStoreProviderId(store.id, run),
          checkpointIds.map(_.apply(store.id.partitionId).head), frontier, keySchema.length)
        val getKey = UnsafeProjection.create(keyExpressions.map(SparkInternals.normalized), child.output)
        val value = initializeReusedDupInfoRow().get
        val (updated, output, dropped) =
          (longMetric("numUpdatedStateRows"), longMetric("numOutputRows"), longMetric("numDroppedDuplicateRows"))
        val distinct = rows.filter { row =>
          val key = getKey(row)
          val (seen, known) = (row.getLong(timeAt), Option(store.get(key)).map(_.getLong(0)))
          val isNew = known.forall(seen > _)
          if (isNew) {
            val expiry = if (seen > Long.MaxValue - delayMicros) Long.MaxValue else seen + delayMicros
            value.setLong(0, expiry)
            store.put(key, value)
            if (known.isEmpty) expiries.put(key, expiry) // else it stays under its earlier expiry
            updated += 1
            output += 1
          } else dropped += 1
          isNew
        }
        new CompletionIterator(distinct,
          taken => {
            longMetric("allUpdatesTimeMs") += taken
            longMetric("allRemovalsTimeMs") += timeTakenMs(evict(store, expiries))
            end(store, Option.unless(storeCounts)(expiries.keys), expiries.committed(store.commit()))
          })
    }
  }

  private def evict(store: StateStore, expiries: Expiries): Unit = {
    val removed = longMetric("numRemovedStateRows")
    expiries.expired(_.value.getLong(0)).foreach { key =>
      val expiry = store.get(key).getLong(0)
      if (expiries.isClosed(expiry)) {
        store.remove(key)
        expiries.removed()
        removed += 1
      } else expiries.prolonged(key, expiry)
    }
  }

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
