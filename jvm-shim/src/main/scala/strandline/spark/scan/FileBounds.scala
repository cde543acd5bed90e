package strandline.spark.scan

import scala.collection.immutable.ArraySeq

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/**
 * The statistics of one column in each file of a batch, from the channel's log. They show which files have no row that passes a
 * filter.
 *
 * `low` and `high` are bounds: every value lies between them, but they need not be values. Integers, dates (days) and
 * timestamps (microseconds) are `Long`, strings `UTF8String`. `null` is an unknown bound. `nulls` counts rows without a value;
 * -1 is unknown.
 */
private[spark] final case class FileBounds(low: ArraySeq[Any], high: ArraySeq[Any], nulls: ArraySeq[Long])

private[spark] object FileBounds {

  /** Reads the source's statistics of a column. Returns none if they do not have one entry for each of `files` files. */
  def of(column: SourceColumn, files: Int): Option[FileBounds] = {
    def bounds(of: Array[Object]) = ArraySeq.unsafeWrapArray(of.map(bound))
    if (column.path == null || Seq(column.low, column.high, column.nulls).exists(part => part == null || part.length != files))
      None
    else {
      val nulls = bounds(column.nulls).map { case count: Long => count; case _ => -1L }
      Some(FileBounds(bounds(column.low), bounds(column.high), nulls))
    }
  }

  private def bound(value: Any): Any = value match {
    case number: Integer => number.longValue
    case number: Long => number
    case text: String => UTF8String.fromString(text)
    case _ => null
  }

  /**
   * Whether the bounds of a type are used. Not for floating-point numbers, because of NaN; not for decimals, because writers
   * round them.
   */
  def isBounded(kind: DataType): Boolean = kind match {
    case ByteType | ShortType | IntegerType | LongType | DateType | TimestampType | TimestampNTZType => true
    case StringType => true // only the default collation, because another one has another order
    case _ => false
  }

  /** Returns the column that an expression is, or the field of nested structs, as its names from the outside in. */
  def pathOf(expression: Expression): Option[Seq[String]] = expression match {
    case a: Attribute => Some(Seq(a.name))
    case field: GetStructField => pathOf(field.child).map(_ :+ field.extractFieldName)
    case _ => None
  }
}
