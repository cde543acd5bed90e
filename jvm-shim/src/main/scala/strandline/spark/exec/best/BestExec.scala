package strandline.spark.exec.best

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.types.DataTypeUtils.fromAttributes
import org.apache.spark.sql.execution.{SortExec, SparkPlan}
import org.apache.spark.sql.execution.streaming.operators.stateful._
import org.apache.spark.sql.execution.streaming.state.{StateStore, UnsafeRowPair}
import org.apache.spark.sql.execution.streaming.state.strandline.SparkInternals
import org.apache.spark.sql.types.StructType
import strandline.spark.exec.{MarkedOperator, MarkedOperatorExec, OperatorKey}
import strandline.spark.state.{OpenTimeIndex, TimedState}

/**
 * Keeps the best row of each key and outer time. The outer time of a time is all of its coordinates but the last one.
 *
 * A row passes if it is better than all rows of its key and outer time before. The end of an outer time is its last time. When
 * that is closed, the best row of each key comes out once more, at that time and with `true` in the column `order.last`. Each
 * partition's rows are taken by key and time, the best one first, so that what passes does not depend on their order.
 *
 * [[BestOfTaskExec]] is below the exchange. It has refused the rows that are neither better nor worse.
 *
 * The state's key is the outer time's end, the mark (0) and the key columns. Its value is the row.
 */
final class BestExec(
    keyExpressions: Seq[Attribute],
    child: SparkPlan,
    stateInfo: Option[StatefulOperatorStateInfo],
    eventTimeWatermarkForLateEvents: Option[Long],
    eventTimeWatermarkForEviction: Option[Long],
    key: OperatorKey,
    val order: BestOrder,
    state: TimedState)
    extends MarkedOperatorExec(keyExpressions, child, stateInfo, eventTimeWatermarkForLateEvents, eventTimeWatermarkForEviction,
      key, state) {

  override def shortName: String = MarkedOperator.Best

  override protected def label: String = s"StrandlineBest $order"

  override protected def values: StructType = fromAttributes(output)

  private val sort = SortExec((key.by :+ key.time).map(SortOrder(_, Ascending)) ++ order.by, global = false, child)

  override protected def update(store: StateStore, times: OpenTimeIndex, input: Iterator[UnsafeRow]): Iterator[UnsafeRow] =
    sorted(sort, input).filter(improves(store, times))

  override protected def closed(entries: Iterator[UnsafeRowPair]): Iterator[UnsafeRow] = {
    val finished = finish
    entries.map(entry => finished(entry.value))
  }

  /** Returns whether a row is better than all rows of its key and outer time before. Then the state has it. */
  private def improves(store: StateStore, times: OpenTimeIndex): UnsafeRow => Boolean = {
    val columns = output
    val keyOf = UnsafeProjection.create(
      keyExpressions.map(a =>
        if (a.exprId == key.time.exprId) endOf
        else if (a.exprId == key.mark.exprId) Literal(0L)
        else SparkInternals.normalized(a)),
      columns)
    val ordering = RowOrdering.create(order.by, columns)
    val updated = longMetric("numUpdatedStateRows")
    row => {
      val entry = keyOf(row)
      val before = store.get(entry)
      val isBetter = before == null || ordering.compare(row, before) < 0
      if (isBetter) {
        times.add(entry, isNew = before == null)
        store.put(entry, row)
        updated += 1
      }
      isBetter
    }
  }

  /** The last time of a row's outer time. */
  private def endOf: Expression = {
    val fields = key.time.dataType.asInstanceOf[StructType].fields
    CreateNamedStruct(fields.toSeq.zipWithIndex.flatMap { case (field, at) =>
      val value = if (at == fields.length - 1) Literal(Long.MaxValue) else GetStructField(key.time, at, Some(field.name))
      Seq(Literal(field.name), value)
    })
  }

  private def finish: UnsafeProjection = UnsafeProjection.create(
    output.map(a => if (a.exprId == key.time.exprId) endOf else if (a.exprId == order.last.exprId) Literal(true) else a),
    output)

  override protected def otherCopyArgs: Seq[AnyRef] = Seq(key, order, state)

  override protected def withNewChildInternal(newChild: SparkPlan): BestExec =
    new BestExec(keyExpressions, newChild, stateInfo, eventTimeWatermarkForLateEvents, eventTimeWatermarkForEviction, key, order,
      state)
}
