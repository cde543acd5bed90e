package strandline.spark.plan

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.logical._

/**
 * Finds from which column of an analysed plan another column was derived, row by row.
 *
 * An operator may keep rows until one of their times is closed. Another time of such a row may then be behind its own frontier,
 * unless it was derived from the time that the operator waits for.
 */
private[spark] object Lineage {

  /** Whether `column` was derived from `time` alone, so that in each row of `plan` it is open as long as `time` is. */
  def isDerivedFrom(column: Attribute, time: Attribute, plan: LogicalPlan): Boolean = {
    val (value, isBound) = valueOf(time, plan)
    // A window's start and end are open as long as the window is.
    val waited = if (isBound) below(value).getOrElse(value) else value
    Iterator.iterate(Option(valueOf(column, plan)._1))(_.flatMap(below)).takeWhile(_.isDefined).flatten.exists(_ == waited)
  }

  /** A column, identified by where it was created. Its current name does not matter. */
  private final case class Value(createdAs: Attribute, createdBy: LogicalPlan) {
    override def equals(other: Any): Boolean = other match { case Value(a, _) => a.exprId == createdAs.exprId; case _ => false }
    override def hashCode: Int = createdAs.exprId.hashCode
  }

  /** Returns where the column `a` of `plan` was created, and whether it is a window's bound. */
  private def valueOf(a: Attribute, plan: LogicalPlan): (Value, Boolean) = expressionsOf(a, plan) match {
    case Some(Seq(same: Attribute)) => valueOf(same, plan.children.head)
    case Some(Seq(bound: GetStructField)) => (Value(a, plan), bound.child.isInstanceOf[Attribute])
    case Some(_) => (Value(a, plan), false)
    case None =>
      plan match {
        case _: Union => (Value(a, plan), false)
        case _ => plan.children.find(_.outputSet.contains(a)).fold((Value(a, plan), false))(valueOf(a, _))
      }
  }

  /** Returns the single time from which `value` was derived, if the effect of the derivation is known. */
  private def below(value: Value): Option[Value] = for {
    expressions <- expressionsOf(value.createdAs, value.createdBy)
    if expressions.forall(e => TimeExpressions.columnOf(e).isDefined)
    Seq(time) <- Some(AttributeSet(expressions.flatMap(_.references)).toSeq)
    child <- value.createdBy.children.headOption
  } yield valueOf(time, child)._1

  /**
   * Returns the expressions by which a projection, an aggregation or an expansion creates a column; for an expansion, one for
   * each of its rows.
   */
  private def expressionsOf(a: Attribute, plan: LogicalPlan): Option[Seq[Expression]] = {
    def among(columns: Seq[NamedExpression]) =
      columns.collectFirst { case alias: Alias if alias.exprId == a.exprId => Seq(unnamed(alias)) }
    plan match {
      case project: Project => among(project.projectList)
      case aggregate: Aggregate => among(aggregate.aggregateExpressions)
      case expand: Expand if !expand.child.outputSet.contains(a) =>
        Some(expand.output.indexWhere(_.exprId == a.exprId)).filter(_ >= 0).map(i =>
          expand.projections.map(row => unnamed(row(i))).distinct)
      case _ => None
    }
  }

  private def unnamed(e: Expression): Expression = e match {
    case Alias(child, _) => unnamed(child)
    case other => other
  }
}
