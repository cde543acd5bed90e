package strandline.spark.time

import org.json4s._
import strandline.spark.errors.Errors

/**
 * A kind of window columns. Their rows are structs of a start and an end. A time in a window is at or after its start and
 * before its end.
 */
sealed trait WindowKind extends Serializable {

  /** Returns the least end of a window that may still hold a time ≥ `time`. It may be outside the range of timestamps. */
  def leastEndAfter(time: Long): BigInt

  /** Returns the least start of such windows that is not before the first timestamp, if it is known. */
  def leastStartAfter(time: Long): Option[BigInt]

  def toJson: Seq[JField]
}

/** The windows of `window(time, width, slide, offset)`, in microseconds. */
final case class Windows(width: Long, slide: Long, offset: Long) extends WindowKind {
  override def leastEndAfter(time: Long): BigInt = {
    val phase = BigInt(offset) + width
    BigInt(time) + slide - (BigInt(time) - phase).mod(slide)
  }

  override def leastStartAfter(time: Long): Option[BigInt] = {
    val first = (leastEndAfter(time) - width).max(Long.MinValue)
    Some(
      first + (BigInt(offset) - first).mod(
        slide)) // a start before the first timestamp cannot appear, so the next start is the least
  }

  override def toJson: Seq[JField] = Seq("width" -> JInt(width), "slide" -> JInt(slide), "offset" -> JInt(offset))

  override def toString: String = s"its window of $width µs every $slide µs"
}

/**
 * The windows of `session_window`. An open session may have begun at any time. It may end at an open time, because Spark merges
 * a row at exactly a session's end into the session. So the end itself must be closed.
 */
case object Sessions extends WindowKind {
  override def leastEndAfter(time: Long): BigInt = BigInt(time)
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

/**
 * A step to a bound of a window: its `start`, its `end`, or its `time`, which is the last microsecond before the end
 * (`window_time`).
 */
final case class WindowStep(bound: String, windows: WindowKind) extends Step {
  override def results(frontier: Antichain): Antichain = {
    if (frontier.domain != Scalar.timestamp)
      throw Errors.domainMismatch(s"A window is over times of timestamp, but the times are of ${frontier.domain}.")
    Antichain(Scalar.timestamp, frontier.elements.flatMap(time => least(time(0))).map(Array(_)))
  }

  /** Returns the least bound of the windows that hold a time ≥ `time`, or none if it is after the last timestamp. */
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
