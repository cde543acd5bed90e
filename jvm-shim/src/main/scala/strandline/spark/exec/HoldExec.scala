package strandline.spark.exec

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.types.DataTypeUtils.fromAttributes
import org.apache.spark.sql.execution.{SortExec, SparkPlan}
import org.apache.spark.sql.execution.streaming.operators.stateful._
import strandline.spark.state.TimedState

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
    val key: OperatorKey,
    val state: TimedState)
    extends MarkedOperatorExec(keyExpressions, child, stateInfo, eventTimeWatermarkForLateEvents, eventTimeWatermarkForEviction) {

  override def shortName: String = MarkedOperator.Hold

  override protected def label: String = "StrandlineHold"

  private lazy val sort =
    SortExec((key.time +: key.by :+ key.mark).map(SortOrder(_, Ascending)), global = false, child)

  override protected def doExecute(): RDD[InternalRow] = {
    val layout = state.layout
    val (markInRow, markInKey) = (output.indexWhere(_.exprId == key.mark.exprId), keyExpressions.indexWhere(_.exprId == key.mark.exprId))
    val sorting = sort
    mapWithStore(child.execute(), layout.keySchema, fromAttributes(output), layout.encoder) { (store, input) =>
      val times = state.open(store)
      val keyOf = UnsafeProjection.create(keyExpressions, output)
      val (updated, removed, out) = (longMetric("numUpdatedStateRows"), longMetric("numRemovedStateRows"), longMetric("numOutputRows"))
      var number = store.version << HoldExec.BitsOfABatch

      /** Keeps a row, unless this batch opens and closes its time. Returns whether it did. */
      def keeps(row: InternalRow): Boolean = {
        val held = row.asInstanceOf[UnsafeRow]
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
      var updating = 0L
      val passing = new CompletionIterator(input.filterNot(keeps), updating = _)
      def closing = times.removeClosed(store).map { entry =>
        removed += 1
        entry.value
      }
      def sorted = {
        val releasing = passing.map(_.asInstanceOf[UnsafeRow]).concat(closing)
        if (releasing.hasNext) sorting.createSorter().sort(releasing) else Iterator.empty
      }
      def released = sorted.asInstanceOf[Iterator[InternalRow]].map { row =>
        out += 1
        row
      }
      new CompletionIterator(released, taken => {
        longMetric("allUpdatesTimeMs") += updating
        longMetric("allRemovalsTimeMs") += taken - updating
        end(store, times, store.commit())
      })
    }
  }

  override protected def otherCopyArgs: Seq[AnyRef] = Seq(key, state)

  override protected def withNewChildInternal(newChild: SparkPlan): HoldExec =
    new HoldExec(keyExpressions, newChild, stateInfo, eventTimeWatermarkForLateEvents, eventTimeWatermarkForEviction, key, state)
}

object HoldExec {
  /** A partition gets fewer rows in a batch than this power of two. The other bits of a long number the batches. */
  private val BitsOfABatch = 34
}
