package strandline.spark.compat

import java.util.{Map => JMap}

import scala.util.control.NonFatal

import net.razorvine.pickle.Unpickler

/** Reads the input partitions of Python data sources, which Spark passes on as pickled objects. */
private[spark] object PythonPartition {

  /** Returns the JSON of a pickled `InputPartition(json)`, or none if the object is something else. */
  def json(pickled: Array[Byte]): Option[String] =
    try new Unpickler().loads(pickled) match {
        case fields: JMap[_, _] => Option(fields.get("value")).collect { case text: String => text }
        case _ => None
      }
    catch { case NonFatal(_) => None }
}
