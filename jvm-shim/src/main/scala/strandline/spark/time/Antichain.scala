package strandline.spark.time

import org.json4s.{JArray, JValue}

/**
 * Antichains: as a frontier, the least times that may still appear.
 *
 * A time is closed when no element is ≤ it; the empty antichain closes everything. Elements are in sort-key order, which is the
 * lexicographic order of the leaves.
 */
final class Antichain private (val domain: TimeDomain, val elements: Array[Array[Long]]) extends Serializable {

  // The hot path over a scalar domain is one comparison.
  private val isScalar = domain.isInstanceOf[Scalar]
  private val isEmpty = elements.isEmpty
  private val least: Long = if (isEmpty) 0L else elements(0)(0)

  /** Whether the time that is one leaf may still appear. */
  def lessEqual(time: Long): Boolean = !isEmpty && least <= time

  /** Whether `time` may still appear: an element is ≤ it. */
  def lessEqual(time: Array[Long]): Boolean =
    if (isScalar) lessEqual(time(0))
    else {
      var i = 0
      while (i < elements.length && !domain.lessEqual(elements(i), time, 0)) i += 1
      i < elements.length
    }

  /** The frontier of both together: a time is closed when it is closed in each. */
  def meet(other: Antichain): Antichain = Antichain(domain, elements ++ other.elements)

  /** Whether every element of `other` has one of ours ≤ it: as frontiers, that this one is not ahead of `other`. */
  def dominates(other: Antichain): Boolean = other.elements.forall(lessEqual)

  def toJson: JValue = JArray(elements.map(domain.toJson(_, 0)).toList)

  /** As a person reads it: `{}` is the empty frontier, which closes everything. */
  override def toString: String = elements.map(domain.format(_, 0)).mkString("{", ", ", "}")

  override def equals(other: Any): Boolean = other match {
    case that: Antichain => domain == that.domain && elements.corresponds(that.elements)(java.util.Arrays.equals(_, _))
    case _ => false
  }

  override def hashCode: Int = java.util.Arrays.deepHashCode(elements.toArray[AnyRef])
}

object Antichain {

  /** The minimal elements of `times`. */
  def apply(domain: TimeDomain, times: Iterable[Array[Long]]): Antichain = {
    val sorted = times.toArray.sorted(java.util.Arrays.compare(_: Array[Long], _: Array[Long]))
    // Leaf-lexicographic order extends the partial order: nothing that comes later is below what came earlier.
    val minimal = sorted.foldLeft(Vector.empty[Array[Long]]) { (kept, time) =>
      if (kept.exists(domain.lessEqual(_, time, 0))) kept else kept :+ time
    }
    new Antichain(domain, minimal.toArray)
  }

  /** The frontier that closes nothing. */
  def least(domain: TimeDomain): Antichain = new Antichain(domain, Array(domain.minimum))

  /** Reads the JSON list of times, or says what is wrong with it. */
  def fromJson(domain: TimeDomain, json: JValue): Either[String, Antichain] = json match {
    case JArray(values) =>
      values.map(domain.fromJson).partitionMap(identity) match {
        case (Nil, times) => Right(Antichain(domain, times))
        case (why :: _, _) => Left(why)
      }
    case other => Left(s"${Json.render(other)} is not a list of times")
  }
}
