package org.apache.spark.sql.execution.streaming.state.strandline

import org.apache.spark.sql.catalyst.expressions.UnsafeRow

/**
 * A map from rows to values. A [[fork]] costs nothing: the two maps share their tables, which neither changes any more.
 *
 * Each map writes to one hash table of its own, which lies above the shared tables. A key without a value in it is a removed
 * key. Before the first write, the topmost shared table is merged with the one below it unless that one has at least four times
 * as many keys. So there are few tables, and each key is moved a logarithmic number of times (log-structured merge tree: O'Neil
 * et al., Acta Informatica 33, 1996).
 *
 * Once a map is no longer written to, many threads may read it and fork it.
 */
private[strandline] final class LayeredMap[V >: Null <: AnyRef] private (private var shared: List[LayeredMap.Table]) {
  import LayeredMap._

  // The table that is written to, or null before the first write. After a scan it is not written to again.
  private var top: Table = _
  private var isScanned = false

  /** Returns a map with the same content. This map must not be written to before it is forked again. */
  def fork(): LayeredMap[V] = new LayeredMap(layers)

  /** Returns the value of a key, or null. */
  def get(key: UnsafeRow): V = find(key, key.hashCode)((table, at) => table.valueAt(at).asInstanceOf[V])

  /**
   * Sets the value of a key. Returns its previous value, or null. The map keeps the key itself, so copy a row that is reused.
   */
  def put(key: UnsafeRow, value: V): V = {
    val hash = key.hashCode
    val previous = find(key, hash)((table, at) => table.valueAt(at).asInstanceOf[V])
    writable().put(key, hash, value)
    previous
  }

  /** Removes a key. Returns its value, or null. */
  def remove(key: UnsafeRow): V = {
    val hash = key.hashCode
    find(key, hash) { (table, at) =>
      val value = table.valueAt(at).asInstanceOf[V]
      // The stored key, because the caller may reuse its row.
      if (value != null) writable().put(table.keyAt(at), hash, null)
      value
    }
  }

  /** Returns all entries as they are now. Later writes do not affect the iterator. */
  def iterator: Iterator[(UnsafeRow, V)] = {
    isScanned = true
    val tables = layers
    tables.iterator.zipWithIndex.flatMap { case (table, i) =>
      val above = tables.take(i)
      table.slots.filter(at => table.valueAt(at) != null && !above.exists(_.has(table, at))).map(at => table.keyAt(at) -> table.valueAt(at).asInstanceOf[V])
    }
  }

  private def layers = if (top == null) shared else top :: shared

  /** Applies `found` to the topmost place of a key. Returns null if no table has the key. */
  private def find(key: UnsafeRow, hash: Int)(found: (Table, Int) => V): V = {
    var at = if (top == null) -1 else top.find(key, hash)
    if (at >= 0) found(top, at)
    else {
      var below = shared
      while (below.nonEmpty) {
        at = below.head.find(key, hash)
        if (at >= 0) return found(below.head, at)
        below = below.tail
      }
      null
    }
  }

  private def writable(): Table = {
    if (top == null || isScanned) {
      shared = merged(layers)
      top = new Table
      isScanned = false
    }
    top
  }
}

private[strandline] object LayeredMap {
  private val LeastSlots = 4

  def empty[V >: Null <: AnyRef]: LayeredMap[V] = new LayeredMap(Nil)

  private def merged(tables: List[Table]): List[Table] = tables match {
    case upper :: lower :: rest if lower.size < 4 * upper.size => merged(merge(upper, lower, isLowest = rest.isEmpty) :: rest)
    case _ => tables
  }

  /** Merges two tables. The lowest table needs no markers of removed keys. */
  private def merge(upper: Table, lower: Table, isLowest: Boolean): Table = {
    val table = new Table(upper.size + lower.size)
    upper.slots.foreach(at => if (!isLowest || upper.valueAt(at) != null) table.add(upper, at))
    lower.slots.foreach(at => if ((!isLowest || lower.valueAt(at) != null) && !upper.has(lower, at)) table.add(lower, at))
    table
  }

  /**
   * A hash table with open addressing: linear probing, at most two thirds full. A removed key stays in its slot, without a
   * value.
   */
  private final class Table(expected: Int = 0) {
    private var keys = new Array[UnsafeRow](slotsFor(expected))
    private var values = new Array[AnyRef](keys.length)
    private var hashes = new Array[Int](keys.length)
    private var count = 0

    /** The number of keys, including removed ones. */
    def size: Int = count

    /** The occupied slots. */
    def slots: Iterator[Int] = Iterator.range(0, keys.length).filter(keys(_) != null)

    def keyAt(slot: Int): UnsafeRow = keys(slot)

    def valueAt(slot: Int): AnyRef = values(slot)

    /** Returns the slot of a key, or a negative number. */
    def find(key: UnsafeRow, hash: Int): Int = {
      val at = slotOf(key, hash)
      if (keys(at) == null) -1 else at
    }

    /** Whether this table has the key in `slot` of another table. */
    def has(other: Table, slot: Int): Boolean = find(other.keys(slot), other.hashes(slot)) >= 0

    def put(key: UnsafeRow, hash: Int, value: AnyRef): Unit = {
      val at = slotOf(key, hash)
      if (keys(at) == null) fill(at, key, hash, value) else values(at) = value
    }

    /** Adds an entry of another table. This table must not have its key. */
    def add(other: Table, slot: Int): Unit = fill(freeSlot(other.hashes(slot)), other.keys(slot), other.hashes(slot), other.values(slot))

    private def fill(at: Int, key: UnsafeRow, hash: Int, value: AnyRef): Unit = {
      keys(at) = key
      hashes(at) = hash
      values(at) = value
      count += 1
      if (count * 3L > keys.length * 2L) grow()
    }

    private def slotOf(key: UnsafeRow, hash: Int): Int = {
      val mask = keys.length - 1
      var at = hash & mask
      while (keys(at) != null && !(hashes(at) == hash && keys(at) == key)) at = (at + 1) & mask
      at
    }

    private def freeSlot(hash: Int): Int = {
      val mask = keys.length - 1
      var at = hash & mask
      while (keys(at) != null) at = (at + 1) & mask
      at
    }

    private def grow(): Unit = {
      val (oldKeys, oldValues, oldHashes) = (keys, values, hashes)
      keys = new Array(2 * oldKeys.length)
      values = new Array(keys.length)
      hashes = new Array(keys.length)
      for (i <- oldKeys.indices if oldKeys(i) != null) {
        val at = freeSlot(oldHashes(i))
        keys(at) = oldKeys(i)
        hashes(at) = oldHashes(i)
        values(at) = oldValues(i)
      }
    }

    private def slotsFor(expected: Int): Int = Integer.highestOneBit((expected * 3L / 2).min(1 << 29).toInt.max(LeastSlots / 2)) * 2
  }
}
