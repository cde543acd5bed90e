package strandline.spark.exec

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, BasePredicate, UnsafeRow}
import org.apache.spark.sql.execution.{SortExec, SparkPlan}
import org.apache.spark.sql.execution.streaming.operators.stateful.{
  StatefulOperatorCustomMetric, StatefulOperatorStateInfo, StreamingDeduplicateExec
}
import org.apache.spark.sql.execution.streaming.state.{StateStore, UnsafeRowPair}
import org.apache.spark.sql.types.StructType
import strandline.spark.compat.IdentityEquals
import strandline.spark.state.{OpenTimeIndex, TimedOperator, TimedState}

/**
 * A [[MarkedOperator]] in the physical plan. It replaces a `dropDuplicates` and extends that operator's class, because Spark's
 * bookkeeping knows the class.
 *
 * A task takes all rows of its partition in ([[update]]). Then it removes from its store what the batch closes ([[closed]]).
 */
abstract class MarkedOperatorExec(
    keyExpressions: Seq[Attribute],
    child: SparkPlan,
    stateInfo: Option[StatefulOperatorStateInfo],
    eventTimeWatermarkForLateEvents: Option[Long],
    eventTimeWatermarkForEviction: Option[Long],
    val key: OperatorKey,
    val state: TimedState)
    extends StreamingDeduplicateExec(keyExpressions, child, stateInfo, eventTimeWatermarkForLateEvents,
      eventTimeWatermarkForEviction) with TimedOperator with IdentityEquals {

  override lazy val watermarkPredicateForKeysForEviction: Option[BasePredicate] = None
  override lazy val watermarkPredicateForDataForLateEvents: Option[BasePredicate] = None

  override def customStatefulOperatorMetrics: Seq[StatefulOperatorCustomMetric] = timedMetrics

  /** The operator's name in a printed plan. */
  protected def label: String

  /** The schema of the state's values. */
  protected def values: StructType

  /** Takes a partition's rows into its store. Returns those that come out meanwhile. */
  protected def update(store: StateStore, times: OpenTimeIndex, input: Iterator[UnsafeRow]): Iterator[UnsafeRow]

  /** Returns the rows that come out for the entries of closed times, after those of [[update]]. The store has them no more. */
  protected def closed(entries: Iterator[UnsafeRowPair]): Iterator[UnsafeRow]

  /** Returns all rows of a task in the order in which they come out. */
  protected def arranged(rows: Iterator[UnsafeRow]): Iterator[UnsafeRow] = rows

  override protected def doExecute(): RDD[InternalRow] =
    mapWithStore(child.execute(), state.layout.keySchema, values, state.layout.encoder) { (store, input) =>
      val times = state.open(store)
      val (out, removed) = (longMetric("numOutputRows"), longMetric("numRemovedStateRows"))
      var updating = 0L
      val passing = new CompletionIterator(update(store, times, input.asInstanceOf[Iterator[UnsafeRow]]), updating = _)
      def closing = closed(times.removeClosed(store).map { entry =>
        removed += 1
        entry
      })
      def rows = arranged(passing.concat(closing)).map { row =>
        out += 1
        row: InternalRow
      }
      new CompletionIterator(rows,
        taken => {
          longMetric("allUpdatesTimeMs") += updating
          longMetric("allRemovalsTimeMs") += taken - updating
          end(store, times, store.commit())
        })
    }

  /** Sorts by Spark's sorter, which uses the disk if the rows do not fit in memory. */
  protected final def sorted(sort: SortExec, rows: Iterator[UnsafeRow]): Iterator[UnsafeRow] =
    if (rows.hasNext) sort.createSorter().sort(rows).asInstanceOf[Iterator[UnsafeRow]] else Iterator.empty

  override def simpleString(maxFields: Int): String = s"$label [${keyExpressions.mkString(", ")}]"
}
