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
  private var users = 0

  /** Begins to collect. `detailed`: times too, from now on until the last user stops. */
  def start(session: SparkSession, detailed: Boolean): Unit = synchronized {
    val context = session.sparkContext
    listening match {
      case Some((of, listener)) if of eq context =>
        users += 1
        if (detailed) listener.detailed = true
      case _ =>
        val listener = new ProgressListener(detailed, SparkInternals.activeQuery(session, _))
        context.addSparkListener(listener)
        listening = Some(context -> listener)
        users = 1
        // Whoever was started before has no event. Who starts now may be told twice.
        SparkInternals.activeQueries(session).foreach(listener.began(_, System.currentTimeMillis()))
    }
  }

  /** Ends collecting, if nobody else has started it. */
  def stop(session: SparkSession): Unit = synchronized {
    for ((context, listener) <- listening if context eq session.sparkContext) {
      users -= 1
      if (users == 0) {
        context.removeSparkListener(listener)
        listening = None
      }
    }
  }

  private def listener(session: SparkSession): Option[ProgressListener] =
    synchronized(listening.collect { case (context, found) if context eq session.sparkContext => found })

  /**
   * Returns what has happened from number `from` on: `{"next": number, "news": [...]}`. News is a query that has begun,
   * `{"started": id, "run", "name", "at"}`, a batch that has ended, `{"facts", "ms", "name"}`, or a query that has ended,
   * `{"terminated": id, "run", "error", "opened"}`. Much later, the oldest is forgotten.
   */
  def news(session: SparkSession, from: Long): String =
    listener(session).fold("""{"next": 0, "news": []}""")(_.newsSince(from))

  /** Returns the queries that run now, in the form of the news of their start. */
  def started(session: SparkSession): String = Json.render(JArray(listener(session).toList.flatMap(_.started)))

  /**
   * Returns what is known of a query before its first batch, as [[OpenedQuery]] says; null if it is not known yet, or has ended.
   */
  def opened(session: SparkSession, query: String): String = {
    val found = for {
      id <- Try(UUID.fromString(query)).toOption
      active <- SparkInternals.activeQuery(session, id)
      facts <- OpenedQuery.of(active)
    } yield Json.render(facts)
    found.orNull
  }

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
