package strandline.spark.catalog

import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.plans.logical.{Aggregate, EventTimeWatermark, LogicalPlan}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.streaming.WriteToStreamStatement
import org.apache.spark.sql.streaming.OutputMode
import strandline.spark.errors.Errors
import strandline.spark.plan.FrontierSource

/**
 * Refuses what Spark would refuse when a query starts, but says what to write instead. It is a hint rule, because Spark's check
 * comes before all other injected rules. In a session with Hive's catalog that has named no table yet, Spark's message stays.
 */
object SinkCheckRule extends Rule[LogicalPlan] {

  override def apply(plan: LogicalPlan): LogicalPlan = {
    plan match {
      case write: WriteToStreamStatement if conf.isUnsupportedOperationCheckEnabled => check(write)
      case _ =>
    }
    plan
  }

  private def check(write: WriteToStreamStatement): Unit =
    if (write.outputMode == OutputMode.Update && FrontierSource.isOurs(write.sink)) throw Errors.outputModeUnsupported("update")
    else if (write.outputMode == OutputMode.Append && write.inputQuery.exists(FrontierSource.statesFrontier)) {
      // The aggregation that Spark looks at, and what it looks for.
      val aggregates = write.inputQuery.collect { case aggregate: Aggregate if aggregate.isStreaming => aggregate }
      aggregates.headOption.map(_.groupingExpressions).foreach { by =>
        if (!by.exists { case a: Attribute => a.metadata.contains(EventTimeWatermark.delayKey); case _ => false })
          throw Errors.aggregationWithoutTime(if (by.isEmpty) "nothing" else by.map(_.sql).mkString(", "))
      }
    }
}
