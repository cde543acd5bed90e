package strandline.spark.time

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.codegen.{CodegenContext, ExprCode, FalseLiteral}
import org.apache.spark.sql.catalyst.expressions.codegen.Block._
import org.apache.spark.sql.types._

/**
 * A test of a time against a frontier.
 *
 * There is one form for each kind of value in Spark's rows: a `long` for a bare integer or timestamp, a struct, and any other
 * value (a decimal).
 */
abstract class TimeCheck(val frontier: Antichain) extends Serializable {
  private val domain = frontier.domain

  /** The result for a time that the frontier has closed. */
  protected def whenClosed(time: Array[Long]): Boolean

  /** The result for a null, or a time with a null coordinate. */
  def whenNull: Boolean

  final def test(time: Long): Boolean = if (frontier.lessEqual(time)) whenOpen else whenClosed(Array(time))

  final def test(struct: InternalRow): Boolean = {
    val time = new Array[Long](domain.width)
    if (domain.asInstanceOf[Composite].readStruct(struct, time, 0)) test(time) else whenNull
  }

  final def testValue(value: Any): Boolean = {
    val time = new Array[Long](domain.width)
    if (domain.read(new GenericInternalRow(Array[Any](value)), 0, time, 0)) test(time) else whenNull
  }

  /** The result for a time that may still appear. */
  protected def whenOpen: Boolean

  private def test(time: Array[Long]): Boolean = if (frontier.lessEqual(time)) whenOpen else whenClosed(time)
}

/** An expression that tests a time. Generated code gets the test by reference, so its text is the same in every batch. */
abstract class TimeCheckExpression extends UnaryExpression with Predicate {
  def check: TimeCheck

  override def nullable: Boolean = false

  override def eval(input: InternalRow): Any = check.testValue(child.eval(input))

  override protected def doGenCode(ctx: CodegenContext, ev: ExprCode): ExprCode = {
    val time = child.genCode(ctx)
    val ref = ctx.addReferenceObj("check", check, classOf[TimeCheck].getName)
    val test = child.dataType match {
      case ByteType | ShortType | IntegerType | LongType | TimestampType => s"$ref.test((long) ${time.value})"
      case _: StructType => s"$ref.test((${classOf[InternalRow].getName}) ${time.value})"
      case _ => s"$ref.testValue(${time.value})"
    }
    ev.copy(code = code"""${time.code}
      boolean ${ev.value} = ${time.isNull} ? $ref.whenNull() : $test;""", isNull = FalseLiteral)
  }
}

/** Tests whether a time is closed. A null is not closed. */
final class ClosedCheck(frontier: Antichain) extends TimeCheck(frontier) {
  override protected def whenOpen: Boolean = false
  override protected def whenClosed(time: Array[Long]): Boolean = true
  override def whenNull: Boolean = false
}

/** The predicate "this time is closed": no element of the frontier is ≤ it. */
final case class ClosedBy(child: Expression, check: ClosedCheck) extends TimeCheckExpression {
  override def toString: String = s"$child closed by ${check.frontier}"

  override protected def withNewChildInternal(newChild: Expression): ClosedBy = copy(child = newChild)
}

object ClosedBy {
  def apply(time: Expression, frontier: Antichain): ClosedBy = ClosedBy(time, new ClosedCheck(frontier))
}
