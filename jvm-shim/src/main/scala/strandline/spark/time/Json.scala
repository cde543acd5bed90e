package strandline.spark.time

import scala.util.control.NonFatal

import org.json4s.{JNothing, JValue}
import org.json4s.jackson.JsonMethods

/** Reads and writes JSON with Spark's json4s. */
private[spark] object Json {

  /** Parses `text`. Returns none if it is not JSON. Integers of any size stay exact. */
  def parse(text: String): Option[JValue] =
    try Some(JsonMethods.parse(text, useBigIntForLong = true)).filter(_ != JNothing)
    catch { case NonFatal(_) => None }

  def render(value: JValue): String = JsonMethods.compact(JsonMethods.render(value))
}
