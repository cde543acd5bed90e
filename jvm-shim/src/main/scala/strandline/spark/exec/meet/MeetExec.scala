package strandline.spark.exec.meet

import org.apache.spark.sql.catalyst.InternalRow
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
 * A join across times: rows of two sides with equal keys meet once, at the least upper bound of their times, in the batch in
 * which the later one arrives.
 *
 * A row of the input has the struct of one side; that of the other side is null. A pair has both. What is kept holds no
 * frontier back: a pair's time is at or after that of the row that arrives. Only the left rows of an anti join wait until their
 * own times are closed.
 *
 * The state's key is a slot, a number, and the key columns ([[MeetRows]]). A slot is the last time of an outer time, so that all
 * that is kept within it is removed when it closes; or the last time of all, for what is kept for good. A left row that waits is
 * at its own time.
 */
final class MeetExec(
    keyExpressions: Seq[Attribute],
    child: SparkPlan,
    stateInfo: Option[StatefulOperatorStateInfo],
    eventTimeWatermarkForLateEvents: Option[Long],
    eventTimeWatermarkForEviction: Option[Long],
    key: OperatorKey,
    val form: MeetForm,
    state: TimedState)
    extends MarkedOperatorExec(keyExpressions, child, stateInfo, eventTimeWatermarkForLateEvents, eventTimeWatermarkForEviction,
      key, state) {

  // A batch in which one side has no rows at all has a plan without that side, and so without its nulls. The state has them.
  override def output: Seq[Attribute] = child.output.map(_.withNullability(true))

  override def shortName: String = MarkedOperator.Meet

  override protected def label: String = s"StrandlineMeet $form"

  override protected def values: StructType = MeetExec.values(fromAttributes(output))

  /** By key, then by time in an order that extends the partial order. The right rows of an anti join come first. */
  private val sort = {
    val first = if (form.how == MeetKind.Anti) Seq(SortOrder(IsNotNull(form.left.column), Ascending)) else Nil
    SortExec((key.by.map(SortOrder(_, Ascending)) ++ first) :+ SortOrder(key.time, Ascending), global = false, child)
  }

  override protected def update(store: StateStore, times: OpenTimeIndex, input: Iterator[UnsafeRow]): Iterator[UnsafeRow] = {
    val task = new MeetTask(store, times)
    sorted(sort, input).flatMap(task.take) ++ task.waited
  }

  /** Nothing: what has come out has met, or has waited. */
  override protected def closed(entries: Iterator[UnsafeRowPair]): Iterator[UnsafeRow] = {
    entries.foreach(_ => ())
    Iterator.empty
  }

  /** The work of a task. */
  private final class MeetTask(store: StateStore, times: OpenTimeIndex) {
    private val columns = output
    private val timeInRow = ordinal(key.time, columns)
    private val markInKey = ordinal(key.mark, keyExpressions)
    private val markInRow = ordinal(key.mark, columns)
    private val (leftInRow, rightInRow) = (ordinal(form.left.column, columns), ordinal(form.right.column, columns))
    private val at = new MeetTimes(form, timeInRow)
    private val rows = new MeetRows(store, times, markInKey, markInRow, head, () => longMetric("numUpdatedStateRows") += 1)

    private val slotTime = AttributeReference("slot", key.time.dataType)()
    private val atSlot = new JoinedRow
    private val slotRow = new GenericInternalRow(1)
    private val keyOf = UnsafeProjection.create(keyExpressions.map { a =>
        if (a.exprId == key.time.exprId) slotTime
        else if (a.exprId == key.mark.exprId) Literal(0L)
        else SparkInternals.normalized(a)
      }, columns :+ slotTime)
    private val groupOf = UnsafeProjection.create(key.by.map(SparkInternals.normalized(_)), columns)
    private var last: UnsafeRow = _
    private val hasNullKey = Predicate.create(key.by.map(IsNull(_)).reduceOption[Expression](Or(_, _)).getOrElse(
        Literal.FalseLiteral), columns)

    private val (right, pairTime) = (columns.map(_.newInstance()), AttributeReference("pair", key.time.dataType)())
    private val pairOf = UnsafeProjection.create(
      columns.map { a =>
        if (a.exprId == key.time.exprId) pairTime
        else if (a.exprId == key.mark.exprId) Literal(0L)
        else if (a.exprId == form.right.column.exprId) right(rightInRow)
        else a
      }, (columns ++ right) :+ pairTime)
    private val (pair, timed, timeRow) = (new JoinedRow, new JoinedRow, new GenericInternalRow(1))
    private val nothing = new GenericInternalRow(columns.length)

    // Left rows of an anti join have numbers that are unique in the store.
    private var number = (store.version << MeetExec.BitsOfABatch) + 1

    /** Takes a row in. Returns what comes out. */
    def take(row: UnsafeRow): Iterator[UnsafeRow] = {
      // Rows of an anti join that have waited in the state are looked at after those of all keys.
      if (form.how != MeetKind.Anti) beginKey(groupOf(row))
      val side = if (row.isNullAt(leftInRow)) form.right else form.left
      val isLeft = side.number == 0
      lazy val time = at.of(row)
      if (form.how == MeetKind.Anti && isLeft) wait(row, time)
      else if (form.how != MeetKind.Distinct && hasNullKey.eval(row)) Iterator.empty // a null equals nothing
      else if (form.how == MeetKind.Semi && isLeft) takeSemi(row, time)
      else if (!keep(side, row, time)) Iterator.empty
      else form.how match {
        case MeetKind.Inner => partners(side, row, time).map(pairWith(isLeft, row, time, _))
        case MeetKind.Semi => at.slots(side, time, form.left, times.open).flatMap(slot =>
            rows.meetFirst(entryAt(row, slot), form.left)(at.meets(side, time, _, form.left))).map(left =>
            emit(left, nothing, at.together(left, time)))
        case MeetKind.Distinct => Iterator.single(emit(row, nothing, time))
        case MeetKind.Anti => Iterator.empty
      }
    }

    private def beginKey(group: UnsafeRow): Unit = if (group != last) {
      rows.nextKey()
      last = group.copy()
    }

    /** Returns the left rows of an anti join whose time this batch closes and that have waited in the state. */
    def waited: Iterator[UnsafeRow] =
      if (form.how != MeetKind.Anti) Iterator.empty
      else {
        val rows = times.closing().filter(entry => (entry.key.getLong(markInKey) & 1L) == 0).map(_.value.copy())
        rows.filter(row => isAlone(row, at.of(row))).map(row => emit(row, nothing, at.of(row)))
      }

    /** Keeps a left row of an anti join until its time is closed. Returns it if that is now, and it is alone. */
    private def wait(row: UnsafeRow, time: Array[Long]): Iterator[UnsafeRow] = {
      val entry = entryAt(row, form.domain.value(time, 0))
      entry.setLong(markInKey, number << 1)
      number += 1
      if (times.passes(entry)) Iterator.single(row).filter(isAlone(_, time)).map(emit(_, nothing, time))
      else {
        times.add(entry, isNew = true)
        store.put(entry, row)
        longMetric("numUpdatedStateRows") += 1
        Iterator.empty
      }
    }

    private def isAlone(row: UnsafeRow, time: Array[Long]): Boolean =
      hasNullKey.eval(row) || !rows.list(entryAt(row, at.slot(form.right, time)), form.right).exists(at.isUntil(_, time))

    /** A left row comes out at the least time at which it meets a partner. Those that come later are at later times. */
    private def takeSemi(row: UnsafeRow, time: Array[Long]): Iterator[UnsafeRow] = {
      val met = partners(form.left, row, time).map(at.together(_, time)).reduceOption((a, b) =>
        if (form.domain.lessEqual(a, b, 0)) a else b)
      val isNew = met.isDefined && !form.left.isDistinct || keep(form.left, row, time, met.isDefined)
      met.iterator.filter(_ => isNew).map(emit(row, nothing, _))
    }

    // What makes rows of a side equal: -0.0 is 0.0, and all NaN are one. Two projections, because each has a row of its own.
    private val contentOf = Seq(form.left, form.right).map { side =>
      def content = UnsafeProjection.create(Seq(SparkInternals.normalized(side.column)), columns)
      side -> (content, content)
    }.toMap

    /** Keeps a row. Returns false if it was there already. */
    private def keep(side: MeetSide, row: UnsafeRow, time: Array[Long], isMet: Boolean = false): Boolean = {
      val entry = entryAt(row, at.slot(side, time))
      if (side.isDistinct) {
        val (mine, theirs) = contentOf(side)
        val content = mine(row)
        rows.appendLeast(entry, side, row, MeetRows.hashOf(content), found => theirs(found) == content, at.order(_, time), isMet)
      } else {
        rows.append(entry, side, row, isMet)
        true
      }
    }

    /** Returns the rows of the other side that a row meets. */
    private def partners(side: MeetSide, row: UnsafeRow, time: Array[Long]): Iterator[UnsafeRow] = {
      val other = if (side.number == 0) form.right else form.left
      at.slots(side, time, other, times.open).flatMap(slot =>
        rows.list(entryAt(row, slot), other).filter(at.meets(side, time, _,
            other)))
    }

    private def entryAt(row: UnsafeRow, slot: Any): UnsafeRow = {
      slotRow.update(0, slot)
      keyOf(atSlot(row, slotRow))
    }

    private def pairWith(isLeft: Boolean, row: UnsafeRow, time: Array[Long], partner: UnsafeRow): UnsafeRow = {
      val together = at.together(partner, time)
      if (isLeft) emit(row, partner, together) else emit(partner, row, together)
    }

    private def emit(left: InternalRow, right: InternalRow, time: Array[Long]): UnsafeRow = {
      timeRow.update(0, form.domain.value(time, 0))
      pairOf(timed(pair(left, right), timeRow))
    }
  }

  private def ordinal(column: Attribute, among: Seq[Attribute]): Int = among.indexWhere(_.exprId == column.exprId)

  /** The row of a list's head: only its mark counts. */
  private def head: UnsafeProjection =
    UnsafeProjection.create(output.map(a => if (a.exprId == key.mark.exprId) Literal(0L) else Literal(null, a.dataType)))

  override protected def otherCopyArgs: Seq[AnyRef] = Seq(key, form, state)

  override protected def withNewChildInternal(newChild: SparkPlan): MeetExec =
    new MeetExec(keyExpressions, newChild, stateInfo, eventTimeWatermarkForLateEvents, eventTimeWatermarkForEviction, key, form,
      state)
}

object MeetExec {

  /** The schema of the state's values: the head of a list has only nulls beside its mark. */
  def values(rows: StructType): StructType = StructType(rows.map(_.copy(nullable = true)))

  /** A partition gets fewer rows in a batch than this power of two. The other bits of a number count the batches. */
  private val BitsOfABatch = 33
}
