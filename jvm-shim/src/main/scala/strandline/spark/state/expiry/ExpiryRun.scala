package strandline.spark.state.expiry

import java.util.Arrays

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.unsafe.Platform
import org.apache.spark.unsafe.array.LongArray
import org.apache.spark.unsafe.memory.MemoryBlock
import org.apache.spark.util.collection.unsafe.sort.RadixSort

/**
 * Keys of a state store, sorted by the expiry of their entries, one after another in one array. A key takes its own bytes and
 * twelve more. A run never changes, so versions of a store share it. `from` is the index of its first remaining entry.
 */
private[spark] final class ExpiryRun private (expiries: Array[Long], ends: Array[Int], bytes: Array[Byte], from: Int) {

  /** The number of entries. */
  def size: Int = expiries.length - from

  def isEmpty: Boolean = size == 0

  /** The memory in bytes. */
  def bytesTaken: Long = ExpiryRun.BytesOfAnEntry * expiries.length + bytes.length

  /** The least expiry. */
  def least: Long = expiries(from)

  /** The expiry of the `i`th entry. */
  def expiry(i: Int): Long = expiries(from + i)

  /** Whether an entry has this expiry. */
  def contains(expiry: Long): Boolean = {
    val at = closed(_ < expiry)
    at < size && this.expiry(at) == expiry
  }

  /** Points `key` to the `i`th key. */
  def read(i: Int, key: UnsafeRow): UnsafeRow = {
    val start = startOf(from + i)
    key.pointTo(bytes, Platform.BYTE_ARRAY_OFFSET + start.toLong, ends(from + i) - start)
    key
  }

  /** Returns how many of the first entries are closed. If `isClosed` holds of an expiry, it holds of all lesser ones. */
  def closed(isClosed: Long => Boolean): Int = {
    var (low, high) = (from, expiries.length)
    while (low < high) {
      val middle = (low + high) >>> 1
      if (isClosed(expiries(middle))) low = middle + 1 else high = middle
    }
    low - from
  }

  /** Returns the run without its first `n` entries. Copies the others if they are at most half of the array. */
  def drop(n: Int): ExpiryRun = {
    val rest = new ExpiryRun(expiries, ends, bytes, from + n)
    if (2 * rest.size > expiries.length) rest else rest.slice(rest.size)
  }

  /** Returns a run of the first `n` entries only. */
  def slice(n: Int): ExpiryRun = {
    val (start, until) = (startOf(from), startOf(from + n))
    val moved = Arrays.copyOfRange(ends, from, from + n)
    for (i <- moved.indices) moved(i) -= start
    new ExpiryRun(Arrays.copyOfRange(expiries, from, from + n), moved, Arrays.copyOfRange(bytes, start, until), 0)
  }

  private def startOf(i: Int): Int = if (i == 0) 0 else ends(i - 1)
}

private[spark] object ExpiryRun {
  private val BytesOfAnEntry = 12L

  /** Collects the entries of one batch, or of several runs. */
  final class Builder {
    private var expiries = new Array[Long](16)
    private var ends = new Array[Int](16)
    private var bytes = new Array[Byte](512)
    private var count = 0
    private var sorted = true

    def isEmpty: Boolean = count == 0

    def bytesTaken: Long = BytesOfAnEntry * count + written

    /** Adds an entry. Copies the key. */
    def add(expiry: Long, key: UnsafeRow): Unit = {
      reserve(key.getSizeInBytes)
      Platform.copyMemory(key.getBaseObject, key.getBaseOffset, bytes, Platform.BYTE_ARRAY_OFFSET + written.toLong,
        key.getSizeInBytes.toLong)
      sorted &&= count == 0 || expiries(count - 1) <= expiry
      expiries(count) = expiry
      ends(count) = written + key.getSizeInBytes
      count += 1
    }

    def addAll(run: ExpiryRun, key: UnsafeRow): Unit = for (i <- 0 until run.size) add(run.expiry(i), run.read(i, key))

    /** Returns the sorted run. */
    def result(): ExpiryRun = {
      val order = if (sorted) null else inOrder()
      val (outExpiries, outEnds, outBytes) = (new Array[Long](count), new Array[Int](count), new Array[Byte](written))
      var (at, i) = (0, 0)
      while (i < count) {
        val from = if (sorted) i else order(i)
        val start = if (from == 0) 0 else ends(from - 1)
        System.arraycopy(bytes, start, outBytes, at, ends(from) - start)
        at += ends(from) - start
        outExpiries(i) = expiries(from)
        outEnds(i) = at
        i += 1
      }
      new ExpiryRun(outExpiries, outEnds, outBytes, 0)
    }

    private def written: Int = if (count == 0) 0 else ends(count - 1)

    /** Returns the indices of the entries, sorted by expiry. */
    private def inOrder(): Array[Int] = {
      // Pairs of index and expiry, and the same space again for the sort.
      val pairs = new LongArray(MemoryBlock.fromLongArray(new Array[Long](4 * count)))
      for (i <- 0 until count) {
        pairs.set(2 * i, i.toLong)
        pairs.set(2 * i + 1, expiries(i))
      }
      val start = RadixSort.sortKeyPrefixArray(pairs, 0, count.toLong, 0, 7, false, true)
      Array.tabulate(count)(i => pairs.get(start + 2 * i).toInt)
    }

    private def reserve(size: Int): Unit = {
      if (count == expiries.length) {
        expiries = Arrays.copyOf(expiries, 2 * count)
        ends = Arrays.copyOf(ends, 2 * count)
      }
      if (bytes.length - written < size)
        bytes = Arrays.copyOf(bytes, (2L * bytes.length).max(written.toLong + size).min(Int.MaxValue - 8L).toInt)
    }
  }
}
