package strandline.spark.planner

import org.apache.spark.sql.catalyst.plans.logical.{EventTime, EventTimeTimeout}
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.python.streaming.{FlatMapGroupsInPandasWithStateExec, TransformWithStateInPySparkExec}
import org.apache.spark.sql.execution.streaming.operators.stateful.flatmapgroupswithstate.FlatMapGroupsWithStateExec
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.TransformWithStateExec
import strandline.spark.batch.BatchFrontiers
import strandline.spark.errors.Errors
import strandline.spark.time.{Antichain, Scalar, TimeColumn}

/**
 * Plans the operators with a user's own state. They are Spark's operators, with a watermark in milliseconds that states exactly
 * what the frontier states.
 *
 * A timer fires when it is ≤ the watermark, so the watermark is the last closed millisecond. Their late filter is off, as for
 * all operators, because a guard is below them.
 */
private[spark] object ArbitraryState {
  private val MicrosPerMilli = 1000L

  def transformWithState(operator: TransformWithStateExec, frontiers: BatchFrontiers): SparkPlan =
    operator.copy(
      eventTimeWatermarkForLateEvents = None,
      eventTimeWatermarkForEviction =
        if (operator.timeMode == EventTime)
          Some(watermark("transformWithState", operator.dataAttributes ++ operator.child.output, frontiers))
        else None)

  def transformWithState(operator: TransformWithStateInPySparkExec, frontiers: BatchFrontiers): SparkPlan =
    operator.copy(
      eventTimeWatermarkForLateEvents = None,
      eventTimeWatermarkForEviction =
        if (operator.timeMode == EventTime)
          Some(watermark(operator.shortName.stripSuffix("Exec"), operator.child.output, frontiers))
        else None)

  // For a group's state over a time column, Spark requires a watermark that is not below 0. The user's function sees 0 as "no
  // watermark yet".
  private val NoWatermark = Some(0L)

  def flatMapGroups(operator: FlatMapGroupsWithStateExec): SparkPlan = {
    if (operator.timeoutConf == EventTimeTimeout) refuseTimeout("flatMapGroupsWithState")
    operator.copy(eventTimeWatermarkForLateEvents = None, eventTimeWatermarkForEviction = NoWatermark)
  }

  def flatMapGroups(operator: FlatMapGroupsInPandasWithStateExec): SparkPlan = {
    if (operator.timeoutConf == EventTimeTimeout) refuseTimeout("applyInPandasWithState")
    operator.copy(eventTimeWatermarkForLateEvents = None, eventTimeWatermarkForEviction = NoWatermark)
  }

  private def refuseTimeout(name: String): Nothing =
    throw Errors.operatorUnsupported(
      s"An event-time timeout of $name",
      "Spark refuses a timeout earlier than its scalar watermark, so it cannot be set to every time that is still open",
      "Use transformWithState, whose event-time timers are exact.")

  /** Returns the last millisecond that END has closed. */
  private def watermark(operator: String, input: Seq[Attribute], frontiers: BatchFrontiers): Long = {
    def refuse(why: String) = throw Errors.operatorUnsupported(s"$operator with event-time timers", why)
    val column = input.flatMap(TimeColumn.of).distinct match {
      case Seq(column) if column.domain == Scalar.timestamp => column
      case Seq(column) => refuse(s"its timers are timestamps, but its input's times are of ${column.domain}")
      case Seq() => refuse("its input has no time column")
      case several => refuse(s"its input has several time columns (${several.mkString("; ")})")
    }
    column.frontier(frontiers.end).elements match {
      case Array() => Long.MaxValue / MicrosPerMilli
      case _ if column.frontier(frontiers.end) == column.frontier(Antichain.least(frontiers.domain)) =>
        0L // nothing is closed yet: 0, as in Spark before the first watermark
      case Array(Array(least)) if least > 0 => Math.floorDiv(least - 1, MicrosPerMilli)
      case _ => refuse("Spark's timers do not support times before 1970")
    }
  }
}
