package strandline.spark.exec.meet

import scala.collection.mutable

import org.apache.spark.sql.catalyst.expressions.{UnsafeProjection, UnsafeRow, XXH64}
import org.apache.spark.sql.execution.streaming.state.StateStore
import strandline.spark.state.OpenTimeIndex

/**
 * The rows that a task of [[MeetExec]] keeps: of each slot, key and side a list, the newest row first.
 *
 * An entry's key is the slot (a time, see [[MeetTimes]]), a number in the column of the mark, and the key's columns. The head of
 * a list has the number of its side, 0 or 1. A row has a number whose last bit is the side's. The mark of a value leads to the
 * next row of the list: its number, doubled, and 1 more for a row that is marked as met. At the end it is the head's.
 *
 * Of a slot that the batch both opens and closes, rows are in memory as long as there is room, and never reach the store. Where
 * the rows of a batch come key by key, and nobody looks back, [[nextKey]] makes room.
 */
private[meet] final class MeetRows(
    store: StateStore,
    times: OpenTimeIndex,
    markInKey: Int,
    markInRow: Int,
    head: UnsafeProjection,
    updated: () => Unit) {
  private val passing = mutable.HashMap.empty[UnsafeRow, UnsafeRow]
  private var room = MeetRows.MostBytes

  /** Forgets the rows in memory: those of another key come, and nobody asks for these any more. */
  def nextKey(): Unit = if (passing.nonEmpty) {
    passing.clear()
    room = MeetRows.MostBytes
  }

  /** Returns the rows of a list. The list must not change meanwhile, and each row is valid until the next one. */
  def list(slot: UnsafeRow, side: MeetSide): Iterator[UnsafeRow] = numbered(slot.copy(), side).map(_._2)

  /** Adds a row to a list. Equal rows are all in it. */
  def append(slot: UnsafeRow, side: MeetSide, row: UnsafeRow, isMet: Boolean = false): Unit = {
    val before = first(slot, side)
    insert(slot, side, row, before, if (before == side.number) side.number + 2L else before + 2L, isMet)
  }

  /**
   * Adds a row to a list in which equal rows are once at each of their least times. Returns false if the list has the row
   * already, at its time or before.
   *
   * @param equal Compares a row of the list with the row.
   * @param order Compares their times: whether the first is ≤ the second, and whether the second is ≤ the first.
   */
  def appendLeast(slot: UnsafeRow, side: MeetSide, row: UnsafeRow, hash: Long, equal: UnsafeRow => Boolean,
      order: UnsafeRow => (Boolean, Boolean), isMet: Boolean = false): Boolean = {
    var number = MeetRows.numberOf(hash, side)
    while (true) {
      val found = at(slot, number)
      if (found == null) {
        insert(slot, side, row, first(slot, side), number, isMet)
        return true
      }
      if (equal(found)) {
        val (isAfter, isBefore) = order(found)
        if (isAfter) return false
        if (isBefore) {
          replace(slot, number, row, found.getLong(markInRow))
          return true
        }
      }
      number = MeetRows.after(number)
    }
    throw new IllegalStateException
  }

  /** Returns the rows of a list that meet their first partner, by `meets`. They count as met from then on. */
  def meetFirst(slot: UnsafeRow, side: MeetSide)(meets: UnsafeRow => Boolean): Iterator[UnsafeRow] = {
    val entry = slot.copy()
    numbered(entry, side).filter { case (_, row) => (row.getLong(markInRow) & 1L) == 0 && meets(row) }.map {
      case (number, found) =>
        val row = found.copy()
        replace(entry, number, row, row.getLong(markInRow) | 1L)
        row
    }
  }

  private def numbered(entry: UnsafeRow, side: MeetSide): Iterator[(Long, UnsafeRow)] =
    Iterator.unfold(first(entry, side)) { number =>
      if (number == side.number) None
      else {
        val row = at(entry, number)
        Some((number, row) -> (row.getLong(markInRow) >> 1))
      }
    }

  private def first(slot: UnsafeRow, side: MeetSide): Long = {
    val found = at(slot, side.number.toLong)
    if (found == null) side.number.toLong else found.getLong(markInRow)
  }

  private def at(slot: UnsafeRow, number: Long): UnsafeRow = {
    slot.setLong(markInKey, number)
    val found = if (passing.isEmpty) null else passing.getOrElse(slot, null)
    if (found != null) found else store.get(slot)
  }

  private def insert(slot: UnsafeRow, side: MeetSide, row: UnsafeRow, before: Long, number: Long, isMet: Boolean): Unit = {
    row.setLong(markInRow, before << 1 | (if (isMet) 1L else 0L))
    put(slot, number, row, isNew = true)
    val its = head(row)
    its.setLong(markInRow, number)
    put(slot, side.number.toLong, its, isNew = before == side.number)
    updated()
  }

  private def replace(slot: UnsafeRow, number: Long, row: UnsafeRow, mark: Long): Unit = {
    row.setLong(markInRow, mark)
    put(slot, number, row, isNew = false)
    updated()
  }

  private def put(slot: UnsafeRow, number: Long, row: UnsafeRow, isNew: Boolean): Unit = {
    slot.setLong(markInKey, number)
    val bytes = slot.getSizeInBytes + row.getSizeInBytes + MeetRows.BytesOfAnEntry
    if (times.passes(slot) && (if (isNew) room >= bytes else passing.contains(slot))) {
      if (isNew) room -= bytes
      passing(slot.copy()) = row.copy()
    } else {
      times.add(slot, isNew)
      store.put(slot, row)
    }
  }
}

private[meet] object MeetRows {

  /** How much a task keeps in memory of what its batch opens and closes. */
  private val MostBytes = 32L << 20

  // Two rows, their arrays, and an entry of the map.
  private val BytesOfAnEntry = 180L

  // A doubled number is a long, and so is a number with the bit of its side.
  private val MostNumbers = 1L << 60

  private def numberOf(hash: Long, side: MeetSide): Long = (((hash & (MostNumbers - 1)) | 1L) << 1) | side.number

  private def after(number: Long): Long = {
    val next = number + 2
    if (next >> 1 >= MostNumbers) (number & 1L) + 2 else next
  }

  /** Returns a hash of a struct's bytes. */
  def hashOf(struct: UnsafeRow): Long =
    XXH64.hashUnsafeBytes(struct.getBaseObject, struct.getBaseOffset, struct.getSizeInBytes, 42L)
}
