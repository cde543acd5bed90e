package strandline.spark.state

import org.apache.spark.sql.execution.streaming.state.strandline.{PrefixRemoval, StreamingInternals}
import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.execution.streaming.operators.stateful._
import org.apache.spark.sql.execution.streaming.state.{ReadStateStore, StateStore, StateStoreProviderId}
import strandline.spark.errors.Errors
import strandline.spark.time.Antichain

/**
 * State whose keys are found by their times, so that what a batch closes costs what closes, not what there is.
 *
 * `closed` is the predicate over the times, the first of `keys`; `end` is the frontier that it stands for. `partition` is the number of
 * the partition that a key belongs to, where Spark does not know it.
 */
final class TimedState(
    val layout: StateLayout,
    keys: Seq[Attribute],
    closed: Expression,
    end: Antichain,
    info: StatefulOperatorStateInfo,
    provider: String,
    partition: Option[Expression] = None)
    extends Serializable {
  private val run = info.queryRunId
  private val checkpointIds = info.stateStoreCkptIds
  
  /** Whether the store knows how many rows it has; else the operator counts them. */
  val storeCounts: Boolean = StreamingInternals.countsRows(provider)

  /** The times of one partition's store, for one task. */
  def open(store: ReadStateStore): OpenTimeIndex = {
    // Not the task's partition: above a union that is another one.
    val base = checkpointIds.map(_.apply(store.id.partitionId).head)
    val predicate = Predicate.create(closed, keys.take(layout.times))
    predicate.initialize(TaskContext.getPartitionId())
    new OpenTimeIndex(store, StateStoreProviderId(store.id, run), base, layout, predicate, end, storeCounts, checked(store))
  }

  private def checked(store: ReadStateStore): UnsafeRow => Unit = partition.fold((_: UnsafeRow) => ()) { number =>
    val numberOf = UnsafeProjection.create(Seq(number), keys)
    key => {
      val belongs = numberOf(key).getInt(0)
      if (belongs != store.id.partitionId) throw Errors.stateRepartitioned(info.operatorId, store.id.partitionId, belongs, info.numPartitions)
    }
  }
}

/** An operator with its state by time: what it does at a task's end, and tells in the query's progress besides what Spark's does. */
private[spark] trait TimedOperator extends StateStoreWriter {
  protected def timedMetrics: Seq[StatefulOperatorCustomMetric] =
    storeMetrics :+ StatefulOperatorCustomSumMetric(TimedOperator.OpenTimes, "number of open times in all partitions")

  protected def storeMetrics: Seq[StatefulOperatorCustomMetric] =
    Seq(StatefulOperatorCustomSumMetric(TimedOperator.SharedStores, "number of partitions whose store in memory shares rows between versions"))

  /** Removes what is closed. */
  protected def evict(store: StateStore, times: OpenTimeIndex): Unit =
    longMetric("allRemovalsTimeMs") += timeTakenMs(longMetric("numRemovedStateRows") += times.removeClosed(store).size)

  protected def end(store: StateStore, times: OpenTimeIndex, commit: => Long): Unit = {
    end(store, times.keys, times.committed(commit, store))
    longMetric(TimedOperator.OpenTimes) += times.size
  }

  /** `keys`: how many keys the store has, where it does not count them itself. */
  protected def end(store: StateStore, keys: => Option[Long], commit: => Any): Unit = {
    longMetric("commitTimeMs") += timeTakenMs(commit)
    setStoreMetrics(store)
    if (store.isInstanceOf[PrefixRemoval]) longMetric(TimedOperator.SharedStores) += 1
    keys.foreach(longMetric("numTotalStateRows") += _)
    setOperatorMetrics()
  }
}

private[spark] object TimedOperator {
  private val OpenTimes = "numOpenTimes"
  val SharedStores = "numSharedStateStores"
}
