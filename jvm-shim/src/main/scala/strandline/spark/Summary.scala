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

  /** The frontier after the steps. */
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
      case Some(JArray(steps)) => Summary(steps.map(step => Step.fromJson(step).fold(fail, Predef.identity)))
      case _ => fail("is not a JSON list")
    }
  }
}

/** One step of a summary: a monotone map of times. */
sealed trait Step {

  /** The least times that are made of times that are not closed by `frontier`. */
  def results(frontier: Antichain): Antichain

  def toJson: JValue
}

object Step {
  def fromJson(json: JValue): Either[String, Step] = json match {
    case JObject(List(("coordinate", JString(name)))) => Right(CoordinateStep(name))
    case _ => WindowStep.fromJson(json)
  }
}

/**
 * A step to one coordinate of a composite time.
 *
 * Any coordinate of a product is monotone, of a lexicographic order only the first one: those after it may go back.
 */
final case class CoordinateStep(name: String) extends Step {
  override def results(frontier: Antichain): Antichain = CoordinateStep.find(frontier.domain, name) match {
    case Some((start, domain)) => Antichain(domain, frontier.elements.map(_.slice(start, start + domain.width)))
    case None => throw Errors.domainMismatch(s"The coordinate $name was asked for of times of ${frontier.domain}.")
  }

  override def toJson: JValue = JObject("coordinate" -> JString(name))

  override def toString: String = s"the coordinate $name"
}

object CoordinateStep {

  /** First leaf and domain of the coordinate `name`, when `domain` has it and it is monotone. */
  def find(domain: TimeDomain, name: String): Option[(Int, TimeDomain)] = domain match {
    case Product(coordinates) =>
      val at = coordinates.indexWhere(_._1.equalsIgnoreCase(name))
      if (at < 0) None else Some((coordinates.take(at).map(_._2.width).sum, coordinates(at)._2))
    case Lex(coordinates) => coordinates.headOption.filter(_._1.equalsIgnoreCase(name)).map { case (_, part) => (0, part) }
    case _ => None
  }
}

/** The windows of one `window(time, width, slide, offset)`, in microseconds. */
final case class Windows(width: Long, slide: Long, offset: Long) {

  /** The least window end that is after `time`, exactly (it may lie outside the range of timestamps). */
  def leastEndAfter(time: Long): BigInt = {
    val phase = BigInt(offset) + width
    BigInt(time) + slide - (BigInt(time) - phase).mod(slide)
  }
}

/** A step to a bound of a window: its `start`, its `end`, or its `time`, the last microsecond before the end (`window_time`). */
final case class WindowStep(bound: String, windows: Windows) extends Step {

  override def results(frontier: Antichain): Antichain = {
    if (frontier.domain != Scalar.timestamp)
      throw Errors.domainMismatch(s"A window is over times of timestamp, but these are of ${frontier.domain}.")
    Antichain(Scalar.timestamp, frontier.elements.flatMap(time => least(time(0))).map(Array(_)))
  }

  /** Of the windows that hold a time ≥ `time`, the least bound; none when it is beyond the last timestamp. */
  def least(time: Long): Option[Long] = {
    val end = windows.leastEndAfter(time)
    val at = bound match {
      case "start" => end - windows.width
      case "time" => end - 1
      case _ => end
    }
    if (at > Long.MaxValue) None else Some(at.max(Long.MinValue).toLong)
  }

  override def toJson: JValue = JObject(
    "window" -> JString(bound),
    "width" -> JInt(windows.width),
    "slide" -> JInt(windows.slide),
    "offset" -> JInt(windows.offset)
  )

  override def toString: String = s"the $bound of windows of ${windows.width} µs every ${windows.slide} µs"
}

object WindowStep {
  private val Bounds = Set("start", "end", "time")

  def fromJson(json: JValue): Either[String, WindowStep] = json match {
    case JObject(fields) =>
      val values = fields.toMap
      (values.get("window"), values.get("width"), values.get("slide"), values.get("offset")) match {
        case (Some(JString(bound)), Some(JInt(width)), Some(JInt(slide)), Some(JInt(offset)))
            if Bounds(bound) && Seq(width, slide, offset).forall(_.isValidLong) && width > 0 && slide > 0 && values.size == 4 =>
          Right(WindowStep(bound, Windows(width.toLong, slide.toLong, offset.toLong)))
        case _ => Left(s"has the unknown step ${Json.render(json)}")
      }
    case other => Left(s"has the unknown step ${Json.render(other)}")
  }
}
