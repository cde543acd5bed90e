package org.apache.spark.unsafe.map.strandline

import java.util.concurrent.{ConcurrentHashMap, CopyOnWriteArrayList}

import org.apache.spark.{SparkContext, SparkEnv, TaskContext}
import org.apache.spark.internal.config.{ConfigEntry, EXECUTOR_CORES, MEMORY_OFFHEAP_SIZE}
import org.apache.spark.memory.{MemoryMode, SparkOutOfMemoryError, TaskMemoryManager, UnifiedMemoryManager}
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.unsafe.Platform
import org.apache.spark.unsafe.map.BytesToBytesMap

/**
 * Rows by key that no state store needs, because the batch that takes them in also releases them. They are in Spark's execution
 * memory, in the map of its hash joins, until the task ends. A key may have several rows, and each row has a mark.
 *
 * Those of all operators of a task take about as many pages of it as `pages` says, and at most half of the task's share, so that
 * other operators find memory too. What does not fit is refused.
 */
final class TaskRows(pages: Int) {
  import TaskRows._

  // A thread that feeds Python may read the rows.
  private val task = TaskContext.get()
  private val memory = task.taskMemoryManager()
  private val limit = (pages * memory.pageSizeBytes).min(share(memory) / 2)
  private lazy val map: Option[BytesToBytesMap] =
    if (pages == 0) None
    else
      try {
        val made = new BytesToBytesMap(memory, FirstCapacity, memory.pageSizeBytes)
        inTask.computeIfAbsent(memory, _ => new CopyOnWriteArrayList()).add(made)
        task.addTaskCompletionListener[Unit] { _ =>
          inTask.remove(memory)
          made.free()
        }
        Some(made)
      } catch { case _: SparkOutOfMemoryError => None }
  private var bytes = new Array[Byte](256)
  private var full = false
  private var begun = false

  /** Whether something was refused. Nothing is added after it. */
  def isFull: Boolean = full

  /** Adds a row, without a mark or with it. Returns false if it does not fit. */
  def add(key: UnsafeRow, row: UnsafeRow, marked: Boolean = false): Boolean = {
    val size = MarkSize + row.getSizeInBytes
    if (bytes.length < size) bytes = new Array[Byte](size.max(2 * bytes.length))
    Platform.putLong(bytes, Platform.BYTE_ARRAY_OFFSET, if (marked) 1 else 0)
    row.writeToMemory(bytes, Platform.BYTE_ARRAY_OFFSET + MarkSize)
    append(key, size)
  }

  /** Adds a key without a row, unless it is there. Returns whether it was there, or nothing if it does not fit. */
  def addKey(key: UnsafeRow): Option[Boolean] =
    if (begun && map.exists(find(_, key).isDefined)) Some(true)
    else Option.when(append(key, 0))(false)

  private def append(key: UnsafeRow, size: Int): Boolean = {
    begun = true
    full ||= map.forall { rows =>
      taken(memory) > limit || !find(rows, key).append(key.getBaseObject, key.getBaseOffset, key.getSizeInBytes,
        bytes, Platform.BYTE_ARRAY_OFFSET, size)
    }
    !full
  }

  private def find(rows: BytesToBytesMap, key: UnsafeRow): BytesToBytesMap#Location =
    rows.lookup(key.getBaseObject, key.getBaseOffset, key.getSizeInBytes)

  /** Returns the rows of a key, in one entry that is reused. Read them to their end before the next call. */
  def get(key: UnsafeRow, fields: Int): Iterator[Entry] = if (!begun || map.isEmpty) Iterator.empty
  else {
    val found = find(map.get, key)
    if (!found.isDefined) Iterator.empty
    else {
      val entry = new Entry(fields)
      var isFirst = true
      Iterator.continually {
        val more = isFirst || found.nextValue()
        isFirst = false
        more
      }.takeWhile(identity).map(_ => entry.at(found.getValueBase, found.getValueOffset, found.getValueLength))
    }
  }

  /** Returns all rows, in one entry that is reused. */
  def all(fields: Int): Iterator[Entry] = if (!begun || map.isEmpty) Iterator.empty
  else {
    val (entry, places) = (new Entry(fields), map.get.iterator())
    Iterator.continually(places).takeWhile(_.hasNext).map { each =>
      val found = each.next()
      entry.at(found.getValueBase, found.getValueOffset, found.getValueLength)
    }
  }
}

object TaskRows {
  private val inTask = new ConcurrentHashMap[TaskMemoryManager, CopyOnWriteArrayList[BytesToBytesMap]]

  /** The bytes that all such rows of a task take. */
  private def taken(memory: TaskMemoryManager): Long = {
    var bytes = 0L
    inTask.get(memory).forEach(rows => bytes += rows.getTotalMemoryConsumption)
    bytes
  }

  /** The bytes that a task may take while as many tasks run as there are cores. */
  private def share(memory: TaskMemoryManager): Long = {
    val env = SparkEnv.get
    val ofAll = (env.memoryManager, memory.getTungstenMemoryMode) match {
      case (_, MemoryMode.OFF_HEAP) => env.conf.get(MEMORY_OFFHEAP_SIZE)
      case (unified: UnifiedMemoryManager, _) => unified.maxHeapMemory
      case (other, _) => other.maxOnHeapStorageMemory
    }
    val cores =
      if (env.executorId == SparkContext.DRIVER_IDENTIFIER) SparkContext.numDriverCores(env.conf.get("spark.master"))
      else env.conf.get(EXECUTOR_CORES)
    ofAll / cores.max(1)
  }

  private val FirstCapacity = 64
  private val MarkSize = 8

  val Pages: ConfigEntry[Int] = SQLConf
    .buildConf("spark.strandline.taskRows.pages")
    .doc(
      "About how many pages of Spark's execution memory a task may use for rows that the same batch takes in and releases. " +
        " What does not fit goes through the state store. With 0, everything does.")
    .version("4.2.0")
    .intConf
    .checkValue(_ >= 0, "The number of pages must not be negative.")
    .createWithDefault(4)

  /** A row and its mark. */
  final class Entry(fields: Int) {
    private var base: AnyRef = _
    private var offset = 0L

    /** The row, which is reused. */
    val row = new UnsafeRow(fields)

    private[TaskRows] def at(base: AnyRef, offset: Long, size: Int): Entry = {
      this.base = base
      this.offset = offset
      row.pointTo(base, offset + MarkSize, size - MarkSize)
      this
    }

    def isMarked: Boolean = Platform.getLong(base, offset) != 0

    def mark(): Unit = Platform.putLong(base, offset, 1)
  }
}
