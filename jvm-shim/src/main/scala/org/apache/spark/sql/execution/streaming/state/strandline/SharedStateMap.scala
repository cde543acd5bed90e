package org.apache.spark.sql.execution.streaming.state.strandline

import java.util.AbstractMap.SimpleImmutableEntry
import java.util.Map.Entry

import scala.collection.concurrent.TrieMap
import scala.collection.immutable.HashMap
import scala.collection.mutable

import org.apache.spark.sql.catalyst.expressions.{BoundReference, Expression, UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.types.StructType
import org.apache.spark.util.KnownSizeEstimation

/**
 * The rows of one version of a state store, sharing with the version before what is the same: a [[fork]] costs nothing, and then what
 * is written to it, where Spark's map is copied whole for each batch.
 *
 * Keys with the same `prefix`, their first columns, are one bucket, a concurrent trie with snapshots in constant time (Prokopec et
 * al., "Concurrent Tries with Efficient Non-Blocking Snapshots", PPoPP 2012). A version may be read by many threads once its own
 * task no longer writes to it. A bucket whose rows are removed one after another, each as a scan gives it, is dropped whole, its trie
 * untouched: so goes what a time has that is closed.
 */
private[strandline] final class SharedStateMap private (
    prefix: Seq[Expression],
    verifier: () => Option[KeyValueIntegrityVerifier],
    private var buckets: HashMap[UnsafeRow, SharedStateMap.Bucket],
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
  private var changes = 0L
  private var scanned: Scan = _

  /** A map that begins as this one, for another task; this one has been settled and is not written to again. */
  def fork(): SharedStateMap = new SharedStateMap(prefix, verifier, buckets, count, bytes)

  override def size(): Int = count

  /** What the rows take in memory, in bytes, about. */
  override def estimatedSize: Long = bytes

  override def get(key: UnsafeRow): UnsafeRow = {
    settle()
    buckets.get(prefixOf(key)).flatMap(reading(_).get(key)).map(verified(key, _)).orNull
  }

  override def put(key: UnsafeRow, value: UnsafeRowWrapper): UnsafeRowWrapper = {
    settle()
    changes += 1
    val bucket = own(prefixOf(key))
    val previous = bucket.rows.put(key, value).orNull
    bytes += taken(key, value)
    if (previous == null) {
      bucket.count += 1
      count += 1
    } else bytes -= taken(key, previous)
    previous
  }

  override def remove(key: UnsafeRow): UnsafeRowWrapper = {
    val removed = if (scanned != null && scanned.hasJustGiven(key)) scanned.remove() else take(key)
    if (removed != null) {
      count -= 1
      bytes -= taken(key, removed)
    }
    removed
  }

  override def putAll(map: HDFSBackedStateStoreMap): Unit = map.entryIterator().foreach(entry => put(entry.getKey, entry.getValue))

  override def iterator(): Iterator[UnsafeRowPair] = pairs(rows)

  override def entryIterator(): Iterator[Entry[UnsafeRow, UnsafeRowWrapper]] =
    rows.map { case (key, value) => new SimpleImmutableEntry(key, value) }

  /** The rows with that prefix as they are now: they may be removed meanwhile. */
  override def prefixScan(of: UnsafeRow): Iterator[UnsafeRowPair] = {
    settle()
    pairs(buckets.get(of).fold(Iterator.empty[(UnsafeRow, UnsafeRowWrapper)])(new Scan(of.copy(), _)))
  }

  private def rows: Iterator[(UnsafeRow, UnsafeRowWrapper)] = {
    settle()
    buckets.valuesIterator.flatMap(reading(_).iterator)
  }

  private def pairs(rows: Iterator[(UnsafeRow, UnsafeRowWrapper)]): Iterator[UnsafeRowPair] = {
    val pair = new UnsafeRowPair()
    rows.map { case (key, value) => pair.withRows(key, verified(key, value)) }
  }

  private def verified(key: UnsafeRow, value: UnsafeRowWrapper): UnsafeRow =
    HDFSBackedStateStoreMap.getAndVerifyValueRow(key, value, verifying)

  /** Takes a row out of its trie. */
  private def take(key: UnsafeRow): UnsafeRowWrapper = {
    settle()
    changes += 1
    val of = prefixOf(key)
    if (!buckets.contains(of)) null
    else {
      val bucket = own(of)
      val taken = bucket.rows.remove(key).orNull
      if (taken != null) bucket.count -= 1
      if (bucket.count == 0) buckets -= of
      taken
    }
  }

  /** Takes out of its trie what has been removed of a scan that did not come to its end; before anything else is done, and at the end. */
  def settle(): Unit = if (scanned != null) {
    val removed = scanned.removed
    scanned = null
    removed.foreach(take)
  }

  private def reading(bucket: Bucket): collection.Map[UnsafeRow, UnsafeRowWrapper] = if (bucket.owner eq owner) bucket.rows else bucket.frozen

  /** The bucket of a prefix that this version may write to. */
  private def own(of: UnsafeRow): Bucket = buckets.get(of) match {
    case Some(bucket) if bucket.owner eq owner => bucket
    case shared =>
      val bucket = shared.fold(new Bucket(owner, TrieMap.empty, 0))(b => new Bucket(owner, b.rows.snapshot(), b.count))
      buckets = buckets.updated(of.copy(), bucket)
      bucket
  }

  /** The rows of a bucket, which may be removed as they are given. */
  private final class Scan(of: UnsafeRow, bucket: Bucket) extends Iterator[(UnsafeRow, UnsafeRowWrapper)] {
    val removed = mutable.ArrayBuffer.empty[UnsafeRow]
    private val rows = reading(bucket).iterator
    private val begun = changes
    private var last: (UnsafeRow, UnsafeRowWrapper) = _

    override def hasNext: Boolean = rows.hasNext

    override def next(): (UnsafeRow, UnsafeRowWrapper) = {
      if (scanned ne this) {
        settle()
        scanned = this
      }
      last = rows.next()
      last
    }

    /** Whether it is that very row, and nothing else has happened since the scan began. */
    def hasJustGiven(key: UnsafeRow): Boolean = last != null && (last._1 eq key) && begun == changes

    def remove(): UnsafeRowWrapper = {
      val (key, value) = last
      last = null
      removed += key
      if (removed.size == bucket.count) {
        buckets -= of
        changes += 1
        scanned = null
      }
      value
    }
  }
}

private[strandline] object SharedStateMap {

  /** The rows with one prefix, and whose they are: the only ones that may write to them. */
  private final class Bucket(val owner: AnyRef, val rows: TrieMap[UnsafeRow, UnsafeRowWrapper], var count: Int) {

    /** For others, once the owner writes no more: a trie that may be written to copies its nodes for those who read, too. */
    lazy val frozen: collection.Map[UnsafeRow, UnsafeRowWrapper] = rows.readOnlySnapshot()
  }

  // Two rows, their arrays, the wrapper of the value and the trie's node and slot.
  private val BytesOfAnEntry = 200L

  private def taken(key: UnsafeRow, value: UnsafeRowWrapper): Long = BytesOfAnEntry + key.getSizeInBytes + value.unsafeRow().getSizeInBytes

  /** Without rows; `prefix` columns of the keys are their prefix. */
  def empty(keys: StructType, prefix: Int, verifier: () => Option[KeyValueIntegrityVerifier]): SharedStateMap = {
    val columns = keys.take(prefix).zipWithIndex.map { case (f, i) => BoundReference(i, f.dataType, f.nullable) }
    new SharedStateMap(columns, verifier, HashMap.empty, 0, 0)
  }
}
