package strandline.spark.scan

import scala.beans.BeanProperty
import scala.collection.immutable.ArraySeq

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/**
 * What the channel's log says of one column in each file of a batch, for skipping files of which no row can pass a filter.
 *
 * `low` and `high` are bounds: every value lies between them, but they need not be values. Integers, dates (days) and timestamps
 * (microseconds) are `Long`, strings `UTF8String`; `null` is an unknown bound. `nulls` counts rows without a value, -1 is unknown.
 */
private[spark] final case class FileBounds(low: ArraySeq[Any], high: ArraySeq[Any], nulls: ArraySeq[Long])

private[spark] object FileBounds {

  /** What was handed over of a column, none when it is not of `files` files. */
  def of(column: HandedColumn, files: Int): Option[FileBounds] = {
    def bounds(of: Array[Object]) = ArraySeq.unsafeWrapArray(of.map(bound))
    if (column.path == null || Seq(column.low, column.high, column.nulls).exists(part => part == null || part.length != files)) None
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

  /** Types whose bounds are used. Those of floating-point numbers are not, because of NaN; decimals, because writers round them. */
  def isBounded(kind: DataType): Boolean = kind match {
    case ByteType | ShortType | IntegerType | LongType | DateType | TimestampType | TimestampNTZType => true
    case StringType => true // and only that: another collation has another order
    case _ => false
  }

  /** The column, or the field inside of structs, that an expression is, by its names from the outside in. */
  def pathOf(expression: Expression): Option[Seq[String]] = expression match {
    case a: Attribute => Some(Seq(a.name))
    case field: GetStructField => pathOf(field.child).map(_ :+ field.extractFieldName)
    case _ => None
  }
}

/** The statistics of a batch's files as the source hands them over: an entry a file in each list. */
private[spark] final class HandedStatistics {
  @BeanProperty var rows: Array[Long] = _
  @BeanProperty var columns: Array[HandedColumn] = _
}

private[spark] final class HandedColumn {
  @BeanProperty var path: Array[String] = _
  @BeanProperty var low: Array[Object] = _
  @BeanProperty var high: Array[Object] = _
  @BeanProperty var nulls: Array[Object] = _
}

private[spark] object FileSkipping {

  /** None when there are no statistics, or they are not of `files` files. */
  def of(statistics: HandedStatistics, files: Int): Option[FileSkipping] =
    Option(statistics).filter(s => s.rows != null && s.rows.length == files && s.columns != null).map { statistics =>
      val columns = statistics.columns.iterator.flatMap(column => FileBounds.of(column, files).map(column.path.toSeq -> _))
      new FileSkipping(columns.toMap, ArraySeq.unsafeWrapArray(statistics.rows))
    }

  private val Always: Int => Boolean = _ => true
}

/** Says of each file whether a row in it could pass a filter. What it does not understand could. */
private[spark] final class FileSkipping(bounds: Map[Seq[String], FileBounds], rows: ArraySeq[Long]) {
  import FileSkipping.Always

  /** Whether a row of a file, by its number, could pass all the filters; they are taken apart once for all files. */
  def mayPass(filters: Seq[Expression]): Int => Boolean = filters.map(mayPass).foldLeft(Always)(both)

  private def both(left: Int => Boolean, right: Int => Boolean): Int => Boolean =
    if (left eq Always) right else if (right eq Always) left else file => left(file) && right(file)

  private def mayPass(filter: Expression): Int => Boolean = filter match {
    case And(left, right) => both(mayPass(left), mayPass(right))
    case Or(left, right) =>
      val (one, other) = (mayPass(left), mayPass(right))
      if ((one eq Always) || (other eq Always)) Always else file => one(file) || other(file)
    case Literal(value, BooleanType) => if (value == true) Always else _ => false
    case IsNull(Bounded(column)) => column.nulls(_) != 0
    case IsNotNull(Bounded(column)) => hasValues(column, _)
    case EqualNullSafe(Bounded(column), Literal(null, _)) => column.nulls(_) != 0
    case EqualNullSafe(Literal(null, _), Bounded(column)) => column.nulls(_) != 0
    case In(Bounded(column), list) =>
      val values = list.map { case l: Literal => Some(l.value); case _ => None }
      if (values.contains(None)) Always else mayBeIn(column, values.flatten)
    case InSet(Bounded(column), values) => mayBeIn(column, values.toSeq)
    case StartsWith(Bounded(column), Literal(prefix: UTF8String, _)) => mayStart(column, _, prefix)
    case comparison: BinaryComparison => comparison match {
        case Compared(column, literal, flipped) => mayCompare(comparison, column, literal, flipped)
        case _ => Always
      }
    case _ => Always
  }

  private def mayBeIn(column: FileBounds, values: Seq[Any]): Int => Boolean = file => values.exists(mayEqual(column, file, _))

  private def mayCompare(comparison: BinaryComparison, column: FileBounds, literal: Any, flipped: Boolean): Int => Boolean = {
    def below(orEqual: Boolean): Int => Boolean = mayPrecede(column, _, literal, orEqual)
    def above(orEqual: Boolean): Int => Boolean = mayExceed(column, _, literal, orEqual)
    comparison match {
      case _: EqualTo | _: EqualNullSafe => mayEqual(column, _, literal)
      case _: LessThan => if (flipped) above(orEqual = false) else below(orEqual = false)
      case _: LessThanOrEqual => if (flipped) above(orEqual = true) else below(orEqual = true)
      case _: GreaterThan => if (flipped) below(orEqual = false) else above(orEqual = false)
      case _: GreaterThanOrEqual => if (flipped) below(orEqual = true) else above(orEqual = true)
      case _ => Always
    }
  }

  private def hasValues(column: FileBounds, file: Int): Boolean = column.nulls(file) < 0 || rows(file) < 0 || column.nulls(file) < rows(file)

  private def mayEqual(column: FileBounds, file: Int, value: Any): Boolean =
    mayPrecede(column, file, value, orEqual = true) && mayExceed(column, file, value, orEqual = true)

  /** Whether a value of the file may be less than `value`. A comparison with null is never true. */
  private def mayPrecede(column: FileBounds, file: Int, value: Any, orEqual: Boolean): Boolean =
    value != null && hasValues(column, file) && compare(column.low(file), value).forall(c => c < 0 || (orEqual && c == 0))

  private def mayExceed(column: FileBounds, file: Int, value: Any, orEqual: Boolean): Boolean =
    value != null && hasValues(column, file) && compare(column.high(file), value).forall(c => c > 0 || (orEqual && c == 0))

  /** A string with the prefix is at or after it, and so is the file's last; the first one, cut as short, is at or before it. */
  private def mayStart(column: FileBounds, file: Int, prefix: UTF8String): Boolean = mayExceed(column, file, prefix, orEqual = true) && {
    column.low(file) match {
      case low: UTF8String => low.substring(0, prefix.numChars).binaryCompare(prefix) <= 0
      case _ => true
    }
  }

  private def compare(bound: Any, value: Any): Option[Int] = (bound, value) match {
    case (bound: Long, value: Number) => Some(bound.compare(value.longValue))
    case (bound: UTF8String, value: UTF8String) => Some(bound.binaryCompare(value))
    case _ => None
  }

  private object Bounded {
    def unapply(expression: Expression): Option[FileBounds] =
      if (FileBounds.isBounded(expression.dataType)) FileBounds.pathOf(expression).flatMap(bounds.get) else None
  }

  private object Compared {
    def unapply(comparison: BinaryComparison): Option[(FileBounds, Any, Boolean)] = (comparison.left, comparison.right) match {
      case (Bounded(column), Literal(value, _)) => Some((column, value, false))
      case (Literal(value, _), Bounded(column)) => Some((column, value, true))
      case _ => None
    }
  }
}
