package strandline.spark.time

import org.json4s.{JArray, JValue}

/**
 * An antichain of times. As a frontier, it holds the least times that may still appear.
 *
 * A time is closed when no element is ≤ it. The empty antichain closes everything. Elements are in the lexicographic order of
 * their leaves.
 */
final class Antichain private (val domain: TimeDomain, val elements: Array[Array[Long]]) extends Serializable {

  // For a scalar domain the test of a time is one comparison.
  private val isScalar = domain.isInstanceOf[Scalar]
  private val isEmpty = elements.isEmpty
  private val least: Long = if (isEmpty) 0L else elements(0)(0)

  /** Whether a time with one leaf may still appear. */
  def lessEqual(time: Long): Boolean = !isEmpty && least <= time

  /** Whether `time` may still appear: some element is ≤ it. */
  def lessEqual(time: Array[Long]): Boolean =
    if (isScalar) lessEqual(time(0))
    else {
      var i = 0
      while (i < elements.length && !domain.lessEqual(elements(i), time, 0)) i += 1
      i < elements.length
    }

  /** Returns the frontier of both together. A time is closed if both close it. */
  def meet(other: Antichain): Antichain = Antichain(domain, elements ++ other.elements)

  /** Whether every element of `other` has an element of this antichain ≤ it. As frontiers: this one is not ahead of `other`. */
  def dominates(other: Antichain): Boolean = other.elements.forall(lessEqual)

  def toJson: JValue = JArray(elements.map(domain.toJson(_, 0)).toList)

  /** The readable form. `{}` is the empty frontier, which closes everything. */
  override def toString: String = elements.map(domain.format(_, 0)).mkString("{", ", ", "}")

  override def equals(other: Any): Boolean = other match {
    case that: Antichain => domain == that.domain && elements.corresponds(that.elements)(java.util.Arrays.equals(_, _))
    case _ => false
  }

  override def hashCode: Int = java.util.Arrays.deepHashCode(elements.toArray[AnyRef])
}

object Antichain {

  /** Returns the minimal elements of `times`. */
  def apply(domain: TimeDomain, times: Iterable[Array[Long]]): Antichain = {
    val sorted = times.toArray.sorted(java.util.Arrays.compare(_: Array[Long], _: Array[Long]))
    // Lexicographic order extends the partial order: a later element is never below an earlier one.
    val minimal = sorted.foldLeft(Vector.empty[Array[Long]]) { (kept, time) =>
      if (kept.exists(domain.lessEqual(_, time, 0))) kept else kept :+ time
    }
    new Antichain(domain, minimal.toArray)
  }

  /** Returns the frontier that closes nothing. */
  def least(domain: TimeDomain): Antichain = new Antichain(domain, Array(domain.minimum))

  /** Reads a JSON list of times. Returns an error text if it is invalid. */
  def fromJson(domain: TimeDomain, json: JValue): Either[String, Antichain] = json match {
    case JArray(values) =>
      values.map(domain.fromJson).partitionMap(identity) match {
        case (Nil, times) => Right(Antichain(domain, times))
        case (why :: _, _) => Left(why)
      }
    case other => Left(s"${Json.render(other)} is not a list of times")
  }
}

/**
 * The frontier of all sources of a query together, and that of each input of a source of several channels, by its name.
 *
 * A path summary that begins at an input ([[InputStep]]) has the input's frontier. In timely, each input port has its own.
 */
final case class InputFrontiers(all: Antichain, inputs: Map[String, Antichain] = Map.empty) {
  def domain: TimeDomain = all.domain

  /** The frontier of an input; of all sources together where the offset does not state its own. */
  def of(input: String): Antichain = inputs.getOrElse(input, all)
}

object InputFrontiers {

  /**
   * Returns the frontiers of several sources together. Two sources may have inputs of one name. A source that states no inputs
   * may have one of that name, so it counts as a whole.
   */
  def together(sources: Seq[InputFrontiers]): InputFrontiers = InputFrontiers(
    sources.map(_.all).reduce(_ meet _),
    sources.flatMap(_.inputs.keys).distinct.map { name =>
      name -> sources.filter(each => each.inputs.isEmpty || each.inputs.contains(name)).map(_.of(name)).reduce(_ meet _)
    }.toMap)
}
