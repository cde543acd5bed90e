package strandline.spark.tables

import java.lang.reflect.InvocationTargetException
import java.util.UUID

import scala.util.Try

import org.apache.hadoop.fs.Path
import org.apache.spark.sql.catalyst.expressions.AttributeReference
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, Project}
import org.apache.spark.sql.catalyst.types.DataTypeUtils
import org.apache.spark.sql.execution.datasources.{FileFormat, FileIndex, HadoopFsRelation, LogicalRelation}
import org.apache.spark.sql.types.{MetadataBuilder, StructField, StructType}

/**
 * A Delta table that a plan reads at its newest version.
 *
 * Delta is not on the shim's compile path, so its members are called by their names. What they return is Delta's own view of the
 * table. The plan of a fixed version is the one that Delta makes for `versionAsOf`.
 */
private[tables] final class DeltaTable(files: HadoopFsRelation, index: FileIndex with Product) extends VersionedTable {
  import DeltaTable._

  override def key: Any = (index, files.schema) // DataFrames of one table may have been made before and after it got a column

  override def path: String = call(index, "path").toString

  /** Delta looks for newer commits, and refuses a schema that does not fit the DataFrame's any more. */
  override def newest(): TableReading = reading(call(index, "getSnapshot"), files.fileFormat)

  override def at(version: TableVersion): TableReading = {
    val snapshot = snapshotAt(version.version)
    val isCaseSensitive = files.sparkSession.sessionState.conf.caseSensitiveAnalysis
    for (found <- call(snapshot, "schema").asInstanceOf[StructType]; field <- inQuery(found)) {
      if (!DataTypeUtils.sameType(found.dataType, field.dataType))
        throw new IllegalStateException(
          s"its column ${field.name} is ${found.dataType.sql} there, but the query reads ${field.dataType.sql}")
      if (isCaseSensitive && found.name != field.name) // Spark would take it for another column
        throw new IllegalStateException(
          s"its column ${field.name} has the name ${found.name} there, and spark.sql.caseSensitive is true")
    }
    val found = reading(snapshot, formatOf(snapshot))
    missingFile(snapshot).foreach(file => throw new IllegalStateException(s"its data file $file does not exist any more"))
    found
  }

  private def reading(snapshot: AnyRef, format: FileFormat): TableReading = {
    val (pinned, partitions) = (indexOf(snapshot), partitionsOf(snapshot))
    TableReading(
      TableVersion(path, call(call(snapshot, Metadata), "id").toString, call(snapshot, "version").asInstanceOf[Long]),
      {
        case leaf @ LogicalRelation(own: HadoopFsRelation, output, _, _, _) =>
          val relation = own.copy(location = pinned, partitionSchema = partitions, fileFormat = format)(own.sparkSession)
          partitions.filter(inQuery(_).isEmpty) match {
            case Seq() => leaf.copy(relation = relation)
            // Spark looks for each column of the partitions among those of the relation.
            case others => Project(output,
                leaf.copy(relation = relation,
                  output = output ++ others.map(field => AttributeReference(field.name, field.dataType)())))
          }
        case other => other
      })
  }

  /**
   * Returns the columns by which a snapshot is partitioned. Its files do not have them: the index has their values, in this
   * order.
   */
  private def partitionsOf(snapshot: AnyRef): StructType =
    StructType(call(call(snapshot, Metadata), "partitionSchema").asInstanceOf[StructType].map { field =>
      inQuery(field).getOrElse(StructField(field.name, field.dataType))
    })

  /** Returns the DataFrame's column of this name. A Delta table has no two columns whose names differ in case alone. */
  private def inQuery(field: StructField): Option[StructField] = files.schema.find(_.name.equalsIgnoreCase(field.name))

  /** Returns the index that reads exactly a snapshot. */
  private def indexOf(snapshot: AnyRef): FileIndex =
    copyOf(index, Map(Snapshot -> snapshot, TimeTravel -> java.lang.Boolean.TRUE)).asInstanceOf[FileIndex]

  /** Returns the reader of a snapshot's files. With column mapping, they have a column under a name that the snapshot knows. */
  private def formatOf(snapshot: AnyRef): FileFormat = files.fileFormat match {
    case format: Product =>
      val metadata = copyOf(call(snapshot, "metadata").asInstanceOf[Product], Map("schemaString" -> columnsOf(snapshot).json))
      copyOf(format, Map(Protocol -> call(snapshot, Protocol), Metadata -> metadata)).asInstanceOf[FileFormat]
    case other => other
  }

  /** Returns a snapshot's columns, and those of the DataFrame that it has not. No file has these, so they are null. */
  private def columnsOf(snapshot: AnyRef): StructType = {
    val has = call(snapshot, "schema").asInstanceOf[StructType].map(field =>
      inQuery(field).fold(field)(own => field.copy(name = own.name)))
    val areMapped = has.exists(_.metadata.contains(PhysicalName))
    val others = files.dataSchema.filterNot(field => has.exists(_.name == field.name)).zipWithIndex.map {
      case (field, i) if areMapped =>
        field.copy(metadata = new MetadataBuilder().putString(PhysicalName, UUID.randomUUID().toString).putLong(FieldId,
          NoField + i).build())
      case (field, _) => field
    }
    StructType(has ++ others)
  }

  private def snapshotAt(version: Long): AnyRef = {
    val log = call(index, "deltaLog")
    // Delta has several methods of this name. One of them has default arguments.
    val defaults = log.getClass.getMethods.filter(_.getName.startsWith("getSnapshotAt$default$")).sortBy(_.getName)
    val method = log.getClass.getMethods.filter(m =>
      m.getName == "getSnapshotAt" && m.getParameterCount == defaults.length + 1).minBy(_.getParameterCount)
    invoke(method.invoke(log, java.lang.Long.valueOf(version) +: defaults.toSeq.map(each => invoke(each.invoke(log))): _*))
  }

  /** Returns a file of a snapshot that was vacuumed. The newest version still needs all its own files. */
  private def missingFile(snapshot: AnyRef): Option[String] = {
    val now = call(index, "getSnapshot")
    if (call(now, "version") == call(snapshot, "version")) None
    else {
      val hadoop = files.sparkSession.sessionState.newHadoopConf()
      val kept = indexOf(now).inputFiles.toSet
      indexOf(snapshot).inputFiles.find { file =>
        val at = new Path(file)
        !kept(file) && !at.getFileSystem(hadoop).exists(at)
      }
    }
  }
}

private[tables] object DeltaTable {
  private val Newest = "org.apache.spark.sql.delta.files.TahoeLogFileIndex"
  private val Package = "org.apache.spark.sql.delta."
  private val TimeTravel = "isTimeTravelQuery"
  private val Snapshot = "snapshotAtAnalysis"
  private val Protocol = "protocol"
  private val Metadata = "metadata"
  private val PhysicalName = "delta.columnMapping.physicalName"
  private val FieldId = "delta.columnMapping.id"
  private val NoField = 1L << 30

  def unapply(leaf: LogicalPlan): Option[DeltaTable] = leaf match {
    case relation: LogicalRelation if !relation.isStreaming =>
      relation.relation match {
        case files: HadoopFsRelation => files.location match {
            case index: FileIndex with Product if isNewest(index) && canBeFixed(index, files.fileFormat) =>
              Some(new DeltaTable(files, index))
            case _ => None
          }
        case _ => None
      }
    case _ => None
  }

  /** Whether a relation is Delta's at a version that the user has fixed, or of files that Delta has chosen. */
  def isFixed(files: HadoopFsRelation): Boolean = files.location.getClass.getName.startsWith(Package) && !isNewest(files.location)

  private def isNewest(index: FileIndex): Boolean =
    Iterator.iterate[Class[_]](index.getClass)(_.getSuperclass).takeWhile(_ != null).exists(_.getName == Newest) &&
      !Try(call(index, TimeTravel)).toOption.contains(java.lang.Boolean.TRUE)

  /** Whether this Delta has what it takes to fix the version. A table of another one is named, as files are. */
  private def canBeFixed(index: Product, format: FileFormat): Boolean =
    hasFields(index, Seq(Snapshot, TimeTravel)) && hasFields(format, Seq(Protocol, Metadata)) && Try(
      index.getClass.getMethod("getSnapshot")).isSuccess

  private def hasFields(of: Any, names: Seq[String]): Boolean = of match {
    case fields: Product => names.forall(fields.productElementNames.contains(_))
    case _ => false
  }

  /** Copies an instance of a case class with some other fields. */
  private def copyOf(from: Product, fields: Map[String, AnyRef]): AnyRef = {
    val values = from.productElementNames.zip(from.productIterator).map { case (name, value) =>
      fields.getOrElse(name, value.asInstanceOf[AnyRef])
    }.toSeq
    val copy = from.getClass.getMethods.find(m => m.getName == "copy" && m.getParameterCount == values.size).get
    invoke(copy.invoke(from, values: _*))
  }

  private def call(target: AnyRef, name: String): AnyRef = invoke(target.getClass.getMethod(name).invoke(target))

  private def invoke(call: => AnyRef): AnyRef =
    try call
    catch { case error: InvocationTargetException => throw error.getCause }
}
