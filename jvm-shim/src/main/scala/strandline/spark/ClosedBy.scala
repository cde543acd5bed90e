package strandline.spark

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.codegen.{CodegenContext, ExprCode, FalseLiteral}
import org.apache.spark.sql.catalyst.expressions.codegen.Block._
import org.apache.spark.sql.types._

/**
 * Whether a time, as Spark's rows hold it, is closed by a frontier.
 *
 * Generated code calls it by reference, so that its text is the same in every batch and is compiled once.
 */
final class Closure(val frontier: Antichain) extends Serializable {
  private val domain = frontier.domain

  /** Whether a bare time of a signed scalar domain is closed. */
  def closes(time: Long): Boolean = !frontier.lessEqual(time)

  /** Whether the time in the only field of `row` is closed; a time with a null is never. */
  def closes(row: SpecializedGetters, ordinal: Int): Boolean = {
    val time = new Array[Long](domain.width)
    domain.read(row, ordinal, time, 0) && !frontier.lessEqual(time)
  }
}

/**
 * The predicate "this time is closed": no element of the frontier is less or equal to it.
 *
 * A null time is not closed.
 */
final case class ClosedBy(child: Expression, closure: Closure) extends UnaryExpression with Predicate {
  override def nullable: Boolean = false

  override def eval(input: InternalRow): Any = child.eval(input) match {
    case null => false
    case time => closure.closes(new GenericInternalRow(Array[Any](time)), 0)
  }

  override protected def doGenCode(ctx: CodegenContext, ev: ExprCode): ExprCode = {
    val time = child.genCode(ctx)
    val ref = ctx.addReferenceObj("closure", closure)
    val closes = Times.call(child.dataType, s"$ref.closes", time.value.toString)
    ev.copy(code = code"""${time.code}
      boolean ${ev.value} = !${time.isNull} && $closes;""", isNull = FalseLiteral)
  }

  override protected def withNewChildInternal(newChild: Expression): ClosedBy = copy(child = newChild)
}

/** How generated code hands a time to a method that takes a `long`, or a row and an ordinal. */
private[spark] object Times {
  def call(dataType: DataType, method: String, value: String): String = dataType match {
    case ByteType | ShortType | IntegerType | LongType | TimestampType => s"$method((long) $value)"
    case _ => s"$method(new ${classOf[GenericInternalRow].getName}(new Object[]{$value}), 0)"
  }
}
