package strandline.spark.plan

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.logical._

/**
 * What a column of an analysed plan was made of, row by row.
 *
 * An operator that keeps rows until one of their times is closed may give another column of the row behind its frontier, unless that
 * column was made of the very time that the operator waits for.
 */
private[spark] object Lineage {

  /** Whether `column` is open in each row of `plan` as long as `time` is, being made of it alone. */
  def isMadeOf(column: Attribute, time: Attribute, plan: LogicalPlan): Boolean = {
    val (value, isBound) = valueOf(time, plan)
    // A window's start and its end are open as long as the window is.
    val waited = if (isBound) below(value).getOrElse(value) else value
    Iterator.iterate(Option(valueOf(column, plan)._1))(_.flatMap(below)).takeWhile(_.isDefined).flatten.exists(_ == waited)
  }

  /** A column by the place where it was made, whatever it is called since. */
  private final case class Value(made: Attribute, by: LogicalPlan) {
    override def equals(other: Any): Boolean = other match { case Value(a, _) => a.exprId == made.exprId; case _ => false }
    override def hashCode: Int = made.exprId.hashCode
  }

  /** Where the column `a` of `plan` was made, and whether it is a window's bound. */
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

  /** The one time that `value` was made of in a way whose effect is known. */
  private def below(value: Value): Option[Value] = for {
    made <- expressionsOf(value.made, value.by)
    if made.forall(e => TimeExpressions.columnOf(e).isDefined)
    Seq(time) <- Some(AttributeSet(made.flatMap(_.references)).toSeq)
    child <- value.by.children.headOption
  } yield valueOf(time, child)._1

  /** What a projection, an aggregation or an expansion makes a column of: of an expansion, one expression for each of its rows. */
  private def expressionsOf(a: Attribute, plan: LogicalPlan): Option[Seq[Expression]] = {
    def among(columns: Seq[NamedExpression]) = columns.collectFirst { case alias: Alias if alias.exprId == a.exprId => Seq(unnamed(alias)) }
    plan match {
      case project: Project => among(project.projectList)
      case aggregate: Aggregate => among(aggregate.aggregateExpressions)
      case expand: Expand if !expand.child.outputSet.contains(a) =>
        Some(expand.output.indexWhere(_.exprId == a.exprId)).filter(_ >= 0).map(i => expand.projections.map(row => unnamed(row(i))).distinct)
      case _ => None
    }
  }

  private def unnamed(e: Expression): Expression = e match {
    case Alias(child, _) => unnamed(child)
    case other => other
  }
}
