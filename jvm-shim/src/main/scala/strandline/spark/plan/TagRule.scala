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
import strandline.spark.time.{LeastStep, Sessions, Summary, TimeColumn}

/**
 * Propagates time tags through an analysed streaming plan, in field metadata.
 *
 * Spark's checker requires `spark.watermarkDelayMs` on the time column of an append aggregation. Only this rule adds it, so a
 * session without the extension refuses a strandline stream. A column derived from a time with a known summary (a window, a
 * window's bound, `window_time`, a [[TransformTime]]) gets that summary in its tag. Every other expression loses the tag.
 */
object TagRule extends Rule[LogicalPlan] with PredicateHelper {
  import TimeExpressions._

  /** The metadata key of the time in the struct of a channel (inputs.py): the name of the input. */
  private val InputKey = "strandline.input"

  // A batch's plan is analysed again, without the relations that name the sources. It has its tags already.
  override def apply(plan: LogicalPlan): LogicalPlan =
    if (!plan.resolved || !plan.isStreaming || !plan.exists(FrontierSource.statesFrontier)) plan
    else {
      val own = withoutForeignTags(plan)
      val shared = mutable.Map.from(own.collect { case common: CTERelationDef => common.id -> common.output })
      val tagged = own.resolveOperatorsUp {
        case common: CTERelationDef =>
          shared(common.id) = common.output
          common
        case ref: CTERelationRef => ref.copy(output = ref.output.zip(shared.getOrElse(ref.cteId, ref.output)).map {
            case (a, known) => withTagOf(a, known.metadata)
          })
        case p => retag(transformBelow(p))
      }
      tagged.foreach { case watermark: EventTimeWatermark if watermark.isStreaming => checkWatermark(watermark); case _ => }
      tagged
    }

  /**
   * Removes tags from leaves that state no frontier, such as a file source that reads with a channel's schema, or a table made
   * with it. Such a leaf may have been analysed earlier, by itself.
   */
  private def withoutForeignTags(plan: LogicalPlan): LogicalPlan = plan match {
    case TimeTransformNode(_, _, _: LeafNode, _, _, _) | _: CTERelationRef => plan
    case leaf: LeafNode if !FrontierSource.statesFrontier(leaf) =>
      withoutTags(leaf, leaf.output.filter(isTimed))
    case other => other.mapChildren(withoutForeignTags)
  }

  private def retag(plan: LogicalPlan): LogicalPlan = plan match {
    case relation: StreamingRelationV2 if FrontierSource.statesFrontier(relation) =>
      relation.copy(output = relation.output.map(declareTag(relation, _)))
    case _: LeafNode | _: EventTimeWatermark => plan
    case union: Union => tagUnion(union)
    case view: View if !view.isTempViewStoringAnalyzedPlan =>
      plan.mapChildren {
        case project: Project => project.copy(projectList = project.projectList.map(tagViewColumn)); case other => other
      }
    case _ =>
      val known = AttributeMap(plan.children.flatMap(_.output).map(a => a -> a.metadata))
      val fresh = plan.mapExpressions(refresh(_, known))
      fresh.mapExpressions(deriveTag(fresh, _))
  }

  /**
   * Puts the node above a join only when something else stands above the join, because Spark's `Dataset.join` expects a join as
   * the root of what it has analysed.
   */
  private def transformBelow(plan: LogicalPlan): LogicalPlan = plan match {
    case _: TimeTransformNode => plan
    case limit: LocalLimit if limit.isStreaming => limit.mapChildren(child => keepInEachBatch(transformChild(child)))
    case _ => plan.mapChildren(transformChild)
  }

  private def transformChild(child: LogicalPlan): LogicalPlan = child match {
    case join: Join if join.left.isStreaming && join.right.isStreaming => tagJoin(join)
    case dedup: Deduplicate if dedup.isStreaming && dedup.keys.exists(_.metadata.contains(OperatorMark.Key)) =>
      val behind = timesBehind(dedup.output, dedup.keys.filter(isTimed).map(_ -> dedup.child))
      OperatorMark.neededBy(dedup) match {
        case Nil => withoutTags(dedup, behind)
        case needed => TimeTransformNode(behind, behind.map(_ => None), dedup, needed = needed)
      }
    case sessions: Aggregate if sessions.isStreaming && sessions.groupingExpressions.exists(isSession) =>
      withoutTags(sessions, timesBehind(sessions.output, sessions.output.filter(isSession).map(_ -> sessions)))
    case other =>
      val foreign = foreignTimes(other)
      val moved =
        if (mixesStreams(other)) other.output.filterNot(foreign.contains).flatMap(alsoFrom(_, Summary.Everywhere)) else Nil
      transformed(other, foreign.map(_ -> None) ++ moved, allowsFilterPushdown = foreign.isEmpty, onlyInputs = foreign.isEmpty)
  }

  /** Whether rows of several streams come together in `plan`, by no join and no union. Spark refuses streams in subqueries. */
  private def mixesStreams(plan: LogicalPlan): Boolean = plan match {
    case _: Union | _: WithCTE => false
    case _ => plan.children.count(_.isStreaming) > 1
  }

  /** Returns a time with the paths that it also has from `inputs`. None: it has them already. */
  private def alsoFrom(time: Attribute, inputs: Set[Option[String]]): Option[(Attribute, Option[Summary])] = for {
    column <- TimeColumn.of(time)
    summary = column.summary.alsoFrom(inputs) if summary != column.summary
  } yield time -> Some(summary)

  /**
   * Keeps a limit in every batch. To the optimizer a source without data is an empty table, so for such a batch it would drop
   * the limit above the source, with the limit's state. It does not know how many rows a [[TimeTransformNode]] has.
   */
  private def keepInEachBatch(child: LogicalPlan): LogicalPlan = child match {
    case _ if isKept(child) => child
    case _ => TimeTransformNode(Nil, Nil, child)
  }

  /**
   * Returns the times that a node neither has from its children nor creates by an expression that [[deriveTag]] has seen. A
   * lateral subquery has such columns, because Spark analyses its plan separately.
   */
  private def foreignTimes(plan: LogicalPlan): Seq[Attribute] = plan match {
    case _: LeafNode | _: Project | _: Aggregate | _: Expand | _: Generate | _: Union | DeclaresOutput() => Nil
    case _ => plan.output.filter(a => isTimed(a) && !plan.inputSet.contains(a))
  }

  private def withoutTags(plan: LogicalPlan, times: Seq[Attribute]): LogicalPlan = transformed(plan, times.map(_ -> None))

  /** Gives times another summary, or removes their tags. */
  private def transformed(plan: LogicalPlan, times: Seq[(Attribute, Option[Summary])], allowsFilterPushdown: Boolean = false,
      onlyInputs: Boolean = false): LogicalPlan =
    if (times.isEmpty) plan else TimeTransformNode(times.map(_._1), times.map(_._2), plan, allowsFilterPushdown, onlyInputs)

  /**
   * Adjusts the tags above a join.
   *
   * A join by a distance keeps rows while the frontier continues, so its output is behind by that distance. A join on equal
   * times keeps rows until these times are closed on both sides, so its times also come by the other side's paths. If a side may
   * lack a row, its times are null in a row without a match, so they are no times above the join.
   */
  private def tagJoin(join: Join): LogicalPlan = {
    val (left, right) = (join.left.output, join.right.output)
    val conditions = join.condition.toSeq.flatMap(splitConjunctivePredicates)
    val equal = conditions.collect {
      case EqualTo(a: Attribute, b: Attribute) if join.left.outputSet.contains(a) && join.right.outputSet.contains(b) => a -> b
      case EqualTo(a: Attribute, b: Attribute) if join.left.outputSet.contains(b) && join.right.outputSet.contains(a) => b -> a
    }
    val (columns, shared) = TimeDistance.sharedTimes(equal).map { case (column, i) => column -> equal(i) }.unzip
    val placed = keepInPlace(join)
    val missing = mayBeMissing(join)
    if (shared.nonEmpty) {
      val late = timesBehind(join.output, shared.map(_._1 -> join.left) ++ shared.map(_._2 -> join.right))
      val untagged = (late ++ missing).distinct
      val both = columns.flatMap(_.summary.inputs).toSet
      val moved = join.output.filterNot(untagged.contains).flatMap(alsoFrom(_, both))
      transformed(placed, untagged.map(_ -> None) ++ moved, allowsFilterPushdown = late.isEmpty, onlyInputs = untagged.isEmpty)
    } else if (!left.exists(isTimed) || !right.exists(isTimed)) placed
    else {
      val distance = TimeDistance.of(left, right, conditions)
      transformed(placed,
        join.output.filter(isTimed).map(time => time -> distance.filterNot(_ => missing.contains(time)).flatMap(_.behind(time))))
    }
  }

  /** Returns the times of a side that may lack a row. */
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
   * Returns the times of `output` that may be behind the frontier when their row comes out. A row waits until one of the
   * `awaited` times is closed; each is given with the plan that it belongs to. A time derived from an awaited one is not
   * behind.
   */
  private def timesBehind(
      output: Seq[Attribute], awaited: Seq[(Attribute, LogicalPlan)]): Seq[Attribute] = output.filter(isTimed).filterNot { a =>
    awaited.exists { case (time, from) => from.outputSet.contains(a) && Lineage.isDerivedFrom(a, time, from) }
  }

  private def isTimed(a: Attribute): Boolean = TimeColumn.of(a).isDefined

  private def isSession(e: Expression): Boolean = e match {
    case a: Attribute => TimeColumn.of(a).exists(_.windows.contains(Sessions))
    case _ => false
  }

  /**
   * Keeps a left semi join above a union or an aggregation. The optimizer would push it below and split it, but only in batches
   * in which all sources have data. The operators' states would then be exchanged. It cannot push the join through a
   * [[TimeTransformNode]].
   */
  private def keepInPlace(join: Join): Join =
    if (join.joinType == LeftSemi && join.left.exists(p => p.isInstanceOf[Union] || p.isInstanceOf[Aggregate]) && !isKept(
        join.left))
      join.copy(left = TimeTransformNode(Nil, Nil, join.left))
    else join

  private def isKept(plan: LogicalPlan): Boolean = plan match {
    case moved: TimeTransformNode => !moved.onlyInputs
    case _ => false
  }

  /** Gives references the tags of the columns that they refer to. A tag that a node declares for a column of its own stays. */
  private def refresh(expression: Expression, known: AttributeMap[Metadata]): Expression = expression.transformUp {
    case a: AttributeReference if known.contains(a) => withTagOf(a, known(a))
  }

  private def withTagOf(a: Attribute, from: Metadata): Attribute =
    if (TimeColumn.sameKeys(from, a.metadata)) a else a.withMetadata(TimeColumn.carry(from, a.metadata))

  private def declareTag(plan: LogicalPlan, a: AttributeReference, delay: Long = 0): AttributeReference =
    declaredIn(plan, a.metadata).fold(a) { column =>
      if (column.windows.isEmpty && column.summary.together.isIdentity) TimeColumn.checkType(a.name, column.domain, a.dataType)
      a.withMetadata(column.addTo(a.metadata, delay)).asInstanceOf[AttributeReference]
    }

  private def deriveTag(plan: LogicalPlan, expression: Expression): Expression = expression match {
    case alias @ Alias(child, _) =>
      val below = child match {
        case inner: Alias => deriveTag(plan, inner); case FieldTags.TaggedField(field) => Untagged(field); case other => other
      }
      val declared = alias.explicitMetadata.flatMap(declaredIn(plan, _, inputOf(plan, child)))
      def tagged = below match {
        case a: Attribute => declared.orElse(TimeColumn.of(a).filter(_ => isWindow(alias.metadata)))
        case struct: CreateNamedStruct if alias.metadata.contains(SessionWindow.marker) => sessionOf(struct)
        case struct: CreateNamedStruct if isWindow(alias.metadata) => windowOf(struct)
        case Transformed(transform) if plan.isStreaming =>
          Some(timeOf(transform).getOrElse(throw Errors.notATime(alias.name, transform.child.sql)))
        case e => timeOf(e).orElse(declared.filter(_.windows.isEmpty))
      }
      below match {
        case _: NamedExpression if alias.explicitMetadata.isEmpty => withChild(alias, below) // the same value under another name
        case _ => tagged.fold(hideTag(alias, below))(column =>
            withMetadata(withChild(alias, below), column.addTo(alias.metadata, delayOf(alias))))
      }
    case a: AttributeReference if !plan.inputSet.contains(a) => tagIntroduced(plan, a)
    case other => other
  }

  /**
   * Returns the time that metadata in `plan` declares. It comes when rows of the plan's inputs come, whatever inputs the metadata
   * names: it may be of the schema of another DataFrame. `input`: the input that it is a time of, if it is taken from the source.
   */
  private def declaredIn(plan: LogicalPlan, metadata: Metadata, input: Option[String] = None): Option[TimeColumn] =
    TimeColumn.of(metadata).map { column =>
      val below = plan.children.flatMap(_.output).flatMap(a => TimeColumn.of(a))
      val inputs =
        if (input.isDefined) Set(input) else if (below.isEmpty) Summary.Everywhere else below.flatMap(_.summary.inputs).toSet
      if (below.contains(column)) column else column.copy(summary = column.summary.from(inputs))
    }

  /**
   * Returns the input of a source of several channels whose time is `expression`: a field of the channel's struct, directly above
   * the source. Elsewhere such a struct may be of other rows.
   */
  private def inputOf(plan: LogicalPlan, expression: Expression): Option[String] = expression match {
    case field @ GetStructField(a: Attribute, _, _)
        if field.metadata.contains(InputKey) && sourceBelow(plan).exists(_.output.exists(_.exprId == a.exprId)) =>
      Some(field.metadata.getString(InputKey))
    case _ => None
  }

  /** Returns the source whose rows `plan` reads, unchanged or filtered. */
  private def sourceBelow(plan: LogicalPlan): Option[StreamingRelationV2] = plan.children match {
    case Seq(relation: StreamingRelationV2) => Some(relation)
    case Seq(filter: Filter) => sourceBelow(filter)
    case Seq(alias: SubqueryAlias) => sourceBelow(alias)
    case _ => None
  }

  /** Returns the alias without a tag, whatever tags its child and its metadata have. */
  private def hideTag(alias: Alias, child: Expression): Alias = {
    val bare = withChild(alias,
      child match { case named: NamedExpression if TimeColumn.isTagged(named.metadata) => Untagged(named); case other => other })
    if (bare.explicitMetadata.exists(TimeColumn.isTagged)) withMetadata(bare, TimeColumn.removeFrom(bare.metadata)) else bare
  }

  /**
   * Treats a column of a view that is stored as SQL. Spark casts it to the type, and gives it the metadata, that it had when
   * the view was created. This metadata declares nothing about the current result.
   */
  private def tagViewColumn(column: NamedExpression): NamedExpression = column match {
    case alias @ Alias(child, _) =>
      val value =
        child match { case Cast(same, kind, _, _) if DataTypeUtils.sameType(same.dataType, kind) => same; case other => other }
      columnOf(value).fold[NamedExpression](hideTag(alias, child))(known =>
        withMetadata(alias, known.addTo(alias.metadata, delayOf(alias))))
    case other => other
  }

  /** Tags a column that `plan` itself creates. A tag counts if a user has declared it, in the output schema of a function. */
  private def tagIntroduced(plan: LogicalPlan, a: AttributeReference): Expression = plan match {
    case expand: Expand =>
      val at = expand.output.indexWhere(_.exprId == a.exprId)
      // A rollup or cube also has groups without the time. Such a group has rows of all times, so no frontier closes it.
      expand.projections.map(row => columnOf(row(at))).distinct match {
        case Seq(Some(column)) => a.withMetadata(column.addTo(a.metadata, TimeColumn.delayIn(a.metadata)))
        case _ => a.withMetadata(TimeColumn.removeFrom(a.metadata))
      }
    case DeclaresOutput() => declareTag(plan, a, TimeColumn.delayIn(a.metadata))
    case _ => a.withMetadata(TimeColumn.removeFrom(a.metadata))
  }

  /** Matches nodes whose columns a user declares, in the output schema of a function. */
  private[spark] object DeclaresOutput {
    def unapply(plan: LogicalPlan): Boolean = plan match {
      case _: MapInPandas | _: MapInArrow | _: FlatMapGroupsInPandas | _: FlatMapGroupsInArrow | _: FlatMapCoGroupsInPandas =>
        true
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

  /** The delay of `withWatermark` for `dropDuplicatesWithinWatermark`. Columns derived from a time keep it. */
  private def delayOf(alias: Alias): Long =
    alias.child.references.map(a => TimeColumn.delayIn(a.metadata)).maxOption.getOrElse(0L)

  private def isWindow(metadata: Metadata): Boolean =
    metadata.contains(TimeWindow.marker) || metadata.contains(SessionWindow.marker)

  /**
   * Refuses a watermark on any other column, which would be a second, guessed progress. On a time column a delay adds nothing
   * to an exact frontier. So the frontier rule removes the operator, but until then the operator carries the delay of
   * `dropDuplicatesWithinWatermark`.
   */
  private def checkWatermark(watermark: EventTimeWatermark): Unit =
    if (!watermark.child.output.exists(a => a.exprId == watermark.eventTime.exprId && TimeColumn.of(a).isDefined))
      throw Errors.watermarkUnsupported(watermark.eventTime.name)

  /**
   * A union shows the tags of its first input. If its inputs' times have different summaries, the union's times have the least
   * of them.
   */
  private def tagUnion(union: Union): LogicalPlan = {
    val moved = for {
      (inputs, output) <- union.children.map(_.output).transpose.zip(union.output)
      first <- TimeColumn.of(inputs.head)
      columns = inputs.map { a =>
        TimeColumn.of(a).filter(c => c.domain == first.domain && c.windows == first.windows).getOrElse(
          throw Errors.unionMismatch(inputs.head.name, first.toString, TimeColumn.of(a).fold("no time column")(_.toString)))
      }
      summary = LeastStep.of(columns.map(_.summary)) if summary != first.summary
    } yield (output -> Option(summary), summary.together == first.summary.together)
    transformed(union, moved.map(_._1), allowsFilterPushdown = moved.forall(_._2), onlyInputs = moved.forall(_._2))
  }
}
