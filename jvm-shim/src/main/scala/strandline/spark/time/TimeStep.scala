package strandline.spark.time

import org.json4s._
import strandline.spark.errors.Errors

/** A step that maps each time by itself. Rows apply it with [[TransformTime]], and a frontier applies the same map. */
trait TimeStep extends Step {

  /** Returns the step's map of times of `domain`. Throws if the step does not fit them. */
  def on(domain: TimeDomain): TimeMap

  final override def results(frontier: Antichain): Antichain = {
    val map = on(frontier.domain)
    Antichain(map.target, frontier.elements.flatMap(map.least))
  }
}

/** A monotone map from times of one domain to times of `target`. It may be undefined for some times. */
abstract class TimeMap(val target: TimeDomain) extends Serializable {

  /** Returns the image of `time`, or none if it is outside the target domain. */
  def apply(time: Array[Long]): Option[Array[Long]]

  /** Returns the least images of `time` and of all times after it. */
  def least(time: Array[Long]): Seq[Array[Long]]
}

/** Selects leaves. Every time has an image, which is the least image of the times after it. */
final class Projection(target: TimeDomain, ranges: Seq[(Int, Int)]) extends TimeMap(target) {
  private val leaves = ranges.flatMap { case (from, until) => from until until }.toArray

  private def pick(time: Array[Long]): Array[Long] = leaves.map(time(_))

  override def apply(time: Array[Long]): Option[Array[Long]] = Some(pick(time))
  override def least(time: Array[Long]): Seq[Array[Long]] = Seq(pick(time))
}

/**
 * A step to one coordinate of a composite time.
 *
 * A value of the coordinate may still appear if some open time has it, whatever the other coordinates are: if the coordinate of
 * some element is ≤ it. This holds in a product, and for the first coordinate of a lexicographic order. Later coordinates of a
 * lexicographic order may decrease, so they have no frontier.
 */
final case class CoordinateStep(name: String) extends TimeStep {
  override def on(domain: TimeDomain): TimeMap = CoordinateStep.find(domain, name) match {
    case Some((start, part)) => new Projection(part, Seq((start, start + part.width)))
    case None => throw Errors.domainMismatch(s"A path summary selects the coordinate $name, which times of $domain do not have.")
  }

  override def toJson: JValue = JObject("coordinate" -> JString(name))

  override def toString: String = s"its coordinate $name"
}

object CoordinateStep {

  /** Returns first leaf and domain of the coordinate `name`, if `domain` has it and it has a frontier of its own. */
  def find(domain: TimeDomain, name: String): Option[(Int, TimeDomain)] = domain match {
    case product: Product => Some(product.indexOf(name)).filter(_ >= 0).map(i => (product.range(i)._1, product.coordinates(i)._2))
    case lex: Lex => lex.coordinates.headOption.filter(_._1.equalsIgnoreCase(name)).map { case (_, part) => (0, part) }
    case _ => None
  }
}

/** A step to several coordinates, in their order: any of a product, the first ones of a lexicographic time. */
final case class CoordinatesStep(names: Seq[String]) extends TimeStep {
  override def on(domain: TimeDomain): TimeMap = {
    def refuse = throw Errors.domainMismatch(
      s"A path summary selects the coordinates ${names.mkString(", ")}, which times of $domain do not have in that order.")
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

/**
 * A step into a loop: a time gets the coordinates of `inner` that it does not have, as in timely's `enter`. They are integers,
 * and begin at 0.
 *
 * `inner` has the domain of the times as its first coordinates, or as its first one alone, also of a nested domain. So the
 * leaves of a time are the first leaves of its image.
 */
final case class EnterStep(inner: TimeDomain) extends TimeStep {
  override def on(domain: TimeDomain): TimeMap = EnterStep.starts(domain, inner) match {
    case Some(starts) => new Entry(inner, starts.toArray)
    case None =>
      throw Errors.domainMismatch(s"A path summary enters $inner, which does not begin with the coordinates of $domain.")
  }

  override def toJson: JValue = JObject("enter" -> JString(inner.toString))

  override def toString: String = s"entered into $inner"
}

object EnterStep {

  /** Returns the first values of the leaves that `outer` lacks. None: `inner` does not begin with it. */
  private def starts(outer: TimeDomain, inner: TimeDomain): Option[Seq[Long]] = inner match {
    case _ if inner == outer => Some(Nil)
    case composite: Composite =>
      val shared = (outer, composite) match {
        case (a: Product, b: Product) => sharedOf(a, b)
        case (a: Lex, b: Lex) => sharedOf(a, b)
        case _ => 0
      }
      val first = if (shared > 0) Some(Nil) else starts(outer, composite.coordinates.head._2)
      for (a <- first; b <- zeros(composite.coordinates.drop(shared.max(1)))) yield a ++ b
    case _ => None
  }

  private def sharedOf(outer: Composite, inner: Composite): Int = {
    val mine = outer.coordinates.size
    if (mine > 1 && inner.coordinates.take(mine) == outer.coordinates) mine else 0
  }

  /** Returns a zero for each leaf. None: one of them is a timestamp, which has no first value. */
  private def zeros(coordinates: Seq[(String, TimeDomain)]): Option[Seq[Long]] =
    coordinates.foldLeft(Option(Seq.empty[Long])) { case (before, (_, part)) =>
      val own = part match {
        case scalar: Scalar => Some(Seq(scalar.leaf(0))).filter(_ => scalar != Scalar.timestamp)
        case composite: Composite => zeros(composite.coordinates)
      }
      for (a <- before; b <- own) yield a ++ b
    }
}

/** Adds leaves at the end. Every time has an image, which is the least image of the times after it. */
final class Entry(target: TimeDomain, starts: Array[Long]) extends TimeMap(target) {
  override def apply(time: Array[Long]): Option[Array[Long]] = Some(time ++ starts)
  override def least(time: Array[Long]): Seq[Array[Long]] = Seq(time ++ starts)
}
