package strandline.spark.plan

import scala.collection.mutable

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.{FullOuter, LeftOuter, LeftSemi, RightOuter}
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2
import org.apache.spark.sql.catalyst.types.DataTypeUtils
import org.apache.spark.sql.types.Metadata
import strandline.spark.errors.Errors
import strandline.spark.time.{LeastStep, Sessions, TimeColumn}

/**
 * Carries time tags through an analysed streaming plan, in field metadata.
 *
 * Spark's checker wants `spark.watermarkDelayMs` on the time column of an append aggregation; only this rule adds it, so a session
 * without the extension refuses a strandline stream by itself. A column that is made from a time in a way whose summary is known
 * (a window, a window's bound, `window_time`, a [[TransformTime]]) is tagged with that summary; any other expression loses the tag.
 */
object TagRule extends Rule[LogicalPlan] with PredicateHelper {
  import TimeExpressions._

  // The plan of a batch is analysed again, without the relations that name the sources: it has its tags.
  override def apply(plan: LogicalPlan): LogicalPlan =
    if (!plan.resolved || !plan.isStreaming || !plan.exists(FrontierSource.isOne)) plan
    else {
      val own = withoutForeignTags(plan)
      val shared = mutable.Map.from(own.collect { case common: CTERelationDef => common.id -> common.output })
      val tagged = own.resolveOperatorsUp {
        case common: CTERelationDef =>
          shared(common.id) = common.output
          common
        case ref: CTERelationRef => ref.copy(output = ref.output.zip(shared.getOrElse(ref.cteId, ref.output)).map { case (a, known) => carried(a, known.metadata) })
        case p => retag(movedBelow(p))
      }
      tagged.foreach { case watermark: EventTimeWatermark if watermark.isStreaming => checkWatermark(watermark); case _ => }
      tagged
    }

  /**
   * Schemas are passed on: a file source that reads with a channel's schema, or a table made with it, shows our tags and states nothing.
   * Such a leaf may have been analysed long ago, by itself.
   */
  private def withoutForeignTags(plan: LogicalPlan): LogicalPlan = plan match {
    case TimeTransformNode(_, _, _: LeafNode, _) | _: CTERelationRef => plan
    case leaf: LeafNode if !FrontierSource.isOne(leaf) =>
      withoutTags(leaf, leaf.output.filter(isTimed))
    case other => other.mapChildren(withoutForeignTags)
  }

  private def retag(plan: LogicalPlan): LogicalPlan = plan match {
    case relation: StreamingRelationV2 if FrontierSource.isOne(relation) => relation.copy(output = relation.output.map(declare(_)))
    case _: LeafNode | _: EventTimeWatermark => plan
    case union: Union => united(union)
    case view: View if !view.isTempViewStoringAnalyzedPlan =>
      plan.mapChildren { case project: Project => project.copy(projectList = project.projectList.map(undeclared)); case other => other }
    case _ =>
      val known = AttributeMap(plan.children.flatMap(_.output).map(a => a -> a.metadata))
      val fresh = plan.mapExpressions(refresh(_, known))
      fresh.mapExpressions(derive(fresh, _))
  }

  /** Spark takes a join for the root of what it has just analysed, so the mark is set when something stands above the join. */
  private def movedBelow(plan: LogicalPlan): LogicalPlan = plan match {
    case _: TimeTransformNode => plan
    case limit: LocalLimit if limit.isStreaming => limit.mapChildren(child => inEachBatch(movedIn(child)))
    case _ => plan.mapChildren(movedIn)
  }

  private def movedIn(child: LogicalPlan): LogicalPlan = child match {
    case join: Join if join.left.isStreaming && join.right.isStreaming => moved(join)
    case dedup: Deduplicate if dedup.isStreaming && dedup.keys.exists(_.metadata.contains(OperatorMark.Key)) =>
      withoutTags(dedup, behind(dedup.output, dedup.keys.filter(isTimed).map(_ -> dedup.child)))
    case sessions: Aggregate if sessions.isStreaming && sessions.groupingExpressions.exists(isSession) =>
      withoutTags(sessions, behind(sessions.output, sessions.output.filter(isSession).map(_ -> sessions)))
    case other => withoutTags(other, strangers(other))
  }

  /**
   * A source without data is an empty table to the optimizer, which so takes the limit above it for needless and drops it, with its
   * state, for that batch: something whose rows it cannot count holds it.
   */
  private def inEachBatch(child: LogicalPlan): LogicalPlan = child match {
    case _: TimeTransformNode => child
    case _ => TimeTransformNode(Nil, Nil, child)
  }

  /**
   * The times among the columns that a node has neither from its children nor by an expression that [[derive]] has seen, such as those
   * of a lateral subquery, whose plan is analysed by itself.
   */
  private def strangers(plan: LogicalPlan): Seq[Attribute] = plan match {
    case _: LeafNode | _: Project | _: Aggregate | _: Expand | _: Generate | _: Union | Declaring() => Nil
    case _ => plan.output.filter(a => isTimed(a) && !plan.inputSet.contains(a))
  }

  private def withoutTags(plan: LogicalPlan, times: Seq[Attribute], allowsFilterPushdown: Boolean = false): LogicalPlan =
    if (times.isEmpty) plan else TimeTransformNode(times, times.map(_ => None), plan, allowsFilterPushdown)

  /**
   * A join over a distance keeps rows while the frontier goes on, so what it gives is behind by as much. One on equal times keeps them
   * until these are closed. The times of a side that may lack a row are null then, so they are no times above the join.
   */
  private def moved(join: Join): LogicalPlan = {
    val (left, right) = (join.left.output, join.right.output)
    val conditions = join.condition.toSeq.flatMap(splitConjunctivePredicates)
    val equal = conditions.collect {
      case EqualTo(a: Attribute, b: Attribute) if join.left.outputSet.contains(a) && join.right.outputSet.contains(b) => a -> b
      case EqualTo(a: Attribute, b: Attribute) if join.left.outputSet.contains(b) && join.right.outputSet.contains(a) => b -> a
    }
    val shared = TimeDistance.sharedTimes(equal).map { case (_, i) => equal(i) }
    val still = inOnePlace(join)
    val missing = mayBeMissing(join)
    if (shared.nonEmpty) {
      val late = behind(join.output, shared.map(_._1 -> join.left) ++ shared.map(_._2 -> join.right))
      withoutTags(still, (late ++ missing).distinct, allowsFilterPushdown = late.isEmpty)
    }
    else if (!left.exists(isTimed) || !right.exists(isTimed)) still
    else {
      val distance = TimeDistance.of(left, right, conditions)
      val columns = join.output.filter(isTimed)
      TimeTransformNode(columns, columns.map(time => distance.filterNot(_ => missing.contains(time)).flatMap(_.behind(time))), still)
    }
  }

  /** The times of a side of which a row may have none. */
  private def mayBeMissing(join: Join): Seq[Attribute] = {
    val (left, right) = join.output.filter(isTimed).partition(join.left.outputSet.contains)
    join.joinType match {
      case LeftOuter => right
      case RightOuter => left
      case FullOuter => left ++ right
      case _ => Nil
    }
  }

  /**
   * The times of `output` that may be behind the frontier when their row comes out. It waits until a time of its own is closed: one of
   * `awaited`, each a column of the plan beside it. What was made of such a one is not behind.
   */
  private def behind(output: Seq[Attribute], awaited: Seq[(Attribute, LogicalPlan)]): Seq[Attribute] = output.filter(isTimed).filterNot { a =>
    awaited.exists { case (time, from) => from.outputSet.contains(a) && Lineage.isMadeOf(a, time, from) }
  }

  private def isTimed(a: Attribute): Boolean = TimeColumn.of(a).isDefined

  private def isSession(e: Expression): Boolean = e match {
    case a: Attribute => TimeColumn.of(a).exists(_.windows.contains(Sessions))
    case _ => false
  }

  /**
   * The optimizer takes a left semi join below a union or an aggregation, and makes several of it. That depends on which sources have
   * data in a batch, and with it which state is whose: something that says nothing holds it where it is.
   */
  private def inOnePlace(join: Join): Join =
    if (join.joinType == LeftSemi && join.left.exists(p => p.isInstanceOf[Union] || p.isInstanceOf[Aggregate]) && !join.left.isInstanceOf[TimeTransformNode])
      join.copy(left = TimeTransformNode(Nil, Nil, join.left))
    else join

  /** References take the tags of what they refer to; a tag that a node declares for a column of its own is taken at its word. */
  private def refresh(expression: Expression, known: AttributeMap[Metadata]): Expression = expression.transformUp {
    case a: AttributeReference if known.contains(a) => carried(a, known(a))
  }

  private def carried(a: Attribute, from: Metadata): Attribute =
    if (TimeColumn.sameKeys(from, a.metadata)) a else a.withMetadata(TimeColumn.carry(from, a.metadata))

  private def declare(a: AttributeReference, delay: Long = 0): AttributeReference =
    TimeColumn.of(a.metadata).fold(a) { column =>
      if (column.windows.isEmpty && column.summary.isIdentity) TimeColumn.checkType(a.name, column.domain, a.dataType)
      a.withMetadata(column.addTo(a.metadata, delay)).asInstanceOf[AttributeReference]
    }

  private def derive(plan: LogicalPlan, expression: Expression): Expression = expression match {
    case alias @ Alias(child, _) =>
      val below = child match { case inner: Alias => derive(plan, inner); case FieldTags.Tagged(field) => Untagged(field); case other => other }
      val declared = alias.explicitMetadata.flatMap(TimeColumn.of)
      def tagged = below match {
        case a: Attribute => declared.orElse(TimeColumn.of(a).filter(_ => isWindow(alias.metadata)))
        case struct: CreateNamedStruct if alias.metadata.contains(SessionWindow.marker) => sessionOf(struct)
        case struct: CreateNamedStruct if isWindow(alias.metadata) => windowOf(struct)
        case Transformed(move) if plan.isStreaming => Some(timeOf(move).getOrElse(throw Errors.notATime(alias.name, move.child.sql)))
        case e => timeOf(e).orElse(declared.filter(_.windows.isEmpty))
      }
      below match {
        case _: NamedExpression if alias.explicitMetadata.isEmpty => withChild(alias, below) // the same value under another name
        case _ => tagged.fold(hidden(alias, below))(column => withMetadata(withChild(alias, below), column.addTo(alias.metadata, delayOf(alias))))
      }
    case a: AttributeReference if !plan.inputSet.contains(a) => introduced(plan, a)
    case other => other
  }

  /** An alias that shows no tag, whatever its child and its own metadata do. */
  private def hidden(alias: Alias, child: Expression): Alias = {
    val bare = withChild(alias, child match { case named: NamedExpression if TimeColumn.isTagged(named.metadata) => Untagged(named); case other => other })
    if (bare.explicitMetadata.exists(TimeColumn.isTagged)) withMetadata(bare, TimeColumn.removeFrom(bare.metadata)) else bare
  }

  /**
   * A column of a view that is stored as SQL: it is cast to the type, and given the metadata, of the day when the view was made. These are
   * no declaration of what it gives now.
   */
  private def undeclared(column: NamedExpression): NamedExpression = column match {
    case alias @ Alias(child, _) =>
      val value = child match { case Cast(same, kind, _, _) if DataTypeUtils.sameType(same.dataType, kind) => same; case other => other }
      columnOf(value).fold[NamedExpression](hidden(alias, child))(known => withMetadata(alias, known.addTo(alias.metadata, delayOf(alias))))
    case other => other
  }

  /** A column that `plan` makes by itself. Its tag counts where a user has declared it, in the schema of what a function gives. */
  private def introduced(plan: LogicalPlan, a: AttributeReference): Expression = plan match {
    case expand: Expand =>
      val at = expand.output.indexWhere(_.exprId == a.exprId)
      // A rollup or cube gives groups without the time, too: of all times, so that none of them closes it.
      expand.projections.map(row => columnOf(row(at))).distinct match {
        case Seq(Some(column)) => a.withMetadata(column.addTo(a.metadata, TimeColumn.delayIn(a.metadata)))
        case _ => a.withMetadata(TimeColumn.removeFrom(a.metadata))
      }
    case Declaring() => declare(a, TimeColumn.delayIn(a.metadata))
    case _ => a.withMetadata(TimeColumn.removeFrom(a.metadata))
  }

  /** The nodes whose columns a user declares, in the schema of what a function gives. */
  private object Declaring {
    def unapply(plan: LogicalPlan): Boolean = plan match {
      case _: MapInPandas | _: MapInArrow | _: FlatMapGroupsInPandas | _: FlatMapGroupsInArrow | _: FlatMapCoGroupsInPandas => true
      case _: FlatMapCoGroupsInArrow | _: FlatMapGroupsInPandasWithState | _: TransformWithStateInPySpark => true
      case _ => false
    }
  }

  private def withChild(alias: Alias, child: Expression): Alias =
    if (alias.child fastEquals child) alias
    else Alias(child, alias.name)(alias.exprId, alias.qualifier, alias.explicitMetadata, alias.nonInheritableMetadataKeys)

  private def withMetadata(alias: Alias, metadata: Metadata): Alias =
    if (alias.metadata == metadata) alias
    else Alias(alias.child, alias.name)(alias.exprId, alias.qualifier, Some(metadata), alias.nonInheritableMetadataKeys)

  /** The delay that `withWatermark` says to `dropDuplicatesWithinWatermark`: what is made of a time keeps it. */
  private def delayOf(alias: Alias): Long = alias.child.references.map(a => TimeColumn.delayIn(a.metadata)).maxOption.getOrElse(0L)

  private def isWindow(metadata: Metadata): Boolean =
    metadata.contains(TimeWindow.marker) || metadata.contains(SessionWindow.marker)

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
    if (moved.isEmpty) union else TimeTransformNode(moved.map(_._1), moved.map(_._2), union)
  }
}
