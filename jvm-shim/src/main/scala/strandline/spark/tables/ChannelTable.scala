package strandline.spark.tables

import java.util.{Collections, HashMap}

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation
import org.apache.spark.sql.execution.datasources.v2.python.{PythonDataSourceV2, PythonInputPartition, PythonTable}
import org.apache.spark.sql.util.CaseInsensitiveStringMap
import org.json4s._
import strandline.spark.compat.PythonPartition
import strandline.spark.errors.Errors
import strandline.spark.plan.FrontierSource
import strandline.spark.time.Json

/**
 * A channel that a plan reads as a table.
 *
 * Spark's table of a Python source keeps the partitions of its first read for its whole life, and a DataFrame keeps the table. So
 * each execution gets a table of its own. Spark refreshes only tables that state their version.
 */
private[tables] final class ChannelTable(of: PythonTable, options: CaseInsensitiveStringMap) extends VersionedTable {
  override def key: Any = (of, options) // a table of Spark's is equal only to itself

  override def path: String = Option(options.get("path")).getOrElse("")

  override def newest(): TableReading = read(options)

  override def at(version: TableVersion): TableReading = read(fixedAt(version.version))

  /** Reads the log of the channel, once. The tasks read the files that it had. */
  private def read(with_ : CaseInsensitiveStringMap): TableReading = {
    val source = new PythonDataSourceV2
    source.setShortName(of.name)
    val table = source.getTable(of.schema, Array.empty, Collections.emptyMap[String, String]).asInstanceOf[PythonTable]
    val version = versionOf(table, with_)
    val fixed = new PythonTableAtVersion(source, of)
    TableReading(version,
      { case leaf: DataSourceV2Relation => leaf.copy(table = fixed, options = fixedAt(version.version)); case other => other })
  }

  private def fixedAt(version: Long): CaseInsensitiveStringMap = {
    val all = new HashMap[String, String](options.asCaseSensitiveMap)
    all.put(ChannelTable.Fixed, version.toString)
    new CaseInsensitiveStringMap(all)
  }

  private def versionOf(table: PythonTable, with_ : CaseInsensitiveStringMap): TableVersion = {
    val first = table.newScanBuilder(with_).build().toBatch.planInputPartitions().headOption
    val fields =
      first.collect { case PythonInputPartition(_, pickled) => PythonPartition.json(pickled) }.flatten.flatMap(Json.parse)
    fields.map(each => (each \ "table", each \ "version")) match {
      case Some((JString(id), JInt(version))) => TableVersion(path, id, version.toLong)
      case _ => throw Errors.tableVersionUnknown(path)
    }
  }
}

/** The table of one execution, whose source has planned the partitions of one version. */
private[tables] final class PythonTableAtVersion(source: PythonDataSourceV2, of: PythonTable)
    extends PythonTable(source, of.name, of.schema)

private[tables] object ChannelTable {

  /** The option by which the user fixes the version, in all reads of a DataFrame. */
  private val Fixed = "asOfVersion"

  def unapply(leaf: LogicalPlan): Option[ChannelTable] = leaf match {
    case DataSourceV2Relation(_: PythonTableAtVersion, _, _, _, _, _) => None
    case DataSourceV2Relation(table: PythonTable, _, _, _, options, _)
        if FrontierSource.isOurs(table) && !options.containsKey(Fixed) =>
      Some(new ChannelTable(table, options))
    case _ => None
  }
}
