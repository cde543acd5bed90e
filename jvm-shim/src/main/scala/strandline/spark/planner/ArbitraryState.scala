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
 * The operators with a user's own state: Spark's, told a watermark that says exactly what the frontier says, in their milliseconds.
 *
 * Their timers fire when they are ≤ the watermark, so it is the last millisecond that the frontier has closed. Their late filter
 * is off, as everywhere: a guard stands before them.
 */
private[spark] object ArbitraryState {
  private val MicrosPerMilli = 1000L

  def transformWithState(operator: TransformWithStateExec, frontiers: BatchFrontiers): SparkPlan =
    operator.copy(
      eventTimeWatermarkForLateEvents = None,
      eventTimeWatermarkForEviction =
        if (operator.timeMode == EventTime) Some(watermark("transformWithState", operator.dataAttributes ++ operator.child.output, frontiers)) else None
    )

  def transformWithState(operator: TransformWithStateInPySparkExec, frontiers: BatchFrontiers): SparkPlan =
    operator.copy(
      eventTimeWatermarkForLateEvents = None,
      eventTimeWatermarkForEviction =
        if (operator.timeMode == EventTime) Some(watermark(operator.shortName.stripSuffix("Exec"), operator.child.output, frontiers)) else None
    )

  // Spark demands one, not below 0, for a group's state over a time column; to the user's function it reads as "none yet".
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
      "Use transformWithState, whose event-time timers are exact."
    )

  /** The last millisecond that END has closed. */
  private def watermark(operator: String, input: Seq[Attribute], frontiers: BatchFrontiers): Long = {
    def refuse(why: String) = throw Errors.operatorUnsupported(s"$operator with event-time timers", why)
    val column = input.flatMap(TimeColumn.of).distinct match {
      case Seq(column) if column.domain == Scalar.timestamp => column
      case Seq(column) => refuse(s"its timers are timestamps, its input's times are of ${column.domain}")
      case Seq() => refuse("its input has no time column")
      case several => refuse(s"its input has several time columns (${several.mkString("; ")})")
    }
    column.frontier(frontiers.end).elements match {
      case Array() => Long.MaxValue / MicrosPerMilli
      case _ if frontiers.end == Antichain.least(frontiers.domain) => 0L // nothing is closed yet: as in Spark before the first watermark
      case Array(Array(least)) if least > 0 => Math.floorDiv(least - 1, MicrosPerMilli)
      case _ => refuse("times before 1970 are not for Spark's timers")
    }
  }
}
