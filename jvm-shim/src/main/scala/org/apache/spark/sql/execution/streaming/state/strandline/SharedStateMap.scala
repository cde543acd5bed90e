package org.apache.spark.sql.execution.streaming.state.strandline

import java.util.AbstractMap.SimpleImmutableEntry
import java.util.Map.Entry

import org.apache.spark.sql.catalyst.expressions.{BoundReference, Expression, UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.execution.streaming.state.{HDFSBackedStateStoreMap, KeyValueIntegrityVerifier, UnsafeRowPair, UnsafeRowWrapper}
import org.apache.spark.sql.types.StructType
import org.apache.spark.util.KnownSizeEstimation

/**
 * The rows of one version of a state store, sharing with the version before what is the same: a [[fork]] costs nothing, and then what
 * is written to it, where Spark's map is copied whole for each batch.
 *
 * Keys with the same `prefix`, their first columns, are one bucket ([[LayeredMap]]). A version may be read by many threads once its own
 * task no longer writes to it. [[removePrefix]] drops a bucket whole: so goes what a time has that is closed.
 */
private[strandline] final class SharedStateMap private (
    prefix: Seq[Expression],
    verifier: () => Option[KeyValueIntegrityVerifier],
    buckets: LayeredMap[SharedStateMap.Bucket],
    private var prefixes: Int,
    private var count: Int,
    private var bytes: Long)
    extends HDFSBackedStateStoreMap
    with KnownSizeEstimation {
  import SharedStateMap._

  // Neither can be shared by threads.
  private val prefixOf = UnsafeProjection.create(prefix)
  private val verifying = verifier()
  // Not this map itself: a bucket lives longer than the version that last wrote to it, and must not keep that.
  private val owner = new AnyRef
  private var pretended: UnsafeRowWrapper = _

  /** A map that begins as this one, for another task; this one is not written to again. */
  def fork(): SharedStateMap = new SharedStateMap(prefix, verifier, buckets.fork(), prefixes, count, bytes)

  override def size(): Int = count

  /** What the rows take in memory, in bytes, about. Those that are gone may take up to half as much until their tables are merged. */
  override def estimatedSize: Long = bytes + BytesOfABucket * prefixes

  override def get(key: UnsafeRow): UnsafeRow = {
    val bucket = buckets.get(prefixOf(key))
    val value = if (bucket == null) null else bucket.rows.get(key)
    if (value == null) null else verified(key, value)
  }

  override def put(key: UnsafeRow, value: UnsafeRowWrapper): UnsafeRowWrapper = {
    val bucket = own(prefixOf(key))
    val previous = bucket.rows.put(key, value)
    if (previous == null) grow(bucket, 1, taken(key, value)) else grow(bucket, 0, taken(key, value) - taken(key, previous))
    previous
  }

  override def remove(key: UnsafeRow): UnsafeRowWrapper =
    if (pretended != null) pretended
    else {
      val of = prefixOf(key)
      buckets.get(of) match {
        case null => null
        case bucket if bucket.count == 1 => removeOnly(of, bucket, key)
        case found =>
          val bucket = if (found.owner eq owner) found else own(of)
          val removed = bucket.rows.remove(key)
          if (removed != null) grow(bucket, -1, -taken(key, removed))
          removed
      }
    }

  /** A bucket goes with its last row, and need not be our own for that. */
  private def removeOnly(of: UnsafeRow, bucket: Bucket, key: UnsafeRow): UnsafeRowWrapper = {
    val removed = bucket.rows.get(key)
    if (removed != null) drop(of, bucket)
    removed
  }

  private def drop(of: UnsafeRow, bucket: Bucket): Unit = {
    buckets.remove(of)
    prefixes -= 1
    count -= bucket.count
    bytes -= bucket.bytes
  }

  /**
   * Removes all rows with that prefix, at once, and gives them in one pair that is used again.
   *
   * Before, `log` is called with each key: meanwhile [[remove]] gives its row, and removes nothing. For Spark's store writes a removal
   * to its file when its map gives a row for it.
   */
  def removePrefix(of: UnsafeRow)(log: UnsafeRow => Unit): Iterator[UnsafeRowPair] = buckets.get(of) match {
    case null => Iterator.empty
    case bucket =>
      drop(of, bucket)
      try
        bucket.rows.iterator.foreach { case (key, value) =>
          pretended = value
          log(key)
        }
      finally pretended = null
      pairs(bucket.rows.iterator)
  }

  private def grow(bucket: Bucket, rows: Int, size: Long): Unit = {
    bucket.count += rows
    count += rows
    bucket.bytes += size
    bytes += size
  }

  override def putAll(map: HDFSBackedStateStoreMap): Unit = map.entryIterator().foreach(entry => put(entry.getKey, entry.getValue))

  override def iterator(): Iterator[UnsafeRowPair] = pairs(rows)

  override def entryIterator(): Iterator[Entry[UnsafeRow, UnsafeRowWrapper]] =
    rows.map { case (key, value) => new SimpleImmutableEntry(key, value) }

  /** The rows with that prefix as they are now, whatever is done to them meanwhile. */
  override def prefixScan(of: UnsafeRow): Iterator[UnsafeRowPair] = buckets.get(of) match {
    case null => Iterator.empty
    case bucket => pairs(bucket.rows.iterator)
  }

  // Each bucket as it is now, not as it will be when the iterator comes to it.
  private def rows: Iterator[(UnsafeRow, UnsafeRowWrapper)] = buckets.iterator.map(_._2.rows.iterator).toArray.iterator.flatten

  private def pairs(rows: Iterator[(UnsafeRow, UnsafeRowWrapper)]): Iterator[UnsafeRowPair] = {
    val pair = new UnsafeRowPair()
    rows.map { case (key, value) => pair.withRows(key, verified(key, value)) }
  }

  private def verified(key: UnsafeRow, value: UnsafeRowWrapper): UnsafeRow =
    HDFSBackedStateStoreMap.getAndVerifyValueRow(key, value, verifying)

  /** The bucket of a prefix that this version may write to. */
  private def own(of: UnsafeRow): Bucket = buckets.get(of) match {
    case bucket if bucket != null && (bucket.owner eq owner) => bucket
    case shared =>
      val bucket = if (shared == null) new Bucket(owner, LayeredMap.empty, 0, 0) else new Bucket(owner, shared.rows.fork(), shared.count, shared.bytes)
      if (shared == null) prefixes += 1
      buckets.put(of.copy(), bucket)
      bucket
  }
}

private[strandline] object SharedStateMap {

  /** The rows with one prefix, and whose they are: the only ones that may write to them. */
  private final class Bucket(val owner: AnyRef, val rows: LayeredMap[UnsafeRowWrapper], var count: Int, var bytes: Long)

  // Two rows, their arrays, the wrapper of the value and its slot, of which two thirds at most are taken.
  private val BytesOfAnEntry = 200L

  // Its prefix, its least table, and its place among the buckets.
  private[strandline] val BytesOfABucket = 250L

  private def taken(key: UnsafeRow, value: UnsafeRowWrapper): Long = BytesOfAnEntry + key.getSizeInBytes + value.unsafeRow().getSizeInBytes

  /** Without rows; `prefix` columns of the keys are their prefix. */
  def empty(keys: StructType, prefix: Int, verifier: () => Option[KeyValueIntegrityVerifier]): SharedStateMap = {
    val columns = keys.take(prefix).zipWithIndex.map { case (f, i) => BoundReference(i, f.dataType, f.nullable) }
    new SharedStateMap(columns, verifier, LayeredMap.empty, 0, 0, 0)
  }
}
