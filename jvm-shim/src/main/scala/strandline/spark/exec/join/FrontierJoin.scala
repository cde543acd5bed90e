package strandline.spark.exec.join

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans._
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinExec
import strandline.spark.batch.BatchFrontiers
import strandline.spark.errors.Errors
import strandline.spark.plan.TimeDistance
import strandline.spark.time.{Antichain, TimeColumn}

/**
 * Stream-stream joins whose kept rows are let go, and whose unmatched rows are emitted, by an exact frontier.
 *
 * Where a time column is equal on both sides, no row can find a match once its time is closed. Where the condition puts a
 * [[TimeDistance]] between the times, a row waits until the other side's times have passed it by that distance.
 */
private[spark] object FrontierJoin {

  /** The last state format that evicts by a predicate; the next one compares milliseconds. */
  private val LastStateFormat = 3

  /** `marked`: whether what stands above the join knows how far its output is behind ([[TimeTransformNode]]). */
  def apply(join: StreamingSymmetricHashJoinExec, frontiers: BatchFrontiers, marked: Boolean, left: SparkPlan, right: SparkPlan): FrontierJoinExec = {
    if (join.stateFormatVersion > LastStateFormat)
      refuse(s"its state format ${join.stateFormatVersion} evicts by the scalar watermark", "Set spark.sql.streaming.join.stateFormatVersion to 3, and begin with another checkpoint: one that was begun keeps what was set.")
    val (leftRelease, rightRelease) = byEqualTimes(join, frontiers).orElse(byDistance(join, frontiers).filter(_ => marked)).getOrElse(
      refuseUnbounded(join, "its condition bounds the distance of no two time columns")
    )
    FrontierJoinExec(join, left, right, leftRelease, rightRelease)
  }

  private def refuse(why: String, remedy: String = "Join on the time columns of both sides being equal, or on how far they may be apart."): Nothing =
    throw Errors.operatorUnsupported("A stream-stream join", why, remedy)

  /** A condition that looks as if it bounded a distance gets the reason why it does not. */
  private def refuseUnbounded(join: StreamingSymmetricHashJoinExec, otherwise: String): Nothing =
    whyInexact(join).fold(refuse(otherwise)) { case (why, remedy) => refuse(why, remedy) }

  private def whyInexact(join: StreamingSymmetricHashJoinExec) = TimeDistance.whyInexact(join.left.output, join.right.output, conditionsOf(join))

  private def conditionsOf(join: StreamingSymmetricHashJoinExec): Seq[Expression] =
    join.condition.full.toSeq ++ join.leftKeys.zip(join.rightKeys).map { case (l, r) => EqualTo(l, r) }

  private type BothSides = (Option[ReleaseCondition], Option[ReleaseCondition])

  private def byEqualTimes(join: StreamingSymmetricHashJoinExec, frontiers: BatchFrontiers): Option[BothSides] = {
    val times = TimeDistance.sharedTimes(join.leftKeys.zip(join.rightKeys)).map { case (column, i) =>
      (column.time(BoundReference(i, join.leftKeys(i).dataType, nullable = true)), column.frontier(frontiers.end))
    }
    // What the same frontier left in the batch before, it still does, and no row comes at a time that it closes.
    ReleaseCondition(byKey = true, times, moved = frontiers.start != frontiers.end).map(both => (Some(both), Some(both)))
  }

  private def byDistance(join: StreamingSymmetricHashJoinExec, frontiers: BatchFrontiers): Option[BothSides] = {
    TimeDistance.of(join.left.output, join.right.output, conditionsOf(join)).map { distance =>
      def frontier(time: Attribute) = TimeColumn.of(time).get.frontier(frontiers.end)
      // A row may come after all its matches, so all are asked in each batch.
      def release(time: Attribute, side: SparkPlan, kept: Option[Antichain]) =
        kept.flatMap(f => ReleaseCondition(byKey = false, Seq(BindReferences.bindReference(time: Expression, side.output) -> f), moved = true))
      val left = release(distance.left, join.left, distance.ofLeft(frontier(distance.right)))
      val right = release(distance.right, join.right, distance.ofRight(frontier(distance.left)))
      val needed = join.joinType match {
        case LeftOuter => Seq("left" -> left)
        case RightOuter => Seq("right" -> right)
        case FullOuter => Seq("left" -> left, "right" -> right)
        case _ => Nil
      }
      // A side with a bound that does not count would be kept for ever, without a word.
      if (left.isEmpty || right.isEmpty) whyInexact(join).foreach { case (why, remedy) => refuse(why, remedy) }
      for ((side, None) <- needed) refuseUnbounded(join, s"nothing in its condition says when a row of the $side side has met all its matches")
      (left, right)
    }
  }
}
