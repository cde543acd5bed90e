package strandline.spark

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.LeftSemi
import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinExec
import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinHelper._

/**
 * Stream-stream joins whose buffered rows are let go, and whose unmatched rows are emitted, by an exact frontier.
 *
 * The time column must be equal on both sides: then no row can find a match once its time is closed, and what goes out has
 * that same time, so the output's frontier holds. Spark's own operator does it with another predicate; no subclass is needed.
 */
private[spark] object FrontierJoin {

  /** The last state format that evicts by a predicate; the next one compares milliseconds. */
  private val LastStateFormat = 3

  def apply(join: StreamingSymmetricHashJoinExec, frontiers: BatchFrontiers): StreamingSymmetricHashJoinExec = {
    def refuse(why: String) = throw Errors.operatorUnsupported("A stream-stream join", why)
    // Spark takes the right side's rows first and does not keep those that close in this batch: their left matches would be lost.
    if (join.joinType == LeftSemi) refuse("a left semi join may miss matches in the batch that closes them")
    if (join.stateFormatVersion > LastStateFormat) refuse(s"its state format ${join.stateFormatVersion} evicts by the scalar watermark")
    val shared = join.leftKeys.zip(join.rightKeys).zipWithIndex.flatMap { case ((left, right), i) =>
      columnOf(left).filter(columnOf(right).contains).map(_ -> i)
    }
    val closed = shared.map { case (column, i) =>
      val key = BoundReference(i, join.leftKeys(i).dataType, nullable = true)
      ClosedBy(column.time(key), column.frontier(frontiers.end)): Expression
    }
    val evict = closed.reduceOption(Or(_, _)).getOrElse(refuse("it does not join on the time columns of both sides being equal"))
    val predicate = Some(JoinStateKeyWatermarkPredicate(evict, stateWatermark = 0L))
    join.copy(
      eventTimeWatermarkForLateEvents = None,
      eventTimeWatermarkForEviction = None, // else a moving watermark would ask for further batches
      stateWatermarkPredicates = JoinStateWatermarkPredicates(predicate, predicate)
    )
  }

  private def columnOf(key: Expression): Option[TimeColumn] = key match {
    case a: Attribute => TimeColumn.of(a)
    case _ => None
  }
}
