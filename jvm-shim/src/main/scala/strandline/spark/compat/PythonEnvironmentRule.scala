package strandline.spark.compat

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable

/**
 * Lets two queries start at the same moment.
 *
 * When a stream starts, Spark's runner of Python sources puts entries into the environment of the source's function. This is a
 * plain hash map that all queries of the JVM share and that every task carries. Two threads that put the first entries at once
 * can break it permanently ("Task not serializable ... Illegal size 5 of collection, expected 6"). This rule creates the
 * entries under a lock when a stream is loaded. After that, Spark's runner only replaces values.
 */
final class PythonEnvironmentRule(session: SparkSession, isOurs: String => Boolean) extends Rule[LogicalPlan] {

  override def apply(plan: LogicalPlan): LogicalPlan = {
    plan.foreach {
      case StreamingRelationV2(_, name, _: PythonTable, _, _, _, _, _, _) if isOurs(name) =>
        val environment = session.sessionState.dataSourceManager.lookupDataSource(name).dataSourceCls.envVars
        PythonEnvironmentRule.synchronized {
          PythonEnvironmentRule.Entries.foreach { case (key, value) => environment.putIfAbsent(key, value) }
        }
      case _ =>
    }
    plan
  }
}

object PythonEnvironmentRule {

  /** The entries of `PythonStreamingSourceRunner`. Tasks set their own values for the first three. */
  private val Entries =
    Map("SPARK_LOCAL_DIRS" -> "", "SPARK_AUTH_SOCKET_TIMEOUT" -> "", "SPARK_BUFFER_SIZE" -> "",
      "SPARK_PYTHON_RUNTIME" -> "PYTHON_WORKER")
}
