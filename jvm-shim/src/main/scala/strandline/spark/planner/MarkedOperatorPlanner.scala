package strandline.spark.planner

import org.apache.spark.sql.execution.{ProjectExec, SparkPlan}
import org.apache.spark.sql.execution.python.MapInArrowExec
import org.apache.spark.sql.types.StructType
import strandline.spark.errors.Errors
import strandline.spark.exec.{HoldExec, MarkedOperator, NotifyRestoreExec, NotifySaveExec}
import strandline.spark.exec.best.{BestExec, BestOfTaskExec, BestOrder}
import strandline.spark.plan.OperatorMark
import strandline.spark.state.TimedState
import strandline.spark.time.{Antichain, ClosedBy, InputFrontiers}

/** Replaces each marked `dropDuplicates` by the operator that it requests. */
object MarkedOperatorPlanner {

  /** `frontier` is `end`, the frontiers after the batch, for the operator's times. `guard` adds a guard to a plan. */
  def plan(operator: MarkedOperator, frontier: Antichain, end: InputFrontiers, guard: SparkPlan => SparkPlan): SparkPlan = {
    val dedup = operator.dedup
    def timed(values: StructType) = {
      val closed = ClosedBy(operator.key.time, frontier)
      new TimedState(operator.layout(values, dedup.session), operator.keys, closed, end, operator.info, dedup.conf.stateStoreProviderClass, Some(operator.partition))
    }
    if (operator.kind == MarkedOperator.Hold) {
      val rows = guard(operator.exchanged(operator.beforeExchange))
      new HoldExec(operator.keys, rows, dedup.stateInfo, None, None, operator.key, timed(rows.schema))
    } else if (operator.kind == MarkedOperator.Best) {
      val input = operator.beforeExchange
      val order = BestOrder.of(operator, operator.key.mark.metadata.getString(OperatorMark.Order), input.output)
      val rows = guard(operator.exchanged(BestOfTaskExec(operator.key, order, input)))
      new BestExec(operator.keys, rows, dedup.stateInfo, None, None, operator.key, order, timed(rows.schema))
    } else {
      // Spark's optimizer may have put projections in between that drop columns of the operator. They move above it.
      val (projections, below) = Iterator.iterate(operator.beforeExchange)(_.children.head).span(_.isInstanceOf[ProjectExec])
      below.next() match {
        case python: MapInArrowExec =>
          val input = guard(python.child)
          val values = StructType(Seq(python.schema.last))
          val state = timed(values)
          val rows = operator.exchangedBy(input.output.take(operator.key.by.length), input)
          val restored = NotifyRestoreExec(operator.keys, operator.key, operator.info, state, frontier, values, rows)
          val called = python.withNewChildren(Seq(restored))
          val saved = guard(new NotifySaveExec(operator.keys, called, dedup.stateInfo, None, None, operator.key, state, values))
          projections.toSeq.foldRight(saved)((projection, child) => projection.withNewChildren(Seq(child)))
        case other => throw Errors.operatorUnsupported(operator.kind, s"it stands over ${other.nodeName} instead of a processor")
      }
    }
  }
}
