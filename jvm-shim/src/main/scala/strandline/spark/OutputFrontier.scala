package strandline.spark

import org.apache.spark.SparkContext
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreSaveExec
import org.apache.spark.sql.streaming.OutputMode
import org.json4s._

/**
 * Tells the batch's tasks the frontier of its output, before and after, as the local property `strandline.output`.
 *
 * It is that of the output's one time column. A plan from which no frontier follows says so in the field `error`, and the
 * strandline sink refuses it; other sinks do not look.
 */
private[spark] object OutputFrontier {
  val Property = "strandline.output"

  def publish(context: SparkContext, plan: SparkPlan, frontiers: BatchFrontiers): Unit =
    context.setLocalProperty(Property, Json.render(of(plan, frontiers)))

  /** A plan without a frontier has none, even when its thread was started from a batch that has. */
  def withdraw(context: SparkContext): Unit =
    if (context.getLocalProperty(Property) != null) context.setLocalProperty(Property, null)

  private def of(plan: SparkPlan, frontiers: BatchFrontiers): JValue = {
    val query = queryOf(plan)
    query.output.flatMap(attribute => TimeColumn.of(attribute).map(attribute -> _)) match {
      case _ if emitsAnew(query) =>
        error("Output mode complete emits every time anew in each batch, so no time of the output is ever closed. Use append.")
      case Seq((_, column)) if column.windows.isEmpty =>
        JObject(
          "domain" -> JString(column.domain.toString),
          "start" -> column.frontier(frontiers.start).toJson,
          "end" -> column.frontier(frontiers.end).toJson
        )
      case Seq((attribute, _)) =>
        error(s"Column ${attribute.name} is a window, not a time. Select ${attribute.name}.start or ${attribute.name}.end.")
      case Seq() => error("No column of the output is the source's time, or made of it by a window, advance, truncate or project. Select one.")
      case several => error(s"Several columns of the output are times: ${names(several.map(_._1))}. Select one.")
    }
  }

  private def error(why: String): JValue = JObject("error" -> JString(why))

  private def names(attributes: Seq[Attribute]): String = attributes.map(_.name).mkString(", ")

  /** The plan whose rows the sink takes: below a write command, which has no output. */
  private def queryOf(plan: SparkPlan): SparkPlan =
    if (plan.output.isEmpty && plan.children.size == 1) queryOf(plan.children.head) else plan

  private def emitsAnew(plan: SparkPlan): Boolean = plan.exists {
    case save: StateStoreSaveExec => save.outputMode.contains(OutputMode.Complete())
    case _ => false
  }
}
