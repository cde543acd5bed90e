package strandline.spark.time

import org.apache.spark.sql.catalyst.FunctionIdentifier
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.analysis.TypeCheckResult
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.codegen.{CodeGenerator, CodegenContext, ExprCode}
import org.apache.spark.sql.catalyst.expressions.codegen.Block._
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String
import strandline.spark.errors.Errors

/**
 * Applies the steps of a path summary to a row's time, with the same maps as for the frontier. If a time has no image, throws, or
 * returns null if `orNull`.
 */
final class TimeTransformer(domain: TimeDomain, steps: Seq[TimeStep], orNull: Boolean = false) extends Serializable {
  private val maps: Array[TimeMap] =
    steps.scanLeft(Option.empty[TimeMap])((last, step) => Some(step.on(last.fold(domain)(_.target)))).flatten.toArray

  /** The domain of the resulting times. */
  val target: TimeDomain = maps.lastOption.fold(domain)(_.target)

  /** Transforms a value of Spark's rows. Returns null if it, or one of its coordinates, is null. */
  def transform(value: Any): Any = {
    val time = new Array[Long](domain.width)
    val known = (domain, value) match {
      case (composite: Composite, struct: InternalRow) => composite.readStruct(struct, time, 0)
      case _ => domain.read(new GenericInternalRow(Array[Any](value)), 0, time, 0)
    }
    val image = if (known) transformed(time) else null
    if (image == null) null else target.value(image, 0)
  }

  /** Transforms a scalar time that is a long or a shorter integer, and stays one. Not for `orNull`. */
  def transformLong(leaf: Long): Long = transformed(Array(leaf))(0)

  private def transformed(time: Array[Long]): Array[Long] = {
    var at = time
    var i = 0
    while (i < maps.length) {
      val image = maps(i)(at)
      if (image.isEmpty && orNull) return null
      at = image.getOrElse(throw Errors.timeOverflow(domain.format(time, 0), domain.toString, steps(i).toString))
      i += 1
    }
    at
  }
}

/**
 * The function `strandline_move(time, domain, steps[, orNull])`: returns the time after the steps of a path summary (JSON, as in
 * a column's metadata). `orNull`: null for a time without an image, as for rows of a loop that do not come round.
 *
 * `pyspark_strandline.advance`, `truncate`, `project` and `enter` use it, also in Spark Connect. The tag rule knows it, so its
 * result is a time with the summary of its argument, followed by the steps. A plan without streams only computes it.
 */
final case class TransformTime(child: Expression, domain: TimeDomain, steps: Seq[TimeStep], orNull: Boolean = false)
    extends UnaryExpression {
  @transient lazy val transformer: TimeTransformer = new TimeTransformer(domain, steps, orNull)

  /** Returns the column that results from a column of `domain`. */
  def from(column: TimeColumn): TimeColumn =
    column.copy(domain = transformer.target, summary = Summary(column.summary.steps ++ steps))

  override def dataType: DataType = transformer.target.dataType
  override def nullable: Boolean = true
  override def nullIntolerant: Boolean = true
  override def prettyName: String = TransformTime.Name

  override def checkInputDataTypes(): TypeCheckResult = {
    TimeColumn.checkType(child match { case named: NamedExpression => named.name; case _ => "time" }, domain, child.dataType)
    TypeCheckResult.TypeCheckSuccess
  }

  override protected def nullSafeEval(value: Any): Any = transformer.transform(value)

  override protected def doGenCode(ctx: CodegenContext, ev: ExprCode): ExprCode = {
    val time = child.genCode(ctx)
    val ref = ctx.addReferenceObj("transformer", transformer, classOf[TimeTransformer].getName)
    val (javaType, boxed) = (CodeGenerator.javaType(dataType), CodeGenerator.boxedType(dataType))
    val set =
      if (!orNull && TransformTime.isLong(child.dataType) && TransformTime.isLong(dataType))
        s"${ev.value} = ($javaType) $ref.transformLong((long) ${time.value});"
      else {
        val result = ctx.freshName("result")
        s"""$boxed $result = ($boxed) $ref.transform(${time.value});
           |${ev.isNull} = $result == null;
           |if (!${ev.isNull}) ${ev.value} = $result;""".stripMargin
      }
    ev.copy(code = code"""${time.code}
      boolean ${ev.isNull} = ${time.isNull};
      $javaType ${ev.value} = ${CodeGenerator.defaultValue(dataType)};
      if (!${ev.isNull}) {
        $set
      }""")
  }

  override protected def withNewChildInternal(newChild: Expression): TransformTime = copy(child = newChild)
}

object TransformTime {
  val Name = "strandline_move"

  /** The function as a session registers it. */
  val function: (FunctionIdentifier, ExpressionInfo, Seq[Expression] => Expression) =
    (FunctionIdentifier(Name), new ExpressionInfo(classOf[TransformTime].getName, Name), build)

  private def build(arguments: Seq[Expression]): Expression = arguments match {
    case Seq(time, domain, steps) => build(Seq(time, domain, steps, Literal(false)))
    case Seq(time, Literal(domain: UTF8String, _), Literal(steps: UTF8String, _), Literal(orNull: Boolean, _)) =>
      val text = steps.toString
      val taken = Summary.parse(text).steps.map {
        case step: TimeStep => step
        case step => throw Errors.summaryInvalid(text.take(200),
            s"has the step ${Json.render(step.toJson)}, which does not apply to a row's time")
      }
      TransformTime(time, TimeDomain.parse(domain.toString), taken, orNull)
    case other =>
      throw Errors.summaryInvalid(s"of $Name",
        s"has ${other.size} arguments instead of a time, the text of its domain, and the text of the steps")
  }

  private def isLong(kind: DataType): Boolean = Seq(ByteType, ShortType, IntegerType, LongType, TimestampType).contains(kind)
}
