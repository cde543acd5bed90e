package strandline.spark.exec

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.types.DataTypeUtils.fromAttributes
import org.apache.spark.sql.execution.{SortExec, SparkPlan}
import org.apache.spark.sql.execution.streaming.operators.stateful._
import org.apache.spark.sql.execution.streaming.state.strandline.StreamingInternals
import strandline.spark.compat.IdentityEquals
import strandline.spark.state.{TimedOperator, TimedState}

/**
 * Holds rows back until their time is closed, and gives them out in the batch that closes it: each partition's rows in the order of
 * their times (a linear extension of the partial order), then of the key, then as they came.
 *
 * The state's key is the time, a number and the columns of the key; its value is the row, whatever its types. The number is unique
 * in the store and grows. Rows that come out are sorted as Spark sorts, on disk when they do not fit in memory.
 */
final class HoldExec(
    keyExpressions: Seq[Attribute],
    child: SparkPlan,
    stateInfo: Option[StatefulOperatorStateInfo],
    eventTimeWatermarkForLateEvents: Option[Long],
    eventTimeWatermarkForEviction: Option[Long],
    val key: OperatorKey,
    val state: TimedState)
    extends StreamingDeduplicateExec(keyExpressions, child, stateInfo, eventTimeWatermarkForLateEvents, eventTimeWatermarkForEviction)
    with TimedOperator
    with IdentityEquals {

  override lazy val watermarkPredicateForKeysForEviction: Option[BasePredicate] = None
  override lazy val watermarkPredicateForDataForLateEvents: Option[BasePredicate] = None

  override def customStatefulOperatorMetrics: Seq[StatefulOperatorCustomMetric] = timedMetrics

  override def shortName: String = MarkedOperator.Hold

  private lazy val sort =
    SortExec((key.time +: key.by :+ key.mark).map(SortOrder(_, Ascending)), global = false, child)

  override protected def doExecute(): RDD[InternalRow] = {
    metrics // made on the driver
    val layout = state.layout
    val (markInRow, markInKey) = (output.indexWhere(_.exprId == key.mark.exprId), keyExpressions.indexWhere(_.exprId == key.mark.exprId))
    val sorting = sort
    StreamingInternals.mapPartitionsWithStore(child.execute(), getStateInfo, layout.keySchema, fromAttributes(output), layout.encoder, session) { (store, input) =>
      val times = state.open(store)
      val keyOf = UnsafeProjection.create(keyExpressions, output)
      val (updated, removed, out) = (longMetric("numUpdatedStateRows"), longMetric("numRemovedStateRows"), longMetric("numOutputRows"))
      var number = store.version << HoldExec.BitsOfABatch
      longMetric("allUpdatesTimeMs") += timeTakenMs(input.foreach { row =>
        val held = row.asInstanceOf[UnsafeRow]
        val entry = keyOf(held)
        entry.setLong(markInKey, number)
        times.add(entry, isNew = true)
        held.setLong(markInRow, number)
        store.put(entry, held)
        number += 1
        updated += 1
      })
      def sorted = {
        val closing = times.removeClosed(store)
        if (closing.hasNext) sorting.createSorter().sort(closing.map(_.value)) else Iterator.empty
      }
      def released = sorted.asInstanceOf[Iterator[InternalRow]].map { row =>
        removed += 1
        out += 1
        row
      }
      new CompletionIterator(released, taken => {
        longMetric("allRemovalsTimeMs") += taken
        end(store, times, store.commit())
      })
    }
  }

  override def shouldRunAnotherBatch(newInputWatermark: Long): Boolean = false

  override protected def otherCopyArgs: Seq[AnyRef] = Seq(key, state)

  override protected def withNewChildInternal(newChild: SparkPlan): HoldExec =
    new HoldExec(keyExpressions, newChild, stateInfo, eventTimeWatermarkForLateEvents, eventTimeWatermarkForEviction, key, state)

  override def simpleString(maxFields: Int): String = s"StrandlineHold [${keyExpressions.mkString(", ")}]"
}

object HoldExec {
  /** A batch brings a partition fewer rows than this power of two, and a query has fewer batches than what is left of a long. */
  private val BitsOfABatch = 34
}
