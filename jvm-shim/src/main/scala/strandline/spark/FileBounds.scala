package strandline.spark

import scala.collection.immutable.ArraySeq
import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
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

  /** Reads `{"low": […], "high": […], "nulls": […]}`; none when it is not of `files` files. */
  def parse(json: JsonNode, files: Int): Option[FileBounds] = {
    val parts = Seq("low", "high", "nulls").map(json.path)
    if (!parts.forall(p => p.isArray && p.size == files)) None
    else {
      def bounds(node: JsonNode) = ArraySeq.tabulate[Any](files)(i => bound(node.get(i)))
      Some(FileBounds(bounds(parts(0)), bounds(parts(1)), ArraySeq.tabulate(files)(i => parts(2).get(i).asLong(-1))))
    }
  }

  private def bound(node: JsonNode): Any =
    if (node.canConvertToLong && node.isIntegralNumber) node.asLong
    else if (node.isTextual) UTF8String.fromString(node.asText)
    else null

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

private[spark] object FileSkipping {

  /** Reads `{"rows": […], "columns": [{"path": […], "low": […], "high": […], "nulls": […]}]}` (docs/protocol.md). */
  def parse(json: JsonNode, files: Int): Option[FileSkipping] = {
    val rows = json.path("rows")
    if (!rows.isArray || rows.size != files) None
    else {
      val columns = json.path("columns").elements.asScala.flatMap { column =>
        FileBounds.parse(column, files).map(column.path("path").elements.asScala.map(_.asText).toSeq -> _)
      }
      Some(new FileSkipping(columns.toMap, ArraySeq.tabulate(files)(i => rows.get(i).asLong(-1))))
    }
  }
}

/** Says of each file whether a row in it could pass a filter. What it does not understand could. */
private[spark] final class FileSkipping(bounds: Map[Seq[String], FileBounds], rows: ArraySeq[Long]) {

  def mayPass(filter: Expression, file: Int): Boolean = filter match {
    case And(left, right) => mayPass(left, file) && mayPass(right, file)
    case Or(left, right) => mayPass(left, file) || mayPass(right, file)
    case Literal(value, BooleanType) => value == true
    case IsNull(Bounded(column)) => column.nulls(file) != 0
    case IsNotNull(Bounded(column)) => hasValues(column, file)
    case EqualNullSafe(Bounded(column), Literal(null, _)) => column.nulls(file) != 0
    case EqualNullSafe(Literal(null, _), Bounded(column)) => column.nulls(file) != 0
    case In(Bounded(column), list) => list.exists { case l: Literal => mayEqual(column, file, l.value); case _ => true }
    case InSet(Bounded(column), values) => values.exists(mayEqual(column, file, _))
    case StartsWith(Bounded(column), Literal(prefix: UTF8String, _)) => mayStart(column, file, prefix)
    case comparison: BinaryComparison => comparison match {
        case Compared(column, literal, flipped) => mayCompare(comparison, column, file, literal, flipped)
        case _ => true
      }
    case _ => true
  }

  private def mayCompare(comparison: BinaryComparison, column: FileBounds, file: Int, literal: Any, flipped: Boolean): Boolean =
    comparison match {
      case _: EqualTo | _: EqualNullSafe => mayEqual(column, file, literal)
      case _: LessThan => if (flipped) mayExceed(column, file, literal, orEqual = false) else mayPrecede(column, file, literal, orEqual = false)
      case _: LessThanOrEqual => if (flipped) mayExceed(column, file, literal, orEqual = true) else mayPrecede(column, file, literal, orEqual = true)
      case _: GreaterThan => if (flipped) mayPrecede(column, file, literal, orEqual = false) else mayExceed(column, file, literal, orEqual = false)
      case _: GreaterThanOrEqual => if (flipped) mayPrecede(column, file, literal, orEqual = true) else mayExceed(column, file, literal, orEqual = true)
      case _ => true
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
