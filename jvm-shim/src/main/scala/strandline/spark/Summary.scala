package strandline.spark

import org.json4s._

/**
 * Path summaries: what the way from a source to a column does to a time, as a list of steps.
 *
 * For a frontier `F` of the source's times, `results(F)` is the frontier of the column's times: a derived time is closed exactly
 * when every time that is mapped to it is closed.
 */
final case class Summary(steps: Seq[Step]) {
  def :+(step: Step): Summary = Summary(steps :+ step)

  def isIdentity: Boolean = steps.isEmpty

  def results(frontier: Antichain): Antichain = steps.foldLeft(frontier)((f, step) => step.results(f))

  def toJson: JValue = JArray(steps.map(_.toJson).toList)

  override def toString: String = if (isIdentity) "the time itself" else steps.mkString(", then ")
}

object Summary {
  val identity: Summary = Summary(Nil)

  /** Reads the JSON list of steps; throws when a step is unknown or malformed. */
  def parse(text: String): Summary = {
    def fail(why: String) = throw Errors.summaryInvalid(text.take(200), why)
    Json.parse(text) match {
      case Some(JArray(steps)) =>
        Summary(steps.map(step => Step.fromJson(step).getOrElse(fail(s"has the unknown step ${Json.render(step)}"))))
      case _ => fail("is not a JSON list")
    }
  }
}

/** One step of a path summary: a monotone map of times. */
sealed trait Step extends Serializable {

  /** The frontier after the step: the least times that are made of times that are still open. Throws when the step does not go with the frontier's domain. */
  def results(frontier: Antichain): Antichain

  def toJson: JValue
}

/**
 * A step to one coordinate of a composite time.
 *
 * A value of it may still appear when it does in some open time, the other coordinates being free: when an element's is ≤ it. So
 * it is in a product, and for the first coordinate of a lexicographic order; those after that one may go back.
 */
final case class CoordinateStep(name: String) extends Step {
  override def results(frontier: Antichain): Antichain = CoordinateStep.find(frontier.domain, name) match {
    case Some((start, domain)) => Antichain(domain, frontier.elements.map(_.slice(start, start + domain.width)))
    case None => throw Errors.domainMismatch(s"A path summary goes to the coordinate $name, which times of ${frontier.domain} do not have.")
  }

  override def toJson: JValue = JObject("coordinate" -> JString(name))

  override def toString: String = s"its coordinate $name"
}

object CoordinateStep {

  /** First leaf and domain of the coordinate `name`, when `domain` has it and it has a frontier of its own. */
  def find(domain: TimeDomain, name: String): Option[(Int, TimeDomain)] = domain match {
    case Product(coordinates) =>
      val at = coordinates.indexWhere(_._1.equalsIgnoreCase(name))
      if (at < 0) None else Some((coordinates.take(at).map(_._2.width).sum, coordinates(at)._2))
    case Lex(coordinates) => coordinates.headOption.filter(_._1.equalsIgnoreCase(name)).map { case (_, part) => (0, part) }
    case _ => None
  }
}

/** What a window column's rows are: structs of a start and an end, of which a time at or after the start falls before the end. */
sealed trait WindowKind extends Serializable {

  /** The least end of a window that an open time, `time` or later, may still be in; it may lie outside the range of timestamps. */
  def leastEndAfter(time: Long): BigInt

  /** The least of such windows' starts, when it is known. */
  def leastStartAfter(time: Long): Option[BigInt]

  def toJson: Seq[JField]
}

/** The windows of one `window(time, width, slide, offset)`, in microseconds. */
final case class Windows(width: Long, slide: Long, offset: Long) extends WindowKind {
  override def leastEndAfter(time: Long): BigInt = {
    val phase = BigInt(offset) + width
    BigInt(time) + slide - (BigInt(time) - phase).mod(slide)
  }

  override def leastStartAfter(time: Long): Option[BigInt] = Some(leastEndAfter(time) - width)

  override def toJson: Seq[JField] = Seq("width" -> JInt(width), "slide" -> JInt(slide), "offset" -> JInt(offset))

  override def toString: String = s"its window of $width µs every $slide µs"
}

/** The windows of `session_window`. One that is open may end right after an open time, and may have begun at any. */
case object Sessions extends WindowKind {
  override def leastEndAfter(time: Long): BigInt = BigInt(time) + 1
  override def leastStartAfter(time: Long): Option[BigInt] = None
  override def toJson: Seq[JField] = Seq("session" -> JBool(true))
  override def toString: String = "its session"
}

object WindowKind {
  def fromJson(fields: Map[String, JValue]): Option[WindowKind] = fields.get("session") match {
    case Some(JBool(true)) => Some(Sessions)
    case Some(_) => None
    case None =>
      Seq("width", "slide", "offset").flatMap(fields.get) match {
        case Seq(JInt(width), JInt(slide), JInt(offset))
            if Seq(width, slide, offset).forall(_.isValidLong) && width > 0 && slide > 0 =>
          Some(Windows(width.toLong, slide.toLong, offset.toLong))
        case _ => None
      }
  }
}

/** A step to a bound of a window: its `start`, its `end`, or its `time`, the last microsecond before the end (`window_time`). */
final case class WindowStep(bound: String, windows: WindowKind) extends Step {
  override def results(frontier: Antichain): Antichain = {
    if (frontier.domain != Scalar.timestamp)
      throw Errors.domainMismatch(s"A window is over times of timestamp, but the times are of ${frontier.domain}.")
    Antichain(Scalar.timestamp, frontier.elements.flatMap(time => least(time(0))).map(Array(_)))
  }

  /** Of the windows that hold a time ≥ `time`, the least bound; none when it is beyond the last timestamp. */
  private def least(time: Long): Option[Long] = {
    val at = bound match {
      case "start" => windows.leastStartAfter(time).getOrElse(BigInt(Long.MinValue))
      case "time" => windows.leastEndAfter(time) - 1
      case _ => windows.leastEndAfter(time)
    }
    if (at > Long.MaxValue) None else Some(at.max(Long.MinValue).toLong)
  }

  override def toJson: JValue = JObject(("window" -> JString(bound)) +: windows.toJson: _*)

  override def toString: String = s"the $bound of $windows"
}

/** A step to a time that is `distance` later, or earlier when it is negative; in a scalar domain, in its own unit. */
final case class ShiftStep(distance: Long) extends Step {
  override def results(frontier: Antichain): Antichain = frontier.domain match {
    case scalar: Scalar =>
      val moved = frontier.elements.flatMap { time =>
        val at = BigInt(time(0)) + distance
        if (at > Long.MaxValue) None else Some(Array(at.max(scalar.minimum(0)).toLong))
      }
      Antichain(scalar, moved)
    case other => throw Errors.domainMismatch(s"A path summary moves a time by $distance, which times of $other cannot be.")
  }

  override def toJson: JValue = JObject("shift" -> JInt(distance))

  override def toString: String = s"moved by $distance"
}

object Step {
  private val Bounds = Set("start", "end", "time")

  def fromJson(json: JValue): Option[Step] = json match {
    case JObject(List(("coordinate", JString(name)))) => Some(CoordinateStep(name))
    case JObject(List(("shift", JInt(distance)))) if distance.isValidLong => Some(ShiftStep(distance.toLong))
    case JObject(fields) if fields.size == 4 || fields.size == 2 =>
      for {
        bound <- fields.toMap.get("window").collect { case JString(bound) if Bounds(bound) => bound }
        windows <- WindowKind.fromJson(fields.toMap) if fields.size == 1 + windows.toJson.size
      } yield WindowStep(bound, windows)
    case _ => None
  }
}
