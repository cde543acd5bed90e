package strandline.spark.exec.meet

import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.types.StructType
import org.json4s._
import strandline.spark.errors.Errors
import strandline.spark.exec.MarkedOperator
import strandline.spark.plan.OperatorMark
import strandline.spark.time.{Composite, Json, TimeDomain}

/**
 * How the rows of two sides meet.
 *
 * @param how What comes out.
 * @param domain The domain of the times.
 * @param within The number of first coordinates of a time that are its outer time. Rows that are kept within it are forgotten
 *   when it closes. 0: nothing is forgotten.
 */
final case class MeetForm(how: MeetKind, domain: TimeDomain, within: Int, left: MeetSide, right: MeetSide) {

  /** The number of leaves of an outer time. */
  val outerWidth: Int = domain match {
    case composite: Composite if within > 0 => composite.range(within - 1)._2
    case _ => 0
  }

  /** The domain of outer times. */
  val outer: Option[TimeDomain] = domain match {
    case composite: Composite if within > 0 => Some(composite.first(within))
    case _ => None
  }

  /**
   * Whether each pair is at the time of one of its rows, or after a row of the other side at most in one coordinate. Otherwise
   * what waits at the time of a pair would not be counted in a loop.
   */
  def isCounted: Boolean = how == MeetKind.Anti || how == MeetKind.Distinct || domain.isTotal || (domain match {
    case composite: Composite =>
      !left.forGood && !right.forGood && composite.rest(within).forall(_.isTotal) && composite.rest(within).length <= 1
    case _ => false
  })

  override def toString: String = s"$how${if (within > 0) s" within $within" else ""}"
}

/**
 * One side of a meeting: a struct, which is null in the rows of the other side.
 *
 * @param forGood Whether its rows are never forgotten. Otherwise they are when their outer time closes.
 * @param isDistinct Whether equal rows count once, at their least times.
 */
final case class MeetSide(column: Attribute, number: Int, forGood: Boolean, isDistinct: Boolean)

sealed abstract class MeetKind(val name: String) {
  override def toString: String = name
}

object MeetKind {

  /** Each pair of rows, at the least upper bound of their times. */
  case object Inner extends MeetKind("inner")

  /** Each left row once, when it meets its first partner. */
  case object Semi extends MeetKind("left_semi")

  /** Each left row whose key no right row has at its time or before, when its time is closed. */
  case object Anti extends MeetKind("left_anti")

  /** Each distinct left row, at its least times. There is no right side. */
  case object Distinct extends MeetKind("distinct")

  val all: Seq[MeetKind] = Seq(Inner, Semi, Anti, Distinct)
}

object MeetForm {

  /** Whether nothing comes out after the batch of its later row, by the text of the form. */
  def emitsAtOnce(text: String): Boolean = Json.parse(text) match {
    case Some(JObject(fields)) => fields.toMap.get("how").exists(how => how != JString(MeetKind.Anti.name))
    case _ => false
  }

  /** How many first coordinates are the outer time, by the text of the form. */
  def withinIn(text: String): Int = Json.parse(text) match {
    case Some(JObject(fields)) => fields.toMap.get("within").collect { case JInt(within) => within.toInt }.getOrElse(0)
    case _ => 0
  }

  /**
   * Reads the form that the mark states (operators/meet.py): `{"how": "inner", "within": 1, "left": side, "right": side}`, where
   * a side is `{"column": "_left", "keep": "within" or "always", "distinct": false}`.
   */
  def of(operator: MarkedOperator, columns: Seq[Attribute]): MeetForm = {
    val text = operator.key.mark.metadata.getString(OperatorMark.Meet)
    def refuse(why: String) = throw Errors.operatorUnsupported(MarkedOperator.Meet, why)
    def side(json: JValue, number: Int, within: Int): MeetSide = json match {
      case JObject(List(("column", JString(name)), ("keep", JString(keep)), ("distinct", JBool(isDistinct)))) =>
        val column = columns.find(_.name == name).getOrElse(refuse(s"its input has no column $name"))
        if (!column.dataType.isInstanceOf[StructType]) refuse(s"its column $name is not a struct")
        if (!Set("within", "always")(keep) || keep == "within" && within == 0) refuse(s"it keeps the side $name $keep")
        MeetSide(column, number, keep == "always", isDistinct)
      case other => refuse(s"it has the side ${Json.render(other)}")
    }
    Json.parse(text) match {
      case Some(JObject(List(("how", JString(how)), ("within", JInt(within)), ("left", left), ("right", right)))) =>
        val kind = MeetKind.all.find(_.name == how).getOrElse(refuse(s"this extension does not know how=$how"))
        val domain = operator.column.domain
        val most = domain match {
          case composite: Composite => composite.coordinates.length
          case _ => 0
        }
        if (within < 0 || within > most) refuse(s"it is within $within coordinates of $domain")
        MeetForm(kind, domain, within.toInt, side(left, 0, within.toInt), side(right, 1, within.toInt))
      case _ => refuse(s"its mark has the form $text")
    }
  }
}
