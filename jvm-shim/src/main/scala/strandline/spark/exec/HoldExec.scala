package strandline.spark.exec

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.types.DataTypeUtils.fromAttributes
import org.apache.spark.sql.execution.{SortExec, SparkPlan}
import org.apache.spark.sql.execution.streaming.operators.stateful._
import org.apache.spark.sql.execution.streaming.state.{StateStore, UnsafeRowPair}
import org.apache.spark.sql.types.StructType
import strandline.spark.state.{OpenTimeIndex, TimedState}

/**
 * Keeps rows until their time is closed. Emits them in the batch that closes it, each partition's rows sorted by time (a linear
 * extension of the partial order), then by key, then in order of arrival.
 *
 * The state's key is the time, a number and the key columns. Its value is the row, of any types. The number is unique in the
 * store and increases. Emitted rows are sorted by Spark's sorter, which uses the disk if they do not fit in memory.
 */
final class HoldExec(
    keyExpressions: Seq[Attribute],
    child: SparkPlan,
    stateInfo: Option[StatefulOperatorStateInfo],
    eventTimeWatermarkForLateEvents: Option[Long],
    eventTimeWatermarkForEviction: Option[Long],
    key: OperatorKey,
    state: TimedState)
    extends MarkedOperatorExec(keyExpressions, child, stateInfo, eventTimeWatermarkForLateEvents, eventTimeWatermarkForEviction,
      key, state) {

  override def shortName: String = MarkedOperator.Hold

  override protected def label: String = "StrandlineHold"

  override protected def values: StructType = fromAttributes(output)

  private val sort = SortExec((key.time +: key.by :+ key.mark).map(SortOrder(_, Ascending)), global = false, child)

  override protected def arranged(rows: Iterator[UnsafeRow]): Iterator[UnsafeRow] = sorted(sort, rows)

  override protected def closed(entries: Iterator[UnsafeRowPair]): Iterator[UnsafeRow] = entries.map(_.value)

  override protected def update(store: StateStore, times: OpenTimeIndex, input: Iterator[UnsafeRow]): Iterator[UnsafeRow] = {
    val (markInRow, markInKey) =
      (output.indexWhere(_.exprId == key.mark.exprId), keyExpressions.indexWhere(_.exprId == key.mark.exprId))
    val keyOf = UnsafeProjection.create(keyExpressions, output)
    val updated = longMetric("numUpdatedStateRows")
    var number = store.version << HoldExec.BitsOfABatch

    /** Keeps a row, unless this batch opens and closes its time. Returns whether it did. */
    def keeps(held: UnsafeRow): Boolean = {
      val entry = keyOf(held)
      entry.setLong(markInKey, number)
      held.setLong(markInRow, number)
      number += 1
      val isKept = !times.passes(entry)
      if (isKept) {
        times.add(entry, isNew = true)
        store.put(entry, held)
        updated += 1
      }
      isKept
    }
    input.filterNot(keeps)
  }

  override protected def otherCopyArgs: Seq[AnyRef] = Seq(key, state)

  override protected def withNewChildInternal(newChild: SparkPlan): HoldExec =
    new HoldExec(keyExpressions, newChild, stateInfo, eventTimeWatermarkForLateEvents, eventTimeWatermarkForEviction, key, state)
}

object HoldExec {

  /** A partition gets fewer rows in a batch than this power of two. The other bits of a long number the batches. */
  private val BitsOfABatch = 34
}
