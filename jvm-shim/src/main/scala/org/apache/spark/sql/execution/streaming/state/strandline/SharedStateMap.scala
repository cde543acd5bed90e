package org.apache.spark.sql.execution.streaming.state.strandline

import java.util.AbstractMap.SimpleImmutableEntry
import java.util.Map.Entry

import org.apache.spark.sql.catalyst.expressions.{BoundReference, Expression, UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.execution.streaming.state.{
  HDFSBackedStateStoreMap, KeyValueIntegrityVerifier, UnsafeRowPair, UnsafeRowWrapper
}
import org.apache.spark.sql.types.StructType
import org.apache.spark.unsafe.array.ByteArrayMethods
import org.apache.spark.util.KnownSizeEstimation

/**
 * The rows of one version of a state store. A version shares its unchanged rows with the version before. So a [[fork]] costs
 * nothing and a batch costs what it writes; Spark's map is copied whole for each batch.
 *
 * The first columns of a key are its `prefix`. All keys with the same prefix form one bucket ([[LayeredMap]]). Once the task of
 * a version no longer writes to it, many threads may read it. [[removePrefix]] drops a bucket whole; closed times are evicted
 * this way.
 */
private[strandline] final class SharedStateMap private (
    prefix: Seq[Expression],
    verifier: () => Option[KeyValueIntegrityVerifier],
    buckets: LayeredMap[SharedStateMap.Bucket],
    private var prefixes: Int,
    private var count: Int,
    private var bytes: Long)
    extends HDFSBackedStateStoreMap with KnownSizeEstimation {
  import SharedStateMap._

  // Threads cannot share either of these.
  private val prefixOf = UnsafeProjection.create(prefix)
  private val verifying = verifier()
  private val isFixed = prefix.map(column => UnsafeRow.isFixedLength(column.dataType)).toArray
  // Not this map itself: a bucket outlives the version that last wrote to it, and must not keep that version in memory.
  private val owner = new AnyRef
  private var loggedRow: UnsafeRowWrapper = _
  // A key with the prefix of this bucket, which most of the next keys have too. Null if no bucket was looked up.
  private var lastKey: UnsafeRow = _
  private var lastBucket: Bucket = _
  // A key is mostly written just after it is read.
  private val lastPlace = new LayeredMap.Place

  /** Returns a map with the same rows for another task. This map must not be written to again. */
  def fork(): SharedStateMap = {
    forget()
    lastPlace.forget()
    new SharedStateMap(prefix, verifier, buckets.fork(), prefixes, count, bytes)
  }

  override def size(): Int = count

  /** The approximate memory of the rows in bytes. Removed rows may take up to half as much until their tables are merged. */
  override def estimatedSize: Long = bytes + BytesOfABucket * prefixes

  override def get(key: UnsafeRow): UnsafeRow = {
    val bucket = bucketOf(key)
    val value = if (bucket == null) null else bucket.rows.get(key, lastPlace)
    if (value == null) null else verified(key, value)
  }

  override def put(key: UnsafeRow, value: UnsafeRowWrapper): UnsafeRowWrapper = {
    val found = bucketOf(key)
    val bucket = if (found != null && (found.owner eq owner)) found else writable(prefixOf(key))
    val previous = bucket.rows.put(key, value, lastPlace)
    if (previous == null) grow(bucket, 1, sizeOf(key, value)) else grow(bucket, 0, sizeOf(key, value) - sizeOf(key, previous))
    previous
  }

  override def remove(key: UnsafeRow): UnsafeRowWrapper =
    if (loggedRow != null) loggedRow
    else {
      val of = prefixOf(key)
      buckets.get(of) match {
        case null => null
        case bucket if bucket.count == 1 => removeOnly(of, bucket, key)
        case found =>
          val bucket = if (found.owner eq owner) found else writable(of)
          val removed = bucket.rows.remove(key)
          if (removed != null) grow(bucket, -1, -sizeOf(key, removed))
          removed
      }
    }

  /** Drops the bucket whole with its last row. The bucket may belong to another version, because it is not written to. */
  private def removeOnly(of: UnsafeRow, bucket: Bucket, key: UnsafeRow): UnsafeRowWrapper = {
    val removed = bucket.rows.get(key)
    if (removed != null) drop(of, bucket)
    removed
  }

  private def drop(of: UnsafeRow, bucket: Bucket): Unit = {
    buckets.remove(of)
    forget()
    prefixes -= 1
    count -= bucket.count
    bytes -= bucket.bytes
  }

  /**
   * Removes all rows with that prefix at once. Returns them in one pair that is reused.
   *
   * First calls `log` with each key. During these calls [[remove]] returns the key's row and removes nothing, because Spark's
   * store logs a removal only if its map returns a row.
   */
  def removePrefix(of: UnsafeRow)(log: UnsafeRow => Unit): Iterator[UnsafeRowPair] = buckets.get(of) match {
    case null => Iterator.empty
    case bucket =>
      drop(of, bucket)
      try
        bucket.rows.iterator.foreach { case (key, value) =>
          loggedRow = value
          log(key)
        }
      finally loggedRow = null
      pairs(bucket.rows.iterator)
  }

  private def grow(bucket: Bucket, rows: Int, size: Long): Unit = {
    bucket.count += rows
    count += rows
    bucket.bytes += size
    bytes += size
  }

  override def putAll(map: HDFSBackedStateStoreMap): Unit =
    map.entryIterator().foreach(entry => put(entry.getKey, entry.getValue))

  override def iterator(): Iterator[UnsafeRowPair] = pairs(rows)

  override def entryIterator(): Iterator[Entry[UnsafeRow, UnsafeRowWrapper]] =
    rows.map { case (key, value) => new SimpleImmutableEntry(key, value) }

  /** Returns the rows with that prefix as they are now. Later writes do not affect the iterator. */
  override def prefixScan(of: UnsafeRow): Iterator[UnsafeRowPair] = buckets.get(of) match {
    case null => Iterator.empty
    case bucket => pairs(bucket.rows.iterator)
  }

  // Takes every bucket now, not when the iterator reaches it.
  private def rows: Iterator[(UnsafeRow, UnsafeRowWrapper)] = buckets.iterator.map(_._2.rows.iterator).toArray.iterator.flatten

  private def pairs(rows: Iterator[(UnsafeRow, UnsafeRowWrapper)]): Iterator[UnsafeRowPair] = {
    val pair = new UnsafeRowPair()
    rows.map { case (key, value) => pair.withRows(key, verified(key, value)) }
  }

  private def verified(key: UnsafeRow, value: UnsafeRowWrapper): UnsafeRow =
    if (verifying.isEmpty) value.unsafeRow() else HDFSBackedStateStoreMap.getAndVerifyValueRow(key, value, verifying)

  /** Returns the bucket of a key, or null. */
  private def bucketOf(key: UnsafeRow): Bucket =
    if (lastKey != null && hasSamePrefix(key, lastKey)) lastBucket
    else {
      val found = buckets.get(prefixOf(key))
      if (found != null) {
        lastKey = key.copy()
        lastBucket = found
      }
      found
    }

  /** Forgets the bucket that was asked for last, which must not stay in memory for this. */
  private def forget(): Unit = {
    lastKey = null
    lastBucket = null
  }

  /** Whether the bytes of both prefixes are the same. */
  private def hasSamePrefix(a: UnsafeRow, b: UnsafeRow): Boolean = {
    // The eight bytes of a column are its value, or the place and the size of its value.
    def isSame(at: Int) =
      a.isNullAt(at) == b.isNullAt(at) && a.getLong(at) == b.getLong(at) && (isFixed(at) || hasSameBytes(a, b, a.getLong(at)))
    var at = 0
    while (at < isFixed.length && isSame(at)) at += 1
    at == isFixed.length
  }

  private def hasSameBytes(a: UnsafeRow, b: UnsafeRow, offsetAndSize: Long): Boolean = {
    val (offset, size) = (offsetAndSize >>> Integer.SIZE, offsetAndSize.toInt)
    ByteArrayMethods.arrayEquals(a.getBaseObject, a.getBaseOffset + offset, b.getBaseObject, b.getBaseOffset + offset,
      size.toLong)
  }

  /** Returns the bucket of a prefix that this version may write to. */
  private def writable(of: UnsafeRow): Bucket = buckets.get(of) match {
    case bucket if bucket != null && (bucket.owner eq owner) => bucket
    case shared =>
      val bucket = if (shared == null) new Bucket(owner, LayeredMap.empty, 0, 0)
      else new Bucket(owner, shared.rows.fork(), shared.count, shared.bytes)
      if (shared == null) prefixes += 1
      forget()
      buckets.put(of.copy(), bucket)
      bucket
  }
}

private[strandline] object SharedStateMap {

  /** The rows with one prefix. Only the version that has `owner` may write to them. */
  private final class Bucket(val owner: AnyRef, val rows: LayeredMap[UnsafeRowWrapper], var count: Int, var bytes: Long)

  // Two rows, their arrays, the value's wrapper, and a slot in a table that is at most two thirds full.
  private val BytesOfAnEntry = 200L

  // The prefix, its smallest table, and its slot among the buckets.
  private[strandline] val BytesOfABucket = 250L

  private def sizeOf(key: UnsafeRow, value: UnsafeRowWrapper): Long =
    BytesOfAnEntry + key.getSizeInBytes + value.unsafeRow().getSizeInBytes

  /** Returns a map without rows. The first `prefix` columns of the keys are their prefix. */
  def empty(keys: StructType, prefix: Int, verifier: () => Option[KeyValueIntegrityVerifier]): SharedStateMap = {
    val columns = keys.take(prefix).zipWithIndex.map { case (f, i) => BoundReference(i, f.dataType, f.nullable) }
    new SharedStateMap(columns, verifier, LayeredMap.empty, 0, 0, 0)
  }
}
