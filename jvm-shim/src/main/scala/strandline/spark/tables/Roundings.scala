package strandline.spark.tables

import scala.collection.mutable

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.aggregate._
import org.apache.spark.sql.catalyst.plans.logical._
import strandline.spark.batch.RowOrder

/**
 * Where a plan decides by a number that depends on the order of additions: it rounds or converts it, compares it, or groups by it.
 * Two numbers that are equal up to rounding may then give rows that are not.
 *
 * The numbers are followed from the aggregations through the plan, by the attributes that have them.
 */
private[tables] final class Roundings(plan: LogicalPlan) {
  private val sums = mutable.Map.empty[ExprId, String] // the attributes that have such a number, and the function
  private val shared = mutable.Map.empty[Long, Seq[Attribute]] // the columns of common table expressions
  private val found = mutable.LinkedHashSet.empty[String]

  /** Returns in words where the plan decides by such numbers. */
  lazy val decisions: Seq[String] = {
    visit(plan)
    found.toSeq
  }

  private def visit(node: LogicalPlan): Unit = {
    (node.children ++ node.subqueries).foreach(visit)
    node match {
      case common: CTERelationDef => shared(common.id) = common.output
      case _ =>
    }
    for ((below, above) <- passedOn(node); function <- sums.get(below.exprId)) sums(above.exprId) = function
    node.expressions.foreach(look)
    val keys = node match {
      case aggregate: Aggregate => aggregate.groupingExpressions
      case dedup: Deduplicate => dedup.keys
      case _: Distinct | _: Except | _: Intersect => node.children.flatMap(_.output)
      case _ => Nil
    }
    for (key <- keys; function <- functionOf(key)) found += s"groups by $function() of floating-point numbers (it may round to either side)"
    node.expressions.foreach {
      case alias: Alias => functionOf(alias.child).foreach(sums(alias.exprId) = _)
      case _ =>
    }
  }

  /** The attributes that a node renames, without an expression. */
  private def passedOn(node: LogicalPlan): Seq[(Attribute, Attribute)] = node match {
    case union: Union => union.children.flatMap(_.output.zip(union.output))
    case reference: CTERelationRef => shared.getOrElse(reference.cteId, Nil).zip(reference.output)
    case expand: Expand => expand.projections.flatMap(_.zip(expand.output)).collect { case (below: Attribute, above) => below -> above }
    case generate: Generate => generate.generator.references.toSeq.flatMap(below => generate.generatorOutput.map(below -> _))
    case _ => Nil
  }

  private def look(expression: Expression): Unit = expression match {
    case call: AggregateExpression if call.isDistinct =>
      call.aggregateFunction.children.flatMap(functionOf).headOption.foreach(decided)
      call.aggregateFunction.children.foreach(look)
    case window: WindowSpecDefinition => // which has no type, and compares
      (window.partitionSpec ++ window.orderSpec).foreach { compared =>
        functionOf(compared).foreach(decided)
        look(compared)
      }
    case other =>
      if (decides(other)) other.children.flatMap(functionOf).headOption.foreach(decided)
      other.children.foreach(look)
  }

  private def decided(function: String): Unit =
    found += s"a rounded, converted or compared $function() of floating-point numbers (it may round to either side)"

  private def decides(expression: Expression): Boolean = expression match {
    case _: IsNull | _: IsNotNull | _: AtLeastNNonNulls | _: AggregateFunction | _: AggregateExpression => false
    case _: RoundBase | _: Floor | _: Ceil | _: RoundFloor | _: RoundCeil => true
    case other => !RowOrder.hasFloats(other.dataType)
  }

  /** Returns the aggregation of which a value is made, if it is such a number. */
  private def functionOf(value: Expression): Option[String] = value match {
    case _: WindowSpecDefinition => None
    case _ if !RowOrder.hasFloats(value.dataType) => None
    case attribute: Attribute => sums.get(attribute.exprId)
    case subquery: SubqueryExpression => subquery.plan.output.iterator.map(column => sums.get(column.exprId)).collectFirst { case Some(function) => function }
    case function: AggregateFunction if RowOrder.adds(function) => Some(function.prettyName)
    case other => other.children.iterator.map(functionOf).collectFirst { case Some(function) => function }
  }
}
