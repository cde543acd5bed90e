package strandline.spark

import java.util.concurrent.ConcurrentHashMap

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.Row
import org.apache.spark.sql.catalyst.{CatalystTypeConverters, InternalRow}
import org.apache.spark.sql.connector.catalog._
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.connector.read._
import org.apache.spark.sql.connector.read.streaming._
import org.apache.spark.sql.sources.DataSourceRegister
import org.apache.spark.sql.types._
import org.apache.spark.sql.util.CaseInsensitiveStringMap
import strandline.spark.plan.FrontierSource
import strandline.spark.time.{Antichain, Json, TimeDomain}

/**
 * A source that a test controls step by step. Each step is one batch's rows and the frontier after it.
 *
 * A script without a domain is a plain source: its offsets state nothing.
 */
final class Script(val name: String, val schema: StructType, val domain: Option[String]) {
  @volatile private var steps = Vector.empty[Script.Step]

  /** The options of the last scan. */
  @volatile var options: Map[String, String] = Map.empty

  /** If set, the text of the offsets, with `%step` and `%frontier` filled in. */
  @volatile var offsetTemplate: Option[String] = None

  /** Whether the source states frontiers. If not, it is a foreign source, whatever its schema and offsets look like. */
  @volatile var states: Boolean = domain.isDefined

  /** Adds a step. `frontier` is JSON. */
  def add(frontier: String, rows: Row*): this.type = synchronized {
    val convert = CatalystTypeConverters.createToCatalystConverter(schema)
    steps :+= Script.Step(rows.map(row => convert(row).asInstanceOf[InternalRow]), frontier)
    this
  }

  def size: Int = steps.size

  def rows(from: Int, until: Int): Seq[InternalRow] = steps.slice(from, until).flatMap(_.rows)

  def json(step: Int): String = {
    val frontier = if (step == 0) None else Some(steps(step - 1).frontier)
    (offsetTemplate, domain, frontier) match {
      case (Some(template), _, _) => template.replace("%step", step.toString).replace("%frontier", frontier.getOrElse("[]"))
      case (_, Some(d), Some(f)) => s"""{"strandline":1,"channel":"$name","domain":"$d","step":$step,"frontier":$f}"""
      case (_, Some(d), None) =>
        val least = Json.render(Antichain.least(TimeDomain.parse(d)).toJson)
        s"""{"strandline":1,"channel":"$name","domain":"$d","step":$step,"frontier":$least}"""
      case _ => s"""{"step":$step}"""
    }
  }
}

object Script {
  final case class Step(rows: Seq[InternalRow], frontier: String)

  def stepOf(json: String): Int = """"step":(\d+)""".r.findFirstMatchIn(json).get.group(1).toInt

  private val scripts = new ConcurrentHashMap[String, Script]()

  def apply(name: String, domain: String, fields: (String, DataType)*): Script = {
    val tag = new MetadataBuilder().putString("strandline.time", domain).build()
    val time = StructField("time", TimeDomain.parse(domain).dataType, nullable = true, tag)
    register(new Script(name, StructType(time +: fields.map { case (n, t) => StructField(n, t) }), Some(domain)))
  }

  def plain(name: String, fields: (String, DataType)*): Script =
    register(new Script(name, StructType(fields.map { case (n, t) => StructField(n, t) }), None))

  def register(script: Script): Script = { scripts.put(script.name, script); script }

  def named(name: String): Script = scripts.get(name)
}

class ScriptedProvider extends TableProvider with DataSourceRegister {
  override def shortName(): String = "strandline-scripted"
  override def inferSchema(options: CaseInsensitiveStringMap): StructType = Script.named(options.get("script")).schema
  override def getTable(schema: StructType, partitioning: Array[Transform], properties: java.util.Map[String, String]): Table =
    Script.named(properties.get("script")) match {
      case script if script.states => new ScriptedTable(script) with FrontierSource
      case script => new ScriptedTable(script)
    }
}

class ScriptedTable(script: Script) extends Table with SupportsRead {
  override def name(): String = script.name
  override def columns(): Array[Column] =
    script.schema.map(f => Column.create(f.name, f.dataType, f.nullable, null, f.metadata.json)).toArray
  override def capabilities(): java.util.Set[TableCapability] = Set(TableCapability.MICRO_BATCH_READ).asJava
  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder = {
    script.options = options.asScala.toMap
    () =>
      new Scan {
        override def readSchema(): StructType = script.schema
        override def toMicroBatchStream(checkpoint: String): MicroBatchStream = new ScriptedStream(script)
      }
  }
}

final case class ScriptedOffset(step: Int, json: String) extends Offset

final class ScriptedStream(val script: Script) extends MicroBatchStream with SupportsTriggerAvailableNow {
  private var last: Option[Int] = None

  private def at(step: Int): Offset = ScriptedOffset(step, script.json(step))

  override def initialOffset(): Offset = at(0)
  override def latestOffset(): Offset = throw new UnsupportedOperationException
  override def latestOffset(start: Offset, limit: ReadLimit): Offset =
    at((start.asInstanceOf[ScriptedOffset].step + 1).min(last.getOrElse(script.size)))
  override def reportLatestOffset(): Offset = at(script.size)
  override def prepareForTriggerAvailableNow(): Unit = last = Some(script.size)
  override def deserializeOffset(json: String): Offset =
    ScriptedOffset(Script.stepOf(json), json)
  override def planInputPartitions(start: Offset, end: Offset): Array[InputPartition] = {
    val rows = script.rows(start.asInstanceOf[ScriptedOffset].step, end.asInstanceOf[ScriptedOffset].step)
    val half = (rows.size + 1) / 2
    Array(ScriptedPartition(rows.take(half)), ScriptedPartition(rows.drop(half)))
  }
  override def createReaderFactory(): PartitionReaderFactory = ScriptedReaderFactory
  override def commit(end: Offset): Unit = ()
  override def stop(): Unit = ()
  override def toString: String = s"scripted(${script.name})"
}

final case class ScriptedPartition(rows: Seq[InternalRow]) extends InputPartition

object ScriptedReaderFactory extends PartitionReaderFactory {
  override def createReader(partition: InputPartition): PartitionReader[InternalRow] = new PartitionReader[InternalRow] {
    private val rows = partition.asInstanceOf[ScriptedPartition].rows.iterator
    private var row: InternalRow = _
    override def next(): Boolean = rows.hasNext && { row = rows.next(); true }
    override def get(): InternalRow = row
    override def close(): Unit = ()
  }
}
