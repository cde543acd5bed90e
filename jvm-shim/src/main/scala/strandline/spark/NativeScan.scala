package strandline.spark

import scala.collection.immutable.ArraySeq
import scala.jdk.CollectionConverters._
import scala.util.Try
import scala.util.control.NonFatal

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileStatus, FileSystem, Path}
import org.apache.spark.internal.Logging
import org.apache.spark.paths.SparkPath
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.Expression
import org.apache.spark.sql.catalyst.parser.CatalystSqlParser
import org.apache.spark.sql.execution.datasources.{FileIndex, PartitionDirectory, PartitionedFile}
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat
import org.apache.spark.sql.sources.{Filter, IsNotNull, IsNull}
import org.apache.spark.sql.types._

/** A data file of a batch: its path below the table's, and its size in bytes as the channel's log has it. */
private[spark] final case class NativeFile(path: String, size: Long)

/**
 * What the Python source says of one batch: its files, and whether they may be read natively (`refused` says why not).
 *
 * `root` is a directory of the local file system, or a URL; `required` says that the user allows no other way, `ignoreMissingFiles`
 * that a file which vanishes is passed over. `skipping` knows what the log says of the columns that the query filters by.
 */
private[spark] final case class NativeScan(
    root: String,
    files: ArraySeq[NativeFile],
    refused: Option[String],
    ignoreMissingFiles: Boolean = false,
    required: Boolean = false,
    skipping: Option[FileSkipping] = None) {

  // Neither is parsed: a path may have any character in it.
  private lazy val at: String => Path = NativeScan.Url.findFirstMatchIn(root) match {
    case Some(url) => new Path(url.group(1), url.group(2), _)
    case None => new Path("file", null, _)
  }
  private lazy val directory = NativeScan.Url.findFirstMatchIn(root).fold(root)(_.group(3))

  def rootPath: Path = at(if (directory.isEmpty) "/" else directory)
  def path(file: NativeFile): Path = at(s"$directory/${file.path}")

  /** Why Hadoop does not find, at a URL, what the source has found there; none when it does, as far as one file can tell. */
  def unreachable(conf: Configuration): Option[String] = if (!NativeScan.Url.matches(root)) None
  else files.headOption.flatMap { first =>
    try {
      val length = FileSystem.get(path(first).toUri, conf).getFileStatus(path(first)).getLen
      if (length == first.size) None else Some(s"Hadoop finds ${path(first)} with $length bytes, and the log has ${first.size}")
    } catch {
      case NonFatal(error) => Some(s"Hadoop does not reach $root (${error.toString.linesIterator.next().take(200)})")
    }
  }

  /** Rows as Python gives them, whatever the session says: no shift between calendars, nothing damaged passed over. */
  def readerOptions: Map[String, String] = Map(
    "datetimeRebaseMode" -> "CORRECTED",
    "int96RebaseMode" -> "CORRECTED",
    "ignoreCorruptFiles" -> "false",
    "ignoreMissingFiles" -> ignoreMissingFiles.toString
  )
}

private[spark] object NativeScan {
  private val mapper = new ObjectMapper
  private val Url = "^([A-Za-z][A-Za-z0-9+.-]*)://([^/]*)(.*)$".r

  /** Reads a batch's partitions (docs/protocol.md), or none when they say nothing of a native scan. */
  def of(partitions: Seq[String]): Option[NativeScan] = {
    val parsed = partitions.map(text => Try(mapper.readTree(text)).getOrElse(mapper.missingNode))
    parsed.headOption.map(_.path("scan")).filter(_.isObject).map { scan =>
      val native = scan.path("native").asBoolean && scan.path("root").isTextual && parsed.forall(_.path("files").isArray)
      val refused = if (native) None else Some(scan.path("reason").asText("the source gives no reason"))
      // A file that several tasks would share is named by each; the JVM splits files by itself.
      val named = if (native) parsed.iterator.flatMap(_.path("files").elements.asScala).filter(isFirst).map(file) else Iterator.empty
      val files = named.to(ArraySeq)
      NativeScan(
        scan.path("root").asText,
        files,
        refused,
        scan.path("ignoreMissingFiles").asBoolean,
        scan.path("required").asBoolean,
        FileSkipping.parse(scan.path("statistics"), files.length)
      )
    }
  }

  private def isFirst(entry: JsonNode): Boolean = entry.path(2).asInt == 0

  private def file(entry: JsonNode): NativeFile = NativeFile(entry.path(0).asText, entry.path(1).asLong)
}

/** Exactly the files that the source has decided on, without a look into any directory, less those that no wanted row is in. */
private[spark] final class StrandlineFileIndex(scan: NativeScan) extends FileIndex with Logging {
  private lazy val statuses = scan.files.map(f => new FileStatus(f.size, false, 1, 0L, 0L, scan.path(f)))

  override val rootPaths: Seq[Path] = Seq(scan.rootPath)
  override val partitionSchema: StructType = new StructType
  override lazy val sizeInBytes: Long = scan.files.iterator.map(_.size).sum

  override def listFiles(partitionFilters: Seq[Expression], dataFilters: Seq[Expression]): Seq[PartitionDirectory] = {
    val kept = scan.skipping.filter(_ => dataFilters.nonEmpty).fold[Seq[FileStatus]](statuses) { skipping =>
      val left = statuses.indices.filter(file => dataFilters.forall(skipping.mayPass(_, file))).map(statuses)
      logDebug(s"By the log's statistics ${statuses.length - left.length} of ${statuses.length} files of ${scan.root} have no row that passes.")
      left
    }
    Seq(PartitionDirectory(InternalRow.empty, kept.toArray))
  }

  override def inputFiles: Array[String] = statuses.map(SparkPath.fromFileStatus(_).urlEncoded).toArray
  override def refresh(): Unit = ()
}

/**
 * Spark's Parquet reader, which is kept from skipping by the bounds of floating-point columns.
 *
 * Arrow leaves NaN out of them, but for Spark NaN is greater than all: it would be lost under `x > 1`.
 */
private[spark] final class StrandlineParquetFormat extends ParquetFileFormat {
  override def buildReaderWithPartitionValues(
      sparkSession: SparkSession,
      dataSchema: StructType,
      partitionSchema: StructType,
      requiredSchema: StructType,
      filters: Seq[Filter],
      options: Map[String, String],
      hadoopConf: Configuration): PartitionedFile => Iterator[InternalRow] = {
    val safe = filters.filter(StrandlineParquetFormat.isSafe(_, dataSchema))
    super.buildReaderWithPartitionValues(sparkSession, dataSchema, partitionSchema, requiredSchema, safe, options, hadoopConf)
  }

  override def equals(other: Any): Boolean = other.isInstanceOf[StrandlineParquetFormat]
  override def hashCode(): Int = getClass.hashCode
}

private[spark] object StrandlineParquetFormat {

  /** Whether a filter may skip rows by the bounds in the files. */
  def isSafe(filter: Filter, schema: StructType): Boolean = filter match {
    case _: IsNull | _: IsNotNull => true
    case _ => filter.references.forall { name =>
        typeOf(CatalystSqlParser.parseMultipartIdentifier(name), schema).exists(kind => kind != FloatType && kind != DoubleType)
      }
  }

  private def typeOf(path: Seq[String], in: DataType): Option[DataType] = (path, in) match {
    case (Seq(), kind) => Some(kind)
    case (Seq(name, rest @ _*), struct: StructType) => struct.find(_.name.equalsIgnoreCase(name)).flatMap(f => typeOf(rest, f.dataType))
    case _ => None
  }
}
