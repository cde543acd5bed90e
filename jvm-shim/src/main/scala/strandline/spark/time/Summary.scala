package strandline.spark.time

import scala.util.Try

import org.json4s._
import strandline.spark.errors.Errors

/**
 * A path summary: the effect on a time of the path from a source to a column, as a list of steps.
 *
 * If `F` is the frontier of the source's times, `results(F)` is the frontier of the column's times. A derived time is closed
 * exactly if every time that is mapped to it is closed.
 */
final case class Summary(steps: Seq[Step]) {
  import Summary._

  def :+(step: Step): Summary = Summary(steps :+ step)

  def followedBy(other: Summary): Summary = Summary(steps ++ other.steps)

  def isIdentity: Boolean = steps.isEmpty

  def results(frontier: Antichain): Antichain = steps.foldLeft(frontier)((f, step) => step.results(f))

  /** The frontier of the column's times, from those of all sources and inputs. Each path begins at its own. */
  def results(sources: InputFrontiers): Antichain = steps match {
    case InputStep(name) +: rest => Summary(rest).results(sources.of(name))
    case LeastStep(paths, _) +: rest => Summary(rest).results(LeastStep.meet(paths.map(_.results(sources))))
    case _ => results(sources.all)
  }

  /** The inputs by which a time may come. None stands for all sources together. */
  def inputs: Set[Option[String]] = paths.map(_._1).toSet

  /** The summary if all sources and inputs have one frontier together, step for step as a release without inputs had it. */
  def together: Summary = Summary(steps.flatMap {
    case _: InputStep => Nil
    case LeastStep(_, Some(together)) => together.steps
    case LeastStep(paths, None) => LeastStep.of(paths.map(_.together)).steps
    case step => Seq(step)
  })

  /** The same paths, each from all of `starts`. */
  def from(starts: Set[Option[String]]): Summary =
    if (inputs == starts && paths.map(_._2).distinct.size == 1) this
    else if (starts.contains(None)) together
    else LeastStep.of(starts.toSeq.flatten.sorted.map(input => Summary(Seq(InputStep(input))))).followedBy(together)

  /** The same paths, each also from `others`, for times that come when rows of these inputs come. */
  def alsoFrom(others: Set[Option[String]]): Summary = from(inputs ++ others)

  /** Each path as its input and the steps from there. */
  private def paths: Seq[(Option[String], Summary)] = steps match {
    case InputStep(name) +: rest => Seq(Some(name) -> Summary(rest))
    case LeastStep(several, _) +: rest if several.exists(_.inputs != Everywhere) =>
      several.flatMap(_.paths).map { case (input, path) => input -> Summary(path.steps ++ rest) }
    case _ => Seq(None -> this)
  }

  def toJson: JValue = JArray(steps.map(_.toJson).toList)

  override def toString: String = if (isIdentity) "the time itself" else steps.mkString(", then ")
}

object Summary {
  val identity: Summary = Summary(Nil)

  /** What a path says that begins at all sources together. */
  val Everywhere: Set[Option[String]] = Set(None)

  /** Parses a JSON list of steps. Throws if a step is unknown or malformed. */
  def parse(text: String): Summary = {
    def fail(why: String) = throw Errors.summaryInvalid(text.take(200), why)
    Json.parse(text) match {
      case Some(JArray(steps)) =>
        Summary(steps.map(step => Step.fromJson(step).getOrElse(fail(s"has the unknown step ${Json.render(step)}"))))
      case _ => fail("is not a JSON list")
    }
  }

  /** Reads parsed JSON. Returns none if it is not a summary. */
  def fromJson(json: JValue): Option[Summary] = json match {
    case JArray(steps) =>
      val read = steps.map(Step.fromJson)
      if (read.forall(_.isDefined)) Some(Summary(read.flatten)) else None
    case _ => None
  }
}

/** One step of a path summary: a monotone map of times. */
trait Step extends Serializable {

  /**
   * Returns the frontier after the step: the least images of the open times. Throws if the step does not fit the frontier's
   * domain.
   */
  def results(frontier: Antichain): Antichain

  def toJson: JValue
}

/** The first step of a path from one input of a source of several channels. It changes no time. */
final case class InputStep(name: String) extends Step {
  override def results(frontier: Antichain): Antichain = frontier

  override def toJson: JValue = JObject("input" -> JString(name))

  override def toString: String = s"those of $name"
}

/**
 * The least of several paths: a time may come by each of them.
 *
 * A union or a join of times with different summaries has such a step. In timely, the summary of paths that meet is an
 * antichain.
 *
 * `together`: the summary if all inputs have one frontier ([[Summary.together]]), where it is not the least of the same paths.
 */
final case class LeastStep(paths: Seq[Summary], together: Option[Summary] = None) extends Step {
  override def results(frontier: Antichain): Antichain = LeastStep.meet(paths.map(_.results(frontier)))

  override def toJson: JValue =
    JObject(("least" -> JArray(paths.map(_.toJson).toList)) :: together.map(summary => "together" -> summary.toJson).toList)

  override def toString: String = paths.mkString("the least of [", "] and [", "]")
}

object LeastStep {

  private[time] def meet(frontiers: Seq[Antichain]): Antichain = frontiers.reduce { (a, b) =>
    if (a.domain != b.domain)
      throw Errors.domainMismatch(s"Two paths meet, but their times are of ${a.domain} and of ${b.domain}.")
    a.meet(b)
  }

  /** Returns the summary of several paths. */
  def of(paths: Seq[Summary]): Summary = paths.flatMap {
    case Summary(Seq(LeastStep(several, None))) => several
    case one => Seq(one)
  }.distinct match {
    case Seq(one) => one
    case several => Summary(Seq(LeastStep(several)))
  }
}

object Step {
  private val Bounds = Set("start", "end", "time")

  def fromJson(json: JValue): Option[Step] = json match {
    case JObject(fields) if fields.map(_._1).distinct.size == fields.size =>
      val named = fields.toMap
      named.keySet match {
        case keys if keys == Set("input") => Some(named("input")).collect { case JString(name) => InputStep(name) }
        case keys if keys == Set("coordinate") => pathOf(named).collect { case Seq(name) => CoordinateStep(name) }
        case keys if keys == Set("coordinates") =>
          named("coordinates") match {
            case JArray(names) if names.nonEmpty && names.forall(_.isInstanceOf[JString]) =>
              Some(CoordinatesStep(names.collect { case JString(name) => name }))
            case _ => None
          }
        case keys if keys == Set("enter") =>
          Some(named("enter")).collect { case JString(domain) => domain }.flatMap(domain =>
            Try(TimeDomain.parse(domain)).toOption).map(EnterStep(_))
        case keys if keys - "coordinate" == Set("shift") =>
          for (path <- pathOf(named); distance <- integer(named("shift")) if distance.abs <= ShiftStep.Most)
            yield ShiftStep(distance, path)
        case keys if keys - "coordinate" == Set("truncate", "offset") =>
          for {
            path <- pathOf(named)
            unit <- integer(named("truncate")) if unit > 0 && unit.isValidLong
            offset <- integer(named("offset")) if offset.isValidLong
          } yield TruncateStep(unit.toLong, offset.toLong, path)
        case keys if keys - "together" == Set("least") =>
          val together = named.get("together").map(Summary.fromJson)
          named("least") match {
            case JArray(paths) if paths.nonEmpty && !together.contains(None) =>
              val read = paths.map(Summary.fromJson)
              if (read.forall(_.isDefined)) Some(LeastStep(read.flatten, together.flatten)) else None
            case _ => None
          }
        case _ =>
          for {
            bound <- named.get("window").collect { case JString(bound) if Bounds(bound) => bound }
            windows <- WindowKind.fromJson(named) if fields.size == 1 + windows.toJson.size
            if bound != "start" || windows != Sessions // an open session may have begun at any time
          } yield WindowStep(bound, windows)
      }
    case _ => None
  }

  private def integer(json: JValue): Option[BigInt] = json match {
    case JInt(value) => Some(value)
    case _ => None
  }

  /** Returns the names in `a.b`, or an empty list if no coordinate is named. */
  private def pathOf(fields: Map[String, JValue]): Option[Seq[String]] = fields.get("coordinate") match {
    case None => Some(Nil)
    case Some(JString(path)) if path.nonEmpty => Some(path.split("\\.", -1).toSeq)
    case Some(_) => None
  }
}
