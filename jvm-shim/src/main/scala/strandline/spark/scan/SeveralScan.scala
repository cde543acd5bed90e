package strandline.spark.scan

import com.fasterxml.jackson.databind.JsonNode
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.optimizer._
import org.apache.spark.sql.catalyst.plans.logical.{Filter, LogicalPlan, Project, UnaryNode}
import org.apache.spark.sql.catalyst.rules.RuleExecutor
import org.apache.spark.sql.execution.{SparkPlan, SparkStrategy}
import org.apache.spark.sql.types._
import strandline.spark.batch.{FrontierGuard, PassesGuard}
import strandline.spark.errors.Errors
import strandline.spark.time.{Antichain, Json, TimeDomain}

/**
 * One channel's part of a batch of a source of several channels, as the source describes it to the shim.
 *
 * `start` is the channel's own frontier before the batch, in `outer`, the domain of the times in its files. `entered` is the
 * frontier of all channels together, in the domain that all times enter.
 */
private[spark] final case class ChannelScan(channel: String, scan: NativeScan, outer: TimeDomain, start: Antichain,
    entered: Antichain)

/** Its child, of whose filters the optimizer does not know the checks of rows. It is not in the physical plan. */
final case class Unconstrained(child: LogicalPlan) extends UnaryNode {
  override def output: Seq[Attribute] = child.output
  override protected lazy val validConstraints: ExpressionSet = child.constraints.filterNot(_.exists(_.isInstanceOf[PassesGuard]))
  override protected def withNewChildInternal(newChild: LogicalPlan): Unconstrained = copy(child = newChild)
}

/** Plans [[Unconstrained]]. */
object UnconstrainedStrategy extends SparkStrategy {
  override def apply(plan: LogicalPlan): Seq[SparkPlan] = plan match {
    case Unconstrained(child) => planLater(child) :: Nil
    case _ => Nil
  }
}

/**
 * The plan of a source of several channels: a column with the channel's name, and for each channel a struct of its columns.
 *
 * A stream of one channel is a filter by the name. Where the filter stands on the source, the scan of that channel's files
 * replaces the source. Then Spark's own rules remove the structs, and the scan reads the columns that are left.
 */
private[spark] object SeveralScan {

  /** The column with the channel's name (pyspark_strandline.options). */
  private val Channel = "_channel"

  /** The metadata key of a channel's time within its struct (inputs.py). */
  private val TimeOfChannel = "strandline.channelTime"

  def isSeveral(output: Seq[Attribute]): Boolean =
    output.exists(_.name == Channel) && output.exists(a => timeIn(a.dataType).isDefined)

  /** Returns the channel whose rows pass a filter over the source. */
  def channelOf(condition: Expression, output: Seq[Attribute]): Option[String] = {
    def isName(e: Expression) = e match {
      case a: Attribute => a.name == Channel && output.exists(_.exprId == a.exprId)
      case _ => false
    }
    conjuncts(condition).collectFirst {
      case EqualTo(a, Literal(name, StringType)) if isName(a) && name != null => name.toString
      case EqualTo(Literal(name, StringType), a) if isName(a) && name != null => name.toString
    }
  }

  private def conjuncts(condition: Expression): Seq[Expression] = condition match {
    case And(left, right) => conjuncts(left) ++ conjuncts(right)
    case other => Seq(other)
  }

  /** Reads the source's description of a channel's part of a batch (docs/protocol.md). */
  def channel(scan: NativeScan, partition: JsonNode): Option[ChannelScan] = for {
    name <- Option(partition.get("channel")).map(_.asText)
    outer <- domain(partition, "outer")
    inner <- domain(partition, "inner")
    start <- frontier(partition, "start", outer)
    entered <- frontier(partition, "entered", inner)
  } yield ChannelScan(name, scan, outer, start, entered)

  private def domain(partition: JsonNode, name: String) = Option(partition.get(name)).map(text => TimeDomain.parse(text.asText))

  private def frontier(partition: JsonNode, name: String, domain: TimeDomain): Option[Antichain] = for {
    json <- Option(partition.get(name)).flatMap(node => Json.parse(node.toString))
    found <- Antichain.fromJson(domain, json).toOption
  } yield found

  /** Returns the columns of a channel's files: those of its struct, with the times as they are in the files. */
  def columns(of: ChannelScan, output: Seq[Attribute]): Seq[AttributeReference] = structOf(of, output).fields.toSeq.map { field =>
    AttributeReference(field.name, if (isTime(field)) of.outer.dataType else field.dataType, nullable = true)()
  }

  /**
   * Returns a plan with the source's `output` over `files`, the scan of a channel's files.
   *
   * Each row is checked, as Python checks it: against its own channel's frontier, and against the frontier of all channels.
   */
  def plan(of: ChannelScan, output: Seq[Attribute], columns: Seq[AttributeReference], files: LogicalPlan): LogicalPlan = {
    val struct = structOf(of, output)
    val (_, time) = struct.fields.toSeq.zip(columns).find { case (field, _) => isTime(field) }.get
    val innerType = struct.find(isTime).get.dataType
    def passes(e: Expression, frontier: Antichain, source: String) =
      PassesGuard(e, new FrontierGuard(frontier, source, time.name, located = true, None))
    val guards = And(
      passes(time, of.start, s"channel ${of.channel}"),
      passes(entered(time, innerType), of.entered, s"channel ${of.channel}, as one of several that are read together,"))
    val values = struct.fields.toSeq.zip(columns).flatMap { case (field, column) =>
      Seq(Literal(field.name), if (isTime(field)) entered(column, field.dataType) else column)
    }
    val projected = output.map { a =>
      val value = if (a.name == Channel) Literal(of.channel)
      else if (a.name == of.channel) CreateNamedStruct(values)
      else Literal(null, a.dataType)
      Alias(value, a.name)(exprId = a.exprId, explicitMetadata = Some(a.metadata))
    }
    Project(projected, Filter(guards, files))
  }

  /**
   * Returns the time of `inner` that a time from outside becomes: further coordinates begin at 0 (`strandline.time.path.entry`).
   */
  private[spark] def entered(time: Expression, inner: DataType): Expression = (time.dataType, inner) match {
    case (outer, same) if DataType.equalsStructurally(outer, same, ignoreNullability = true) => time
    case (outer, StructType(fields)) =>
      def isPrefix(parts: Array[StructField]) = parts.length > 1 && parts.length < fields.length &&
        parts.zip(fields).forall { case (a, b) =>
          a.name == b.name && DataType.equalsStructurally(a.dataType, b.dataType, ignoreNullability = true)
        }
      val first = outer match {
        case StructType(parts) if isPrefix(parts) => parts.toSeq.indices.map(at => GetStructField(time, at, Some(parts(at).name)))
        case _ => Seq(entered(time, fields.head.dataType))
      }
      val values = first ++ fields.drop(first.length).map(field => Literal.default(field.dataType))
      val struct = CreateNamedStruct(fields.toSeq.zip(values).flatMap { case (field, value) => Seq(Literal(field.name), value) })
      // It has exactly the type that the source declares, nullable throughout: state and sinks compare types.
      If(IsNull(time), Literal(null, inner), struct)
    case (outer, _) => throw Errors.domainMismatch(s"Times of ${outer.simpleString} do not enter ${inner.simpleString}.")
  }

  /**
   * Hides the checks of rows from what Spark concludes from a filter. A check holds for the rows of a channel's files in one
   * batch. Spark would also apply it to other rows with an equal time, such as those of a table that a `foreachBatch` joins its
   * batch with.
   */
  def withoutConstraints(plan: LogicalPlan): LogicalPlan = plan match {
    case _: Project | _: Filter if checksRows(plan) => Unconstrained(plan)
    case other => other.mapChildren(withoutConstraints)
  }

  private def checksRows(plan: LogicalPlan): Boolean = plan match {
    case Filter(condition, child) => condition.exists(_.isInstanceOf[PassesGuard]) || checksRows(child)
    case Project(_, child) => checksRows(child)
    case _ => false
  }

  private def structOf(of: ChannelScan, output: Seq[Attribute]): StructType =
    output.find(_.name == of.channel).map(_.dataType).collect { case struct: StructType => struct }
      .getOrElse(throw new IllegalStateException(s"The source has no struct of the channel ${of.channel}."))

  private def isTime(field: StructField): Boolean = field.metadata.contains(TimeOfChannel)

  private def timeIn(kind: DataType): Option[StructField] = kind match {
    case struct: StructType => struct.find(isTime)
    case _ => None
  }

  /** Spark's rules that remove the structs again. */
  object Flatten extends RuleExecutor[LogicalPlan] {
    private val Most = 20

    override protected def batches: Seq[Batch] = Seq(
      Batch(
        "Strandline's channels",
        FixedPoint(Most),
        PushPredicateThroughNonJoin,
        CombineFilters,
        CollapseProject,
        SimplifyExtractValueOps,
        ConstantFolding,
        NullPropagation,
        BooleanSimplification,
        PruneFilters,
        ColumnPruning,
        RemoveNoopOperators))
  }
}
