package strandline.spark.catalog

import org.apache.spark.sql.catalyst.analysis.{
  ResolvedIdentifier, ResolvedTable, UnresolvedIdentifier, UnresolvedRelation, UnresolvedTable, UnresolvedTableOrView
}
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.datasources
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation
import org.apache.spark.sql.execution.streaming.state.strandline.SparkInternals
import strandline.spark.errors.Errors
import strandline.spark.plan.FrontierSource

/**
 * Refuses commands that would change a channel, or what the catalog knows of its columns. Only a producer may write a channel.
 *
 * It is a hint rule, which runs before Spark looks for the names, because Spark's own refusals differ by catalog and do not say
 * what to write instead. It is a resolution rule too, for views, which Spark resolves to the tables of their queries.
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
      case create: CreateTableAsSelect if isOurs(create.tableSpec) =>
        throw Errors.batchWriteUnsupported("CREATE TABLE AS SELECT (saveAsTable)")
      case replace: ReplaceTableAsSelect if isOurs(replace.tableSpec) =>
        throw Errors.batchWriteUnsupported("REPLACE TABLE AS SELECT")
      // The new table may have the channel's folder, whose files Spark then deletes.
      case replace: ReplaceTableAsSelect => refuseReplacing("REPLACE TABLE (mode overwrite)", replace.name)
      case replace: ReplaceTable if !isOurs(replace.tableSpec) => refuseReplacing("REPLACE TABLE", replace.name)
      // What saveAsTable makes of a table that the catalog leaves to Spark's first catalog, as Delta's does.
      case create: datasources.CreateTable if CatalogTables.isOurs(create.tableDesc) && create.query.isDefined =>
        throw Errors.batchWriteUnsupported("saveAsTable")
      // DataStreamWriter.toTable and Catalog.createTable give columns too, but not by a text.
      case create: CreateTable if isOurs(create.tableSpec) && create.columns.nonEmpty && create.origin.startIndex.isDefined =>
        throw Errors.tableColumnsUnsupported(s"CREATE TABLE declares the columns ${create.columns.map(_.name).mkString(", ")}")
      case replace: ReplaceTable if isOurs(replace.tableSpec) && replace.columns.nonEmpty =>
        throw Errors.tableColumnsUnsupported(s"REPLACE TABLE declares the columns ${replace.columns.map(_.name).mkString(", ")}")
      case like: CreateTableLike if like.provider.fold(isChannel(like.source))(_.equalsIgnoreCase(FrontierSource.Name)) =>
        throw Errors.tableColumnsUnsupported("CREATE TABLE LIKE copies the columns of another table")
      // Delta's parser makes commands of its own.
      case change: AlterTableCommand if change.nodeName.endsWith("Constraint") && isChannel(change.table) =>
        throw Errors.tableConstraintUnsupported()
      case add: AddCheckConstraint if add.child.children.exists(isChannel) =>
        throw Errors.tableConstraintUnsupported() // its child is a filter
      case change: AlterTableCommand if change.nodeName == "AlterTableDropFeature" && isChannel(change.table) =>
        throw Errors.tableFeatureUnsupported()
      case restore if restore.nodeName == "RestoreTableStatement" && restore.children.exists(isRestored) =>
        throw Errors.tableRestoreUnsupported()
      case change: SetTableSerDeProperties if isChannel(change.child) => throw Errors.tableSerdeUnsupported()
      case change @ (_: AddColumns | _: ReplaceColumns | _: DropColumns | _: RenameColumn | _: AlterColumns) =>
        if (change.children.exists(isChannel))
          throw Errors.tableColumnsUnsupported("ALTER TABLE would change columns of the catalog's table")
      case save =>
        // What saveAsTable makes of a table of another format. It drops the table that it finds before it plans the next one.
        SparkInternals.overwrittenTable(save).foreach(table =>
          refuseReplacing("saveAsTable with mode overwrite", UnresolvedIdentifier(table.nameParts)))
    }
    plan
  }

  private def refuseReplacing(command: String, name: LogicalPlan): Unit = {
    val table = name match {
      case UnresolvedIdentifier(parts, _) => CatalogTables.find(session, parts)
      case ResolvedIdentifier(catalog, identifier) => CatalogTables.find(session, catalog, identifier)
      case _ => None
    }
    table.filter(CatalogTables.isOurs).foreach { found =>
      throw Errors.tableReplaceUnsupported(command, found.identifier.unquotedString,
        CatalogTables.options(found).getOrElse("path", "no path"))
    }
  }

  private def refuseRows(command: String, table: LogicalPlan): Unit =
    if (isChannel(table)) throw Errors.batchWriteUnsupported(command)

  private def isChannel(table: LogicalPlan): Boolean = table match {
    case SubqueryAlias(_, child) => isChannel(child)
    case view: View =>
      view.exists { case relation: DataSourceV2Relation => FrontierSource.isOurs(relation.table); case _ => false }
    case view: Project => view.resolved && isChannel(view.child) // a view of a part of the columns
    case relation: UnresolvedRelation => CatalogTables.channel(session, relation.multipartIdentifier).isDefined
    case table: UnresolvedTableOrView => CatalogTables.channel(session, table.multipartIdentifier).isDefined
    case table: UnresolvedTable => CatalogTables.channel(session, table.multipartIdentifier).isDefined
    case relation: DataSourceV2Relation => FrontierSource.isOurs(relation.table)
    case table: ResolvedTable => FrontierSource.isOurs(table.table)
    case source: UnresolvedDataSource => source.format.equalsIgnoreCase(FrontierSource.Name) // what TableNameRule has made
    case _ => false
  }

  /** Whether Delta's RESTORE means a channel. It has the table in a leaf, with the version. */
  private def isRestored(travel: LogicalPlan): Boolean =
    travel.productIterator.exists { case table: LogicalPlan => isChannel(table); case _ => false }

  private def isOurs(table: TableSpecBase): Boolean = table.provider.exists(_.equalsIgnoreCase(FrontierSource.Name))
}
