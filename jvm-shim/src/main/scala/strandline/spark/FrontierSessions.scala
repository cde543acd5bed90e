package strandline.spark

import scala.collection.mutable

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.streaming.operators.stateful._
import org.apache.spark.sql.execution.streaming.state.{PrefixKeyScanStateEncoderSpec, StateStore, StateStoreProviderId}
import org.apache.spark.sql.execution.streaming.strandline.StreamingInternals
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
    val closed: ClosedBy)
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

  /** As Spark's in append mode, but all sessions are looked at only where the frontier has passed the least end ([[Expiries]]). */
  override protected def doExecute(): RDD[InternalRow] = {
    metrics // made on the driver
    require(outputMode.contains(OutputMode.Append()), s"Spark has no session windows in ${outputMode.mkString} mode.")
    val manager = StreamingSessionWindowStateManager.createStateManager(keyWithoutSessionExpressions, sessionExpression, child.output, stateFormatVersion)
    val (keys, values) = (manager.getStateKeySchema, manager.getStateValueSchema)
    val (run, checkpointIds) = (getStateInfo.queryRunId, getStateInfo.stateStoreCkptIds)
    val encoder = PrefixKeyScanStateEncoderSpec(keys, manager.getNumColsForPrefixKey)
    val end = BindReferences.bindReference(closed.child, child.output)
    StreamingInternals.mapPartitionsWithStore(child.execute(), getStateInfo, keys, values, encoder, session, ownStore = false) { (store, rows) =>
      def endOf(row: InternalRow): Long = end.eval(row).asInstanceOf[Long]
      val checkpointId = checkpointIds.map(_.apply(store.id.partitionId).head)
      val expiries = new Expiries(store, StateStoreProviderId(store.id, run), checkpointId, closed.check.frontier)
      longMetric("allUpdatesTimeMs") += timeTakenMs(put(manager, store, rows, row => expiries.put(endOf(row))))
      val (removed, output) = (longMetric("numRemovedStateRows"), longMetric("numOutputRows"))
      def ended =
        if (!expiries.mayClose()) Iterator.empty
        else
          manager.removeByValueCondition(
            store,
            session => {
              val at = endOf(session)
              val isClosed = expiries.isClosed(at)
              if (!isClosed) expiries.stays(at)
              isClosed
            })
      val sessions = ended.map { session =>
        removed += 1
        output += 1
        session: InternalRow
      }
      new Finishing(sessions, taken => {
        longMetric("allRemovalsTimeMs") += taken
        longMetric("commitTimeMs") += timeTakenMs(expiries.committed(store.commit()))
        setStoreMetrics(store)
        setOperatorMetrics()
      })
    }
  }

  /** Spark gives a key's sessions one after another. */
  private def put(manager: StreamingSessionWindowStateManager, store: StateStore, rows: Iterator[InternalRow], note: UnsafeRow => Unit): Unit = {
    val (updated, removed) = (longMetric("numUpdatedStateRows"), longMetric("numRemovedStateRows"))
    val sessions = rows.map(_.asInstanceOf[UnsafeRow].copy()).buffered
    while (sessions.hasNext) {
      val key = manager.extractKeyWithoutSession(sessions.head).copy()
      val its = mutable.ArrayBuffer.empty[UnsafeRow]
      while (sessions.hasNext && manager.extractKeyWithoutSession(sessions.head) == key) its += sessions.next()
      its.foreach(note)
      val (upserted, deleted) = manager.updateSessions(store, key, its.toSeq)
      updated += upserted
      removed += deleted
    }
  }

  override def shouldRunAnotherBatch(newInputWatermark: Long): Boolean = false

  override protected def otherCopyArgs: Seq[AnyRef] = closed :: Nil

  override protected def withNewChildInternal(newChild: SparkPlan): SparkPlan = FrontierSessionSaveExec(this, newChild, closed)
}

object FrontierSessionSaveExec {
  def apply(save: SessionWindowStateStoreSaveExec, child: SparkPlan, closed: ClosedBy): FrontierSessionSaveExec =
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
