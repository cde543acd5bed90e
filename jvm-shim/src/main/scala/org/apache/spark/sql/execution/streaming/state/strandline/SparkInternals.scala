package org.apache.spark.sql.execution.streaming.state.strandline

import java.util.UUID

import org.apache.spark.SparkContext
import org.apache.spark.rdd.InputFileBlockHolder
import org.apache.spark.sql.catalyst.expressions.Expression
import org.apache.spark.sql.catalyst.optimizer.NormalizeFloatingNumbers
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.execution.streaming.operators.stateful._
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

  /** How an aggregation's rows are split into the state's keys and values. */
  def stateManager(save: StateStoreSaveExec): StreamingAggregationStateManager = save.stateManager

  def stateManager(restore: StateStoreRestoreExec): StreamingAggregationStateManager = restore.stateManager

  /** A key's column in the one form that its value has: -0.0 is 0.0, and every NaN the same. */
  def normalized(key: Expression): Expression = NormalizeFloatingNumbers.normalize(key)

  /** The URL of the file that this task's scan is reading, if it reads one. */
  def inputFile: Option[String] = Some(InputFileBlockHolder.getInputFilePath.toString).filter(_.nonEmpty)
}
