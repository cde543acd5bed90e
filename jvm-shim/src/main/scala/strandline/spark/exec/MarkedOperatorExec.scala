package strandline.spark.exec

import org.apache.spark.sql.catalyst.expressions.{Attribute, BasePredicate}
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.streaming.operators.stateful.{StatefulOperatorCustomMetric, StatefulOperatorStateInfo, StreamingDeduplicateExec}
import strandline.spark.compat.IdentityEquals
import strandline.spark.state.TimedOperator

/**
 * A [[MarkedOperator]] in the physical plan. It replaces a `dropDuplicates` and extends that operator's class, because Spark's
 * bookkeeping knows the class.
 */
abstract class MarkedOperatorExec(
    keyExpressions: Seq[Attribute],
    child: SparkPlan,
    stateInfo: Option[StatefulOperatorStateInfo],
    eventTimeWatermarkForLateEvents: Option[Long],
    eventTimeWatermarkForEviction: Option[Long])
    extends StreamingDeduplicateExec(keyExpressions, child, stateInfo, eventTimeWatermarkForLateEvents, eventTimeWatermarkForEviction)
    with TimedOperator
    with IdentityEquals {

  override lazy val watermarkPredicateForKeysForEviction: Option[BasePredicate] = None
  override lazy val watermarkPredicateForDataForLateEvents: Option[BasePredicate] = None

  override def customStatefulOperatorMetrics: Seq[StatefulOperatorCustomMetric] = timedMetrics

  /** The operator's name in a printed plan. */
  protected def label: String

  override def simpleString(maxFields: Int): String = s"$label [${keyExpressions.mkString(", ")}]"
}
