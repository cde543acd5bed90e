package strandline.spark.time

import org.json4s._
import strandline.spark.errors.Errors

/** What a window column's rows are: structs of a start and an end, of which a time at or after the start falls before the end. */
sealed trait WindowKind extends Serializable {

  /** The least end of a window that an open time, `time` or later, may still be in; it may lie outside the range of timestamps. */
  def leastEndAfter(time: Long): BigInt

  /** The least of such windows' starts that is in the range of timestamps or after it, when it is known. */
  def leastStartAfter(time: Long): Option[BigInt]

  def toJson: Seq[JField]
}

/** The windows of one `window(time, width, slide, offset)`, in microseconds. */
final case class Windows(width: Long, slide: Long, offset: Long) extends WindowKind {
  override def leastEndAfter(time: Long): BigInt = {
    val phase = BigInt(offset) + width
    BigInt(time) + slide - (BigInt(time) - phase).mod(slide)
  }

  override def leastStartAfter(time: Long): Option[BigInt] = {
    val first = (leastEndAfter(time) - width).max(Long.MinValue)
    Some(first + (BigInt(offset) - first).mod(slide)) // a start before the first timestamp has no place: the next one's stands for it
  }

  override def toJson: Seq[JField] = Seq("width" -> JInt(width), "slide" -> JInt(slide), "offset" -> JInt(offset))

  override def toString: String = s"its window of $width µs every $slide µs"
}

/**
 * The windows of `session_window`. One that is open may have begun at any time, and may end at an open time: Spark merges a row at
 * exactly a session's end into it, so the end itself must be closed.
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
