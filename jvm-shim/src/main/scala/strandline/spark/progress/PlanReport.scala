package strandline.spark.progress

import java.lang.reflect.Field

import scala.collection.mutable
import scala.util.Try

import org.apache.spark.ShuffleDependency
import org.apache.spark.sql.execution._
import org.apache.spark.sql.execution.adaptive.{AdaptiveSparkPlanExec, QueryStageExec}
import org.apache.spark.sql.execution.exchange.{
  BroadcastExchangeLike, ReusedExchangeExec, ShuffleExchangeExec, ShuffleExchangeLike
}
import org.apache.spark.sql.types.Metadata
import org.json4s._
import strandline.spark.scan.StrandlineFileIndex
import strandline.spark.time.{InputFrontiers, TimeColumn}

/**
 * The operators of a batch's plan, with what Spark has counted in them, and the fragments between exchanges: a stage each.
 *
 * A value of a metric is the sum over finished tasks. An operator that Spark does not count has no `rows`. Code generation and
 * adaptive execution wrap operators; the wrappers are left out. Fragment 0 has the plan's root.
 */
private[spark] final class PlanReport(plan: SparkPlan, planned: Option[PlannedBatch]) {
  private val nodes = mutable.ArrayBuffer.empty[JObject]
  private val shuffles = mutable.ArrayBuffer[Option[Int]](None)
  private val seen = mutable.HashMap.empty[Int, Int]
  private val known = mutable.HashMap.empty[(Option[String], Metadata), List[(String, JValue)]]

  visit(plan, 0)

  def operators: JArray = JArray(nodes.toList)

  /** The shuffle that each fragment writes. None: the fragment writes no shuffle, or Spark has not begun it. */
  def fragments: Seq[Option[Int]] = shuffles.toSeq

  private def visit(node: SparkPlan, fragment: Int): Int = node match {
    case adaptive: AdaptiveSparkPlanExec => visit(adaptive.executedPlan, fragment)
    case stage: QueryStageExec => visit(stage.plan, fragment)
    case wrapper: WholeStageCodegenExec => visit(wrapper.child, fragment)
    case wrapper: InputAdapter => visit(wrapper.child, fragment)
    case reused: ReusedExchangeExec => visit(reused.child, fragment)
    case exchange: ShuffleExchangeLike => shared(exchange)(below => write(exchange, PlanReport.shuffleOf(exchange), below))
    case exchange: BroadcastExchangeLike => shared(exchange)(below => write(exchange, None, below))
    case other => add(other, fragment, other.children.map(visit(_, fragment)))
  }

  /** A reused exchange is in the plan at several places, and is one operator. */
  private def shared(exchange: SparkPlan)(make: Int => Int): Int =
    seen.getOrElseUpdate(exchange.id, {
        shuffles += None
        make(shuffles.size - 1)
      })

  private def write(exchange: SparkPlan, shuffle: Option[Int], fragment: Int): Int = {
    shuffles(fragment) = shuffle
    add(exchange, fragment, exchange.children.map(visit(_, fragment)))
  }

  private def add(node: SparkPlan, fragment: Int, children: Seq[Int]): Int = {
    val values = node.metrics.toSeq.sortBy(_._1).map { case (name, metric) => name -> math.max(0L, metric.value) }
    val rows = values.collectFirst { case ("shuffleRecordsWritten", n) => n }.orElse(
      values.collectFirst { case ("numOutputRows", n) => n })
    val fields = List[(String, JValue)](
      "name" -> JString(node.nodeName),
      "fragment" -> JInt(fragment),
      "children" -> JArray(children.map(JInt(_)).toList),
      "metrics" -> JObject(values.collect { case (name, n) if PlanReport.Shown(name) => name -> JInt(n) }.toList))
    val source = node match {
      case scan: StreamSourceAwareSparkPlan => scan.getStream
      case _ => None
    }
    val index = for (batch <- planned; stream <- source; found <- batch.indexOf(stream)) yield "source" -> JInt(found)
    val channel = node match {
      case scan: FileSourceScanLike => Option(scan.relation.location).collect { case files: StrandlineFileIndex =>
          files.channel
        }.flatten
      case _ => None
    }
    nodes += JObject(fields ++ channel.map("channel" -> JString(_)) ++ rows.map("rows" -> JInt(_)) ++ index ++ frontierOf(node))
    nodes.size - 1
  }

  /** The frontiers of the time column that the operator puts out, before and after the batch. */
  private def frontierOf(node: SparkPlan): List[(String, JValue)] = {
    // A write puts out nothing. What it wrote has the times of its input.
    val output = if (node.output.isEmpty && node.children.size == 1) node.children.head.output else node.output
    for {
      frontiers <- planned.flatMap(_.frontiers).toList
      time <- output.find(TimeColumn.of(_).isDefined).toList
      own = node match {
        case scan: StreamSourceAwareSparkPlan => scan.getStream.flatMap(frontiers.sources.get)
        case _ => None
      }
      field <- known.getOrElseUpdate(
        (own.map(_.name), time.metadata), {
          val (start, end) = own.fold((frontiers.start, frontiers.end))(each => (each.start, each.end))
          Try(fields(start, end, TimeColumn.of(time).get)).getOrElse(Nil)
        })
    } yield field
  }

  private def fields(start: InputFrontiers, end: InputFrontiers, column: TimeColumn): List[(String, JValue)] = {
    val after = column.frontier(end)
    List("domain" -> JString(after.domain.toString), "start" -> column.frontier(start).toJson, "end" -> after.toJson)
  }
}

private[spark] object PlanReport {
  private val Shown =
    Set("recordsRead", "pythonNumRowsReceived", "numTotalStateRows", "numUpdatedStateRows", "numRemovedStateRows", "numOpenTimes")

  // The exchange makes its shuffle when it begins. A report must not make it begin, so it looks at the field of the lazy value.
  private lazy val dependency: Option[Field] = Try {
    val field = classOf[ShuffleExchangeExec].getDeclaredField("shuffleDependency")
    field.setAccessible(true)
    field
  }.toOption

  private def shuffleOf(exchange: ShuffleExchangeLike): Option[Int] = exchange match {
    case own: ShuffleExchangeExec =>
      dependency.flatMap(field => Option(field.get(own))).collect { case made: ShuffleDependency[_, _, _] => made.shuffleId }
    case _ => None
  }
}
