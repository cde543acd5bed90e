package strandline.spark.batch

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.codegen.{CodegenContext, ExprCode}
import org.apache.spark.sql.catalyst.plans.physical.Partitioning
import org.apache.spark.sql.execution.{CodegenSupport, InputAdapter, SparkPlan, UnaryExecNode}
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.execution.streaming.state.strandline.{SparkInternals, StreamingInternals}
import strandline.spark.errors.Errors
import strandline.spark.time.{Antichain, TimeCheck, TimeCheckExpression}

/**
 * Checks that a row of `source` has a time that `frontier` has not closed. Throws if the time is closed or null.
 *
 * `located`: the rows are just being read, so the message can name the file. `violations` counts them.
 */
final class FrontierGuard(frontier: Antichain, source: String, column: String, located: Boolean, violations: Option[SQLMetric])
    extends TimeCheck(frontier) {
  private def origin: Option[String] = if (located) RowOrigin.describe else None

  override protected def whenOpen: Boolean = true

  override protected def whenClosed(time: Array[Long]): Boolean = {
    violations.foreach(_ += 1)
    throw Errors.rowBehindFrontier(frontier.domain.format(time, 0), frontier.toString, source, origin)
  }

  override def whenNull: Boolean = throw Errors.timeNull(source, column, origin)
}

/** The expression that checks a time. Its value is always true. */
final case class PassesGuard(child: Expression, check: FrontierGuard) extends TimeCheckExpression {
  override def toString: String = s"$child in advance of ${check.frontier}"

  override protected def withNewChildInternal(newChild: Expression): PassesGuard = copy(child = newChild)
}

/**
 * Fails the batch at the first row that has no time, or is behind the frontier at the batch's start.
 *
 * Nothing is dropped in silence, because the result of such a row is already out. The check is part of the generated code of
 * the scan's stage.
 */
final case class GuardExec(times: Seq[Expression], frontiers: Seq[Antichain], source: String, child: SparkPlan)
    extends UnaryExecNode with CodegenSupport {
  override lazy val metrics: Map[String, SQLMetric] =
    Map("numRowsBehindFrontier" -> SparkInternals.violationMetric(sparkContext, "number of rows behind the frontier"))

  // Checks nulls even if the schema excludes them, because a broken reader may return them.
  private def checks: Seq[Expression] = times.zip(frontiers).map { case (time, frontier) =>
    val bound = BindReferences.bindReference(time, child.output).transform { case b: BoundReference => b.copy(nullable = true) }
    val column = time.references.headOption.fold("time")(_.name)
    PassesGuard(bound,
      new FrontierGuard(frontier, source, column, RowOrigin.isOf(child), Some(longMetric("numRowsBehindFrontier"))))
  }

  override def output: Seq[Attribute] = child.output
  override def outputPartitioning: Partitioning = child.outputPartitioning
  override def outputOrdering: Seq[SortOrder] = child.outputOrdering

  override def inputRDDs(): Seq[RDD[InternalRow]] = child match {
    case c: InputAdapter => located(c.inputRDDs()) // no generated code, such as a scan by Python
    case c: CodegenSupport => c.inputRDDs()
    case c => located(c.execute() :: Nil)
  }

  private def located(rows: Seq[RDD[InternalRow]]): Seq[RDD[InternalRow]] =
    if (RowOrigin.isOf(child)) rows.map(RowOrigin.remember) else rows

  override protected def doProduce(ctx: CodegenContext): String = child.asInstanceOf[CodegenSupport].produce(ctx, this)

  override def doConsume(ctx: CodegenContext, input: Seq[ExprCode], row: ExprCode): String = {
    ctx.currentVars = input
    val checked = checks.map(_.genCode(ctx))
    s"""${checked.map(_.code).mkString("\n")}
       |${consume(ctx, input)}""".stripMargin
  }

  override protected def doExecute(): RDD[InternalRow] = {
    val guards = checks
    StreamingInternals.mapPartitions(located(child.execute() :: Nil).head) { rows =>
      rows.map { row =>
        guards.foreach(_.eval(row))
        row
      }
    }
  }

  override def simpleString(maxFields: Int): String =
    s"Guard $source ${times.zip(frontiers).map { case (time, frontier) => s"$time in advance of $frontier" }.mkString(", ")}"

  override protected def withNewChildInternal(newChild: SparkPlan): GuardExec = copy(child = newChild)
}
