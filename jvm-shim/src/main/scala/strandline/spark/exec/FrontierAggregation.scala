package strandline.spark.exec

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.streaming.operators.stateful._
import org.apache.spark.sql.execution.streaming.state.{StateStore, StateStoreProviderId}
import org.apache.spark.sql.execution.streaming.state.strandline.{SparkInternals, StreamingInternals}
import org.apache.spark.sql.streaming.OutputMode
import strandline.spark.compat.IdentityEquals
import strandline.spark.state.{ClosedKeysView, OpenTimeIndex, StateLayout, StateManagerCache, TimedOperator, TimedState}

/**
 * Spark's aggregation state, evicted and emitted by an exact frontier.
 *
 * `closed` says of a key that its time is closed by the END frontier; none (complete mode, or no time in the key) evicts nothing.
 * Rows behind the frontier do not come here ([[GuardExec]] stands before), and no further batch is asked for, because everything
 * that this batch closes goes out in it. With a `timed` state only the closed keys are looked at; without, Spark looks at all.
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
    val closed: Option[Expression],
    val timed: Option[TimedState])
    extends StateStoreSaveExec(
      keyExpressions,
      stateInfo,
      outputMode,
      eventTimeWatermarkForLateEvents,
      eventTimeWatermarkForEviction,
      stateFormatVersion,
      child)
    with TimedOperator
    with IdentityEquals {

  override lazy val watermarkPredicateForKeysForEviction: Option[BasePredicate] = closed.map(Predicate.create(_, keyExpressions))

  // Append mode wants one; it lets every row through.
  override lazy val watermarkPredicateForDataForLateEvents: Option[BasePredicate] =
    closed.map(_ => Predicate.create(Literal.FalseLiteral, Nil))

  override protected def customStatefulOperatorMetrics: Seq[StatefulOperatorCustomMetric] = timed.toSeq.flatMap(_ => if (closed.isDefined) timedMetrics else storeMetrics)

  override protected def doExecute(): RDD[InternalRow] = timed.fold(super.doExecute())(execute)

  private def execute(state: TimedState): RDD[InternalRow] = {
    metrics // made on the driver
    val own = SparkInternals.stateManager(this)
    val (layout, values, run) = (state.layout, own.getStateValueSchema, getStateInfo.queryRunId)
    StreamingInternals.mapPartitionsWithStore(child.execute(), getStateInfo, layout.keySchema, values, layout.encoder, session) { (store, rows) =>
      val manager = StateManagerCache.forTask(StateStoreProviderId(store.id, run), reads = false, own)
      val updated = longMetric("numUpdatedStateRows")
      def saved(note: UnsafeRow => Unit) = rows.map { row =>
        val group = row.asInstanceOf[UnsafeRow]
        note(manager.getKey(group))
        manager.put(store, group)
        updated += 1
        row
      }
      if (outputMode.contains(OutputMode.Complete())) allGroups(store, manager, state, saved(_ => ()))
      else {
        val times = state.open(store)
        val updates = saved(key => times.add(key, isNew = !store.keyExists(key)))
        if (outputMode.contains(OutputMode.Append())) closedGroups(store, manager, times, updates) else updatedGroups(store, manager, times, updates)
      }
    }
  }

  /** In complete mode nothing is ever removed, and all keys are read anyway. */
  private def allGroups(store: StateStore, manager: StreamingAggregationStateManager, state: TimedState, updates: Iterator[InternalRow]) = {
    longMetric("allUpdatesTimeMs") += timeTakenMs(updates.foreach(_ => ()))
    val output = longMetric("numOutputRows")
    var keys = 0L
    val groups = manager.values(store).map { row =>
      output += 1
      keys += 1
      row: InternalRow
    }
    new CompletionIterator(groups, _ => end(store, Option.unless(state.storeCounts)(keys), manager.commit(store)))
  }

  private def closedGroups(store: StateStore, manager: StreamingAggregationStateManager, times: OpenTimeIndex, updates: Iterator[InternalRow]) = {
    longMetric("allUpdatesTimeMs") += timeTakenMs(updates.foreach(_ => ()))
    val (removed, output) = (longMetric("numRemovedStateRows"), longMetric("numOutputRows"))
    def groups = manager.iterator(new ClosedKeysView(store, times.removeClosed(store))).map { entry =>
      removed += 1
      output += 1
      entry.value: InternalRow
    }
    new CompletionIterator(groups, taken => {
      longMetric("allRemovalsTimeMs") += taken
      end(store, times, manager.commit(store))
    })
  }

  private def updatedGroups(store: StateStore, manager: StreamingAggregationStateManager, times: OpenTimeIndex, updates: Iterator[InternalRow]) = {
    val output = longMetric("numOutputRows")
    val groups = updates.map { row =>
      output += 1
      row
    }
    new CompletionIterator(groups, taken => {
      longMetric("allUpdatesTimeMs") += taken
      evict(store, times)
      end(store, times, manager.commit(store))
    })
  }

  override def shouldRunAnotherBatch(newInputWatermark: Long): Boolean = false

  override protected def otherCopyArgs: Seq[AnyRef] = Seq(closed, timed)

  override protected def withNewChildInternal(newChild: SparkPlan): FrontierSaveExec = FrontierSaveExec(this, newChild, closed, timed)

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
      timed
    )
}

/** What [[FrontierSaveExec]] has saved before, for the groups of a batch: read in the same layout. */
final class FrontierRestoreExec(
    keyExpressions: Seq[Attribute],
    stateInfo: Option[StatefulOperatorStateInfo],
    stateFormatVersion: Int,
    child: SparkPlan,
    val layout: StateLayout)
    extends StateStoreRestoreExec(keyExpressions, stateInfo, stateFormatVersion, child)
    with IdentityEquals {

  override protected def doExecute(): RDD[InternalRow] = {
    val output = longMetric("numOutputRows")
    val own = SparkInternals.stateManager(this)
    val run = getStateInfo.queryRunId
    StreamingInternals.mapPartitionsWithReadStore(child.execute(), getStateInfo, layout.keySchema, own.getStateValueSchema, layout.encoder, session) {
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
