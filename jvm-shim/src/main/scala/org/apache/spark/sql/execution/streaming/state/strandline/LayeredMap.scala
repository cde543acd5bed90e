package org.apache.spark.sql.execution.streaming.state.strandline

import org.apache.spark.sql.catalyst.expressions.UnsafeRow

/**
 * Values by row. A [[fork]] costs nothing: it shares with the map that it was made of what neither writes to again.
 *
 * What a map has been given lies in one hash table, above those that it shares, where a key without a value says that the key is
 * gone. Before a map is written to, a table is merged with the one below where that has not four times as many keys. So there are few, and
 * a key is moved a logarithmic number of times (the log-structured merge tree: O'Neil et al., Acta Informatica 33, 1996).
 *
 * Many threads may read a map, and fork it, once it is not written to any more.
 */
private[strandline] final class LayeredMap[V >: Null <: AnyRef] private (private var shared: List[LayeredMap.Table]) {
  import LayeredMap._

  // What is written to; null as long as nothing is. Once it is scanned it is not written to again.
  private var own: Table = _
  private var isScanned = false

  /** A map that begins as this one, which is not written to again before it is forked anew. */
  def fork(): LayeredMap[V] = new LayeredMap(layers)

  /** The value of a key, or null. */
  def get(key: UnsafeRow): V = find(key, key.hashCode)((table, at) => table.valueAt(at).asInstanceOf[V])

  /** Gives the key that value, and returns what it had before, or null. The key is kept: a row that is used again is to be copied. */
  def put(key: UnsafeRow, value: V): V = {
    val hash = key.hashCode
    val previous = find(key, hash)((table, at) => table.valueAt(at).asInstanceOf[V])
    writable().put(key, hash, value)
    previous
  }

  /** Takes the key out, and returns what it had, or null. */
  def remove(key: UnsafeRow): V = {
    val hash = key.hashCode
    find(key, hash) { (table, at) =>
      val value = table.valueAt(at).asInstanceOf[V]
      // The key that is kept, for the one that was given may be used again.
      if (value != null) writable().put(table.keyAt(at), hash, null)
      value
    }
  }

  /** All keys with their values as they are now, whatever is written meanwhile. */
  def iterator: Iterator[(UnsafeRow, V)] = {
    isScanned = true
    val tables = layers
    tables.iterator.zipWithIndex.flatMap { case (table, i) =>
      val above = tables.take(i)
      table.slots.filter(at => table.valueAt(at) != null && !above.exists(_.has(table, at))).map(at => table.keyAt(at) -> table.valueAt(at).asInstanceOf[V])
    }
  }

  private def layers = if (own == null) shared else own :: shared

  /** What `found` makes of the uppermost place of a key, or null. */
  private def find(key: UnsafeRow, hash: Int)(found: (Table, Int) => V): V = {
    var at = if (own == null) -1 else own.find(key, hash)
    if (at >= 0) found(own, at)
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
    if (own == null || isScanned) {
      shared = merged(layers)
      own = new Table
      isScanned = false
    }
    own
  }
}

private[strandline] object LayeredMap {
  private val LeastSlots = 4

  def empty[V >: Null <: AnyRef]: LayeredMap[V] = new LayeredMap(Nil)

  private def merged(tables: List[Table]): List[Table] = tables match {
    case upper :: lower :: rest if lower.size < 4 * upper.size => merged(both(upper, lower, isLowest = rest.isEmpty) :: rest)
    case _ => tables
  }

  /** What two tables say together. Below the lowest there is nothing that a key could be gone from. */
  private def both(upper: Table, lower: Table, isLowest: Boolean): Table = {
    val table = new Table(upper.size + lower.size)
    upper.slots.foreach(at => if (!isLowest || upper.valueAt(at) != null) table.add(upper, at))
    lower.slots.foreach(at => if ((!isLowest || lower.valueAt(at) != null) && !upper.has(lower, at)) table.add(lower, at))
    table
  }

  /** A hash table with open addresses: linear probing, at most two thirds full. A key stays where it is, without a value when it is gone. */
  private final class Table(expected: Int = 0) {
    private var keys = new Array[UnsafeRow](slotsFor(expected))
    private var values = new Array[AnyRef](keys.length)
    private var hashes = new Array[Int](keys.length)
    private var count = 0

    /** How many keys it has, with those that are gone. */
    def size: Int = count

    /** The places where keys are. */
    def slots: Iterator[Int] = Iterator.range(0, keys.length).filter(keys(_) != null)

    def keyAt(slot: Int): UnsafeRow = keys(slot)

    def valueAt(slot: Int): AnyRef = values(slot)

    /** The place of a key, or a negative number. */
    def find(key: UnsafeRow, hash: Int): Int = {
      val at = slotOf(key, hash)
      if (keys(at) == null) -1 else at
    }

    /** Whether it has the key that is there in another table. */
    def has(other: Table, slot: Int): Boolean = find(other.keys(slot), other.hashes(slot)) >= 0

    def put(key: UnsafeRow, hash: Int, value: AnyRef): Unit = {
      val at = slotOf(key, hash)
      if (keys(at) == null) fill(at, key, hash, value) else values(at) = value
    }

    /** Adds what is there in another table, and not in this one. */
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
