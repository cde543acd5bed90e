package strandline.spark.exec

import scala.collection.mutable

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.streaming.operators.stateful._
import org.apache.spark.sql.execution.streaming.state.{KeyStateEncoderSpec, PrefixKeyScanStateEncoderSpec, StateStore, StateStoreProviderId}
import org.apache.spark.sql.execution.streaming.state.strandline.StreamingInternals
import org.apache.spark.sql.streaming.OutputMode
import org.apache.spark.sql.types.StructType
import strandline.spark.compat.IdentityEquals
import strandline.spark.state.TimedOperator
import strandline.spark.state.expiry.Expiries
import strandline.spark.time.ClosedBy

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
    with TimedOperator
    with IdentityEquals {

  override protected def customStatefulOperatorMetrics: Seq[StatefulOperatorCustomMetric] = storeMetrics

  /** As Spark's in append mode, but a batch looks at the sessions that it closes, and at no others ([[Expiries]]). */
  override protected def doExecute(): RDD[InternalRow] = {
    metrics // made on the driver
    require(outputMode.contains(OutputMode.Append()), s"Spark has no session windows in ${outputMode.mkString} mode.")
    val layout = new SessionLayout(keyWithoutSessionExpressions, sessionExpression, child.output, stateFormatVersion)
    val (run, checkpointIds) = (getStateInfo.queryRunId, getStateInfo.stateStoreCkptIds)
    val storeCounts = StreamingInternals.countsRows(conf.stateStoreProviderClass)
    val end = BindReferences.bindReference(closed.child, child.output)
    StreamingInternals.mapPartitionsWithStore(child.execute(), getStateInfo, layout.keys, layout.values, layout.encoder, session) { (store, rows) =>
      def endOf(row: InternalRow): Long = end.eval(row).asInstanceOf[Long]
      val checkpointId = checkpointIds.map(_.apply(store.id.partitionId).head)
      val expiries = new Expiries(store, StateStoreProviderId(store.id, run), checkpointId, closed.check.frontier, layout.keys.length)
      longMetric("allUpdatesTimeMs") += timeTakenMs(replace(store, rows, layout, expiries, endOf))
      val (removed, output) = (longMetric("numRemovedStateRows"), longMetric("numOutputRows"))
      def ended = expiries.expired(pair => endOf(pair.value)).flatMap { key =>
        Option(store.get(key)).flatMap { session =>
          val at = endOf(session)
          if (expiries.isClosed(at)) {
            store.remove(key)
            expiries.removed()
            removed += 1
            output += 1
            Some(session: InternalRow)
          } else {
            expiries.stays(key, at)
            None
          }
        }
      }
      new CompletionIterator(ended, taken => {
        longMetric("allRemovalsTimeMs") += taken
        this.end(store, Option.unless(storeCounts)(expiries.keys), expiries.committed(store.commit()))
      })
    }
  }

  /** Each key that is in `rows` has the sessions that they are, and no others. Spark gives a key's sessions one after another. */
  private def replace(store: StateStore, rows: Iterator[InternalRow], layout: SessionLayout, expiries: Expiries, endOf: InternalRow => Long): Unit = {
    val (updated, removed) = (longMetric("numUpdatedStateRows"), longMetric("numRemovedStateRows"))
    val (groupOf, keyOf) = (layout.group, layout.key)
    val sessions = rows.map(_.asInstanceOf[UnsafeRow]).buffered
    while (sessions.hasNext) {
      val group = groupOf(sessions.head).copy()
      val before = mutable.HashMap.from(store.prefixScan(group).map(pair => pair.key.copy() -> pair.value.copy()))
      while (sessions.hasNext && groupOf(sessions.head) == group) {
        val session = sessions.next()
        val key = keyOf(session)
        val old = before.remove(key)
        if (!old.contains(session)) {
          store.put(key, session)
          if (old.isEmpty) expiries.put(key, endOf(session))
          else if (old.exists(endOf(_) > endOf(session))) expiries.hastened(key, endOf(session))
          updated += 1
        }
      }
      before.keysIterator.foreach { key =>
        store.remove(key)
        expiries.removed()
        removed += 1
      }
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

/** The sessions that [[FrontierSessionSaveExec]] has saved before, merged by time with those of a batch: read from the same store. */
final class FrontierSessionRestoreExec(
    keyWithoutSessionExpressions: Seq[Attribute],
    sessionExpression: Attribute,
    stateInfo: Option[StatefulOperatorStateInfo],
    eventTimeWatermarkForLateEvents: Option[Long],
    eventTimeWatermarkForEviction: Option[Long],
    stateFormatVersion: Int,
    child: SparkPlan)
    extends SessionWindowStateStoreRestoreExec(
      keyWithoutSessionExpressions,
      sessionExpression,
      stateInfo,
      eventTimeWatermarkForLateEvents,
      eventTimeWatermarkForEviction,
      stateFormatVersion,
      child)
    with IdentityEquals {

  override protected def doExecute(): RDD[InternalRow] = {
    val output = longMetric("numOutputRows")
    val layout = new SessionLayout(keyWithoutSessionExpressions, sessionExpression, child.output, stateFormatVersion)
    StreamingInternals.mapPartitionsWithReadStore(child.execute(), getStateInfo, layout.keys, layout.values, layout.encoder, session) { (store, rows) =>
      new MergingSortWithSessionWindowStateIterator(rows, layout.manager, store, keyWithoutSessionExpressions, sessionExpression, layout.columns).map {
        row =>
          output += 1
          row
      }
    }
  }

  override protected def withNewChildInternal(newChild: SparkPlan): SparkPlan = FrontierSessionRestoreExec(this, newChild)
}

object FrontierSessionRestoreExec {
  def apply(restore: SessionWindowStateStoreRestoreExec, child: SparkPlan): FrontierSessionRestoreExec =
    new FrontierSessionRestoreExec(
      restore.keyWithoutSessionExpressions,
      restore.sessionExpression,
      restore.stateInfo,
      None, // Spark would drop late rows
      None,
      restore.stateFormatVersion,
      child
    )
}

/** How sessions lie in their store, which is as Spark has it: by their other keys and their start, each with the whole row. */
private[spark] final class SessionLayout(others: Seq[Attribute], session: Attribute, val columns: Seq[Attribute], formatVersion: Int) extends Serializable {
  val manager: StreamingSessionWindowStateManager = StreamingSessionWindowStateManager.createStateManager(others, session, columns, formatVersion)
  val keys: StructType = manager.getStateKeySchema
  val values: StructType = manager.getStateValueSchema
  val encoder: KeyStateEncoderSpec = PrefixKeyScanStateEncoderSpec(keys, manager.getNumColsForPrefixKey)

  /** The other keys of a row; each call's row is used again. */
  def group: UnsafeProjection = UnsafeProjection.create(others, columns)

  /** The key of a row's session. */
  def key: UnsafeProjection = UnsafeProjection.create(others :+ GetStructField(session, 0), columns)
}
