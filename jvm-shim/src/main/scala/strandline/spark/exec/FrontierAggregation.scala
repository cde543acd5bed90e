package strandline.spark.exec

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.streaming.operators.stateful._
import org.apache.spark.sql.execution.streaming.state.{StateStore, StateStoreProviderId}
import org.apache.spark.sql.execution.streaming.state.strandline.{OperatorStore, SparkInternals, StreamingInternals}
import org.apache.spark.sql.streaming.OutputMode
import strandline.spark.compat.IdentityEquals
import strandline.spark.state.{ClosedKeysView, OpenTimeIndex, StateLayout, StateManagerCache, TimedOperator, TimedState}

/**
 * Spark's aggregation. It emits and evicts groups by an exact frontier.
 *
 * `closed` tests whether the END frontier closes a key's time. None (complete mode, or no time in the key) evicts nothing. A
 * [[GuardExec]] below keeps out rows behind the frontier. With a `timed` state, the operator looks only at closed keys; without
 * one, Spark's code looks at all keys.
 *
 * It is a subclass of a case class, so `copy` would return the base class. Nothing may call `copy` after the rule has run.
 */
final class FrontierSaveExec(
    keyExpressions: Seq[Attribute],
    stateInfo: Option[StatefulOperatorStateInfo],
    outputMode: Option[OutputMode],
    eventTimeWatermarkForLateEvents: Option[Long],
    eventTimeWatermarkForEviction: Option[Long],
    stateFormatVersion: Int,
    child: SparkPlan,
    val closed: Option[Expression],
    val timed: Option[TimedState])
    extends StateStoreSaveExec(
      keyExpressions,
      stateInfo,
      outputMode,
      eventTimeWatermarkForLateEvents,
      eventTimeWatermarkForEviction,
      stateFormatVersion,
      child) with TimedOperator with IdentityEquals {

  override lazy val watermarkPredicateForKeysForEviction: Option[BasePredicate] = closed.map(Predicate.create(_, keyExpressions))

  // Append mode requires a predicate. This one lets every row pass.
  override lazy val watermarkPredicateForDataForLateEvents: Option[BasePredicate] =
    closed.map(_ => Predicate.create(Literal.FalseLiteral, Nil))

  override protected def customStatefulOperatorMetrics: Seq[StatefulOperatorCustomMetric] =
    timed.toSeq.flatMap(_ => if (closed.isDefined) timedMetrics else storeMetrics)

  override protected def doExecute(): RDD[InternalRow] = timed.fold(super.doExecute())(execute)

  private def execute(state: TimedState): RDD[InternalRow] = {
    val own = SparkInternals.stateManager(this)
    val (layout, values, run) = (state.layout, own.getStateValueSchema, getStateInfo.queryRunId)
    mapWithStore(child.execute(), layout.keySchema, values, layout.encoder) { (store, rows) =>
      val manager = StateManagerCache.forTask(StateStoreProviderId(store.id, run), reads = false, own)
      val updated = longMetric("numUpdatedStateRows")
      def put(group: UnsafeRow): Unit = {
        manager.put(store, group)
        updated += 1
      }
      if (outputMode.contains(OutputMode.Complete()))
        allGroups(store, manager, state, rows.foreach(row => put(row.asInstanceOf[UnsafeRow])))
      else {
        val times = state.open(store)

        /** Puts the group into the state, unless this batch closes it and the state does not have it. Returns whether it did. */
        def saves(row: InternalRow): Boolean = {
          val group = row.asInstanceOf[UnsafeRow]
          val key = manager.getKey(group)
          val isSaved = !times.passes(key)
          if (isSaved) {
            times.add(key, isNew = !store.keyExists(key))
            put(group)
          }
          isSaved
        }
        if (outputMode.contains(OutputMode.Append())) closedGroups(store, manager, times, rows.filterNot(saves))
        else updatedGroups(store, manager, times, rows.tapEach(saves))
      }
    }
  }

  /** Complete mode removes nothing and reads all keys. */
  private def allGroups(store: StateStore, manager: StreamingAggregationStateManager, state: TimedState, update: => Unit) = {
    longMetric("allUpdatesTimeMs") += timeTakenMs(update)
    val output = longMetric("numOutputRows")
    var keys = 0L
    val groups = manager.values(store).map { row =>
      output += 1
      keys += 1
      row: InternalRow
    }
    new CompletionIterator(groups, _ => end(store, Option.unless(state.storeCounts)(keys), manager.commit(store)))
  }

  /** `passing` are the groups that this batch opens and closes. It saves the others as it is read. */
  private def closedGroups(store: StateStore, manager: StreamingAggregationStateManager, times: OpenTimeIndex,
      passing: Iterator[InternalRow]) = {
    val (removed, output) = (longMetric("numRemovedStateRows"), longMetric("numOutputRows"))
    def groups = manager.iterator(new ClosedKeysView(store, times.removeClosed(store))).map { entry =>
      removed += 1
      entry.value: InternalRow
    }
    val passed = new CompletionIterator(passing, longMetric("allUpdatesTimeMs") += _)
    val closed = new CompletionIterator(
      groups,
      (taken: Long) => {
        longMetric("allRemovalsTimeMs") += taken
        end(store, times, manager.commit(store))
      })
    (passed ++ closed).map { row =>
      output += 1
      row
    }
  }

  private def updatedGroups(store: StateStore, manager: StreamingAggregationStateManager, times: OpenTimeIndex,
      updates: Iterator[InternalRow]) = {
    val output = longMetric("numOutputRows")
    val groups = updates.map { row =>
      output += 1
      row
    }
    new CompletionIterator(groups,
      taken => {
        longMetric("allUpdatesTimeMs") += taken
        evict(store, times)
        end(store, times, manager.commit(store))
      })
  }

  override protected def otherCopyArgs: Seq[AnyRef] = Seq(closed, timed)

  override protected def withNewChildInternal(newChild: SparkPlan): FrontierSaveExec =
    FrontierSaveExec(this, newChild, closed, timed)

  override def simpleString(maxFields: Int): String =
    s"$nodeName [${keyExpressions.mkString(", ")}], ${outputMode.mkString}, ${closed.fold("never closed")(_.toString)}"
}

object FrontierSaveExec {
  def apply(save: StateStoreSaveExec, child: SparkPlan, closed: Option[Expression], timed: Option[TimedState]): FrontierSaveExec =
    new FrontierSaveExec(
      save.keyExpressions,
      save.stateInfo,
      save.outputMode,
      save.eventTimeWatermarkForLateEvents,
      save.eventTimeWatermarkForEviction,
      save.stateFormatVersion,
      child,
      closed,
      timed)
}

/** Reads the saved groups of [[FrontierSaveExec]] for the groups of a batch, in the same layout. */
final class FrontierRestoreExec(
    keyExpressions: Seq[Attribute],
    stateInfo: Option[StatefulOperatorStateInfo],
    stateFormatVersion: Int,
    child: SparkPlan,
    val layout: StateLayout)
    extends StateStoreRestoreExec(keyExpressions, stateInfo, stateFormatVersion, child) with IdentityEquals {

  override protected def doExecute(): RDD[InternalRow] = {
    val output = longMetric("numOutputRows")
    val own = SparkInternals.stateManager(this)
    val run = getStateInfo.queryRunId
    StreamingInternals.mapPartitionsWithReadStore(child.execute(),
      OperatorStore(getStateInfo, layout.keySchema, own.getStateValueSchema, layout.encoder, session)) {
      (store, rows) =>
        val manager = StateManagerCache.forTask(StateStoreProviderId(store.id, run), reads = true, own)
        rows.flatMap { row =>
          val both = Option(manager.get(store, manager.getKey(row.asInstanceOf[UnsafeRow]))).toSeq :+ row
          output += both.size
          both
        }
    }
  }

  override protected def otherCopyArgs: Seq[AnyRef] = layout :: Nil

  override protected def withNewChildInternal(newChild: SparkPlan): FrontierRestoreExec =
    new FrontierRestoreExec(keyExpressions, stateInfo, stateFormatVersion, newChild, layout)
}
