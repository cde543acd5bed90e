package strandline.spark.plan

import org.apache.spark.sql.catalyst.expressions.{Attribute, Expression}
import org.apache.spark.sql.catalyst.plans.logical.{Aggregate, Deduplicate, LogicalPlan}
import org.apache.spark.sql.catalyst.rules.Rule
import strandline.spark.time.TimeColumn

/**
 * Puts the times before the other columns of a streaming key, so that they are the prefix by which the state finds its keys.
 *
 * For a user, this changes only the order of the fields in the state's own schema.
 */
object TimePrefixRule extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan =
    if (!plan.resolved || !plan.isStreaming) plan
    else
      plan.resolveOperatorsUp {
        case aggregate: Aggregate if aggregate.isStreaming && outOfOrder(aggregate.groupingExpressions) =>
          aggregate.copy(groupingExpressions = sorted(aggregate.groupingExpressions))
        case dedup: Deduplicate if dedup.isStreaming && outOfOrder(dedup.keys) => dedup.copy(keys = sorted(dedup.keys))
      }

  private def sorted[E <: Expression](keys: Seq[E]): Seq[E] = {
    val (times, others) = keys.partition(isTime)
    times ++ others
  }

  private def outOfOrder(keys: Seq[Expression]): Boolean = keys.dropWhile(isTime).exists(isTime)

  private def isTime(key: Expression): Boolean = key match {
    case a: Attribute => TimeColumn.of(a).isDefined
    case _ => false
  }
}
