package strandline.spark.planner

import org.apache.spark.sql.catalyst.expressions.Alias
import org.apache.spark.sql.execution.{ProjectExec, SparkPlan}
import org.apache.spark.sql.execution.python.MapInArrowExec
import org.apache.spark.sql.execution.streaming.state.strandline.SparkInternals
import org.apache.spark.sql.types.StructType
import strandline.spark.errors.Errors
import strandline.spark.exec.{HoldExec, MarkedOperator, NotifyRestoreExec, NotifySaveExec}
import strandline.spark.exec.best.{BestExec, BestOfTaskExec, BestOrder}
import strandline.spark.exec.meet.{MeetExec, MeetForm}
import strandline.spark.plan.OperatorMark
import strandline.spark.state.TimedState
import strandline.spark.time.{Antichain, ClosedBy, InputFrontiers}

/** Replaces each marked `dropDuplicates` by the operator that it requests. */
object MarkedOperatorPlanner {

  /** `frontier` is `end`, the frontiers after the batch, for the operator's times. `guard` adds a guard to a plan. */
  def plan(operator: MarkedOperator, frontier: Antichain, end: InputFrontiers, guard: SparkPlan => SparkPlan): SparkPlan = {
    val dedup = operator.dedup
    def timed(values: StructType, operator: MarkedOperator = operator) = {
      val closed = ClosedBy(operator.key.time, frontier)
      new TimedState(operator.layout(values, dedup.session), operator.keys, closed, end, operator.info,
        dedup.conf.stateStoreProviderClass, Some(operator.partition))
    }
    if (operator.kind == MarkedOperator.Hold) {
      val rows = guard(operator.exchanged(operator.beforeExchange))
      new HoldExec(operator.keys, rows, dedup.stateInfo, None, None, operator.key, timed(rows.schema))
    } else if (operator.kind == MarkedOperator.Best) {
      val input = operator.beforeExchange
      val order = BestOrder.of(operator, operator.key.mark.metadata.getString(OperatorMark.Order), input.output)
      val rows = guard(operator.exchanged(BestOfTaskExec(operator.key, order, input)))
      new BestExec(operator.keys, rows, dedup.stateInfo, None, None, operator.key, order, timed(rows.schema))
    } else if (operator.kind == MarkedOperator.Meet) {
      val rows = guard(operator.exchanged(operator.beforeExchange))
      val form = MeetForm.of(operator, rows.output.map(_.withNullability(true)))
      new MeetExec(operator.keys, rows, dedup.stateInfo, None, None, operator.key, form, timed(MeetExec.values(rows.schema)))
    } else {
      // Spark's optimizer may have put projections in between that drop columns of the operator. They move above it.
      val (projections, below) = Iterator.iterate(operator.beforeExchange)(_.children.head).span(_.isInstanceOf[ProjectExec])
      below.next() match {
        case python: MapInArrowExec =>
          val own = operator.ordered(python.output)
          val input = normalized(guard(python.child), own.key.by.length)
          val values = StructType(Seq(python.schema.last))
          val state = timed(values, own)
          val rows = own.exchangedBy(input.output.take(own.key.by.length), input)
          val restored = NotifyRestoreExec(own.keys, own.key, own.info, state, frontier, values, rows)
          val called = python.withNewChildren(Seq(restored))
          val saved = guard(new NotifySaveExec(own.keys, called, dedup.stateInfo, None, None, own.key, state, values))
          projections.toSeq.foldRight(saved)((projection, child) => projection.withNewChildren(Seq(child)))
        case other => throw Errors.operatorUnsupported(operator.kind, s"it stands over ${other.nodeName} instead of a processor")
      }
    }
  }

  /**
   * Normalises the first `count` columns, the key of a processor, as Spark does for a grouping: -0.0 becomes 0.0, and all NaN
   * become the same NaN, at any depth. From here on two keys are the same exactly if their bytes are: in the exchange, in the
   * state, for the code in Python, and in the results. The rows that the processor gets are in another column.
   */
  private def normalized(plan: SparkPlan, count: Int): SparkPlan = {
    val (keys, others) = plan.output.splitAt(count)
    val columns = keys.map { key =>
      val value = SparkInternals.normalized(key)
      if (value eq key) key else Alias(value, key.name)(key.exprId, key.qualifier, Some(key.metadata))
    }
    if (columns == keys) plan else ProjectExec(columns ++ others, plan)
  }
}
