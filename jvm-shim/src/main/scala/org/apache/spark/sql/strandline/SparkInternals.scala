package org.apache.spark.sql.strandline

import java.util.UUID

import org.apache.spark.SparkContext
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution

/** The few members of Spark that are visible only inside its package. */
object SparkInternals {

  /** The running query of that id; a query runs in a cloned session, so only the shared state knows it. */
  def activeQuery(session: SparkSession, id: UUID): Option[StreamExecution] =
    Option(session.sharedState.activeStreamingQueries.get(id))

  /** A counter whose value is kept from failed tasks too: the task that counts a violation fails. */
  def violationMetric(context: SparkContext, name: String): SQLMetric = {
    val metric = new SQLMetric("sum")
    metric.register(context, name = Some(name), countFailedValues = true)
    metric
  }
}
