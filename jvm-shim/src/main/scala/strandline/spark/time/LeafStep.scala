package strandline.spark.time

import org.json4s._
import strandline.spark.errors.Errors

/**
 * A step that changes one coordinate: a scalar time itself, or the coordinate at `path`.
 *
 * The other coordinates of a product keep their values. In a lexicographic time the coordinates before it keep their values,
 * and those after it become minimal, as in a scope's clock. If they kept their values, the step would not be monotone.
 */
trait LeafStep extends TimeStep {
  def path: Seq[String]

  /** Returns the map of the coordinate's leaf. */
  def of(scalar: Scalar): LeafMap

  final override def on(domain: TimeDomain): TimeMap = new LeafStepMap(domain, path, this)

  final protected def fields(own: JField*): JValue =
    JObject((own ++ (if (path.isEmpty) Nil else Seq("coordinate" -> JString(path.mkString("."))))).toList)

  final protected def subject: String = if (path.isEmpty) "" else s"its ${path.mkString(".")} "
}

/** A monotone map from leaves of a scalar domain to leaves of that domain. It may be undefined for some leaves. */
trait LeafMap extends Serializable {
  def has(leaf: Long): Boolean

  /** Returns the image of a leaf for which the map is defined. */
  def apply(leaf: Long): Long

  /** Returns the least image of `leaf` and all leaves after it. */
  def least(leaf: Long): Option[Long]
}

/** A step to a time that is `distance` later, or earlier if it is negative, in the coordinate's own unit. */
final case class ShiftStep(distance: BigInt, path: Seq[String] = Nil) extends LeafStep {
  override def of(scalar: Scalar): LeafMap = new LeafMap {
    private val (low, high) = (BigInt(scalar.least), BigInt(scalar.greatest))
    private val some = distance.abs <= high - low
    private val first = if (some) low.max(low - distance).toLong else 0L
    private val last = if (some) high.min(high - distance).toLong else 0L
    private val by = distance.toLong // modulo 2^64, like the addition of longs

    override def has(leaf: Long): Boolean = some && first <= leaf && leaf <= last
    override def apply(leaf: Long): Long = leaf + by
    override def least(leaf: Long): Option[Long] = if (some && leaf <= last) Some(apply(leaf.max(first))) else None
  }

  override def toJson: JValue = fields("shift" -> JInt(distance))

  override def toString: String = s"${subject}moved by $distance"
}

object ShiftStep {

  /** The width of the widest domain. A greater distance leads out of every domain. */
  val Most: BigInt = (BigInt(1) << 64) - 1
}

/**
 * A step to the greatest multiple of `unit`, counted from `offset`, that is not after the time. For a timestamp both are in
 * microseconds.
 */
final case class TruncateStep(unit: Long, offset: Long, path: Seq[String] = Nil) extends LeafStep {
  override def of(scalar: Scalar): LeafMap = new LeafMap {
    // The phase of leaves, because the leaf of an unsigned value differs from the value.
    private val phase = (BigInt(scalar.leaf(0)) + offset).mod(unit).toLong
    private val first = BigInt(scalar.least) + (BigInt(phase) - scalar.least).mod(unit)
    private val some = first <= scalar.greatest

    override def has(leaf: Long): Boolean = some && first.toLong <= leaf
    override def apply(leaf: Long): Long = leaf - Math.floorMod(Math.floorMod(leaf, unit) - phase, unit)
    override def least(leaf: Long): Option[Long] = if (has(leaf)) Some(apply(leaf)) else if (some) Some(first.toLong) else None
  }

  override def toJson: JValue = fields("truncate" -> JInt(unit), "offset" -> JInt(offset))

  override def toString: String = s"${subject}truncated to $unit" + (if (offset == 0) "" else s" from $offset")
}

/** The map of a [[LeafStep]] on times of `domain`. */
final class LeafStepMap(domain: TimeDomain, path: Seq[String], step: LeafStep) extends TimeMap(domain) {

  /** Index and domain of the changed leaf, and the ranges of leaves that become minimal. */
  private val (at, changed, resets) = locate(domain, path, 0)
  private val leaf = step.of(changed)
  private val minimum = domain.minimum

  private def locate(domain: TimeDomain, path: Seq[String], at: Int): (Int, Scalar, Seq[(Int, Int)]) = (domain, path) match {
    case (scalar: Scalar, Nil) => (at, scalar, Nil)
    case (composite: Composite, name +: rest) if composite.indexOf(name) >= 0 =>
      val i = composite.indexOf(name)
      val (from, until) = composite.range(i)
      val (place, scalar, resets) = locate(composite.coordinates(i)._2, rest, at + from)
      (place, scalar, if (composite.isInstanceOf[Lex]) (at + until, at + composite.width) +: resets else resets)
    case _ => throw Errors.domainMismatch(
        s"A path summary changes ${if (path.isEmpty) "a scalar time" else path.mkString(".")}, which times of $domain do not " +
          "have.")
  }

  override def apply(time: Array[Long]): Option[Array[Long]] =
    if (!leaf.has(time(at))) None
    else {
      val changed = time.clone()
      changed(at) = leaf(time(at))
      resets.foreach { case (from, until) => System.arraycopy(minimum, from, changed, from, until - from) }
      Some(changed)
    }

  override def least(time: Array[Long]): Seq[Array[Long]] = least(domain, path, time)

  private def least(domain: TimeDomain, path: Seq[String], time: Array[Long]): Seq[Array[Long]] = domain match {
    case _: Scalar => leaf.least(time(0)).map(Array(_)).toSeq
    case composite: Composite =>
      val i = composite.indexOf(path.head)
      val part = composite.coordinates(i)._2
      val (from, until) = composite.range(i)
      val (before, after) = (time.take(from), time.drop(until))
      val images = least(part, path.tail, time.slice(from, until))
      composite match {
        case _: Product => images.map(before ++ _ ++ after)
        case lex: Lex =>
          val rest = lex.minimum.drop(until)
          if (images.nonEmpty) images.map(before ++ _ ++ rest)
          else // no time with these leading coordinates has an image, so the least image of the next ones decides
            for (next <- Lex(lex.coordinates.take(i)).successors(before); image <- least(part, path.tail, part.minimum))
              yield next ++ image ++ rest
      }
  }
}
