package strandline.spark

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.LeftSemi
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2
import org.apache.spark.sql.types.{Metadata, StructType}

/**
 * Carries time tags through an analysed streaming plan, in field metadata.
 *
 * Spark's checker wants `spark.watermarkDelayMs` on the time column of an append aggregation; only this rule adds it, so a session
 * without the extension refuses a strandline stream by itself. A column that is made from a time in a way whose summary is known
 * (a window, a window's bound, `window_time`, a [[MoveTime]]) is tagged with that summary; any other expression loses the tag.
 */
object TagRule extends Rule[LogicalPlan] with PredicateHelper {

  override def apply(plan: LogicalPlan): LogicalPlan =
    if (!plan.resolved || !plan.isStreaming || !readsStrandline(plan)) plan else plan.resolveOperatorsUp { case p => retag(movedBelow(p)) }

  /** Whether a source of the plan states times. A source with a V1 fallback (Delta's) may show our column: it states nothing. */
  private def readsStrandline(plan: LogicalPlan): Boolean = plan.exists {
    case relation: StreamingRelationV2 => isTimed(relation)
    case _ => false
  }

  private def isTimed(relation: StreamingRelationV2): Boolean =
    relation.v1Relation.isEmpty && relation.output.exists(a => TimeColumn.isTagged(a.metadata))

  private def retag(plan: LogicalPlan): LogicalPlan = plan match {
    case relation: StreamingRelationV2 if isTimed(relation) => relation.copy(output = relation.output.map(declare))
    case relation: LeafNode => relation
    case watermark: EventTimeWatermark if readsStrandline(watermark) =>
      checkWatermark(watermark)
      watermark
    case union: Union => united(union)
    case _ =>
      val known = AttributeMap(for {
        child <- plan.children
        a <- child.output if a.metadata != Metadata.empty || child.isInstanceOf[MovedTimes]
      } yield a -> a.metadata)
      val fresh = plan.mapExpressions(refresh(_, known))
      fresh.mapExpressions(derive(fresh, _))
  }

  /** Spark takes a join for the root of what it has just analysed, so the mark is set when something stands above the join. */
  private def movedBelow(plan: LogicalPlan): LogicalPlan = plan match {
    case _: MovedTimes => plan
    case _ if plan.children.exists(_.isInstanceOf[Join]) =>
      plan.mapChildren {
        case join: Join => moved(join)
        case other => other
      }
    case _ => plan
  }

  /** A join over a distance keeps rows while the frontier goes on, so what it gives is behind by as much. */
  private def moved(join: Join): LogicalPlan = {
    val (left, right) = (join.left.output, join.right.output)
    val conditions = join.condition.toSeq.flatMap(splitConjunctivePredicates)
    val equal = conditions.collect { case EqualTo(a, b) => Seq(a -> b, b -> a) }.flatten
    def times(side: Seq[Attribute]) = side.filter(TimeColumn.of(_).isDefined)
    if (!join.left.isStreaming || !join.right.isStreaming) join
    else if (FrontierJoin.sharedTimes(equal).nonEmpty || times(left).isEmpty || times(right).isEmpty) inOnePlace(join)
    else {
      val distance = TimeDistance.of(left, right, conditions)
      val columns = times(join.output)
      MovedTimes(columns, columns.map(time => distance.flatMap(_.behind(time))), inOnePlace(join))
    }
  }

  /**
   * The optimizer takes a left semi join below a union or an aggregation, and makes several of it. That depends on which sources have
   * data in a batch, and with it which state is whose: something that says nothing holds it where it is.
   */
  private def inOnePlace(join: Join): Join =
    if (join.joinType == LeftSemi && join.left.exists(p => p.isInstanceOf[Union] || p.isInstanceOf[Aggregate]) && !join.left.isInstanceOf[MovedTimes])
      join.copy(left = MovedTimes(Nil, Nil, join.left))
    else join

  /** References take the tags of what they refer to; a tag that a node declares for a column of its own is taken at its word. */
  private def refresh(expression: Expression, known: AttributeMap[Metadata]): Expression = expression.transformUp {
    case a: AttributeReference if known.contains(a) =>
      if (TimeColumn.sameKeys(known(a), a.metadata)) a
      else a.withMetadata(TimeColumn.carry(known(a), a.metadata))
  }

  private def declare(a: AttributeReference): AttributeReference =
    TimeColumn.of(a.metadata).fold(a) { column =>
      if (column.windows.isEmpty && column.summary.isIdentity) TimeColumn.checkType(a.name, column.domain, a.dataType)
      a.withMetadata(column.addTo(a.metadata)).asInstanceOf[AttributeReference]
    }

  private def derive(plan: LogicalPlan, expression: Expression): Expression = expression match {
    case alias @ Alias(child, _) =>
      val tagged = child match {
        case _: Attribute if alias.explicitMetadata.isEmpty => None // inherited
        case a: Attribute => TimeColumn.of(alias.metadata).orElse(TimeColumn.of(a).filter(_ => isWindow(alias.metadata)))
        case struct: CreateNamedStruct if alias.metadata.contains(SessionWindow.marker) => sessionOf(struct)
        case struct: CreateNamedStruct if isWindow(alias.metadata) => windowOf(struct)
        case Moved(move) if plan.isStreaming => Some(timeOf(move).getOrElse(throw Errors.notATime(alias.name, move.child.sql)))
        case e => timeOf(e).orElse(TimeColumn.of(alias.metadata).filter(_.windows.isEmpty))
      }
      tagged match {
        case Some(column) => withMetadata(alias, column.addTo(alias.metadata, delayOf(alias)))
        case None if alias.explicitMetadata.exists(TimeColumn.isTagged) => withMetadata(alias, TimeColumn.removeFrom(alias.metadata))
        case None => alias
      }
    case a: AttributeReference if !plan.inputSet.contains(a) =>
      plan match {
        case expand: Expand if isWindow(a.metadata) =>
          val at = expand.output.indexWhere(_.exprId == a.exprId)
          val struct = expand.projections.headOption.map(_(at))
          struct.collect { case s: CreateNamedStruct => s }.flatMap(windowOf) match {
            case Some(column) => a.withMetadata(column.addTo(a.metadata))
            case None => a.withMetadata(TimeColumn.removeFrom(a.metadata))
          }
        case _ => declare(a)
      }
    case other => other
  }

  private def withMetadata(alias: Alias, metadata: Metadata): Alias =
    if (alias.metadata == metadata) alias
    else Alias(alias.child, alias.name)(alias.exprId, alias.qualifier, Some(metadata), alias.nonInheritableMetadataKeys)

  /** The delay that `withWatermark` says to `dropDuplicatesWithinWatermark`: a time that is moved keeps it. */
  private def delayOf(alias: Alias): Long = alias.child match {
    case Moved(move) => move.references.map(_.metadata).filter(_.contains(EventTimeWatermark.delayKey)).map(_.getLong(EventTimeWatermark.delayKey)).maxOption.getOrElse(0L)
    case _ => 0L
  }

  private def isWindow(metadata: Metadata): Boolean =
    metadata.contains(TimeWindow.marker) || metadata.contains(SessionWindow.marker)

  /** A moved time. What it gives is known, whatever tag the names that it was given carry. */
  private object Moved {
    def unapply(expression: Expression): Option[MoveTime] = expression match {
      case move: MoveTime => Some(move)
      case Alias(child, _) => unapply(child)
      case _ => None
    }
  }

  /** The times that an expression gives, when it is a time column, a bound of a window column, `window_time` of one, or one moved. */
  private def timeOf(expression: Expression): Option[TimeColumn] = expression match {
    case a: Attribute => TimeColumn.of(a)
    case GetStructField(a: Attribute, 0, _) => TimeColumn.of(a).flatMap(_.bound("start"))
    case GetStructField(a: Attribute, 1, _) => TimeColumn.of(a).flatMap(_.bound("end"))
    case PreciseTimestampConversion(Subtract(PreciseTimestampConversion(GetStructField(a: Attribute, 1, _), _, _), Literal(1L, _), _), _, _) =>
      TimeColumn.of(a).flatMap(_.bound("time"))
    case move: MoveTime =>
      timeOf(move.child).map { column =>
        if (column.windows.isDefined || column.domain != move.domain)
          throw Errors.domainMismatch(s"A time of ${move.domain} is moved, but ${move.child.sql} is $column.")
        move.from(column)
      }
    case _ => None
  }

  /** A coordinate of a composite time. Only a window asks for it: as a column of its own it would be a second time beside the whole. */
  private def coordinateOf(expression: Expression): Option[TimeColumn] = expression match {
    case GetStructField(struct, ordinal, _) =>
      for {
        column <- timeOf(struct).orElse(coordinateOf(struct))
        name <- struct.dataType match { case s: StructType => s.fieldNames.lift(ordinal); case _ => None }
        (_, part) <- CoordinateStep.find(column.domain, name)
      } yield TimeColumn(part, column.summary :+ CoordinateStep(name))
    case _ => None
  }

  /** The windows that Spark's `TimeWindowing` wrote out as arithmetic: `(time - offset) % slide`, and `start + width`. */
  private def windowOf(struct: CreateNamedStruct): Option[TimeColumn] = for {
    end <- struct.valExprs.lift(1)
    width <- end.collectFirst { case Add(_, Literal(width: Long, _), _) => width }
    (time, offset, slide) <- end.collectFirst {
      case Remainder(Subtract(PreciseTimestampConversion(time, _, _), Literal(offset: Long, _), _), Literal(slide: Long, _), _) =>
        (time, offset, slide)
    }
    column <- timeOf(time).orElse(coordinateOf(time))
    windowed <- column.windowed(Windows(width, slide, offset))
  } yield windowed

  /** The sessions that Spark's `SessionWindowing` wrote out: `time`, and `time + gap`, each there and back as a long. */
  private def sessionOf(struct: CreateNamedStruct): Option[TimeColumn] = for {
    start <- struct.valExprs.headOption
    time <- start.collectFirst { case PreciseTimestampConversion(PreciseTimestampConversion(time, _, _), _, _) => time }
    column <- timeOf(time).orElse(coordinateOf(time))
    windowed <- column.windowed(Sessions)
  } yield windowed

  /**
   * The frontier is exact, so a delay adds nothing to it: the frontier rule takes the operator out. Until then it tells
   * `dropDuplicatesWithinWatermark` its delay. On another column it would be a second, guessed progress.
   */
  private def checkWatermark(watermark: EventTimeWatermark): Unit =
    if (!watermark.child.output.exists(a => a.exprId == watermark.eventTime.exprId && TimeColumn.of(a).isDefined))
      throw Errors.watermarkUnsupported(watermark.eventTime.name)

  /** A union shows its first input's tags. Where its inputs' times came by different ways, those of the union are the least of them. */
  private def united(union: Union): LogicalPlan = {
    val moved = for {
      (inputs, output) <- union.children.map(_.output).transpose.zip(union.output)
      first <- TimeColumn.of(inputs.head)
      columns = inputs.map { a =>
        TimeColumn.of(a).filter(c => c.domain == first.domain && c.windows == first.windows).getOrElse(
          throw Errors.unionMismatch(inputs.head.name, first.toString, TimeColumn.of(a).fold("no time column")(_.toString))
        )
      }
      summary = LeastStep.of(columns.map(_.summary)) if summary != first.summary
    } yield output -> Option(summary)
    if (moved.isEmpty) union else MovedTimes(moved.map(_._1), moved.map(_._2), union)
  }
}
