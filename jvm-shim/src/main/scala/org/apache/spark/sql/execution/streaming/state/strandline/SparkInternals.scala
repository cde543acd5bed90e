package org.apache.spark.sql.execution.streaming.state.strandline

import java.util.UUID

import scala.jdk.CollectionConverters._

import org.apache.spark.SparkContext
import org.apache.spark.rdd.InputFileBlockHolder
import org.apache.spark.scheduler.StageInfo
import org.apache.spark.sql.SaveMode
import org.apache.spark.sql.catalyst.TableIdentifier
import org.apache.spark.sql.catalyst.expressions.Expression
import org.apache.spark.sql.catalyst.optimizer.NormalizeFloatingNumbers
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.QueryExecution
import org.apache.spark.sql.execution.command.SaveAsV1TableCommand
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.execution.streaming.operators.stateful._
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionEnd

/** Members of Spark that are visible only inside Spark's package `sql`. */
object SparkInternals {

  /** Returns the running query with that id. A query runs in a cloned session, so only the shared state knows it. */
  def activeQuery(session: SparkSession, id: UUID): Option[StreamExecution] =
    Option(session.sharedState.activeStreamingQueries.get(id))

  /** Returns all queries that run in this Spark. */
  def activeQueries(session: SparkSession): Seq[StreamExecution] = session.sharedState.activeStreamingQueries.values.asScala.toSeq

  /** Returns the execution that has ended. Spark gives it to listeners in the driver only. */
  def executionOf(end: SparkListenerSQLExecutionEnd): Option[QueryExecution] = Option(end.qe)

  /** Returns the shuffle that a stage writes. None: its tasks' results go to the driver. */
  def shuffleOf(stage: StageInfo): Option[Int] = stage.shuffleDepId

  /** Creates a counter that also keeps the values of failed tasks, because the task that counts a violation fails. */
  def violationMetric(context: SparkContext, name: String): SQLMetric = {
    val metric = new SQLMetric("sum")
    metric.register(context, name = Some(name), countFailedValues = true)
    metric
  }

  /** Whether the session's catalog is Hive's. It can be asked before the session has its state. */
  def hasHiveCatalog(session: SparkSession): Boolean =
    session.sharedState.conf.get("spark.sql.catalogImplementation", "in-memory") == "hive"

  /** Returns the table that a command of `saveAsTable` drops and makes anew, if it is there. */
  def overwrittenTable(command: LogicalPlan): Option[TableIdentifier] = command match {
    case save: SaveAsV1TableCommand if save.mode == SaveMode.Overwrite => Some(save.tableDesc.identifier)
    case _ => None
  }

  /** Returns the manager that splits an aggregation's rows into the state's keys and values. */
  def stateManager(save: StateStoreSaveExec): StreamingAggregationStateManager = save.stateManager

  def stateManager(restore: StateStoreRestoreExec): StreamingAggregationStateManager = restore.stateManager

  /** Normalises a key column: -0.0 becomes 0.0, and all NaN become the same NaN. */
  def normalized(key: Expression): Expression = NormalizeFloatingNumbers.normalize(key)

  /** Returns the URL of the file that this task's scan is reading, if any. */
  def inputFile: Option[String] = Some(InputFileBlockHolder.getInputFilePath.toString).filter(_.nonEmpty)
}
