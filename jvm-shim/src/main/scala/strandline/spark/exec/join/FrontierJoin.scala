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
 * Plans stream-stream joins that release kept rows, and emit unmatched rows, by an exact frontier.
 *
 * If a time column is equal on both sides, no row can find a match after its time is closed. If the condition bounds a
 * [[TimeDistance]], a row waits until the other side's frontier has passed it by that distance.
 */
private[spark] object FrontierJoin {

  /** The last state format that evicts by a predicate. The next one compares milliseconds. */
  private val LastStateFormat = 3

  /** `marked`: whether the plan above the join knows how far its output is behind ([[TimeTransformNode]]). */
  def apply(join: StreamingSymmetricHashJoinExec, frontiers: BatchFrontiers, marked: Boolean, left: SparkPlan, right: SparkPlan)
      : FrontierJoinExec = {
    if (join.stateFormatVersion > LastStateFormat)
      refuse(s"its state format ${join.stateFormatVersion} evicts by the scalar watermark",
        "Set spark.sql.streaming.join.stateFormatVersion to 3, and begin a new checkpoint. An existing checkpoint keeps its " +
          "format.")
    val (leftRelease, rightRelease) =
      byEqualTimes(join, frontiers).orElse(byDistance(join, frontiers).filter(_ => marked)).getOrElse(
        refuseUnbounded(join, "its condition does not bound the distance between two time columns"))
    FrontierJoinExec(join, left, right, leftRelease, rightRelease)
  }

  private def refuse(why: String,
      remedy: String = "Join on equal time columns of both sides, or bound the distance between them."): Nothing =
    throw Errors.operatorUnsupported("A stream-stream join", why, remedy)

  /** Refuses a join without a bound. If a condition only seems to bound a distance, the message says why it does not. */
  private def refuseUnbounded(join: StreamingSymmetricHashJoinExec, otherwise: String): Nothing =
    whyInexact(join).fold(refuse(otherwise)) { case (why, remedy) => refuse(why, remedy) }

  private def whyInexact(join: StreamingSymmetricHashJoinExec) =
    TimeDistance.whyInexact(join.left.output, join.right.output, conditionsOf(join))

  private def conditionsOf(join: StreamingSymmetricHashJoinExec): Seq[Expression] =
    join.condition.full.toSeq ++ join.leftKeys.zip(join.rightKeys).map { case (l, r) => EqualTo(l, r) }

  private type BothSides = (Option[ReleaseCondition], Option[ReleaseCondition])

  private def byEqualTimes(join: StreamingSymmetricHashJoinExec, frontiers: BatchFrontiers): Option[BothSides] = {
    val times = TimeDistance.sharedTimes(join.leftKeys.zip(join.rightKeys)).map { case (column, i) =>
      (column.time(BoundReference(i, join.leftKeys(i).dataType, nullable = true)), column.frontier(frontiers.end))
    }
    // Rows that the same frontier has left are left again, and no row comes at a time that it closes.
    ReleaseCondition(byKey = true, times, moved = frontiers.start != frontiers.end).map(both => (Some(both), Some(both)))
  }

  private def byDistance(join: StreamingSymmetricHashJoinExec, frontiers: BatchFrontiers): Option[BothSides] = {
    TimeDistance.of(join.left.output, join.right.output, conditionsOf(join)).map { distance =>
      def frontier(time: Attribute) = TimeColumn.of(time).get.frontier(frontiers.end)
      // A row may come after all its matches, so every batch tests all rows.
      def release(time: Attribute, side: SparkPlan, kept: Option[Antichain]) =
        kept.flatMap(f =>
          ReleaseCondition(byKey = false, Seq(BindReferences.bindReference(time: Expression, side.output) -> f), moved = true))
      val left = release(distance.left, join.left, distance.ofLeft(frontier(distance.right)))
      val right = release(distance.right, join.right, distance.ofRight(frontier(distance.left)))
      val needed = join.joinType match {
        case LeftOuter => Seq("left" -> left)
        case RightOuter => Seq("right" -> right)
        case FullOuter => Seq("left" -> left, "right" -> right)
        case _ => Nil
      }
      // Otherwise rows of a side whose bound does not count would be kept for ever, in silence.
      if (left.isEmpty || right.isEmpty) whyInexact(join).foreach { case (why, remedy) => refuse(why, remedy) }
      for ((side, None) <- needed)
        refuseUnbounded(join, s"its condition does not show when a row of the $side side has met all its matches")
      (left, right)
    }
  }
}
