package strandline.spark.exec

import java.util.UUID

import org.apache.hadoop.conf.Configuration
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.physical.HashPartitioning
import org.apache.spark.sql.catalyst.types.DataTypeUtils.fromAttributes
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.exchange.ShuffleExchangeExec
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
import org.apache.spark.sql.execution.streaming.operators.stateful._
import org.apache.spark.sql.execution.streaming.state.{
  StateSchemaCompatibilityChecker, StateStore, StateStoreColFamilySchema, StateStoreId
}
import org.apache.spark.sql.types.StructType
import strandline.spark.errors.Errors
import strandline.spark.plan.OperatorMark
import strandline.spark.state.StateLayout
import strandline.spark.state.cache.LruCache
import strandline.spark.time.TimeColumn

/**
 * A stateful operator of Strandline, as a query requests it.
 *
 * Spark plans only the operators that it knows. So the query has a `dropDuplicates` over the time, a marking column (a `bigint`
 * whose metadata names the operator) and the key columns. Spark gives it an id, a state and a place in the checkpoint, also in
 * a Connect session. The frontier rule then replaces it. A session without the extension refuses the source.
 */
final case class MarkedOperator(kind: String, key: OperatorKey, column: TimeColumn, spread: Boolean,
    dedup: StreamingDeduplicateExec) {
  import key.{by, mark, time}

  def info: StatefulOperatorStateInfo = dedup.getStateInfo

  def keys: Seq[Attribute] = dedup.keyExpressions

  /**
   * Returns the operator with its key columns in the order in which `columns` has them. Spark keeps the columns of a
   * `dropDuplicates` in a set, which loses the order if there are five or more.
   */
  def ordered(columns: Seq[Attribute]): MarkedOperator =
    copy(key = key.copy(by = by.sortBy(column => columns.indexWhere(_.exprId == column.exprId))))

  /**
   * The child of Spark's exchange, or the child itself. That exchange is by all of `keys`, so it separates the times of a key.
   */
  def beforeExchange: SparkPlan = dedup.child match {
    case exchange: ShuffleExchangeExec => exchange.child
    case other => other
  }

  /** Exchanges `child` so that all rows of a key are in one partition. Without a key: all rows, or all rows of one time. */
  def exchanged(child: SparkPlan): SparkPlan = exchangedBy(spreadBy(mark), child)

  private def spreadBy(mark: Expression): Seq[Expression] = if (by.nonEmpty) by else if (spread) Seq(time) else Seq(mark)

  /** The partition number of an entry of the state. */
  def partition: Expression = HashPartitioning(if (kind == MarkedOperator.Notify) by else spreadBy(MarkedOperator.Mark),
    info.numPartitions).partitionIdExpression

  def exchangedBy(columns: Seq[Expression], child: SparkPlan): SparkPlan =
    ShuffleExchangeExec(HashPartitioning(columns, info.numPartitions), child)

  /** Returns the state's layout. Its values have the schema `values`, which an existing checkpoint must match. */
  def layout(values: StructType, session: SparkSession): StateLayout = {
    val hadoop = session.sessionState.newHadoopConf()
    val schema = fromAttributes(keys)
    MarkedOperator.settled.get((info.queryRunId, info.operatorId))(MarkedOperator.settle(info, schema, values, session, hadoop))
    StateLayout.ofMarked(keys, info, hadoop)
  }
}

/**
 * The columns of an operator's state key: the time, the mark (the state has a number in its place), and the operator's key
 * columns.
 */
final case class OperatorKey(time: Attribute, mark: Attribute, by: Seq[Attribute])

object MarkedOperator {
  val Hold = "hold"
  val Notify = "notify"
  val Best = "best"
  val Meet = "meet"

  /** The mark of incoming rows (operator_marker.py). */
  private val Mark = Literal(0L)

  // The operators whose state schema this run has already written or compared.
  private val settled = new LruCache[(UUID, Long), Unit]

  /** Returns the operator that `dedup` requests. One of its columns is marked. */
  def of(dedup: StreamingDeduplicateExec): MarkedOperator = {
    val (marks, columns) = dedup.keyExpressions.partition(_.metadata.contains(OperatorMark.Key))
    val (times, by) = columns.partition(TimeColumn.of(_).isDefined)
    val (mark, kind) = (marks.head, marks.head.metadata.getString(OperatorMark.Key))
    if (!Set(Hold, Notify, Best, Meet)(kind)) throw Errors.operatorUnsupported(kind, "this extension does not know it")
    if (times.length != 1) throw Errors.operatorUnsupported(kind, s"its key has ${times.length} time columns instead of one")
    val spread = mark.metadata.contains(OperatorMark.Spread) && mark.metadata.getBoolean(OperatorMark.Spread)
    MarkedOperator(kind, OperatorKey(times.head, mark, by), TimeColumn.of(times.head).get, spread, dedup)
  }

  /**
   * Settles the schema of the state's values. Spark has written the schema of a `dropDuplicates`, which has no values, and does
   * not compare values again. So the first batch writes our schema, and in every later run Spark compares it.
   */
  private def settle(info: StatefulOperatorStateInfo, keys: StructType, values: StructType, session: SparkSession,
      hadoop: Configuration): Unit = {
    val folder = StateStoreId(info.checkpointLocation, info.operatorId, 0).storeCheckpointLocation()
    if (info.storeVersion == 0) {
      CheckpointFileManager.create(folder, hadoop).delete(StateSchemaCompatibilityChecker.schemaFile(folder))
    }
    val schema = List(StateStoreColFamilySchema(StateStore.DEFAULT_COL_FAMILY_NAME, 0, keys, 0, values))
    StateSchemaCompatibilityChecker.validateAndMaybeEvolveStateSchema(info, hadoop, schema, session.sessionState, 2)
    ()
  }
}
