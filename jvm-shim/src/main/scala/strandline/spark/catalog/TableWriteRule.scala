package strandline.spark.catalog

import org.apache.spark.sql.catalyst.analysis.{ResolvedTable, UnresolvedRelation, UnresolvedTable}
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.datasources
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation
import strandline.spark.errors.Errors
import strandline.spark.plan.FrontierSource

/**
 * Refuses commands that would change a channel, or what the catalog knows of its columns. Only a producer may write a channel.
 *
 * It is a hint rule, which runs before Spark looks for the names, because Spark's own refusals differ by catalog and do not say
 * what to write instead. It is a resolution rule too, for sessions with Hive's catalog, which run no hint rules.
 */
final class TableWriteRule(session: SparkSession) extends Rule[LogicalPlan] {

  override def apply(plan: LogicalPlan): LogicalPlan = {
    plan.foreach {
      case insert: InsertIntoStatement => refuseRows("INSERT", insert.table)
      case write: V2WriteCommand => refuseRows("A batch (INSERT, df.write, writeTo)", write.table)
      case delete: DeleteFromTable => refuseRows("DELETE", delete.table)
      case update: UpdateTable => refuseRows("UPDATE", update.table)
      case merge: MergeIntoTable => refuseRows("MERGE", merge.targetTable)
      case truncate: TruncateTable => refuseRows("TRUNCATE TABLE", truncate.table)
      case create: CreateTableAsSelect if isOurs(create.tableSpec) => throw Errors.batchWriteUnsupported("CREATE TABLE AS SELECT (saveAsTable)")
      case replace: ReplaceTableAsSelect if isOurs(replace.tableSpec) => throw Errors.batchWriteUnsupported("REPLACE TABLE AS SELECT")
      // What saveAsTable makes of a table that the catalog leaves to Spark's first catalog, as Delta's does.
      case create: datasources.CreateTable if CatalogTables.isOurs(create.tableDesc) && create.query.isDefined =>
        throw Errors.batchWriteUnsupported("saveAsTable")
      // DataStreamWriter.toTable and Catalog.createTable give columns too, but not by a text.
      case create: CreateTable if isOurs(create.tableSpec) && create.columns.nonEmpty && create.origin.startIndex.isDefined =>
        throw Errors.tableColumnsUnsupported(s"CREATE TABLE declares the columns ${create.columns.map(_.name).mkString(", ")}")
      case replace: ReplaceTable if isOurs(replace.tableSpec) && replace.columns.nonEmpty =>
        throw Errors.tableColumnsUnsupported(s"REPLACE TABLE declares the columns ${replace.columns.map(_.name).mkString(", ")}")
      case change @ (_: AddColumns | _: ReplaceColumns | _: DropColumns | _: RenameColumn | _: AlterColumns) =>
        if (change.children.exists(isChannel)) throw Errors.tableColumnsUnsupported("ALTER TABLE would change columns of the catalog's table")
      case _ =>
    }
    plan
  }

  private def refuseRows(command: String, table: LogicalPlan): Unit = if (isChannel(table)) throw Errors.batchWriteUnsupported(command)

  private def isChannel(table: LogicalPlan): Boolean = table match {
    case SubqueryAlias(_, child) => isChannel(child)
    case relation: UnresolvedRelation => CatalogTables.channel(session, relation.multipartIdentifier).isDefined
    case table: UnresolvedTable => CatalogTables.channel(session, table.multipartIdentifier).isDefined
    case relation: DataSourceV2Relation => FrontierSource.isOurs(relation.table)
    case table: ResolvedTable => FrontierSource.isOurs(table.table)
    case source: UnresolvedDataSource => source.format.equalsIgnoreCase(FrontierSource.Name) // what TableNameRule has made
    case _ => false
  }

  private def isOurs(table: TableSpecBase): Boolean = table.provider.exists(_.equalsIgnoreCase(FrontierSource.Name))
}
