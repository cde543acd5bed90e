package strandline.spark.tables

import java.util.{Collections, WeakHashMap}

import org.apache.hadoop.fs.Path
import org.apache.spark.sql.catalyst.QueryPlanningTracker
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import strandline.spark.batch.BatchFrontiers
import strandline.spark.sources.TopicIdentity

/**
 * Decides at which version each table of a plan is read.
 *
 * An execution of a plan reads a channel as it is then, and at one version, in subqueries too. A batch of a query with a
 * strandline source or sink does so with Delta's tables as well, and writes the versions into the checkpoint before it runs. So a
 * repeated batch reads what it read before. What a `foreachBatch` runs is a plan of its own.
 *
 * It is a rule of the optimizer, because there Spark has put cached frames in their places, and has not yet planned the reads.
 */
private[spark] final case class TableVersionRule(session: SparkSession) extends Rule[LogicalPlan] {
  import TableVersionRule._

  override def apply(plan: LogicalPlan): LogicalPlan = {
    val tracker = QueryPlanningTracker.get
    val batch = tracker.flatMap(batchOf(session, _))
    batch.foreach(Dependence.warn)
    batch.foreach(TopicIdentity.check)
    if (!plan.exists(isVersioned(_, batch.isDefined))) plan
    else {
      val tables = (tracker, batch) match {
        case (Some(tracker), Some(query)) => of(tracker, begin(query))
        case (Some(tracker), None) => of(tracker, new ExecutionTables(None))
        case (None, _) => new ExecutionTables(None)
      }
      plan.transform {
        case leaf @ ChannelTable(table) => tables.replace(leaf, table)
        case leaf @ DeltaTable(table) if batch.isDefined => tables.replace(leaf, table)
      }
    }
  }
}

private[spark] object TableVersionRule {
  private val executions = Collections.synchronizedMap(new WeakHashMap[QueryPlanningTracker, ExecutionTables])
  private val batches = Collections.synchronizedMap(new WeakHashMap[StreamExecution, (Long, Seq[TableVersion])])
  private val logs = Collections.synchronizedMap(new WeakHashMap[StreamExecution, TableVersionLog])

  /** Returns the versions of the tables that the newest batch of a query reads. */
  def versionsOf(query: StreamExecution): Seq[TableVersion] =
    Option(batches.get(query)).filter(_._1 == query.getLatestExecutionContext().batchId).fold[Seq[TableVersion]](Nil)(_._2)

  private def isVersioned(leaf: LogicalPlan, inBatch: Boolean): Boolean = leaf match {
    case ChannelTable(_) => true
    case DeltaTable(_) => inBatch
    case _ => false
  }

  private def of(tracker: QueryPlanningTracker, make: => ExecutionTables): ExecutionTables =
    Option(executions.get(tracker)).getOrElse {
      val made = make
      executions.put(tracker, made)
      made
    }

  /** Returns the query whose batch is planned, if it has a strandline source or sink. */
  private def batchOf(session: SparkSession, tracker: QueryPlanningTracker): Option[StreamExecution] =
    BatchFrontiers.activeQuery(session).filter { query =>
      Option(query.getLatestExecutionContext().executionPlan).exists(_.tracker eq tracker) && BatchFrontiers.isOurs(query)
    }

  /** Chooses the versions of all tables of a batch, and makes them last. */
  private def begin(query: StreamExecution): ExecutionTables = {
    val context = query.getLatestExecutionContext()
    val (batch, clock) = (context.batchId, context.offsetSeqMetadata.batchTimestampMs)
    val found = context.executionPlan.withCachedData.collectWithSubqueries {
      case ChannelTable(table) => table
      case DeltaTable(table) => table
    }
    val log = logs.computeIfAbsent(query,
      _ => new TableVersionLog(query.sparkSession, new Path(query.resolvedCheckpointRoot, "strandline/tables").toString))
    val begun = log.begun(batch, clock)
    val tables = new ExecutionTables(begun.map(RepeatedBatch(batch, _, log.file(batch))))
    found.foreach(tables.choose)
    if (begun.isEmpty) log.begin(batch, clock, tables.versions)
    batches.put(query, batch -> tables.versions)
    tables
  }
}
