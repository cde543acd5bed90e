package strandline.spark.exec.join

import org.apache.hadoop.conf.Configuration
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans._
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.streaming.operators.stateful._
import org.apache.spark.sql.execution.streaming.operators.stateful.join._
import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinHelper._
import org.apache.spark.sql.execution.streaming.state.{StateStoreConf, StateStoreMetrics}
import org.apache.spark.sql.execution.streaming.state.strandline.{PrefixRemoval, StreamingInternals}
import org.apache.spark.sql.streaming.OutputMode
import org.apache.spark.unsafe.map.strandline.TaskRows
import strandline.spark.compat.IdentityEquals
import strandline.spark.exec.CompletionIterator
import strandline.spark.state.TimedOperator

/**
 * A stream-stream join that releases rows by an exact frontier. Its state is that of Spark's join, whose classes for looking
 * through the state are private.
 *
 * In each batch, the left rows meet the right rows of the state, and are kept. Then the right rows meet all left rows, and are
 * kept. At the end, each side releases rows; rows of an outer side that have met none are emitted. So the later row of a pair
 * finds the earlier one, once. Rows that cannot have a partner are not kept, such as rows with a null in their key. (Spark's join
 * keeps those, and in a full outer join pairs them.)
 *
 * A row that this batch already releases needs no state: a left row waits in memory for the right rows of the batch
 * ([[TaskRows]]), and a right row has met all that it can meet.
 */
final class FrontierJoinExec(
    leftKeys: Seq[Expression],
    rightKeys: Seq[Expression],
    joinType: JoinType,
    condition: JoinConditionSplitPredicates,
    stateInfo: Option[StatefulOperatorStateInfo],
    eventTimeWatermarkForLateEvents: Option[Long],
    eventTimeWatermarkForEviction: Option[Long],
    stateWatermarkPredicates: JoinStateWatermarkPredicates,
    stateFormatVersion: Int,
    left: SparkPlan,
    right: SparkPlan,
    outputMode: Option[OutputMode],
    val leftRelease: Option[ReleaseCondition],
    val rightRelease: Option[ReleaseCondition])
    extends StreamingSymmetricHashJoinExec(
      leftKeys,
      rightKeys,
      joinType,
      condition,
      stateInfo,
      eventTimeWatermarkForLateEvents,
      eventTimeWatermarkForEviction,
      stateWatermarkPredicates,
      stateFormatVersion,
      left,
      right,
      outputMode) with TimedOperator with IdentityEquals {

  override def customStatefulOperatorMetrics: Seq[StatefulOperatorCustomMetric] =
    super.customStatefulOperatorMetrics ++ storeMetrics

  override protected def doExecute(): RDD[InternalRow] = {
    metrics // created here, on the driver, because tasks only use them
    StreamingInternals.zipPartitionsWithStores(left.execute(), right.execute(), getStateInfo, stateStoreNames, countsRows,
      session)(joined(conf.getConf(TaskRows.Pages)))
  }

  private def hasCommonStore = stateFormatVersion >= 3

  /** Whether the states count their rows, so that the stores need not. A common store counts its other entries, too. */
  private def countsRows = !hasCommonStore && Seq(leftRelease, rightRelease).forall(_.exists(_.expiry.isDefined))

  /**
   * One side's rows of a batch, and the state that keeps them. `keepsUnmatched`: the join also emits rows without a partner.
   */
  private final class Side(val rows: Iterator[InternalRow], plan: SparkPlan, keys: Seq[Expression], own: Option[Expression],
      val isLeft: Boolean, val state: ExpiringJoinState) {
    val keepsUnmatched: Boolean = joinType == FullOuter || joinType == (if (isLeft) LeftOuter else RightOuter)
    val keyOf: UnsafeProjection = UnsafeProjection.create(keys, plan.output)

    /** Whether a row may have a partner at all, by the part of the condition that is about this side alone. */
    val mayMatch: InternalRow => Boolean = predicate(own, plan.output)
  }

  private def predicate(condition: Option[Expression], input: Seq[Attribute]): InternalRow => Boolean =
    Predicate.create(condition.getOrElse(Literal.TrueLiteral), input).eval _

  private def joined(pages: Int)(
      partition: Int,
      leftRows: Iterator[InternalRow],
      rightRows: Iterator[InternalRow],
      conf: StateStoreConf,
      hadoopConf: Configuration): Iterator[InternalRow] = {
    val (updated, removed, output) =
      (longMetric("numUpdatedStateRows"), longMetric("numRemovedStateRows"), longMetric("numOutputRows"))
    val skippedNulls = Option.when(conf.skipNullsForStreamStreamJoins)(longMetric("skippedNullValueCount"))
    val stores = new JoinStores
    val checkpoints =
      SymmetricHashJoinStateManager.getStateStoreCheckpointIds(partition, getStateInfo.stateStoreCkptIds, hasCommonStore)
    def side(rows: Iterator[InternalRow], plan: SparkPlan, keys: Seq[Expression], own: Option[Expression], which: JoinSide,
        checkpoint: JoinerStateStoreCheckpointId, release: Option[ReleaseCondition]) = {
      val state = JoinSideSettings(which, plan.output, keys, getStateInfo, conf, hadoopConf, partition, checkpoint,
        stateFormatVersion, skippedNulls, stores, release)
      new Side(rows, plan, keys, own, which == LeftSide, state.open())
    }
    val a = side(leftRows, left, leftKeys, condition.leftSideOnly, LeftSide, checkpoints.left, leftRelease)
    val b = side(rightRows, right, rightKeys, condition.rightSideOnly, RightSide, checkpoints.right, rightRelease)
    val matches = predicate(condition.bothSides, left.output ++ right.output)
    val pair = new JoinedRow
    // The left rows of this batch that it also releases. What does not fit is in the state.
    // A semi join with a condition beside its keys drops the rows that it emits one by one, which only the state can.
    val passing = new TaskRows(if (joinType == LeftSemi && condition.bothSides.isDefined) 0 else pages)

    def alone(side: Side, row: InternalRow): InternalRow = if (side.isLeft) pair(row, nullRight) else pair(nullLeft, row)

    def meet(side: Side, other: Side): Iterator[InternalRow] = side.rows.flatMap { input =>
      val row = input.asInstanceOf[UnsafeRow]
      val key = side.keyOf(row)
      // A null equals nothing. For a null-safe comparison, Spark creates keys that are never null.
      if (key.anyNull || !side.mayMatch(row)) Iterator(row).filter(_ => side.keepsUnmatched).map(alone(side, _))
      else {
        def pairWith(partner: InternalRow): JoinedRow = if (side.isLeft) pair(row, partner) else pair(partner, row)
        val isReleased = side.state.isReleased(key, row)
        // When a right row comes, the left rows of its batch are in the state only if they did not fit, or are not yet released.
        val isStateEmpty = other.state.lacked(key) && (side.isLeft || isReleased && !passing.isFull)
        val ofState =
          if (isStateEmpty) Iterator.empty
          else if (joinType != LeftSemi || side.isLeft) other.state.getJoinedRows(key, pairWith, matches)
          else other.state.getJoinedRowsAndRemoveMatched(key, pairWith, matches).map { found =>
            removed += 1
            found
          }
        val partners = if (side.isLeft) ofState
        else {
          val waiting = passing.get(key, left.output.length)
          // A semi join emits all rows of a key at once: if one is marked, all are.
          val unmet = if (joinType == LeftSemi) waiting.takeWhile(!_.isMarked) else waiting
          ofState ++ unmet.filter { partner =>
            val isMet = matches(pairWith(partner.row))
            if (isMet) partner.mark()
            isMet
          }.map(_ => pair)
        }
        val isMatched = partners.hasNext

        /** Keeps the row, and returns it if it comes out at once. */
        def keep(): Iterator[InternalRow] = {
          val isDone = joinType == LeftSemi && side.isLeft && isMatched
          if (isReleased && !side.isLeft) {
            if (side.keepsUnmatched && !isMatched) Iterator(alone(side, row)) else Iterator.empty
          } else {
            if (!isDone && !(isReleased && passing.add(key, row, isMatched))) {
              side.state.append(key, row, isMatched)
              updated += 1
            }
            Iterator.empty
          }
        }
        val emitted = joinType match {
          case LeftSemi if side.isLeft => if (isMatched) Iterator(row) else Iterator.empty
          case LeftSemi => partners.map(_.getLeft)
          case _ => partners
        }
        // After all partners are emitted.
        emitted ++ keep()
      }
    }

    def released(side: Side): Iterator[InternalRow] =
      if (side.keepsUnmatched) {
        side.state.releaseAndReturn().filter { entry =>
          removed += 1
          !entry.matched
        }.map(entry => alone(side, entry.value))
      } else {
        removed += side.state.release()
        Iterator.empty
      }

    val project =
      UnsafeProjection.create(if (joinType == LeftSemi) left.output else left.output ++ right.output,
        this.output) // whose columns may be nullable
    def emitted(rows: Iterator[InternalRow]): Iterator[InternalRow] = rows.map { row =>
      output += 1
      project(row)
    }
    def passed = if (!a.keepsUnmatched) Iterator.empty
    else passing.all(left.output.length).filterNot(_.isMarked).map(entry => alone(a, entry.row))
    val met = new CompletionIterator(emitted(meet(a, b) ++ meet(b, a) ++ passed), longMetric("allUpdatesTimeMs") += _)
    met ++ new CompletionIterator(
      emitted(released(a) ++ released(b)),
      taken => {
        longMetric("allRemovalsTimeMs") += taken
        end(a.state, b.state, stores)
      })
  }

  private def end(a: ExpiringJoinState, b: ExpiringJoinState, stores: JoinStores): Unit = {
    val states = if (hasCommonStore) Seq(a) else Seq(a, b)
    longMetric("commitTimeMs") += timeTakenMs {
      states.foreach(_.commit())
      Seq(a, b).foreach(_.committed())
    }
    if (StatefulOperatorStateInfo.enableStateStoreCheckpointIds(conf)) setStateStoreCheckpointInfo(checkpointInfo(a, b))
    val totals = if (hasCommonStore) a.metrics else StateStoreMetrics.combine(states.map(_.metrics))
    longMetric("numTotalStateRows") += (if (countsRows) Seq(a, b).flatMap(_.rows).sum else totals.numKeys)
    longMetric("stateMemory") += totals.memoryUsedBytes
    setStoreCustomMetrics(totals.customMetrics)
    setStoreInstanceMetrics(totals.instanceMetrics)
    if (stores(stateStoreNames.head).isInstanceOf[PrefixRemoval]) longMetric(TimedOperator.SharedStores) += 1
    setOperatorMetrics(numStateStoreInstances = stateStoreNames.length)
  }

  private def checkpointInfo(a: ExpiringJoinState, b: ExpiringJoinState): StatefulOpStateStoreCheckpointInfo =
    if (hasCommonStore) {
      val info = a.getLatestCheckpointInfo().keyToNumValues
      StatefulOpStateStoreCheckpointInfo(info.partitionId, info.batchVersion, info.stateStoreCkptId.map(Array(_)),
        info.baseStateStoreCkptId.map(Array(_)))
    } else SymmetricHashJoinStateManager.mergeStateStoreCheckpointInfo(JoinStateStoreCkptInfo(a.getLatestCheckpointInfo(),
        b.getLatestCheckpointInfo()))

  override protected def otherCopyArgs: Seq[AnyRef] = Seq(leftRelease, rightRelease)

  override protected def withNewChildrenInternal(newLeft: SparkPlan, newRight: SparkPlan): StreamingSymmetricHashJoinExec =
    FrontierJoinExec(this, newLeft, newRight, leftRelease, rightRelease)
}

object FrontierJoinExec {
  def apply(
      join: StreamingSymmetricHashJoinExec,
      left: SparkPlan,
      right: SparkPlan,
      leftRelease: Option[ReleaseCondition],
      rightRelease: Option[ReleaseCondition]): FrontierJoinExec =
    new FrontierJoinExec(
      join.leftKeys,
      join.rightKeys,
      join.joinType,
      join.condition,
      join.stateInfo,
      None, // Spark would drop late rows
      None,
      JoinStateWatermarkPredicates(),
      join.stateFormatVersion,
      left,
      right,
      join.outputMode,
      leftRelease,
      rightRelease)
}
