package strandline.spark.tables

import scala.collection.mutable

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.aggregate._
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.types.{DataType, DoubleType, FloatType}
import strandline.spark.batch.RowOrder

/**
 * Where a plan decides by a number that depends on the order of additions: it rounds or converts it, compares it, or groups by
 * it. Two numbers that are equal up to rounding may then give rows that are not.
 *
 * The numbers are followed from the aggregations through the plan, by the attributes that have them. What is known to give
 * numbers that are equal up to rounding is passed; all else decides.
 */
private[tables] final class Roundings(plan: LogicalPlan) {
  private val sums = mutable.Map.empty[ExprId, String] // the attributes and variables that have such a number, and the function
  private val common = mutable.Map.empty[CommonExpressionId, String] // the common expressions that do
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
      case table: CTERelationDef => shared(table.id) = table.output
      case _ =>
    }
    for ((below, above) <- passedOn(node); function <- functionOf(below)) sums(above.exprId) = function
    node.expressions.foreach(look)
    val keys = node match {
      case aggregate: Aggregate => aggregate.groupingExpressions
      case dedup: Deduplicate => dedup.keys
      case _: Distinct | _: Except | _: Intersect => node.children.flatMap(_.output)
      case _ => Nil
    }
    for (key <- keys; function <- functionOf(key))
      found += s"groups by $function() of floating-point numbers (it may round to either side)"
    node match {
      case _: LocalLimit | _: Offset | _: Tail =>
        orderOf(node.children.head).flatMap(order => functionOf(order.child)).headOption.foreach(decided)
      case _ =>
    }
    node.expressions.foreach {
      case alias: Alias => functionOf(alias.child).foreach(sums(alias.exprId) = _)
      case _ =>
    }
  }

  /** What a node passes on under another name, without an expression that says so. */
  private def passedOn(node: LogicalPlan): Seq[(Expression, Attribute)] = node match {
    case union: Union => union.children.flatMap(_.output.zip(union.output))
    case reference: CTERelationRef => shared.getOrElse(reference.cteId, Nil).zip(reference.output)
    case expand: Expand => expand.projections.flatMap(_.zip(expand.output))
    case generate: Generate => generate.generator.children.flatMap(below => generate.generatorOutput.map(below -> _))
    case _ => Nil
  }

  /** The order of a node's rows, of which another one takes the first or the last. */
  private def orderOf(node: LogicalPlan): Seq[SortOrder] = node match {
    case sort: Sort => sort.order
    case _: Project | _: Filter | _: SubqueryAlias | _: GlobalLimit | _: LocalLimit | _: Offset => orderOf(node.children.head)
    case _ => Nil
  }

  private def look(expression: Expression): Unit = expression match {
    case function: AggregateFunction if RowOrder.adds(function) => function.children.foreach(look)
    case one: RuntimeReplaceable => look(one.replacement)
    case other => lookAt(other)
  }

  private def lookAt(expression: Expression): Unit = {
    expression match {
      case call: AggregateExpression if call.isDistinct =>
        call.aggregateFunction.children.flatMap(functionOf).headOption.foreach(decided)
      case window: WindowSpecDefinition =>
        (window.partitionSpec ++ window.orderSpec.map(_.child)).flatMap(functionOf).headOption.foreach(decided)
      case wanted: With => for (each <- wanted.defs; function <- functionOf(each.child)) common(each.id) = function
      case higher: HigherOrderFunction =>
        for (function <- higher.arguments.flatMap(functionOf).headOption; LambdaFunction(_, variables, _) <- higher.functions;
          variable <- variables)
          sums(variable.exprId) = function
      case _ =>
    }
    if (!isContinuous(expression)) expression.children.flatMap(functionOf).headOption.foreach(decided)
    expression.children.foreach(look)
  }

  private def decided(function: String): Unit =
    found += s"a rounded, converted or compared $function() of floating-point numbers (it may round to either side)"

  /** Whether an expression gives the same of numbers that are equal up to rounding, up to rounding. */
  private def isContinuous(expression: Expression): Boolean = expression match {
    case cast: Cast =>
      isPlain(cast.child.dataType) && isPlain(cast.dataType) && !(cast.child.dataType == FloatType && cast.dataType == DoubleType)
    case one @ (_: Max | _: Min | _: Greatest | _: Least | _: ArrayMax | _: ArrayMin) => isPlain(one.dataType)
    case by @ (_: MaxBy | _: MinBy) => functionOf(by.children.last).isEmpty
    case made: CreateMap => made.keys.flatMap(functionOf).isEmpty
    case made: MapFromArrays => functionOf(made.left).isEmpty
    case _: Rint | _: Signum | _: MapKeys => false
    case _: UnaryMathExpression | _: BinaryMathExpression => true
    case _: Add | _: Subtract | _: Multiply | _: Divide | _: UnaryMinus | _: UnaryPositive | _: Abs => true
    case _: IsNull | _: IsNotNull | _: IsNaN | _: AtLeastNNonNulls | _: Count | _: NaNvl | _: Coalesce | _: If | _: CaseWhen =>
      true
    case _: First | _: Last | _: AnyValue | _: CollectList | _: Percentile | _: AggregateExpression => true
    case _: WindowExpression | _: WindowSpecDefinition | _: FrameLessOffsetWindowFunction | _: NthValue => true
    case _: CreateNamedStruct | _: CreateArray | _: GetStructField | _: GetArrayStructFields | _: GetArrayItem |
        _: GetMapValue | _: ElementAt =>
      true
    case _: MapValues | _: Size | _: Slice | _: Flatten | _: Reverse | _: Concat | _: ArrayRepeat | _: SortArray | _: ArraysZip =>
      true
    case _: ArrayTransform | _: ArrayAggregate | _: ArrayFilter | _: ZipWith | _: TransformValues | _: MapFilter |
        _: LambdaFunction =>
      true
    case _: With | _: CommonExpressionDef | _: CommonExpressionRef | _: SubqueryExpression | _: OuterReference => true
    case _: Alias | _: SortOrder | _: Generator => true
    case _ => false
  }

  private def isPlain(kind: DataType): Boolean = kind == FloatType || kind == DoubleType

  /** Returns the aggregation of which a value is made, if it is such a number. */
  private def functionOf(value: Expression): Option[String] = value match {
    case _: WindowSpecDefinition => None
    case _ if !value.resolved || !RowOrder.hasFloats(value.dataType) => None
    case attribute: Attribute => sums.get(attribute.exprId)
    case variable: NamedLambdaVariable => sums.get(variable.exprId)
    case outer: OuterReference => functionOf(outer.e)
    case reference: CommonExpressionRef => common.get(reference.id)
    case higher: HigherOrderFunction => (higher.arguments ++ higher.functions.collect { case function: LambdaFunction =>
        function.function
      }).flatMap(functionOf).headOption
    case subquery: SubqueryExpression => subquery.plan.output.flatMap(column => sums.get(column.exprId)).headOption
    case function: AggregateFunction if RowOrder.adds(function) => Some(function.prettyName)
    case one: RuntimeReplaceable => functionOf(one.replacement)
    case other => other.children.iterator.map(functionOf).collectFirst { case Some(function) => function }
  }
}
