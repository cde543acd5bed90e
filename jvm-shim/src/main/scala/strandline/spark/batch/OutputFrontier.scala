package strandline.spark.batch

import org.apache.spark.SparkContext
import org.apache.spark.sql.catalyst.expressions.{Alias, Attribute, CreateNamedStruct, Literal, NamedExpression}
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, Project, SubqueryAlias, Union}
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperator
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.sql.execution.streaming.state.strandline.SparkInternals
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
 *
 * A query with several outputs has one frontier for each. Its output is a union of projections, or one projection. Each has a
 * struct with the rows of some outputs, whose metadata `strandline.output` has, for each of them, the field with its time.
 *
 * `reads` has the ids of the channels that the query reads, and `feedback` those of its loop that it writes, so that the sink
 * finds a loop that is not declared. `loop` is what the query states to the other queries of the loop. `positions` has how far it
 * has read each channel after the batch, for the sink's record of its inputs. `tables` has the tables that the batch reads beside
 * its streams, each at a version. `rounding`: a repeated batch may have other roundings, and lists in another order. `checkpoint`
 * is where the sink keeps a record of its commits. In a query's first batch, `otherSources` is how many of its sources are not
 * ours, `running` has the ids of all queries of this driver, and `state` says what its operators keep.
 */
private[spark] object OutputFrontier {
  val Property = "strandline.output"
  private val OutputKey = "strandline.output"
  private val ByBatches = Seq("WithinWatermark", "DeduplicateWithin", "GroupsWithState", "PandasWithState", "TransformWithState")

  def publish(context: SparkContext, query: StreamExecution, frontiers: BatchFrontiers, plan: Option[SparkPlan],
      tables: Seq[JObject] = Nil): Unit =
    context.setLocalProperty(Property,
      Json.render(of(query, frontiers) match {
        case JObject(fields) =>
          val reads = "reads" -> JArray(frontiers.channels.map(JString(_)).toList)
          val positions = "positions" -> JArray(frontiers.positions.toList)
          val checkpoint = "checkpoint" -> JString(query.resolvedCheckpointRoot)
          JObject(fields ++ (List(reads, positions, checkpoint) ++ Option.when(tables.nonEmpty)(
            "tables" -> JArray(tables.toList)) ++ Option.when(RowOrder.counts(query))("rounding" -> JBool(true)) ++ first(query,
            frontiers, plan) ++ frontiers.feedback.map("feedback" -> _) ++ frontiers.loop.map("loop" -> _)))
        case other => other
      }))

  /** What the sink must know of the first batch of a query that goes on with an output of another one. */
  private def first(query: StreamExecution, frontiers: BatchFrontiers, plan: Option[SparkPlan]): List[(String, JValue)] =
    if (query.getLatestExecutionContext().batchId != 0) Nil
    else {
      val running = SparkInternals.activeQueries(query.sparkSession).map(each => JString(each.id.toString))
      List("otherSources" -> JInt(frontiers.otherSources), "running" -> JArray(running.toList),
        "state" -> plan.fold(known(query))(batch => JString(stateOf(batch))))
    }

  /** What the batch's own plan keeps, as it was published before another plan of the same batch, such as a subquery's. */
  private def known(query: StreamExecution): JValue = {
    val before = Option(query.sparkSession.sparkContext.getLocalProperty(Property)).flatMap(Json.parse)
    before.map(_ \ "state").collect { case state: JString => state }.getOrElse(JString("batches"))
  }

  /** `none`; or `rows`, which depend on the rows alone; or `batches`, which depend on how rows are cut into batches. */
  private def stateOf(plan: SparkPlan): String = {
    val kept = plan.collect { case operator: StatefulOperator => operator.nodeName }
    if (kept.isEmpty) "none" else if (kept.exists(name => ByBatches.exists(name.contains))) "batches" else "rows"
  }

  /** Clears the property for a query without a frontier, whose thread may have been started from a batch with one. */
  def withdraw(context: SparkContext): Unit =
    if (context.getLocalProperty(Property) != null) context.setLocalProperty(Property, null)

  private def of(query: StreamExecution, frontiers: BatchFrontiers): JValue = {
    val plan = query.analyzedPlan
    if (query.outputMode == OutputMode.Complete())
      error("Output mode complete emits every time again in each batch, so no time of the output is ever closed. Use append.")
    else severalOf(plan) match {
      case Nil => of(plan.output, frontiers)
      case several =>
        // Two structs with one name would be a plan that write_outputs and route do not make.
        val each = several.groupMap(_._1)(_._2).map {
          case (name, Seq(times)) => name -> of(times, frontiers)
          case (name, _) => name -> error(s"Several branches of the plan are the output $name.")
        }
        JObject("outputs" -> JObject(each.toList))
    }
  }

  private def of(times: Seq[Attribute], frontiers: BatchFrontiers): JValue =
    times.flatMap(attribute => TimeColumn.of(attribute).map(attribute -> _)) match {
      case Seq((_, column)) if column.windows.isEmpty =>
        JObject(
          "domain" -> JString(column.domain.toString),
          "start" -> column.frontier(frontiers.start).toJson,
          "end" -> column.frontier(frontiers.end).toJson,
          "summary" -> column.summary.toJson)
      case Seq((attribute, _)) =>
        error(s"Column ${attribute.name} is a window, not a time. Select ${attribute.name}.start or ${attribute.name}.end.")
      case Seq() => error(
          "No column of the output is the source's time, or derived from it by a window, advance, truncate, project or enter. " +
            "Select one.")
      case several => error(s"Several columns of the output are times: ${names(several.map(_._1))}. Select one.")
    }

  /** Returns the name of each of several outputs, with the column of its times. Empty if the query has one output. */
  private def severalOf(plan: LogicalPlan): Seq[(String, Seq[Attribute])] = plan match {
    case SubqueryAlias(_, child) => severalOf(child)
    case union: Union => union.children.flatMap(severalOf)
    case project: Project =>
      for {
        (struct, metadata) <- project.projectList.collect {
          case a @ Alias(s: CreateNamedStruct, _) if a.metadata.contains(OutputKey) => s -> a.metadata.getString(OutputKey)
        }
        fields <- Json.parse(metadata).collect { case JObject(fields) => fields.toMap }.toSeq
        (output, JString(time)) <- fields.toSeq
      } yield output -> timesIn(struct, time)
    case _ => Nil
  }

  private def timesIn(struct: CreateNamedStruct, name: String): Seq[Attribute] =
    struct.nameExprs.zip(struct.valExprs).collect {
      case (Literal(field, _), value: NamedExpression) if field != null && field.toString == name => value.toAttribute
    }

  private def error(why: String): JValue = JObject("error" -> JString(why))

  private def names(attributes: Seq[Attribute]): String = attributes.map(_.name).mkString(", ")
}
