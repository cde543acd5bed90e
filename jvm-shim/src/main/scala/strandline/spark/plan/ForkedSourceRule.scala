package strandline.spark.plan

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2
import org.apache.spark.sql.execution.datasources.v2.python.strandline.ForkedSource

/** Lets strandline streams start without a new Python process. */
object ForkedSourceRule extends Rule[LogicalPlan] {

  override def apply(plan: LogicalPlan): LogicalPlan = plan.resolveOperators {
    case relation: StreamingRelationV2 if FrontierSource.isOurs(relation.table) => ForkedSource.of(relation)
  }
}
