package strandline.spark

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans._
import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinExec
import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinHelper._

/**
 * Stream-stream joins whose kept rows are let go, and whose unmatched rows are emitted, by an exact frontier.
 *
 * Where a time column is equal on both sides, no row can find a match once its time is closed. Where the condition puts a
 * [[TimeDistance]] between the times, a row waits until the other side's times have passed it by that distance.
 * Spark's own operator does both with another predicate; no subclass is needed.
 */
private[spark] object FrontierJoin {

  /** The last state format that evicts by a predicate; the next one compares milliseconds. */
  private val LastStateFormat = 3

  /** `marked`: whether what stands above the join knows how far its output is behind ([[MovedTimes]]). */
  def apply(join: StreamingSymmetricHashJoinExec, frontiers: BatchFrontiers, marked: Boolean): StreamingSymmetricHashJoinExec = {
    if (join.stateFormatVersion > LastStateFormat)
      refuse(s"its state format ${join.stateFormatVersion} evicts by the scalar watermark", "Set spark.sql.streaming.join.stateFormatVersion to 3.")
    join.copy(
      eventTimeWatermarkForLateEvents = None,
      eventTimeWatermarkForEviction = None, // else a moving watermark would ask for further batches
      stateWatermarkPredicates = byEqualTimes(join, frontiers).orElse(byDistance(join, frontiers).filter(_ => marked)).getOrElse(
        refuseUnbounded(join, "its condition bounds the distance of no two time columns")
      )
    )
  }

  private def refuse(why: String, remedy: String = "Join on the time columns of both sides being equal, or on how far they may be apart."): Nothing =
    throw Errors.operatorUnsupported("A stream-stream join", why, remedy)

  /** A condition that looks as if it bounded a distance gets the reason why it does not. */
  private def refuseUnbounded(join: StreamingSymmetricHashJoinExec, otherwise: String): Nothing =
    TimeDistance.whyInexact(conditionsOf(join)).fold(refuse(otherwise)) { case (why, remedy) => refuse(why, remedy) }

  private def conditionsOf(join: StreamingSymmetricHashJoinExec): Seq[Expression] =
    join.condition.full.toSeq ++ join.leftKeys.zip(join.rightKeys).map { case (l, r) => EqualTo(l, r) }

  /**
   * The frontier by which the right side lets go. A left semi join takes the right side's rows first and keeps none that it would let go
   * in this batch, so that the left side's rows of the batch would miss them: there it lets go a batch later.
   */
  private def ofRight(join: StreamingSymmetricHashJoinExec, frontiers: BatchFrontiers): Antichain =
    if (join.joinType == LeftSemi) frontiers.start else frontiers.end

  private def byEqualTimes(join: StreamingSymmetricHashJoinExec, frontiers: BatchFrontiers): Option[JoinStateWatermarkPredicates] = {
    def predicate(frontier: Antichain): Option[JoinStateWatermarkPredicate] = {
      val closed = sharedTimes(join.leftKeys.zip(join.rightKeys)).map { case (column, i) =>
        val key = BoundReference(i, join.leftKeys(i).dataType, nullable = true)
        ClosedBy(column.time(key), column.frontier(frontier)): Expression
      }
      closed.reduceOption(Or(_, _)).map(JoinStateKeyWatermarkPredicate(_, stateWatermark = 0L))
    }
    // What the same frontier left in the batch before, it still does, and no row comes at a time that it closes.
    val stands = frontiers.start == frontiers.end
    for {
      left <- predicate(frontiers.end)
      right <- predicate(ofRight(join, frontiers))
    } yield JoinStateWatermarkPredicates(Option.unless(stands)(left), Option.unless(stands && join.joinType != LeftSemi)(right))
  }

  private def byDistance(join: StreamingSymmetricHashJoinExec, frontiers: BatchFrontiers): Option[JoinStateWatermarkPredicates] = {
    TimeDistance.of(join.left.output, join.right.output, conditionsOf(join)).map { distance =>
      def frontier(time: Attribute, sources: Antichain) = TimeColumn.of(time).get.frontier(sources)
      def letGo(time: Attribute, kept: Option[Antichain]) =
        kept.map(f => JoinStateValueWatermarkPredicate(ClosedBy(time, f), stateWatermark = 0L): JoinStateWatermarkPredicate)
      val left = letGo(distance.left, distance.ofLeft(frontier(distance.right, frontiers.end)))
      val right = letGo(distance.right, distance.ofRight(frontier(distance.left, ofRight(join, frontiers))))
      val needed = join.joinType match {
        case LeftOuter => Seq("left" -> left)
        case RightOuter => Seq("right" -> right)
        case FullOuter => Seq("left" -> left, "right" -> right)
        case _ => Nil
      }
      for ((side, None) <- needed) refuseUnbounded(join, s"nothing in its condition says when a row of the $side side has met all its matches")
      JoinStateWatermarkPredicates(left, right)
    }
  }

  /** The times that a join finds equal on both sides: as a column, with the place of the pair. */
  def sharedTimes(pairs: Seq[(Expression, Expression)]): Seq[(TimeColumn, Int)] = pairs.zipWithIndex.flatMap { case ((left, right), i) =>
    columnOf(left).filter(columnOf(right).contains).map(_ -> i)
  }

  private def columnOf(key: Expression): Option[TimeColumn] = key match {
    case a: Attribute => TimeColumn.of(a)
    case _ => None
  }
}
