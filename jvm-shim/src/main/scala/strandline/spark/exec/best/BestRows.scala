package strandline.spark.exec.best

import java.util.Arrays.copyOf

import org.apache.spark.sql.catalyst.expressions.UnsafeRow

/**
 * The best row of each key. A hash table with open addressing that is at most half full. The rows lie one after another, so that
 * reading them all does not visit the table.
 */
private[best] final class BestRows {
  private var keys = new Array[UnsafeRow](BestRows.LeastRows)
  private var rows = new Array[UnsafeRow](BestRows.LeastRows)
  private var hashes = new Array[Int](BestRows.LeastRows)
  // The number of a row, and 1 more. Of a free slot it is 0.
  private var slots = new Array[Int](2 * BestRows.LeastRows)
  private var count = 0
  // The key that was asked for last: its hash and its slot.
  private var (hash, slot) = (0, 0)

  /** Returns the row of a key, or null. */
  def get(key: UnsafeRow): UnsafeRow = {
    hash = key.hashCode
    slot = hash & (slots.length - 1)
    while (slots(slot) != 0 && !(hashes(slots(slot) - 1) == hash && keys(slots(slot) - 1) == key))
      slot = (slot + 1) & (slots.length - 1)
    if (slots(slot) == 0) null else rows(slots(slot) - 1)
  }

  /** Adds the key that [[get]] has just not found. The table keeps both rows, so copy what is reused. */
  def add(key: UnsafeRow, row: UnsafeRow): Unit = {
    if (count == keys.length) grow()
    keys(count) = key
    rows(count) = row
    hashes(count) = hash
    count += 1
    slots(slot) = count
  }

  /** Returns the rows, in the order in which their keys were added. */
  def iterator: Iterator[UnsafeRow] = rows.iterator.take(count)

  private def grow(): Unit = {
    val size = 2 * count
    keys = copyOf(keys, size)
    rows = copyOf(rows, size)
    hashes = copyOf(hashes, size)
    slots = new Array[Int](2 * size)
    for (number <- 1 to count) slots(free(hashes(number - 1))) = number
    slot = free(hash)
  }

  private def free(hash: Int): Int = {
    var at = hash & (slots.length - 1)
    while (slots(at) != 0) at = (at + 1) & (slots.length - 1)
    at
  }
}

private object BestRows {
  private val LeastRows = 64
}
