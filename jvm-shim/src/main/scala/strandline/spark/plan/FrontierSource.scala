package strandline.spark.plan

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2
import org.apache.spark.sql.connector.catalog.Table
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable

/** A table whose stream states a frontier in each of its offsets, in the form of docs/protocol.md. */
private[spark] trait FrontierSource

/**
 * Recognises the sources that state frontiers.
 *
 * It decides by the source itself: the Python source named `strandline`, or a table with this trait. An offset with our fields
 * does not count, because a Kafka topic may have our name. A schema with our tags does not count, because users reuse schemas.
 */
private[spark] object FrontierSource {
  val Name = "strandline"

  /** Whether a sink is ours, and so checks what the query writes. */
  def isOurs(table: Table): Boolean = table match {
    case python: PythonTable => python.name.equalsIgnoreCase(Name)
    case _ => false
  }

  def statesFrontier(table: Table): Boolean = isOurs(table) || table.isInstanceOf[FrontierSource]

  /** Whether a leaf of an analysed query is such a source. A source with a V1 fallback (Delta's) is not. */
  def statesFrontier(leaf: LogicalPlan): Boolean = leaf match {
    case relation: StreamingRelationV2 => relation.v1Relation.isEmpty && statesFrontier(relation.table)
    case _ => false
  }
}
