package strandline.spark.tables

import java.lang.reflect.InvocationTargetException

import scala.util.Try

import org.apache.hadoop.fs.Path
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.types.DataTypeUtils
import org.apache.spark.sql.execution.datasources.{FileIndex, HadoopFsRelation, LogicalRelation}
import org.apache.spark.sql.types.StructType

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
  override def newest(): TableReading = reading(call(index, "getSnapshot"))

  override def at(version: TableVersion): TableReading = {
    val snapshot = snapshotAt(version.version)
    val columns = call(snapshot, "schema").asInstanceOf[StructType].map(field => field.name -> field.dataType).toMap
    for (field <- files.schema; found <- columns.get(field.name) if !DataTypeUtils.sameType(found, field.dataType))
      throw new IllegalStateException(s"its column ${field.name} is ${found.sql} there, but the query reads ${field.dataType.sql}")
    val found = reading(snapshot)
    if (found.version.table != version.table) throw new IllegalStateException(s"the table there is ${found.version.table} now")
    missingFile(snapshot).foreach(file => throw new IllegalStateException(s"its data file $file does not exist any more"))
    found
  }

  private def reading(snapshot: AnyRef): TableReading = {
    val pinned = indexOf(snapshot)
    TableReading(
      TableVersion(path, call(snapshot, "tableId").toString, call(snapshot, "version").asInstanceOf[Long]),
      {
        case leaf @ LogicalRelation(own: HadoopFsRelation, _, _, _, _) => leaf.copy(relation = own.copy(location = pinned)(own.sparkSession))
        case other => other
      }
    )
  }

  /** Returns the index that reads exactly a snapshot. */
  private def indexOf(snapshot: AnyRef): FileIndex = {
    val values = index.productElementNames.zip(index.productIterator).map {
      case (Snapshot, _) => snapshot
      case (TimeTravel, _) => java.lang.Boolean.TRUE
      case (_, value) => value.asInstanceOf[AnyRef]
    }.toSeq
    val copy = index.getClass.getMethods.find(m => m.getName == "copy" && m.getParameterCount == values.size).get
    invoke(copy.invoke(index, values: _*)).asInstanceOf[FileIndex]
  }

  private def snapshotAt(version: Long): AnyRef = {
    val log = call(index, "deltaLog")
    // Delta has several methods of this name. One of them has default arguments.
    val defaults = log.getClass.getMethods.filter(_.getName.startsWith("getSnapshotAt$default$")).sortBy(_.getName)
    val method = log.getClass.getMethods.filter(m => m.getName == "getSnapshotAt" && m.getParameterCount == defaults.length + 1).minBy(_.getParameterCount)
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

  def unapply(leaf: LogicalPlan): Option[DeltaTable] = leaf match {
    case relation: LogicalRelation if !relation.isStreaming => relation.relation match {
        case files: HadoopFsRelation => files.location match {
            case index: FileIndex with Product if isNewest(index) && canBeFixed(index) => Some(new DeltaTable(files, index))
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
  private def canBeFixed(index: FileIndex with Product): Boolean =
    Seq(Snapshot, TimeTravel).forall(index.productElementNames.contains(_)) && Try(index.getClass.getMethod("getSnapshot")).isSuccess

  private def call(target: AnyRef, name: String): AnyRef = invoke(target.getClass.getMethod(name).invoke(target))

  private def invoke(call: => AnyRef): AnyRef =
    try call
    catch { case error: InvocationTargetException => throw error.getCause }
}
