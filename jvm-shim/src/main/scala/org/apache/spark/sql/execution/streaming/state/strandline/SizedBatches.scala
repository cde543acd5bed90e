package org.apache.spark.sql.execution.streaming.state.strandline

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{GenericInternalRow, UnsafeRow}
import org.apache.spark.sql.execution.arrow.ArrowWriter
import org.apache.spark.sql.types._

/**
 * Fills Arrow batches with rows of `schema`, up to a limit of bytes.
 *
 * Spark computes the size of all Arrow buffers after each row. This computes it only when the rows may have reached the limit. So
 * the batches are the same.
 */
private[strandline] final class SizedBatches(schema: StructType) {
  private val times = 2 + 3 * fieldsIn(schema)
  private val wrapped = new GenericInternalRow(1)

  /**
   * Writes rows, each as the struct in the writer's only column, until there are `mostRows`, or at least `mostBytes`. Returns the
   * number of rows.
   */
  def fill(writer: ArrowWriter, rows: Iterator[InternalRow], mostRows: Int, mostBytes: Long): Int = {
    var count = 0
    var bytes = 0L
    def isBelow = bytes < mostBytes || {
      bytes = writer.sizeInBytes()
      bytes < mostBytes
    }
    while (rows.hasNext && count < mostRows && isBelow) {
      val row = rows.next()
      wrapped.update(0, row)
      writer.write(wrapped)
      count += 1
      bytes += atMost(row)
    }
    count
  }

  /**
   * Returns at least the bytes of a row in Arrow; more than any limit if the row is not in Spark's own format.
   *
   * Each value, also one in an array, takes bytes in Spark's format. They are at least an eighth of what Arrow has for the value,
   * its offset and its bit. Only a null struct takes eight bytes, and in Arrow as much as another struct.
   */
  def atMost(row: InternalRow): Long = row match {
    case unsafe: UnsafeRow => times.toLong * unsafe.getSizeInBytes
    case _ => Int.MaxValue.toLong
  }

  private def fieldsIn(kind: DataType): Int = kind match {
    case struct: StructType => struct.fields.map(field => 1 + fieldsIn(field.dataType)).sum
    case array: ArrayType => 1 + fieldsIn(array.elementType)
    case map: MapType => 2 + fieldsIn(map.keyType) + fieldsIn(map.valueType)
    case _ => 1
  }
}
