package strandline.spark.scan

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.spark.internal.Logging
import org.apache.spark.paths.SparkPath
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.Expression
import org.apache.spark.sql.catalyst.parser.CatalystSqlParser
import org.apache.spark.sql.execution.datasources.{FileIndex, PartitionDirectory, PartitionedFile}
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat
import org.apache.spark.sql.execution.streaming.state.strandline.HadoopSettings
import org.apache.spark.sql.sources.{Filter, IsNotNull, IsNull}
import org.apache.spark.sql.types._

/**
 * Lists exactly the files that the source names, without those that cannot have a matching row. It never lists a directory.
 *
 * `channel`: which of the source's channels has the files; None for a source of one.
 */
private[spark] final class StrandlineFileIndex(scan: NativeScan, val channel: Option[String] = None)
    extends FileIndex with Logging {
  override val rootPaths: Seq[Path] = Seq(scan.rootPath)
  override val partitionSchema: StructType = new StructType
  override lazy val sizeInBytes: Long = scan.sizes.sum

  override def listFiles(partitionFilters: Seq[Expression], dataFilters: Seq[Expression]): Seq[PartitionDirectory] = {
    val all = scan.paths.indices
    val kept = scan.skipping.filter(_ => dataFilters.nonEmpty).fold[Seq[Int]](all) { skipping =>
      val left = all.filter(skipping.mayPass(dataFilters))
      logDebug(
        s"By the log's statistics ${all.length - left.length} of ${all.length} files of ${scan.root} have no row that passes.")
      left
    }
    Seq(PartitionDirectory(InternalRow.empty, kept.iterator.map(scan.status).toArray))
  }

  override def inputFiles: Array[String] = scan.paths.indices.map(file => SparkPath.fromPath(scan.path(file)).urlEncoded).toArray
  override def refresh(): Unit = ()
}

/**
 * Spark's Parquet reader, which must not skip rows by the bounds of floating-point columns.
 *
 * Arrow leaves NaN out of these bounds. For Spark, NaN is greater than all numbers, so a filter like `x > 1` would lose it.
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
    super.buildReaderWithPartitionValues(sparkSession, dataSchema, partitionSchema, requiredSchema, safe, options,
      HadoopSettings.compact(hadoopConf))
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
    case (Seq(name, rest @ _*), struct: StructType) =>
      struct.find(_.name.equalsIgnoreCase(name)).flatMap(f => typeOf(rest, f.dataType))
    case _ => None
  }
}
