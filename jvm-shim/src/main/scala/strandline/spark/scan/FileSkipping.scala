package strandline.spark.scan

import scala.collection.immutable.ArraySeq

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

private[spark] object FileSkipping {

  /** Returns none if there are no statistics, or not one entry for each of `files` files. */
  def of(statistics: SourceStatistics, files: Int): Option[FileSkipping] =
    Option(statistics).filter(s => s.rows != null && s.rows.length == files && s.columns != null).map { statistics =>
      val columns = statistics.columns.iterator.flatMap(column => FileBounds.of(column, files).map(column.path.toSeq -> _))
      new FileSkipping(columns.toMap, ArraySeq.unsafeWrapArray(statistics.rows))
    }

  private val Always: Int => Boolean = _ => true
}

/** Tells for each file whether a row in it may pass a filter. For filters that it does not understand, a row may pass. */
private[spark] final class FileSkipping(bounds: Map[Seq[String], FileBounds], rows: ArraySeq[Long]) {
  import FileSkipping.Always

  /** Returns whether a row of a file, given by its index, may pass all filters. The filters are analysed once for all files. */
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

  private def hasValues(column: FileBounds, file: Int): Boolean =
    column.nulls(file) < 0 || rows(file) < 0 || column.nulls(file) < rows(file)

  private def mayEqual(column: FileBounds, file: Int, value: Any): Boolean =
    mayPrecede(column, file, value, orEqual = true) && mayExceed(column, file, value, orEqual = true)

  /** Whether a value of the file may be less than `value`. A comparison with null is never true. */
  private def mayPrecede(column: FileBounds, file: Int, value: Any, orEqual: Boolean): Boolean =
    value != null && hasValues(column, file) && compare(column.low(file), value).forall(c => c < 0 || (orEqual && c == 0))

  private def mayExceed(column: FileBounds, file: Int, value: Any, orEqual: Boolean): Boolean =
    value != null && hasValues(column, file) && compare(column.high(file), value).forall(c => c > 0 || (orEqual && c == 0))

  /**
   * A string with the prefix is ≥ the prefix, so the file's last string is. The file's first string, cut to the prefix's
   * length, is ≤ the prefix.
   */
  private def mayStart(
      column: FileBounds, file: Int, prefix: UTF8String): Boolean = mayExceed(column, file, prefix, orEqual = true) && {
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
