package strandline.spark.planner

import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.AtomicLong

import scala.collection.mutable

import org.apache.spark.TaskContext
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, SortOrder}
import org.apache.spark.sql.catalyst.plans.physical.Partitioning
import org.apache.spark.sql.execution._
import org.apache.spark.sql.execution.aggregate.{BaseAggregateExec, MergingSessionsExec, UpdatingSessionsExec}
import org.apache.spark.sql.execution.datasources.v2.WriteToDataSourceV2Exec
import org.apache.spark.sql.execution.exchange.Exchange
import org.apache.spark.sql.execution.joins.CartesianProductExec
import org.apache.spark.sql.execution.python.EvalPythonExec
import org.apache.spark.sql.execution.streaming.operators.stateful.{StatefulOperator, StreamingLocalLimitExec}
import org.apache.spark.sql.execution.streaming.state.strandline.StreamingInternals
import strandline.spark.batch.GuardExec
import strandline.spark.exec.CompletionIterator

/**
 * Reads every stateful operator to its end, whatever stands above it in the same stage.
 *
 * An operator commits its state when its last row is read. Some of Spark's operators leave rows unread: a limit, a user's
 * function, or a join whose other side is empty. Then the batch would fail, in every run. Here the end of the stage, or the
 * next stateful operator above, reads the remaining rows.
 */
private[spark] object ReadToEnd {
  private val numbers = new AtomicLong

  def apply(plan: SparkPlan): SparkPlan = {
    val offered = mutable.Buffer.empty[Long]
    val offering = offer(plan, offered)
    if (offered.isEmpty) offering else ReadRestExec(offered.toSeq, None, offering)
  }

  /** Treats the input of an operator with a shuffle inside. `limit`: how many rows one task of the operator reads. */
  private def input(child: SparkPlan, limit: Option[Int]): SparkPlan = {
    val offered = mutable.Buffer.empty[Long]
    val offering = offer(child, offered)
    if (hasState(child)) ReadRestExec(offered.toSeq, limit, offering) else offering
  }

  /** Puts nodes that offer their rows below each operator that may leave rows unread. Adds the nodes' numbers to `offered`. */
  private def offer(plan: SparkPlan, offered: mutable.Buffer[Long]): SparkPlan = plan match {
    case _: StatefulOperator | _: Exchange | _: WriteToDataSourceV2Exec => plan.withNewChildren(plan.children.map(apply))
    case limit: CollectLimitExec => limit.copy(child = input(limit.child, Option.when(limit.limit > 0)(limit.limit)))
    case limit: TakeOrderedAndProjectExec => limit.copy(child = input(limit.child, Some(limit.limit)))
    // It has a task for each pair of partitions. The operator would not run if the other side had no partition, and would run
    // several times if it had several.
    case product: CartesianProductExec if hasState(product.left) =>
      product.copy(left = offer(product.left, offered), right = CoalesceExec(1, apply(product.right)))
    case product: CartesianProductExec if hasState(product.right) =>
      product.copy(left = CoalesceExec(1, apply(product.left)), right = offer(product.right, offered))
    case _ if readsAll(plan) => plan.withNewChildren(plan.children.map(offer(_, offered)))
    case _ =>
      plan.withNewChildren(plan.children.map { child =>
        val below = offer(child, offered)
        if (!hasState(child)) below
        else {
          offered += numbers.incrementAndGet()
          OfferRestExec(offered.last, below)
        }
      })
  }

  /** Whether an operator is known to read all its input. Any other operator may leave rows. */
  private def readsAll(plan: SparkPlan): Boolean = plan match {
    case _: ProjectExec | _: FilterExec | _: GuardExec | _: SortExec | _: ExpandExec | _: GenerateExec => true
    case _: UnionExec | _: CoalesceExec | _: StreamingLocalLimitExec => true
    case _: BaseAggregateExec | _: UpdatingSessionsExec | _: MergingSessionsExec => true
    case _: EvalPythonExec | _: SerializeFromObjectExec | _: DeserializeToObjectExec => true
    case _ => false
  }

  private def hasState(plan: SparkPlan): Boolean = plan match {
    case _: StatefulOperator => true
    case _: Exchange | _: CollectLimitExec | _: TakeOrderedAndProjectExec => false
    case other => other.children.exists(hasState)
  }
}

/** Returns its child's rows. If not all are read, [[ReadRestExec]] in the same task reads the rest. */
final case class OfferRestExec(offer: Long, child: SparkPlan) extends UnaryExecNode {
  override def output: Seq[Attribute] = child.output
  override def outputPartitioning: Partitioning = child.outputPartitioning
  override def outputOrdering: Seq[SortOrder] = child.outputOrdering

  override protected def doExecute(): RDD[InternalRow] = {
    val offer = this.offer
    StreamingInternals.mapPartitions(child.execute()) { rows =>
      val offered = new OfferedRows(rows)
      UnreadRows.offer(offer, offered)
      offered
    }
  }

  // A merge join frees its rows early, but the rest is still needed. The task's end frees it.
  override def cleanupResources(): Unit = ()

  override protected def withNewChildInternal(newChild: SparkPlan): OfferRestExec = copy(child = newChild)
}

/**
 * Returns its child's rows, or the first `limit` of them. Then reads the rest, and the rows that [[OfferRestExec]] nodes have
 * left. Nobody gets these rows.
 */
final case class ReadRestExec(offers: Seq[Long], limit: Option[Int], child: SparkPlan) extends UnaryExecNode {
  override def output: Seq[Attribute] = child.output
  override def outputPartitioning: Partitioning = child.outputPartitioning
  override def outputOrdering: Seq[SortOrder] = child.outputOrdering

  override protected def doExecute(): RDD[InternalRow] = {
    val (offers, limit) = (this.offers, this.limit)
    StreamingInternals.mapPartitions(child.execute()) { rows =>
      def readRest(): Unit = {
        rows.foreach(_ => ())
        // From the top. Reading may offer more rows under the same numbers, because a union or a coalesce opens its parts one
        // after another.
        while (offers.reverseIterator.exists(UnreadRows.read)) ()
      }
      // A reader of exactly this many rows does not ask again after the last.
      val wanted = limit.fold(rows)(most =>
        rows.zipWithIndex.takeWhile(_._2 < most).map { case (row, i) =>
          if (i + 1 < most) row
          else {
            val last = row.copy()
            readRest()
            last
          }
        })
      new CompletionIterator(wanted, _ => readRest())
    }
  }

  override protected def withNewChildInternal(newChild: SparkPlan): ReadRestExec = copy(child = newChild)
}

/**
 * Rows whose rest another thread may read. A reader with its own thread, such as that of `SELECT TRANSFORM`, may still read
 * when its operator has ended. Then it gets no more rows.
 */
private[spark] final class OfferedRows(rows: Iterator[InternalRow]) extends Iterator[InternalRow] {
  private var ended = false

  override def hasNext: Boolean = synchronized(!ended && rows.hasNext)

  override def next(): InternalRow = synchronized(if (ended) Iterator.empty.next() else rows.next())

  /** Reads the remaining rows. */
  def end(): Unit = synchronized {
    ended = true
    rows.foreach(_ => ())
  }
}

/** The rows that are offered in the tasks of this process. */
private[spark] object UnreadRows {
  private type Offered = mutable.Map[Long, List[OfferedRows]]
  private val tasks = new ConcurrentHashMap[Long, Offered]

  def offer(number: Long, rows: OfferedRows): Unit = {
    val task = TaskContext.get()
    val offered = tasks.computeIfAbsent(
      task.taskAttemptId(),
      attempt => {
        task.addTaskCompletionListener[Unit](_ => tasks.remove(attempt))
        mutable.Map.empty
      })
    offered(number) = rows :: offered.getOrElse(number, Nil) // a task may read several partitions
  }

  /** Reads the remaining rows of a node. Returns whether there were any iterators that nobody had read here before. */
  def read(number: Long): Boolean = {
    val left = Option(tasks.get(TaskContext.get().taskAttemptId())).flatMap(_.remove(number)).getOrElse(Nil)
    left.foreach(_.end())
    left.nonEmpty
  }
}
