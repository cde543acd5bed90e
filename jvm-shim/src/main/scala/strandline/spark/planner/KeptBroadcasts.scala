package strandline.spark.planner

import java.util.WeakHashMap

import org.apache.spark.broadcast.Broadcast
import org.apache.spark.sql.catalyst.expressions.{Expression, PlanExpression, UserDefinedExpression}
import org.apache.spark.sql.execution._
import org.apache.spark.sql.execution.exchange.BroadcastExchangeExec
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperator
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import strandline.spark.exec.{KeepBroadcastExec, KeptBroadcastExec}

/**
 * A table that the body of a loop joins is the same in each round if it is a checkpoint, or rows of the plan itself. Then its
 * broadcast is made once, and the next rounds use it. Spark would collect, hash and send it in each.
 *
 * Files and other tables may change between two batches, so they are read in each.
 */
private[spark] object KeptBroadcasts {
  private final case class Made(rows: SparkPlan, broadcast: Broadcast[Any])

  // Those that the newest batch uses. An entry lives as long as its query.
  private val kept = new WeakHashMap[StreamExecution, List[Made]]

  /** Replaces the broadcasts of `plan`, the plan of the batch that `query` has begun. */
  def in(query: StreamExecution, plan: SparkPlan): SparkPlan =
    // Adaptive execution, which Spark has for plans without state, knows only broadcasts of its own.
    if (!plan.exists(_.isInstanceOf[StatefulOperator])) plan
    else {
      val before = synchronized {
        kept.keySet.removeIf(!_.isActive)
        Option(kept.remove(query)).getOrElse(Nil)
      }
      plan.transformUp {
        case exchange: BroadcastExchangeExec if isFixed(exchange.child) =>
          val rows = exchange.canonicalized
          before.find(_.rows == rows) match {
            case Some(made) =>
              keep(query, made)
              KeptBroadcastExec(exchange.output, exchange.mode, made.broadcast)
            case None => KeepBroadcastExec(exchange, broadcast => keep(query, Made(rows, broadcast)))
          }
      }
    }

  private def keep(query: StreamExecution, made: Made): Unit = synchronized {
    kept.put(query, made :: Option(kept.get(query)).getOrElse(Nil).filter(_.rows != made.rows))
    ()
  }

  /** Whether the plan gives the same rows whenever it runs. */
  private def isFixed(plan: SparkPlan): Boolean = plan.expressions.forall(isFixed) && (plan match {
    case rows: LocalTableScanExec => rows.stream.isEmpty
    case scan: RDDScanExec => scan.stream.isEmpty && scan.rdd.isCheckpointed
    case _: ProjectExec | _: FilterExec => plan.children.forall(isFixed)
    case _ => false
  })

  private def isFixed(expression: Expression): Boolean =
    expression.deterministic && !expression.exists(e =>
      e.isInstanceOf[UserDefinedExpression] || e.isInstanceOf[PlanExpression[_]])
}
