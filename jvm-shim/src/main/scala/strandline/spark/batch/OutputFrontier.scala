package strandline.spark.batch

import org.apache.spark.SparkContext
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.sql.streaming.OutputMode
import org.json4s._
import strandline.spark.time.{Json, TimeColumn}

/**
 * Publishes the frontier of the batch's output, before and after the batch, to its tasks as the local property
 * `strandline.output`.
 *
 * It is the frontier of the single time column in the query's output, by the analysed plan of the whole query. A fragment that
 * adaptive execution plans by itself, or an optimized plan, does not determine the query's output. If no frontier follows, the
 * field `error` says why, and the strandline sink refuses the query. Other sinks do not look.
 */
private[spark] object OutputFrontier {
  val Property = "strandline.output"

  def publish(context: SparkContext, query: StreamExecution, frontiers: BatchFrontiers): Unit =
    context.setLocalProperty(Property, Json.render(of(query, frontiers)))

  /** Clears the property for a query without a frontier, whose thread may have been started from a batch with one. */
  def withdraw(context: SparkContext): Unit =
    if (context.getLocalProperty(Property) != null) context.setLocalProperty(Property, null)

  private def of(query: StreamExecution, frontiers: BatchFrontiers): JValue =
    query.analyzedPlan.output.flatMap(attribute => TimeColumn.of(attribute).map(attribute -> _)) match {
      case _ if query.outputMode == OutputMode.Complete() =>
        error("Output mode complete emits every time again in each batch, so no time of the output is ever closed. Use append.")
      case Seq((_, column)) if column.windows.isEmpty =>
        JObject(
          "domain" -> JString(column.domain.toString),
          "start" -> column.frontier(frontiers.start).toJson,
          "end" -> column.frontier(frontiers.end).toJson
        )
      case Seq((attribute, _)) =>
        error(s"Column ${attribute.name} is a window, not a time. Select ${attribute.name}.start or ${attribute.name}.end.")
      case Seq() => error("No column of the output is the source's time, or derived from it by a window, advance, truncate or project. Select one.")
      case several => error(s"Several columns of the output are times: ${names(several.map(_._1))}. Select one.")
    }

  private def error(why: String): JValue = JObject("error" -> JString(why))

  private def names(attributes: Seq[Attribute]): String = attributes.map(_.name).mkString(", ")
}
