package strandline.spark.tables

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.json4s._

/** A version of a table. `table` is the id of the Delta table, so that a table that was made anew at its path is told from it. */
private[spark] final case class TableVersion(path: String, table: String, version: Long) {
  def toJson: JObject = JObject("path" -> JString(path), "table" -> JString(table), "version" -> JInt(version))
}

private[tables] object TableVersion {
  def fromJson(json: JValue): Option[TableVersion] = Seq("path", "table", "version").map(json \ _) match {
    case Seq(JString(path), JString(table), JInt(version)) if version.isValidLong && version >= 0 =>
      Some(TableVersion(path, table, version.toLong))
    case _ => None
  }
}

/** A table of a plan that is read as it is when the plan is executed. */
private[tables] trait VersionedTable {

  /** Equal for leaves of one plan that are the same read. */
  def key: Any

  /** Where the user reads it. */
  def path: String

  /** Returns the newest version. */
  def newest(): TableReading

  /** Returns the table at a version, which may be one of another table. Raises any error if that cannot be read. */
  def at(version: TableVersion): TableReading
}

/** A table at a version. `replace` returns a leaf of that table with its own columns, which reads this version. */
private[tables] final case class TableReading(version: TableVersion, replace: LogicalPlan => LogicalPlan)
