package strandline.spark.time

import scala.util.control.NonFatal

import org.json4s.{JNothing, JValue}
import org.json4s.jackson.JsonMethods

/** JSON in and out, with the json4s that Spark carries. */
private[spark] object Json {

  /** The value that `text` writes, or none when it is no JSON. Integers of any size stay exact. */
  def parse(text: String): Option[JValue] =
    try Some(JsonMethods.parse(text, useBigIntForLong = true)).filter(_ != JNothing)
    catch { case NonFatal(_) => None }

  def render(value: JValue): String = JsonMethods.compact(JsonMethods.render(value))
}
