package strandline.spark.plan

import java.time.ZoneOffset

import scala.util.Try

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.util.DateTimeConstants.MICROS_PER_DAY
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.CalendarInterval
import strandline.spark.time.{Antichain, LeastStep, Scalar, ShiftStep, Summary, TimeColumn}

/**
 * The distance that a join's condition allows between the times of its two sides: `low ≤ left − right ≤ high`, in the times'
 * own unit.
 *
 * A row of the left side has met all its matches when no right time ≤ `left − low` can come any more. A row of the right side
 * has met them when no left time ≤ `right + high` can come. Composite times may only be equal, at the distance 0.
 */
final case class TimeDistance(left: Attribute, right: Attribute, low: Option[Long], high: Option[Long]) {
  import TimeDistance.shifted

  /**
   * Returns the frontier of the left side's kept rows, from the frontier of the right side's times. None: they must be kept for
   * ever.
   */
  def ofLeft(right: Antichain): Option[Antichain] = low.map(d => shifted(d).results(right))

  def ofRight(left: Antichain): Option[Antichain] = high.map(d => shifted(-d).results(left))

  /**
   * Returns the summary of a side's times in the join's output. None: the condition does not bound how long rows wait.
   *
   * A pair comes out when the later of its rows comes. If that is a row of this side, its time is not behind this side's
   * frontier. If it is a row of the other side, its time is not behind that side's frontier, and this side's time is not behind
   * the same frontier shifted by the distance. Two times with the same summary have one frontier, so a shift expresses the
   * lower of both. It does so too where they are times of several inputs that have one frontier.
   */
  def behind(time: Attribute): Option[Summary] = {
    def least(own: Attribute, other: Attribute, distance: Option[Long]): Option[Summary] =
      for {
        d <- distance
        mine <- TimeColumn.of(own).map(_.summary)
        others <- TimeColumn.of(other).map(_.summary)
      } yield
        if (mine == others) mine.followedBy(shifted(d.min(0)))
        else {
          val paths = Seq(mine, others.followedBy(shifted(d)))
          if (mine.together == others.together) Summary(Seq(LeastStep(paths, Some(mine.together.followedBy(shifted(d.min(0)))))))
          else LeastStep.of(paths)
        }
    if (time.exprId == left.exprId) least(left, right, low)
    else if (time.exprId == right.exprId) least(right, left, high.map(-_))
    else None
  }
}

object TimeDistance {

  /** Returns the distance that `conditions`, which must all hold, put between a time of each side. None: they bound nothing. */
  def of(left: Seq[Attribute], right: Seq[Attribute], conditions: Seq[Expression]): Option[TimeDistance] = {
    val each = conditions.flatMap(conjuncts)
    val distances = for {
      l <- left
      r <- right
      (a, b) <- TimeColumn.of(l).zip(TimeColumn.of(r)) if a.domain == b.domain && a.windows.isEmpty && b.windows.isEmpty
    } yield {
      val narrowing = if (a.domain.isInstanceOf[Scalar]) each else each.filter(equates(_, l, r))
      narrowing.foldLeft(TimeDistance(l, r, None, None))(_ narrowedBy _)
    }
    distances.find(d => d.low.isDefined && d.high.isDefined).orElse(distances.find(d => d.low.isDefined || d.high.isDefined))
  }

  /**
   * Returns the times that a join compares for equality, each as a column with the index of its pair. A row comes out when the
   * rows of both sides are there, so the column has the paths of both. Both must be the same if all inputs have one frontier.
   */
  def sharedTimes(pairs: Seq[(Expression, Expression)]): Seq[(TimeColumn, Int)] = for {
    ((left, right), i) <- pairs.zipWithIndex
    (l, r) <- columnOf(left).zip(columnOf(right))
    if l.domain == r.domain && l.windows == r.windows && l.summary.together == r.summary.together
  } yield l.copy(summary = LeastStep.of(Seq(l.summary, r.summary))) -> i

  private def columnOf(key: Expression): Option[TimeColumn] = key match {
    case a: Attribute => TimeColumn.of(a)
    case _ => None
  }

  private def shifted(distance: Long): Summary = if (distance == 0) Summary.identity else Summary(Seq(ShiftStep(distance)))

  private def equates(condition: Expression, left: Attribute, right: Attribute): Boolean = condition match {
    case EqualTo(a: Attribute, b: Attribute) => AttributeSet(Seq(a, b)) == AttributeSet(Seq(left, right))
    case EqualNullSafe(a: Attribute, b: Attribute) => AttributeSet(Seq(a, b)) == AttributeSet(Seq(left, right))
    case _ => false
  }

  private def conjuncts(condition: Expression): Seq[Expression] = condition match {
    case And(a, b) => conjuncts(a) ++ conjuncts(b)
    case Between(time, lower, upper, _) => Seq(GreaterThanOrEqual(time, lower), LessThanOrEqual(time, upper))
    case other => Seq(other)
  }

  implicit private class Narrowing(distance: TimeDistance) {
    import distance.{left, right}

    def narrowedBy(condition: Expression): TimeDistance = condition match {
      case LessThan(a, b) => atMost(a, b, -1)
      case LessThanOrEqual(a, b) => atMost(a, b, 0)
      case GreaterThan(a, b) => atMost(b, a, -1)
      case GreaterThanOrEqual(a, b) => atMost(b, a, 0)
      case EqualTo(a, b) => atMost(a, b, 0).atMost(b, a, 0)
      case EqualNullSafe(a, b) => atMost(a, b, 0).atMost(b, a, 0)
      case _ => distance
    }

    /** `a ≤ b + slack`. */
    def atMost(a: Expression, b: Expression, slack: Long): TimeDistance =
      sum(linear(a), linear(b).flatMap(negated)).flatMap { difference =>
        difference.coefficients(left, right) match {
          case Some((1, -1)) =>
            Try(Math.subtractExact(slack, difference.constant)).toOption.map(h => distance.copy(high = least(distance.high, h)))
          case Some((-1, 1)) =>
            Try(Math.subtractExact(difference.constant, slack)).toOption.map(l => distance.copy(low = greatest(distance.low, l)))
          case _ => None
        }
      }.getOrElse(distance)
  }

  private def least(a: Option[Long], b: Long): Option[Long] = Some(a.fold(b)(_.min(b)))
  private def greatest(a: Option[Long], b: Long): Option[Long] = Some(a.fold(b)(_.max(b)))

  /** A sum of attributes, each with a factor, and a constant. */
  private case class Linear(terms: Map[ExprId, Int], constant: Long) {
    def coefficients(left: Attribute, right: Attribute): Option[(Int, Int)] =
      if (terms.filter(_._2 != 0).keySet == Set(left.exprId, right.exprId)) Some((terms(left.exprId), terms(right.exprId)))
      else None
  }

  private def linear(e: Expression): Option[Linear] = e match {
    case a: Attribute if !isInterval(a.dataType) => Some(Linear(Map(a.exprId -> 1), 0))
    case _ if inexact(e).isDefined => None
    case Add(a, b, _) => sum(linear(a), linear(b))
    case Subtract(a, b, _) => sum(linear(a), linear(b).flatMap(negated))
    case SubtractTimestamps(a, b, _, _) => sum(linear(a), linear(b).flatMap(negated))
    case TimestampAddInterval(time, interval, zone) => sum(linear(time), duration(interval, zone))
    case function: RuntimeReplaceable => linear(function.replacement)
    case UnaryMinus(child, _) => linear(child).flatMap(negated)
    case Cast(child, kind, _, _) if keepsValue(child.dataType, kind) => linear(child)
    case Literal(value: Number, kind) if isIntegral(kind) => Some(Linear(Map.empty, value.longValue))
    case Literal(value: Long, _: DayTimeIntervalType) => Some(Linear(Map.empty, value))
    case _ => None
  }

  /** Returns why an expression is not an exact sum or difference, and what to write instead. */
  private def inexact(e: Expression): Option[(String, String)] = e match {
    case SubtractTimestamps(_, _, _, zone) if !zone.exists(isFixed) =>
      Some((
          s"${e.sql} subtracts the local times of ${zone.getOrElse("no zone")}, whose clocks change",
          "Write l.time <= r.time + INTERVAL '30' MINUTE instead of l.time - r.time <= INTERVAL '30' MINUTE, or set " +
            "spark.sql.session.timeZone to UTC."))
    case TimestampAddInterval(_, interval, zone) if interval.foldable && duration(interval, zone).isEmpty =>
      Some((
          s"${e.sql} adds calendar time of ${zone.getOrElse("no zone")}, whose days and months differ in length",
          "Set spark.sql.session.timeZone to UTC, where a day has 24 hours; months cannot be a bound."))
    case _: TimestampAddYMInterval => Some((s"${e.sql} adds months, which differ in length", "Write the bound in days or hours."))
    case Add(_, _, context) if wraps(e, context.evalMode == EvalMode.LEGACY) => Some(wrapping(e))
    case Subtract(_, _, context) if wraps(e, context.evalMode == EvalMode.LEGACY) => Some(wrapping(e))
    case UnaryMinus(_, failOnError) if wraps(e, !failOnError) => Some(wrapping(e))
    case _ => None
  }

  private def wraps(e: Expression, isLegacy: Boolean): Boolean = isLegacy && isIntegral(e.dataType)

  private def wrapping(e: Expression): (String, String) =
    (s"${e.sql} wraps around at the ends of ${e.dataType.sql}",
      "Set spark.sql.ansi.enabled to true, or use try_add and try_subtract.")

  /** Returns the first reason why a condition on times of both sides does not bound a distance, although it seems to. */
  def whyInexact(left: Seq[Attribute], right: Seq[Attribute], conditions: Seq[Expression]): Option[(String, String)] = {
    def times(side: Seq[Attribute]) = AttributeSet(side.filter(TimeColumn.of(_).isDefined))
    val sides = Seq(times(left), times(right))
    val bounds = conditions.flatMap(conjuncts).filter(c => sides.forall(_.exists(c.references.contains)))
    bounds.iterator.flatMap(_.collect { case e if inexact(e).isDefined => inexact(e).get }).nextOption()
  }

  private def keepsValue(from: DataType, to: DataType): Boolean = (from, to) match {
    case (_: DayTimeIntervalType, DayTimeIntervalType(_, DayTimeIntervalType.SECOND)) => true
    case _ if isIntegral(from) && isIntegral(to) => from.defaultSize <= to.defaultSize
    case _ => from == to
  }

  private def isIntegral(kind: DataType): Boolean = Seq(ByteType, ShortType, IntegerType, LongType).contains(kind)

  /**
   * Returns the length of an interval. A day has 24 hours only in a zone without clock changes. A column of intervals is not a
   * constant, even if it stands on both sides: two days may have the same day a month later, and two times of one night the
   * same time a day later.
   */
  private def duration(interval: Expression, zone: Option[String]): Option[Linear] = interval match {
    case Literal(value: CalendarInterval, _) if value.months == 0 && (value.days == 0 || zone.exists(isFixed)) =>
      Try(Linear(Map.empty, Math.addExact(Math.multiplyExact(value.days.toLong, MICROS_PER_DAY), value.microseconds))).toOption
    case UnaryMinus(child, _) => duration(child, zone).flatMap(negated)
    case other => linear(other).filter(d => d.terms.isEmpty && (d.constant.abs < MICROS_PER_DAY || zone.exists(isFixed)))
  }

  private def isInterval(kind: DataType): Boolean = kind match {
    case CalendarIntervalType | _: DayTimeIntervalType | _: YearMonthIntervalType => true
    case _ => false
  }

  private def isFixed(zone: String): Boolean =
    Try(java.time.ZoneId.of(zone, java.time.ZoneId.SHORT_IDS).normalized.isInstanceOf[ZoneOffset]).getOrElse(false)

  private def sum(a: Option[Linear], b: Option[Linear]): Option[Linear] = for {
    x <- a
    y <- b
    constant <- Try(Math.addExact(x.constant, y.constant)).toOption
  } yield {
    val terms = (x.terms.keySet ++ y.terms.keySet).map(k => k -> (x.terms.getOrElse(k, 0) + y.terms.getOrElse(k, 0)))
    Linear(terms.toMap, constant)
  }

  private def negated(a: Linear): Option[Linear] =
    if (a.constant == Long.MinValue) None else Some(Linear(a.terms.map { case (k, n) => k -> -n }, -a.constant))
}
