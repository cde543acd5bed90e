package strandline.spark.progress

import java.util.UUID

import scala.util.Try

import org.apache.spark.SparkContext
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.state.strandline.{FigureSource, SparkInternals}
import org.json4s._
import strandline.spark.time.Json

/** What Python asks for reports on progress. Every answer is JSON, and none waits for a batch. */
object Progress {
  private var listening: Option[(SparkContext, ProgressListener)] = None

  /** Begins to collect. `detailed`: times too. What was asked for once stays on until [[stop]]. */
  def start(session: SparkSession, detailed: Boolean): Unit = synchronized {
    val context = session.sparkContext
    listening match {
      case Some((of, listener)) if of eq context => listener.detailed = detailed
      case _ =>
        val listener = new ProgressListener(detailed)
        context.addSparkListener(listener)
        listening = Some(context -> listener)
    }
  }

  /** Ends collecting. */
  def stop(session: SparkSession): Unit = synchronized {
    listening.foreach { case (context, listener) => if (context eq session.sparkContext) context.removeSparkListener(listener) }
    listening = None
  }

  private def listener(session: SparkSession): Option[ProgressListener] =
    synchronized(listening.collect { case (context, found) if context eq session.sparkContext => found })

  /** Returns the ended batches of a query after batch `after` as a JSON array, the newest last. */
  def ended(session: SparkSession, query: String, after: Long): String =
    listener(session).toSeq.flatMap(_.ended(query, after)).mkString("[", ",", "]")

  /** Returns the batch that a query runs now as a JSON object; null if there is none. */
  def running(session: SparkSession, query: String): String = {
    val found = for {
      id <- Try(UUID.fromString(query)).toOption
      active <- SparkInternals.activeQuery(session, id)
      each <- listener(session)
      text <- each.running(active)
    } yield text
    found.orNull
  }

  /**
   * Sets figures of Spark's metrics system. `source` is the name under which any of its sinks has them. `values` is a JSON object
   * of numbers. A figure that is left out is not a number from now on.
   */
  def figures(source: String, values: String): Unit = {
    val numbers = Json.parse(values).collect { case JObject(fields) =>
      fields.collect {
        case (name, JDouble(value)) => name -> value
        case (name, JInt(value)) => name -> value.toDouble
        case (name, JString(text)) => name -> text.toDoubleOption.getOrElse(Double.NaN)
      }
    }
    FigureSource.set(source, numbers.getOrElse(Nil).toMap)
  }

  /** Takes the figures of a source out of Spark's metrics system. */
  def withdraw(source: String): Unit = FigureSource.remove(source)
}
