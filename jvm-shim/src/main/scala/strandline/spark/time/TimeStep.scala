package strandline.spark.time

import org.json4s._
import strandline.spark.errors.Errors

/** A step that each time takes on its own: rows can take it ([[TransformTime]]), and a frontier takes it by the same map. */
trait TimeStep extends Step {

  /** What it does to times of `domain`; throws when it does not go with them. */
  def on(domain: TimeDomain): TimeMap

  final override def results(frontier: Antichain): Antichain = {
    val map = on(frontier.domain)
    Antichain(map.target, frontier.elements.flatMap(map.least))
  }
}

/** A monotone map of the times of one domain to those of `target`, which some may have no place in. */
abstract class TimeMap(val target: TimeDomain) extends Serializable {

  /** The time that it makes of `time`; none when that is out of the target's range. */
  def apply(time: Array[Long]): Option[Array[Long]]

  /** The least of what it makes of `time` and of all times after it. */
  def least(time: Array[Long]): Seq[Array[Long]]
}

/** Picks leaves: every time has an image, which is the least of those after it. */
final class Projection(target: TimeDomain, ranges: Seq[(Int, Int)]) extends TimeMap(target) {
  private val leaves = ranges.flatMap { case (from, until) => from until until }.toArray

  private def pick(time: Array[Long]): Array[Long] = leaves.map(time(_))

  override def apply(time: Array[Long]): Option[Array[Long]] = Some(pick(time))
  override def least(time: Array[Long]): Seq[Array[Long]] = Seq(pick(time))
}

/**
 * A step to one coordinate of a composite time.
 *
 * A value of it may still appear when it does in some open time, the other coordinates being free: when an element's is ≤ it. So
 * it is in a product, and for the first coordinate of a lexicographic order; those after that one may go back.
 */
final case class CoordinateStep(name: String) extends TimeStep {
  override def on(domain: TimeDomain): TimeMap = CoordinateStep.find(domain, name) match {
    case Some((start, part)) => new Projection(part, Seq((start, start + part.width)))
    case None => throw Errors.domainMismatch(s"A path summary goes to the coordinate $name, which times of $domain do not have.")
  }

  override def toJson: JValue = JObject("coordinate" -> JString(name))

  override def toString: String = s"its coordinate $name"
}

object CoordinateStep {

  /** First leaf and domain of the coordinate `name`, when `domain` has it and it has a frontier of its own. */
  def find(domain: TimeDomain, name: String): Option[(Int, TimeDomain)] = domain match {
    case product: Product => Some(product.indexOf(name)).filter(_ >= 0).map(i => (product.range(i)._1, product.coordinates(i)._2))
    case lex: Lex => lex.coordinates.headOption.filter(_._1.equalsIgnoreCase(name)).map { case (_, part) => (0, part) }
    case _ => None
  }
}

/** A step to several coordinates: any of a product, the first ones of a lexicographic time. They keep their order. */
final case class CoordinatesStep(names: Seq[String]) extends TimeStep {
  override def on(domain: TimeDomain): TimeMap = {
    def refuse = throw Errors.domainMismatch(s"A path summary goes to the coordinates ${names.mkString(", ")}, which times of $domain do not have in that order.")
    domain match {
      case composite: Composite =>
        val places = names.map(composite.indexOf)
        if (places.contains(-1) || places != places.sorted.distinct) refuse
        val kept = places.map(composite.coordinates)
        val target = composite match {
          case _: Product => Product(kept)
          case _: Lex => if (places == places.indices) Lex(kept) else refuse
        }
        new Projection(target, places.map(composite.range))
      case _ => refuse
    }
  }

  override def toJson: JValue = JObject("coordinates" -> JArray(names.map(JString(_)).toList))

  override def toString: String = s"its coordinates ${names.mkString(", ")}"
}
