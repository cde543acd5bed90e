package strandline.spark.batch

import java.util.{Collections, WeakHashMap}

import org.apache.spark.sql.catalyst.expressions.{
  PythonFuncExpression, PythonUDF, PythonUDTF, RuntimeReplaceable, UserDefinedExpression
}
import org.apache.spark.sql.catalyst.expressions.aggregate._
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.sql.types._

/**
 * Whether the rows of a plan may have other roundings, or lists in another order, if their inputs come in another order.
 *
 * Spark adds floating-point numbers as rows come, and users' code gets groups of rows in no fixed order. What a plan without
 * these passes on or computes of single rows is the same each time, to the last bit.
 */
private[spark] object RowOrder {
  private val RowByRow = Set(100, 101) // PythonEvalType.SQL_BATCHED_UDF, and SQL_ARROW_BATCHED_UDF, which passes rows as vectors
  private val known = Collections.synchronizedMap(new WeakHashMap[StreamExecution, java.lang.Boolean])

  def counts(query: StreamExecution): Boolean = known.computeIfAbsent(query, of => counts(of.logicalPlan))

  def counts(plan: LogicalPlan): Boolean = plan.collectWithSubqueries { case node => node }.exists { node =>
    hasRowsTogether(node) || node.expressions.exists(_.exists {
      case function: AggregateFunction => counts(function)
      // Code over vectors may compute a value by its place in the vector.
      case udf: PythonUDF => !RowByRow(udf.evalType) && hasFloats(udf.dataType)
      case table: PythonUDTF => table.tableArguments.exists(_.contains(true)) // it gets the rows of a table, or of a group
      case _ => false
    })
  }

  /**
   * Whether the result of an aggregation depends on the order of additions. The mean of small integers adds whole numbers below
   * 2^53.
   */
  def adds(function: AggregateFunction): Boolean = function match {
    case mean: Average if Seq(ByteType, ShortType, IntegerType).contains(mean.child.dataType) => false
    case other => counts(other) && hasFloats(other.dataType) && !isMadeOfSeveral(other.dataType)
  }

  private def counts(function: AggregateFunction): Boolean = function match {
    case _: Count | _: Min | _: Max | _: MaxBy | _: MinBy | _: First | _: Last | _: AnyValue | _: Mode | _: Percentile |
        _: PercentileCont | _: PercentileDisc =>
      false
    case another: RuntimeReplaceable =>
      another.replacement.exists { case function: AggregateFunction => counts(function); case _ => false }
    case other => other.isInstanceOf[UserDefinedExpression] || other.isInstanceOf[PythonFuncExpression] || isMadeOfSeveral(
        other.dataType) || (other +: other.children).exists(each => hasFloats(each.dataType))
  }

  /** Whether users' code gets several rows at once. */
  private def hasRowsTogether(node: LogicalPlan): Boolean = {
    val name = node.nodeName
    Seq("Groups", "CoGroup", "InPandas", "InArrow", "InR", "TransformWithState", "ScriptTransformation", "MapPartitions").exists(
      name.contains(_))
  }

  def hasFloats(kind: DataType): Boolean = parts(kind).exists(part => part == FloatType || part == DoubleType)

  private def isMadeOfSeveral(kind: DataType): Boolean =
    parts(kind).exists(part => part.isInstanceOf[ArrayType] || part.isInstanceOf[MapType])

  /** A type, and those of its fields and elements. */
  def parts(kind: DataType): Seq[DataType] = kind +: (kind match {
    case struct: StructType => struct.fields.toSeq.flatMap(field => parts(field.dataType))
    case array: ArrayType => parts(array.elementType)
    case map: MapType => parts(map.keyType) ++ parts(map.valueType)
    case user: UserDefinedType[_] => parts(user.sqlType)
    case _ => Nil
  })
}
