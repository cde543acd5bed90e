package strandline.spark

import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.execution.streaming.operators.stateful._
import org.apache.spark.sql.execution.streaming.state.{ReadStateStore, StateStoreProviderId}
import org.apache.spark.sql.execution.streaming.strandline.StreamingInternals

/**
 * State whose keys are found by their times, so that what a batch closes costs what closes, not what there is.
 *
 * `closed` is the predicate over the times, the first of `keys`; `end` is the frontier that it stands for.
 */
final class TimedState(
    val layout: StateLayout,
    keys: Seq[Attribute],
    closed: Expression,
    end: Antichain,
    info: StatefulOperatorStateInfo,
    provider: String)
    extends Serializable {
  private val run = info.queryRunId
  private val checkpointIds = info.stateStoreCkptIds
  // RocksDB reads from a snapshot; of another store the keys are gathered before any is removed.
  private val readsSnapshot = StreamingInternals.readsSnapshot(provider)

  /** The times of one partition's store, for one task. */
  def open(store: ReadStateStore): OpenTimes = {
    // Not the task's partition: above a union that is another one.
    val base = checkpointIds.map(_.apply(store.id.partitionId).head)
    val predicate = Predicate.create(closed, keys.take(layout.times))
    predicate.initialize(TaskContext.getPartitionId())
    new OpenTimes(store, StateStoreProviderId(store.id, run), base, layout, predicate, end, readsSnapshot)
  }
}

/** What an operator with its state by time tells in the query's progress, besides what Spark's does. */
private[spark] object TimedMetrics {
  val OpenTimes = "numOpenTimes"

  def of(timed: Option[TimedState]): Seq[StatefulOperatorCustomMetric] =
    timed.map(_ => StatefulOperatorCustomSumMetric(OpenTimes, "number of open times in all partitions")).toSeq
}
