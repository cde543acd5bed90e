package strandline.spark.exec

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.physical.Partitioning
import org.apache.spark.sql.execution.{SortExec, SparkPlan, UnaryExecNode}
import org.apache.spark.sql.execution.streaming.operators.stateful._
import org.apache.spark.sql.execution.streaming.state.{StateStore, UnsafeRowPair}
import org.apache.spark.sql.execution.streaming.state.strandline.{OperatorStore, StreamingInternals}
import org.apache.spark.sql.types.{LongType, StringType, StructType}
import org.apache.spark.unsafe.types.UTF8String
import strandline.spark.state.{OpenTimeIndex, TimedState}
import strandline.spark.time.{Antichain, Json}

/**
 * The kinds of rows that go to a user's processor in Python and come back from it. The mark column of a row has its kind
 * (docs/protocol.md).
 *
 * All have the key columns, the mark and the time. Rows to the processor also have a text, the row and the state; rows from it
 * have the result and the state.
 */
private object NotifyRows {
  val Frontier = 0L
  val State = 1L
  val Row = 2L
  val Notification = 3L
  val Output = 4L
}

/**
 * Below a user's processor. Emits each key's rows by time, with the key's state before them, and after them the notifications
 * that are due by the END frontier. A partition's first row has the frontier.
 */
final case class NotifyRestoreExec(
    keys: Seq[Attribute],
    key: OperatorKey,
    info: StatefulOperatorStateInfo,
    state: TimedState,
    frontier: Antichain,
    values: StructType,
    child: SparkPlan)
    extends UnaryExecNode {
  override def output: Seq[Attribute] = child.output
  override def outputPartitioning: Partitioning = child.outputPartitioning

  private def width = key.by.length
  private def by = output.take(width)

  override protected def doExecute(): RDD[InternalRow] = {
    val (layout, columns) = (state.layout, output)
    val sorting = SortExec((by :+ output(width) :+ output(width + 1)).map(SortOrder(_, Ascending)), global = false, child)
    StreamingInternals.mapPartitionsWithReadStore(child.execute(),
      OperatorStore(info, layout.keySchema, values, layout.encoder, session)) { (store, rows) =>
      val nothing = columns.drop(width + 2).map(a => Literal(null, a.dataType): Expression)
      val notification = UnsafeProjection.create(key.by ++ Seq(Literal(NotifyRows.Notification), key.time) ++ nothing, keys)
      val due = state.open(store).closing().map(entry => notification(entry.key): InternalRow)
      val sorted = sorting.createSorter().sort(rows.concat(due).asInstanceOf[Iterator[UnsafeRow]])
      if (sorted.hasNext) Iterator.single(frontierRow).concat(withStates(sorted, store.get(_))) else Iterator.empty
    }
  }

  /** The row with the frontier, as JSON. */
  private def frontierRow: InternalRow = {
    val values: Seq[Expression] = output.zipWithIndex.map {
      case (_, i) if i == width => Literal(NotifyRows.Frontier, LongType)
      case (_, i) if i == width + 2 => Literal(UTF8String.fromString(Json.render(frontier.toJson)), StringType)
      case (a, _) => Literal(null, a.dataType)
    }
    UnsafeProjection.create(values)(InternalRow.empty).copy()
  }

  private def withStates(rows: Iterator[InternalRow], stateAt: UnsafeRow => UnsafeRow): Iterator[InternalRow] = {
    val groupOf = UnsafeProjection.create(by, output)
    val keyOf = UnsafeProjection.create(
      keys.map { a =>
        if (a.exprId == key.time.exprId) Literal(null, a.dataType)
        else if (a.exprId == key.mark.exprId) Literal(NotifyRows.State)
        else by(key.by.indexWhere(_.exprId == a.exprId))
      },
      output)
    val stateRow = {
      val value = AttributeReference("state", output.last.dataType)()
      val nothing = output.slice(width + 1, output.length - 1).map(a => Literal(null, a.dataType): Expression)
      UnsafeProjection.create((by :+ Literal(NotifyRows.State)) ++ nothing :+ value, output :+ value)
    }
    val both = new JoinedRow
    var group: UnsafeRow = null
    rows.flatMap { row =>
      val its = groupOf(row)
      if (its == group) Iterator.single(row)
      else {
        group = its.copy()
        Option(stateAt(keyOf(row))).iterator.map(value => stateRow(both(row, value)): InternalRow).concat(Iterator.single(row))
      }
    }
  }

  override protected def withNewChildInternal(newChild: SparkPlan): NotifyRestoreExec = copy(child = newChild)
}

/**
 * Above a user's processor. Keeps each key's state and requested notifications, removes delivered notifications, and passes
 * results on.
 */
final class NotifySaveExec(
    keyExpressions: Seq[Attribute],
    child: SparkPlan,
    stateInfo: Option[StatefulOperatorStateInfo],
    eventTimeWatermarkForLateEvents: Option[Long],
    eventTimeWatermarkForEviction: Option[Long],
    key: OperatorKey,
    state: TimedState,
    override val values: StructType)
    extends MarkedOperatorExec(keyExpressions, child, stateInfo, eventTimeWatermarkForLateEvents, eventTimeWatermarkForEviction,
      key, state) {

  override def shortName: String = MarkedOperator.Notify

  override protected def label: String = "StrandlineNotify"

  override protected def update(store: StateStore, times: OpenTimeIndex, input: Iterator[UnsafeRow]): Iterator[UnsafeRow] = {
    val columns = child.output
    val (mark, value) = (columns.indexWhere(_.exprId == key.mark.exprId), columns.length - 1)
    val keyOf = UnsafeProjection.create(keyExpressions, columns)
    val valueOf = UnsafeProjection.create(Seq(columns(value)), columns)
    val updated = longMetric("numUpdatedStateRows")
    def keep(row: UnsafeRow): Unit = {
      val entry = keyOf(row)
      if (row.getLong(mark) == NotifyRows.State && row.isNullAt(value)) {
        times.drop(entry)
        store.remove(entry)
      } else {
        times.add(entry, isNew = !store.keyExists(entry))
        store.put(entry, valueOf(row))
        updated += 1
      }
    }
    input.filter { row =>
      val isResult = row.getLong(mark) == NotifyRows.Output
      if (!isResult) keep(row)
      isResult
    }
  }

  /** Nothing: the processor has had the notifications that were due. */
  override protected def closed(entries: Iterator[UnsafeRowPair]): Iterator[UnsafeRow] = {
    entries.foreach(_ => ())
    Iterator.empty
  }

  override protected def otherCopyArgs: Seq[AnyRef] = Seq(key, state, values)

  override protected def withNewChildInternal(newChild: SparkPlan): NotifySaveExec =
    new NotifySaveExec(keyExpressions, newChild, stateInfo, eventTimeWatermarkForLateEvents, eventTimeWatermarkForEviction, key,
      state, values)
}
