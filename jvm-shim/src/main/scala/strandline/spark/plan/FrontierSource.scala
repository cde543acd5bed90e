package strandline.spark.plan

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2
import org.apache.spark.sql.connector.catalog.Table
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable

/** A table whose stream states a frontier in each of its offsets, in the form of docs/protocol.md. */
private[spark] trait FrontierSource

/**
 * Tells the sources that state frontiers from all others.
 *
 * A source is one by what it is: the Python source of the name `strandline`, or a table that says so by its class. Neither an offset
 * with our fields (a Kafka topic may have our name) nor a schema with our tags (users pass schemas on) makes a source one.
 */
private[spark] object FrontierSource {
  val Name = "strandline"

  def isOne(table: Table): Boolean = table match {
    case python: PythonTable => python.name.equalsIgnoreCase(Name)
    case other => other.isInstanceOf[FrontierSource]
  }

  /** Whether a leaf of a query as it was analysed is such a source. A source with a V1 fallback (Delta's) is none. */
  def isOne(leaf: LogicalPlan): Boolean = leaf match {
    case relation: StreamingRelationV2 => relation.v1Relation.isEmpty && isOne(relation.table)
    case _ => false
  }
}
