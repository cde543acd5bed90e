package strandline.spark.plan

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.logical.{Filter, LogicalPlan, Project, UnaryNode}
import org.apache.spark.sql.catalyst.plans.physical.Partitioning
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.{SparkPlan, SparkStrategy, UnaryExecNode}
import strandline.spark.time.{Summary, TimeColumn}

/**
 * Changes the tags of its child's time columns: each of `times` gets the summary at the same index, or loses its tag if there
 * is none. Rows pass unchanged, as through Spark's `EventTimeWatermark`.
 *
 * It stands above a join that keeps rows while the frontier continues, above an outer join whose rows may lack a time, above a
 * join of several inputs, and above a union of times with different summaries.
 *
 * `allowsFilterPushdown`: whether the optimizer may push a filter through it ([[PushThroughTimeTransform]]). `onlyInputs`:
 * whether it only says which inputs of a source the times come by. `needed`: columns that the operator below needs, also if
 * nobody above does; any of its columns may be null then.
 */
final case class TimeTransformNode(times: Seq[Attribute], summaries: Seq[Option[Summary]], child: LogicalPlan,
    allowsFilterPushdown: Boolean = false, onlyInputs: Boolean = false, needed: Seq[Attribute] = Nil)
    extends UnaryNode {
  override val output: Seq[Attribute] = {
    val retagged = TimeTransformNode.retag(child.output, times, summaries)
    if (needed.isEmpty) retagged else retagged.map(_.withNullability(true))
  }

  // It needs no times itself. The optimizer must be able to prune unused times, because some of Spark's operators accept only
  // one.
  override def references: AttributeSet = AttributeSet(needed)

  override protected def withNewChildInternal(newChild: LogicalPlan): TimeTransformNode = copy(child = newChild)
}

final case class TimeTransformExec(times: Seq[Attribute], summaries: Seq[Option[Summary]], child: SparkPlan)
    extends UnaryExecNode {
  override val output: Seq[Attribute] = TimeTransformNode.retag(child.output, times, summaries)
  override def references: AttributeSet = AttributeSet.empty
  override def outputPartitioning: Partitioning = child.outputPartitioning
  override def outputOrdering: Seq[SortOrder] = child.outputOrdering
  override protected def doExecute(): RDD[InternalRow] = child.execute()
  override protected def withNewChildInternal(newChild: SparkPlan): TimeTransformExec = copy(child = newChild)
}

object TimeTransformNode {

  /** Returns the attributes with the summaries in their tags, or without a tag where there is no summary. */
  def retag(output: Seq[Attribute], times: Seq[Attribute], summaries: Seq[Option[Summary]]): Seq[Attribute] = output.map { a =>
    times.indexWhere(_.exprId == a.exprId) match {
      case -1 => a
      case i =>
        val moved = for (column <- TimeColumn.of(a); summary <- summaries(i)) yield column.copy(summary = summary)
        a.withMetadata(moved.fold(TimeColumn.removeFrom(a.metadata))(_.addTo(a.metadata, TimeColumn.delayIn(a.metadata))))
    }
  }
}

/** Plans [[TimeTransformNode]]. */
object TimeTransformStrategy extends SparkStrategy {
  override def apply(plan: LogicalPlan): Seq[SparkPlan] = plan match {
    case TimeTransformNode(times, summaries, child, _, _, _) => TimeTransformExec(times, summaries, planLater(child)) :: Nil
    case _ => Nil
  }
}

/**
 * Pushes filters, and projections of fields of structs, through a [[TimeTransformNode]] that allows it. The state of a join has
 * the columns that the plan above it uses, so what is pushed is part of the state's schema.
 */
object PushThroughTimeTransform extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = plan.transformDown {
    case Filter(condition, moved: TimeTransformNode) if moved.allowsFilterPushdown =>
      moved.copy(child = Filter(inside(moved, condition), moved.child))
    case project @ Project(columns, moved: TimeTransformNode)
        if moved.onlyInputs && columns.exists(_.isInstanceOf[Alias]) && columns.forall(isColumnOrField) =>
      val below = moved.copy(child = Project(columns.map(inside(moved, _).asInstanceOf[NamedExpression]), moved.child))
      if (below.output.map(_.exprId) == project.output.map(_.exprId)) below else project
  }

  /** The expression over the columns below the node, which have other tags. */
  private def inside(moved: TimeTransformNode, expression: Expression): Expression = {
    val below = AttributeMap(moved.child.output.map(a => a -> a))
    expression.transform { case a: Attribute => below.getOrElse(a, a) }
  }

  private def isColumnOrField(column: NamedExpression): Boolean = column match {
    case _: Attribute => true
    case alias @ Alias(field: ExtractValue, _) => TimeColumn.of(alias.toAttribute).isEmpty && isField(field)
    case _ => false
  }

  private def isField(expression: Expression): Boolean = expression match {
    case _: Attribute => true
    case field: GetStructField => isField(field.child)
    case field: GetArrayStructFields => isField(field.child)
    case _ => false
  }
}
