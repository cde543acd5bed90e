package strandline.spark.exec.meet

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import strandline.spark.time.TimeDomain

/** The times of the rows of a [[MeetExec]]: which of them meet, when, and in which slot they are kept. */
private[meet] final class MeetTimes(form: MeetForm, timeInRow: Int) {
  private val domain: TimeDomain = form.domain
  private val other = new Array[Long](domain.width)

  /** The time of a row. */
  def of(row: InternalRow): Array[Long] = read(row, timeInRow, new Array[Long](domain.width))

  /** Whether the time of the row is ≤ `time`. */
  def isUntil(row: InternalRow, time: Array[Long]): Boolean = domain.lessEqual(read(row, timeInRow, other), time, 0)

  /** Whether the time of the row is ≤ `time`, and whether `time` is ≤ that of the row. */
  def order(row: InternalRow, time: Array[Long]): (Boolean, Boolean) = {
    val its = read(row, timeInRow, other)
    (domain.lessEqual(its, time, 0), domain.lessEqual(time, its, 0))
  }

  /** The least upper bound of `time` and the time of the row. */
  def together(row: InternalRow, time: Array[Long]): Array[Long] = {
    val joined = new Array[Long](domain.width)
    domain.join(read(row, timeInRow, other), time, 0, joined)
    joined
  }

  /**
   * Whether a row at `time` of one side meets the row of the other side, with regard to their outer times: both are the same, or
   * that of a side that is kept for good is before.
   */
  def meets(side: MeetSide, time: Array[Long], partner: InternalRow, of: MeetSide): Boolean = (side.forGood, of.forGood) match {
    case (true, true) => true
    case (false, false) => true // in one slot
    case (false, true) => form.outer.forall(_.lessEqual(read(partner, timeInRow, other), time, 0))
    case (true, false) => form.outer.forall(_.lessEqual(time, read(partner, timeInRow, other), 0))
  }

  /** The slot of a row at `time`: the last time of its outer time, or of all times. */
  def slot(side: MeetSide, time: Array[Long]): Any = {
    val end = domain.maximum
    if (!side.forGood) Array.copy(time, 0, end, 0, form.outerWidth)
    domain.value(end, 0)
  }

  /** The times of the other side's slots in which a row at `time` may have partners, among the open ones of the state. */
  def slots(side: MeetSide, time: Array[Long], of: MeetSide, open: => Iterator[UnsafeRow]): Iterator[Any] =
    if (side.forGood && !of.forGood) {
      val mine = slot(of, time)
      val others = open.flatMap { prefix =>
        val slot = read(prefix, 0, other)
        val mayHave = isEnd(slot) && form.outer.exists(outer => outer.lessEqual(time, slot, 0) && !outer.lessEqual(slot, time, 0))
        Option.when(mayHave)(domain.value(slot, 0))
      }
      Iterator.single(mine) ++ others
    } else Iterator.single(slot(of, time))

  private def isEnd(slot: Array[Long]): Boolean = {
    val end = domain.maximum
    !slot.sameElements(end) && (form.outerWidth until domain.width).forall(leaf => slot(leaf) == end(leaf))
  }

  private def read(row: InternalRow, ordinal: Int, into: Array[Long]): Array[Long] = {
    if (!domain.read(row, ordinal, into, 0)) throw new IllegalStateException("a row that meets others has no time")
    into
  }
}
