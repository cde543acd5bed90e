package strandline.spark.scan

import java.util.{Collections, WeakHashMap}
import java.util.concurrent.ConcurrentHashMap

import scala.collection.mutable

import org.apache.spark.internal.Logging
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.codegen.{CodegenContext, EmptyBlock, ExprCode, FalseLiteral, TrueLiteral}
import org.apache.spark.sql.catalyst.plans.logical.{Filter, LocalRelation, LogicalPlan}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.connector.metric.CustomMetric
import org.apache.spark.sql.connector.read._
import org.apache.spark.sql.connector.read.streaming.{MicroBatchStream, Offset, SparkDataStream}
import org.apache.spark.sql.execution.datasources.{HadoopFsRelation, LogicalRelation}
import org.apache.spark.sql.execution.datasources.v2.{DataSourceV2Relation, StreamingDataSourceV2ScanRelation}
import org.apache.spark.sql.execution.datasources.v2.python.{
  PythonInputPartition, PythonMicroBatchStreamBase, PythonStreamingInputPartition, PythonTable
}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types._
import org.json4s.{JArray, JObject, JString}
import strandline.spark.compat.PythonPartition
import strandline.spark.errors.StrandlineException
import strandline.spark.time.{Json, TimeColumn}

/**
 * Replaces the Python read of a strandline source by Spark's own Parquet scan of exactly the files that the source names.
 *
 * The source decides on offsets, files and frontiers. In the first partition of each batch it says whether the JVM would read
 * the same rows, and where. The new plan has the shape that Spark's file source and Delta have, so Spark provides column
 * pruning, filter push-down, vectorised reading and metrics. The rule runs once a batch, after filters and projections have
 * moved down to the scan and before Spark prunes nested columns.
 */
final case class NativeScanRule(session: SparkSession) extends Rule[LogicalPlan] with Logging {
  import NativeScanRule._

  override def apply(plan: LogicalPlan): LogicalPlan = {
    val one = if (plan.exists(isOurs)) ofOneChannel(plan) else plan
    if (one.exists(isSeveral)) ofSeveralChannels(one) else one
  }

  /** Replaces the filter of each channel's stream over a source of several channels. */
  private def ofSeveralChannels(plan: LogicalPlan): LogicalPlan = {
    val planned = mutable.Map.empty[AnyRef, Map[String, ChannelScan]]
    lazy val filtered = plan.collect { case filter: Filter => boundedPaths(filter.condition) }.flatten.distinct
    def scansOf(relation: StreamingDataSourceV2ScanRelation) =
      planned.getOrElseUpdate((relation.stream, relation.startOffset, relation.endOffset),
        NativeScan.ofSeveral(partitionsOf(relation, filtered)))
    val replaced = plan.transformUp {
      // Of a channel's stream, such as of `_channel = 'a' AND n < 1 AND n > 2`.
      case Filter(Literal(false | null, BooleanType), relation: StreamingDataSourceV2ScanRelation) if isSeveral(relation) =>
        LocalRelation(relation.output, Nil, isStreaming = true)
      case filter @ Filter(condition, relation: StreamingDataSourceV2ScanRelation) if isSeveral(relation) =>
        SeveralScan.channelOf(condition, relation.output).flatMap(scansOf(relation).get).fold[LogicalPlan](filter) { of =>
          val columns = SeveralScan.columns(of, relation.output)
          refusal(of.scan, plan, columns) match {
            case Some(reason) =>
              note(relation.stream, of.channel, s"by Python: $reason")
              filter.copy(child = relation.copy(scan = PythonFallbackScan(relation.scan, reason)))
            case None =>
              note(relation.stream, of.channel, "natively")
              val files = LogicalRelation(relationOf(of.scan, columns, Some(of.channel)), columns, None, isStreaming = true,
                Some(relation.stream))
              filter.copy(child = SeveralScan.plan(of, relation.output, columns, files))
          }
        }
    }
    replaced.foreach {
      case relation: StreamingDataSourceV2ScanRelation
          if isSeveral(relation) && !relation.scan.isInstanceOf[PythonFallbackScan] =>
        if (scansOf(relation).values.exists(_.scan.required))
          throw refused("no filter by the channel's name stands on the source")
      case _ =>
    }
    if (replaced eq plan) plan else SeveralScan.withoutConstraints(SeveralScan.Flatten.execute(replaced))
  }

  private def ofOneChannel(plan: LogicalPlan): LogicalPlan = {
    val planned = mutable.Map.empty[AnyRef, Option[NativeScan]] // a self-union reads the same files twice
    lazy val used = AttributeSet(plan.collect { case p => p.references }.flatten)
    lazy val filtered = plan.collect { case filter: Filter => boundedPaths(filter.condition) }.flatten.distinct
    plan.transformUp {
      case relation: StreamingDataSourceV2ScanRelation if isOurs(relation) =>
        planned.getOrElseUpdate((relation.stream, relation.startOffset, relation.endOffset), scanOf(relation, filtered)) match {
          case None => relation
          case Some(scan) =>
            refusal(scan, plan, relation.output) match {
              case Some(reason) =>
                note(relation.stream, "", s"by Python: $reason")
                relation.copy(scan = PythonFallbackScan(relation.scan, reason))
              case None =>
                note(relation.stream, "", "natively")
                native(scan, relation.output, Some(relation.stream), used)
            }
        }
      case relation: DataSourceV2Relation if isOurs(relation) =>
        scanOf(relation).filter(refusal(_, plan, relation.output).isEmpty).fold[LogicalPlan](relation)(native(_, relation.output,
            None, used))
    }
  }

  private def scanOf(relation: StreamingDataSourceV2ScanRelation, filtered: Seq[Seq[String]]): Option[NativeScan] =
    NativeScan.of(partitionsOf(relation, filtered))

  private def partitionsOf(relation: StreamingDataSourceV2ScanRelation, filtered: Seq[Seq[String]]): Seq[String] =
    (relation.stream, relation.startOffset, relation.endOffset) match {
      case (stream: MicroBatchStream, Some(start), Some(end)) =>
        stream.planInputPartitions(start, asking(stream, end, filtered)).toSeq.collect {
          case PythonStreamingInputPartition(_, pickled, None) => PythonPartition.json(pickled)
        }.flatten
      case _ => Nil
    }

  /**
   * Adds to the end offset the columns whose statistics the filters need. By this field the source knows that the shim asks,
   * not Spark.
   */
  private def asking(stream: MicroBatchStream, end: Offset, filtered: Seq[Seq[String]]): Offset = Json.parse(end.json) match {
    case Some(JObject(fields)) =>
      val columns = JArray(filtered.map(path => JArray(path.map(JString(_)).toList)).toList)
      stream.deserializeOffset(Json.render(JObject(fields :+ ("statistics" -> columns))))
    case _ => end
  }

  private def scanOf(relation: DataSourceV2Relation): Option[NativeScan] =
    NativeScan.of(relation.table.asInstanceOf[PythonTable].newScanBuilder(
        relation.options).build().toBatch.planInputPartitions().toSeq.collect {
        case PythonInputPartition(_, pickled) => PythonPartition.json(pickled)
      }.flatten)

  /**
   * Returns why the JVM must not read, for reasons that the source cannot know: the session's settings, and the query's plan.
   */
  private def refusal(scan: NativeScan, plan: LogicalPlan, output: Seq[Attribute]): Option[String] = {
    val conf = session.sessionState.conf
    def hasNtz = output.exists(a => has(a.dataType, TimestampNTZType))
    def hasPythonUdf = plan.exists(_.expressions.exists(_.exists(_.isInstanceOf[PythonUDF])))
    val here = output.find(!_.nullable).map(a => s"column ${a.name} is declared NOT NULL").orElse {
      if (hasNtz && !conf.parquetInferTimestampNTZEnabled) Some(s"${SQLConf.PARQUET_INFER_TIMESTAMP_NTZ_ENABLED.key} is false")
      else if (!conf.isParquetINT96AsTimestamp) Some(s"${SQLConf.PARQUET_INT96_AS_TIMESTAMP.key} is false")
      else if (conf.isParquetINT96TimestampConversion) Some(s"${SQLConf.PARQUET_INT96_TIMESTAMP_CONVERSION.key} is true")
      else if (hasPythonUdf && conf.getConf(SQLConf.ARROW_PYSPARK_UDF_COLUMNAR_INPUT_ENABLED))
        Some(
          s"Spark 4.2.0 hangs in a Python UDF over such a scan unless ${SQLConf.ARROW_PYSPARK_UDF_COLUMNAR_INPUT_ENABLED.key} " +
            "is false")
      else None
    }
    scan.refused.orElse(here.orElse(scan.unreachable(session.sessionState.newHadoopConf())).map { reason =>
      if (scan.required) throw refused(reason) else reason
    })
  }

  private def native(
      scan: NativeScan, output: Seq[AttributeReference], stream: Option[SparkDataStream], used: AttributeSet): LogicalPlan = {
    val leaf = LogicalRelation(relationOf(scan, output), output, None, stream.isDefined, stream)
    // Nested pruning would remove coordinates of the time that the guard checks.
    output.find(a => TimeColumn.isTagged(a.metadata) && a.dataType.isInstanceOf[StructType] && used.contains(a))
      .fold[LogicalPlan](leaf)(time => Filter(WholeTime(time), leaf))
  }

  private def relationOf(scan: NativeScan, columns: Seq[AttributeReference], channel: Option[String] = None): HadoopFsRelation = {
    val schema = StructType(columns.map(a => StructField(a.name, a.dataType, a.nullable, a.metadata)))
    HadoopFsRelation(new StrandlineFileIndex(scan, channel), new StructType, schema, None, new StrandlineParquetFormat,
      scan.readerOptions)(session)
  }

  /**
   * Logs which way the batches of a stream, or of one of its channels, are read: each batch at debug level, a change at info
   * level.
   */
  private def note(stream: SparkDataStream, channel: String, way: String): Unit = {
    val what = if (channel.isEmpty) stream.toString else s"Channel $channel of $stream"
    logDebug(s"This batch of $what is read $way.")
    if (ways.computeIfAbsent(stream, _ => new ConcurrentHashMap).put(channel, way) != way) logInfo(s"$what is read $way.")
  }
}

object NativeScanRule {
  private val ways = Collections.synchronizedMap(new WeakHashMap[SparkDataStream, ConcurrentHashMap[String, String]])

  private def isOurs(plan: LogicalPlan): Boolean = plan match {
    case relation: StreamingDataSourceV2ScanRelation =>
      relation.stream.isInstanceOf[PythonMicroBatchStreamBase] && isOurs(relation.relation.table.name, relation.output)
    case relation: DataSourceV2Relation =>
      relation.table.isInstanceOf[PythonTable] && isOurs(relation.table.name, relation.output)
    case _ => false
  }

  private def isSeveral(plan: LogicalPlan): Boolean = plan match {
    case relation: StreamingDataSourceV2ScanRelation =>
      relation.stream.isInstanceOf[PythonMicroBatchStreamBase] && relation.relation.table.name.equalsIgnoreCase("strandline") &&
      SeveralScan.isSeveral(relation.output)
    case _ => false
  }

  private def isOurs(table: String, output: Seq[Attribute]): Boolean =
    table.equalsIgnoreCase("strandline") && output.exists(a => TimeColumn.isTagged(a.metadata))

  /** Returns the columns and nested fields of a condition whose bounds may show that no row of a file passes. */
  private[spark] def boundedPaths(condition: Expression): Seq[Seq[String]] =
    if (FileBounds.isBounded(condition.dataType) && FileBounds.pathOf(condition).isDefined) FileBounds.pathOf(condition).toSeq
    else condition.children.flatMap(boundedPaths)

  private def has(kind: DataType, wanted: DataType): Boolean = kind match {
    case struct: StructType => struct.exists(f => has(f.dataType, wanted))
    case array: ArrayType => has(array.elementType, wanted)
    case map: MapType => has(map.keyType, wanted) || has(map.valueType, wanted)
    case _ => kind == wanted
  }

  private def refused(reason: String): StrandlineException = new StrandlineException(
    "STRANDLINE_NATIVE_SCAN_REFUSED",
    "0A000",
    s"Option nativeScan is on, but the JVM cannot read this query's source: $reason.",
    "Set nativeScan to auto, so that Python reads in such a case.")
}

/** A scan by Python. The plan shows why it is used. */
private[spark] final case class PythonFallbackScan(scan: Scan, reason: String) extends Scan {
  override def description(): String = s"(Python, because $reason)"
  override def readSchema(): StructType = scan.readSchema()
  override def toBatch: Batch = scan.toBatch
  override def toMicroBatchStream(checkpointLocation: String): MicroBatchStream = scan.toMicroBatchStream(checkpointLocation)
  override def supportedCustomMetrics(): Array[CustomMetric] = scan.supportedCustomMetrics()
  override def columnarSupportMode(): Scan.ColumnarSupportMode = scan.columnarSupportMode()
}

/** True for every row. It references the whole time column, so that Spark prunes no coordinate that a guard needs. */
private[spark] final case class WholeTime(child: Expression) extends UnaryExpression with Predicate {
  override def nullable: Boolean = false
  override def eval(input: org.apache.spark.sql.catalyst.InternalRow): Any = true
  override protected def doGenCode(ctx: CodegenContext, ev: ExprCode): ExprCode =
    ev.copy(code = EmptyBlock, isNull = FalseLiteral, value = TrueLiteral)
  override protected def withNewChildInternal(newChild: Expression): WholeTime = copy(child = newChild)
  override def toString: String = s"whole($child)"
}
