package strandline.spark.exec

import scala.collection.mutable

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.streaming.operators.stateful._
import org.apache.spark.sql.execution.streaming.state.{
  KeyStateEncoderSpec, PrefixKeyScanStateEncoderSpec, StateStore, StateStoreProviderId
}
import org.apache.spark.sql.execution.streaming.state.strandline.{OperatorStore, StreamingInternals}
import org.apache.spark.sql.streaming.OutputMode
import org.apache.spark.sql.types.StructType
import strandline.spark.compat.IdentityEquals
import strandline.spark.state.TimedOperator
import strandline.spark.state.expiry.Expiries
import strandline.spark.time.ClosedBy

/**
 * Spark's session windows. A session is emitted and forgotten when the END frontier closes its end, because no row can prolong
 * it any more. Like [[FrontierSaveExec]], it is a subclass of a case class.
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
      child) with TimedOperator with IdentityEquals {

  override protected def customStatefulOperatorMetrics: Seq[StatefulOperatorCustomMetric] = storeMetrics

  /** Works like Spark's operator in append mode, but a batch looks only at the sessions that it closes ([[Expiries]]). */
  override protected def doExecute(): RDD[InternalRow] = {
    require(outputMode.contains(OutputMode.Append()), s"Spark has no session windows in ${outputMode.mkString} mode.")
    val layout = new SessionLayout(keyWithoutSessionExpressions, sessionExpression, child.output, stateFormatVersion)
    val (run, checkpointIds) = (getStateInfo.queryRunId, getStateInfo.stateStoreCkptIds)
    val storeCounts = StreamingInternals.countsRows(conf.stateStoreProviderClass)
    val end = BindReferences.bindReference(closed.child, child.output)
    mapWithStore(child.execute(), layout.keys, layout.values, layout.encoder) { (store, rows) =>
      def endOf(row: InternalRow): Long = end.eval(row).asInstanceOf[Long]
      val checkpointId = checkpointIds.map(_.apply(store.id.partitionId).head)
      val expiries =
        new Expiries(store, StateStoreProviderId(store.id, run), checkpointId, closed.check.frontier, layout.keys.length)
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
            expiries.prolonged(key, at)
            None
          }
        }
      }
      new CompletionIterator(ended,
        taken => {
          longMetric("allRemovalsTimeMs") += taken
          this.end(store, Option.unless(storeCounts)(expiries.keys), expiries.committed(store.commit()))
        })
    }
  }

  /** Replaces the sessions of each key in `rows` by those in `rows`. Spark delivers the sessions of a key one after another. */
  private def replace(store: StateStore, rows: Iterator[InternalRow], layout: SessionLayout, expiries: Expiries,
      endOf: InternalRow => Long): Unit = {
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
          else if (old.exists(endOf(_) > endOf(session))) expiries.expiresEarlier(key, endOf(session))
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
      closed)
}

/** Merges the saved sessions of [[FrontierSessionSaveExec]] with those of a batch, by time. */
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
      child) with IdentityEquals {

  override protected def doExecute(): RDD[InternalRow] = {
    val output = longMetric("numOutputRows")
    val layout = new SessionLayout(keyWithoutSessionExpressions, sessionExpression, child.output, stateFormatVersion)
    StreamingInternals.mapPartitionsWithReadStore(child.execute(),
      OperatorStore(getStateInfo, layout.keys, layout.values, layout.encoder, session)) { (store, rows) =>
      new MergingSortWithSessionWindowStateIterator(rows, layout.manager, store, keyWithoutSessionExpressions, sessionExpression,
        layout.columns).map {
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
      child)
}

/**
 * The layout of sessions in their store, which is Spark's: the key is the other key columns and the session's start, the value
 * is the whole row.
 */
private[spark] final class SessionLayout(others: Seq[Attribute], session: Attribute, val columns: Seq[Attribute],
    formatVersion: Int)
    extends Serializable {
  val manager: StreamingSessionWindowStateManager =
    StreamingSessionWindowStateManager.createStateManager(others, session, columns, formatVersion)
  val keys: StructType = manager.getStateKeySchema
  val values: StructType = manager.getStateValueSchema
  val encoder: KeyStateEncoderSpec = PrefixKeyScanStateEncoderSpec(keys, manager.getNumColsForPrefixKey)

  /** Projects a row to the other key columns. The returned row is reused. */
  def group: UnsafeProjection = UnsafeProjection.create(others, columns)

  /** Projects a row to the key of its session. */
  def key: UnsafeProjection = UnsafeProjection.create(others :+ GetStructField(session, 0), columns)
}
