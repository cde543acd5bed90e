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
private[strandline] final class LayeredMap[V >: Null <: AnyRef] private (private var shared: List[LayeredMap.Table],
    expected: Int) {
  import LayeredMap._

  // The table that is written to, or null before the first write. After a scan it is not written to again.
  private var top: Table = _
  private var isScanned = false

  /**
   * Returns a map with the same content. This map must not be written to before it is forked again. The new map expects as many
   * writes as this one had, up to a bound: a map that was read from files has had all of them at once.
   */
  def fork(): LayeredMap[V] = new LayeredMap(layers, if (top == null) 0 else top.size.min(MostExpected))

  /** Returns the value of a key, or null. Remembers in `last` where a shared table has the key. */
  def get(key: UnsafeRow, last: Place = new Place): V = {
    val hash = key.hashCode
    val at = if (top == null) -1 else top.find(key, hash)
    if (at >= 0) top.valueAt(at).asInstanceOf[V] else sharedValue(key, hash, last)
  }

  /**
   * Sets the value of a key. Returns its previous value, or null. The map keeps the key itself, so copy a row that is reused.
   * It is faster with the `last` of a [[get]] of the same key.
   */
  def put(key: UnsafeRow, value: V, last: Place = new Place): V = {
    val hash = key.hashCode
    val table = writable()
    val at = table.slotOf(key, hash)
    if (table.keyAt(at) != null) table.replace(at, value).asInstanceOf[V]
    else {
      val previous = sharedValue(key, hash, last)
      table.fill(at, key, hash, value)
      previous
    }
  }

  /** Removes a key. Returns its value, or null. */
  def remove(key: UnsafeRow): V = {
    val hash = key.hashCode
    val at = if (top == null) -1 else top.find(key, hash)
    val place = new Place
    val value = if (at >= 0) top.valueAt(at).asInstanceOf[V] else sharedValue(key, hash, place)
    if (value != null) {
      // The stored key, because the caller may reuse its row.
      val stored = if (at >= 0) top.keyAt(at) else place.table.keyAt(place.at)
      writable().put(stored, hash, null)
    }
    value
  }

  /** Returns all entries as they are now. Later writes do not affect the iterator. */
  def iterator: Iterator[(UnsafeRow, V)] = {
    isScanned = true
    val tables = layers
    tables.iterator.zipWithIndex.flatMap { case (table, i) =>
      val above = tables.take(i)
      table.slots.filter(at => table.valueAt(at) != null && !above.exists(_.has(table, at))).map(at =>
        table.keyAt(at) -> table.valueAt(at).asInstanceOf[V])
    }
  }

  private def layers = if (top == null) shared else top :: shared

  /** Returns the value of a key in the topmost shared table that has the key, or null. */
  private def sharedValue(key: UnsafeRow, hash: Int, last: Place): V = {
    var tables = shared
    if (tables.nonEmpty && (tables.head eq last.table) && last.table.isAt(last.at, key, hash))
      last.table.valueAt(last.at).asInstanceOf[V]
    else {
      while (tables.nonEmpty) {
        val at = tables.head.find(key, hash)
        if (at >= 0) {
          last.table = tables.head
          last.at = at
          return last.table.valueAt(at).asInstanceOf[V]
        }
        tables = tables.tail
      }
      null
    }
  }

  private def writable(): Table = {
    if (top == null || isScanned) {
      // A batch mostly writes about as many keys as the one before. After a scan it may write few.
      val size = if (top == null) expected else 0
      shared = merged(layers)
      top = new Table(size)
      isScanned = false
    }
    top
  }
}

private[strandline] object LayeredMap {
  private val LeastSlots = 4
  private val MostExpected = 1 << 16

  def empty[V >: Null <: AnyRef]: LayeredMap[V] = new LayeredMap(Nil, 0)

  /** Where a shared table had a key. Not the map's own, because threads may share a map to read. */
  final class Place {
    private[LayeredMap] var table: Table = _
    private[LayeredMap] var at: Int = 0

    /** Lets the table go. */
    def forget(): Unit = table = null
  }

  private def merged(tables: List[Table]): List[Table] = tables match {
    case upper :: lower :: rest if lower.size < 4 * upper.size => merged(merge(upper, lower, isLowest = rest.isEmpty) :: rest)
    case _ => tables
  }

  /** Merges two tables. The lowest table needs no markers of removed keys. */
  private def merge(upper: Table, lower: Table, isLowest: Boolean): Table = {
    val table = new Table(upper.size + lower.size)
    upper.foreachSlot(at => if (!isLowest || upper.valueAt(at) != null) table.add(upper, at))
    lower.foreachSlot(at => if ((!isLowest || lower.valueAt(at) != null) && !upper.has(lower, at)) table.add(lower, at))
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

    /** Calls `f` with each occupied slot. */
    @inline def foreachSlot(f: Int => Unit): Unit = {
      var at = 0
      while (at < keys.length) {
        if (keys(at) != null) f(at)
        at += 1
      }
    }

    def keyAt(slot: Int): UnsafeRow = keys(slot)

    def valueAt(slot: Int): AnyRef = values(slot)

    /** Returns the slot of a key, or a negative number. */
    def find(key: UnsafeRow, hash: Int): Int = {
      val at = slotOf(key, hash)
      if (keys(at) == null) -1 else at
    }

    /** Whether this table has the key in `slot` of another table. */
    def has(other: Table, slot: Int): Boolean = find(other.keys(slot), other.hashes(slot)) >= 0

    /** Whether `slot` has the key. */
    def isAt(slot: Int, key: UnsafeRow, hash: Int): Boolean = hashes(slot) == hash && keys(slot) == key

    def put(key: UnsafeRow, hash: Int, value: AnyRef): Unit = {
      val at = slotOf(key, hash)
      if (keys(at) == null) fill(at, key, hash, value) else values(at) = value
    }

    /** Sets the value of an occupied slot. Returns its previous value. */
    def replace(slot: Int, value: AnyRef): AnyRef = {
      val previous = values(slot)
      values(slot) = value
      previous
    }

    /** Adds an entry of another table. This table must not have its key. */
    def add(other: Table, slot: Int): Unit =
      fill(freeSlot(other.hashes(slot)), other.keys(slot), other.hashes(slot), other.values(slot))

    /** Fills a free slot, the one that [[slotOf]] has returned for this key. */
    def fill(at: Int, key: UnsafeRow, hash: Int, value: AnyRef): Unit = {
      keys(at) = key
      hashes(at) = hash
      values(at) = value
      count += 1
      if (count * 3L > keys.length * 2L) grow()
    }

    /** Returns the slot of a key, or the free slot where it belongs. */
    def slotOf(key: UnsafeRow, hash: Int): Int = {
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

    private def slotsFor(expected: Int): Int =
      Integer.highestOneBit((expected * 3L / 2).min(1 << 29).toInt.max(LeastSlots / 2)) * 2
  }
}
