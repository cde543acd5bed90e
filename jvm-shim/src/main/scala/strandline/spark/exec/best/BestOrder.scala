package strandline.spark.exec.best

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.types.{BooleanType, DoubleType, FloatType, LongType, StructType}
import org.json4s._
import strandline.spark.errors.Errors
import strandline.spark.exec.MarkedOperator
import strandline.spark.time.Json

/**
 * What is better: the columns that decide, the first one first. `last` is the column that marks the best row of an outer time.
 */
final case class BestOrder(by: Seq[SortOrder], last: Attribute) {
  private def names: Seq[String] = by.map(_.child).collect { case a: Attribute => a.name }

  /** Returns what refuses a row that is neither better nor worse than others, because a value is null or NaN. */
  def check(columns: Seq[Attribute]): InternalRow => Unit = {
    val isIncomparable = Predicate.create(
      by.map(_.child).flatMap { column =>
        val isNan = if (column.dataType == DoubleType || column.dataType == FloatType) Seq(IsNaN(column)) else Nil
        Seq[Expression](IsNull(column)) ++ isNan
      }.reduce[Expression](Or(_, _)),
      columns)
    val bound = by.map(o => BindReferences.bindReference(o.child, columns))
    row => if (isIncomparable.eval(row)) throw Errors.incomparable(names, bound.map(_.eval(row)))
  }

  override def toString: String = by.mkString("[", ", ", "]")
}

object BestOrder {

  /** Reads the order that the mark states (operator_marker.py): `{"order": [[column, "min" or "max"], ...], "last": column}`. */
  def of(operator: MarkedOperator, text: String, columns: Seq[Attribute]): BestOrder = {
    def refuse(why: String) = throw Errors.operatorUnsupported(MarkedOperator.Best, why)
    def named(name: String) = columns.find(_.name == name).getOrElse(refuse(s"its input has no column $name"))
    operator.key.time.dataType match {
      case StructType(fields) if fields.length > 1 && fields.last.dataType == LongType =>
      case other => refuse(s"its times are of ${other.simpleString}, without a last coordinate of int64")
    }
    Json.parse(text) match {
      case Some(JObject(List(("order", JArray(order)), ("last", JString(last))))) if order.nonEmpty =>
        val by = order.map {
          case JArray(List(JString(name), JString("min"))) => SortOrder(named(name), Ascending)
          case JArray(List(JString(name), JString("max"))) => SortOrder(named(name), Descending)
          case other => refuse(s"its order has the entry ${Json.render(other)}")
        }
        by.find(o => !RowOrdering.isOrderable(o.dataType)).foreach(o =>
          refuse(s"values of ${o.dataType.simpleString} have no order"))
        BestOrder(by, Some(named(last)).filter(_.dataType == BooleanType).getOrElse(refuse(s"its column $last is not boolean")))
      case _ => refuse(s"its mark has the order $text")
    }
  }
}
