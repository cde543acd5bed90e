package strandline.spark.state

import org.apache.spark.sql.execution.streaming.state.strandline.{OperatorStore, PrefixRemoval, StreamingInternals}
import org.apache.spark.sql.types.StructType
import org.apache.spark.TaskContext
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.execution.streaming.operators.stateful._
import org.apache.spark.sql.execution.streaming.state.{KeyStateEncoderSpec, ReadStateStore, StateStore, StateStoreProviderId}
import strandline.spark.errors.Errors
import strandline.spark.time.InputFrontiers

/**
 * State whose keys are found by their times. So the cost of a batch depends on what it closes, not on the state's size.
 *
 * `closed` is the predicate over the times, the first of `keys`. `end` has the frontiers of that predicate. `partition` computes
 * the partition that a key belongs to, for keys that Spark cannot place.
 */
final class TimedState(
    val layout: StateLayout,
    keys: Seq[Attribute],
    closed: Expression,
    end: InputFrontiers,
    info: StatefulOperatorStateInfo,
    provider: String,
    partition: Option[Expression] = None)
    extends Serializable {
  private val run = info.queryRunId
  private val checkpointIds = info.stateStoreCkptIds

  /** Whether the store knows its number of rows. Otherwise the operator counts them. */
  val storeCounts: Boolean = StreamingInternals.countsRows(provider)

  /** Returns the times of one partition's store, for one task. */
  def open(store: ReadStateStore): OpenTimeIndex = {
    // Not the task's partition, which has another number above a union.
    val base = checkpointIds.map(_.apply(store.id.partitionId).head)
    val predicate = Predicate.create(closed, keys.take(layout.times))
    predicate.initialize(TaskContext.getPartitionId())
    new OpenTimeIndex(store, StateStoreProviderId(store.id, run), base, layout, predicate, end, storeCounts,
      partition.fold((_: UnsafeRow) => ())(inItsPartition(store, _)))
  }

  private def inItsPartition(store: ReadStateStore, number: Expression): UnsafeRow => Unit = {
    val numberOf = UnsafeProjection.create(Seq(number), keys)
    key => {
      val belongs = numberOf(key).getInt(0)
      if (belongs != store.id.partitionId)
        throw Errors.stateRepartitioned(info.operatorId, store.id.partitionId, belongs, info.numPartitions)
    }
  }
}

/** An operator that closes by a frontier: how it opens its store, what it does at a task's end, and its own metrics. */
private[spark] trait TimedOperator extends StateStoreWriter {

  /** Everything that a batch closes comes out in the same batch, so the operator never asks for another one. */
  override def shouldRunAnotherBatch(newInputWatermark: Long): Boolean = false

  /** Maps the partitions of `rows`, each with its store. */
  protected def mapWithStore(
      rows: RDD[InternalRow],
      keys: StructType,
      values: StructType,
      encoder: KeyStateEncoderSpec,
      options: Map[String, String] = Map.empty)(
      update: (StateStore, Iterator[InternalRow]) => Iterator[InternalRow]): RDD[InternalRow] = {
    metrics // created here, on the driver, because tasks only use them
    StreamingInternals.mapPartitionsWithStore(rows, OperatorStore(getStateInfo, keys, values, encoder, session, options))(update)
  }

  protected def timedMetrics: Seq[StatefulOperatorCustomMetric] =
    storeMetrics :+ StatefulOperatorCustomSumMetric(TimedOperator.OpenTimes, "number of open times in all partitions")

  protected def storeMetrics: Seq[StatefulOperatorCustomMetric] =
    Seq(StatefulOperatorCustomSumMetric(TimedOperator.SharedStores,
        "number of partitions whose store in memory shares rows between versions"))

  /** Removes closed keys. */
  protected def evict(store: StateStore, times: OpenTimeIndex): Unit =
    longMetric("allRemovalsTimeMs") += timeTakenMs(longMetric("numRemovedStateRows") += times.removeClosed(store).size)

  protected def end(store: StateStore, times: OpenTimeIndex, commit: => Long): Unit = {
    end(store, times.keys, times.committed(commit, store))
    longMetric(TimedOperator.OpenTimes) += times.size
  }

  /** Ends a task. `keys` is the number of keys, unless the store counts them itself. */
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
