package strandline.spark.exec

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.types.DataTypeUtils.fromAttributes
import org.apache.spark.sql.execution.{SortExec, SparkPlan}
import org.apache.spark.sql.execution.streaming.operators.stateful._
import org.apache.spark.sql.execution.streaming.state.StateStore
import org.apache.spark.sql.execution.streaming.state.strandline.SparkInternals
import org.apache.spark.sql.types.{BooleanType, DoubleType, FloatType, LongType, StructType}
import org.json4s._
import strandline.spark.errors.Errors
import strandline.spark.state.{OpenTimeIndex, TimedState}
import strandline.spark.time.Json

/**
 * Keeps the best row of each key and outer time. The outer time of a time is all of its coordinates but the last one.
 *
 * A row passes if it is better than all rows of its key and outer time before. The end of an outer time is its last time. When
 * that is closed, the best row of each key comes out once more, at that time and with `true` in the column `order.last`. Each
 * partition's rows are taken by key and time, the best one first, so that what passes does not depend on their order.
 *
 * The state's key is the outer time's end, the mark (0) and the key columns. Its value is the row.
 */
final class BestExec(
    keyExpressions: Seq[Attribute],
    child: SparkPlan,
    stateInfo: Option[StatefulOperatorStateInfo],
    eventTimeWatermarkForLateEvents: Option[Long],
    eventTimeWatermarkForEviction: Option[Long],
    val key: OperatorKey,
    val order: BestOrder,
    val state: TimedState)
    extends MarkedOperatorExec(keyExpressions, child, stateInfo, eventTimeWatermarkForLateEvents, eventTimeWatermarkForEviction) {

  override def shortName: String = MarkedOperator.Best

  override protected def label: String = s"StrandlineBest $order"

  private lazy val sort = SortExec((key.by :+ key.time).map(SortOrder(_, Ascending)) ++ order.by, global = false, child)

  override protected def doExecute(): RDD[InternalRow] = {
    val (layout, columns) = (state.layout, output)
    val sorting = sort
    mapWithStore(child.execute(), layout.keySchema, fromAttributes(columns), layout.encoder) { (store, input) =>
      val times = state.open(store)
      val finished = finish
      val (out, removed) = (longMetric("numOutputRows"), longMetric("numRemovedStateRows"))
      var updating = 0L
      def improvements =
        if (input.hasNext) sorting.createSorter().sort(input.asInstanceOf[Iterator[UnsafeRow]]).map(_.asInstanceOf[UnsafeRow]).filter(improves(store, times))
        else Iterator.empty
      val passing = new CompletionIterator(improvements, updating = _)
      def best = times.removeClosed(store).map { entry =>
        removed += 1
        finished(entry.value)
      }
      def rows = passing.concat(best).asInstanceOf[Iterator[InternalRow]].map { row =>
        out += 1
        row
      }
      new CompletionIterator(rows, taken => {
        longMetric("allUpdatesTimeMs") += updating
        longMetric("allRemovalsTimeMs") += taken - updating
        end(store, times, store.commit())
      })
    }
  }

  /** Returns whether a row is better than all rows of its key and outer time before. Then the state has it. */
  private def improves(store: StateStore, times: OpenTimeIndex): UnsafeRow => Boolean = {
    val columns = output
    val keyOf = UnsafeProjection.create(
      keyExpressions.map(a => if (a.exprId == key.time.exprId) endOf else if (a.exprId == key.mark.exprId) Literal(0L) else SparkInternals.normalized(a)),
      columns
    )
    val ordering = RowOrdering.create(order.by, columns)
    val isIncomparable = Predicate.create(order.isIncomparable, columns)
    val updated = longMetric("numUpdatedStateRows")
    row => {
      if (isIncomparable.eval(row)) throw Errors.incomparable(order.names, order.by.map(o => BindReferences.bindReference(o.child, columns).eval(row)))
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
    output
  )

  override protected def otherCopyArgs: Seq[AnyRef] = Seq(key, order, state)

  override protected def withNewChildInternal(newChild: SparkPlan): BestExec =
    new BestExec(keyExpressions, newChild, stateInfo, eventTimeWatermarkForLateEvents, eventTimeWatermarkForEviction, key, order, state)
}

/** What is better: the columns that decide, the first one first. `last` is the column that marks the best row of an outer time. */
final case class BestOrder(by: Seq[SortOrder], last: Attribute) {
  def names: Seq[String] = by.map(_.child).collect { case a: Attribute => a.name }

  /** Whether a value is null or NaN, which is neither better nor worse. */
  def isIncomparable: Expression = by.map(_.child).flatMap { column =>
    val isNan = if (column.dataType == DoubleType || column.dataType == FloatType) Seq(IsNaN(column)) else Nil
    Seq[Expression](IsNull(column)) ++ isNan
  }.reduce[Expression](Or(_, _))

  override def toString: String = by.mkString("[", ", ", "]")
}

object BestOrder {

  /** Reads the order that the mark states (operator_marker.py): `{"order": [[column, "min" or "max"], ...], "last": column}`. */
  def of(operator: MarkedOperator, text: String, columns: Seq[Attribute]): BestOrder = {
    def refuse(why: String) = throw Errors.operatorUnsupported(MarkedOperator.Best, why)
    def named(name: String) = columns.find(_.name == name).getOrElse(refuse(s"its input has no column $name"))
    operator.key.time.dataType match {
      case StructType(fields) if fields.length > 1 && fields.last.dataType == LongType =>
      case other => refuse(s"its times are of ${other.simpleString}, without a last coordinate of int64")
    }
    Json.parse(text) match {
      case Some(JObject(List(("order", JArray(order)), ("last", JString(last))))) if order.nonEmpty =>
        val by = order.map {
          case JArray(List(JString(name), JString("min"))) => SortOrder(named(name), Ascending)
          case JArray(List(JString(name), JString("max"))) => SortOrder(named(name), Descending)
          case other => refuse(s"its order has the entry ${Json.render(other)}")
        }
        by.find(o => !RowOrdering.isOrderable(o.dataType)).foreach(o => refuse(s"values of ${o.dataType.simpleString} have no order"))
        BestOrder(by, Some(named(last)).filter(_.dataType == BooleanType).getOrElse(refuse(s"its column $last is not boolean")))
      case _ => refuse(s"its mark has the order $text")
    }
  }
}
