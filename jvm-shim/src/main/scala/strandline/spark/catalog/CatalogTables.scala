package strandline.spark.catalog

import org.apache.spark.sql.catalyst.TableIdentifier
import org.apache.spark.sql.catalyst.catalog.{CatalogTable, CatalogUtils}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.connector.catalog.{CatalogPlugin, Identifier}
import strandline.spark.plan.FrontierSource

/** The tables of the session catalog that are channels: `CREATE TABLE … USING strandline LOCATION '…'`. */
private[catalog] object CatalogTables {
  private val SessionCatalog = "spark_catalog"

  /** Returns a table of the session catalog by its name. */
  def find(session: SparkSession, name: Seq[String]): Option[CatalogTable] = {
    import session.sessionState.analyzer.CatalogAndIdentifier
    name match {
      case CatalogAndIdentifier(catalog, identifier) => find(session, catalog, identifier)
      case _ => None
    }
  }

  def find(session: SparkSession, catalog: CatalogPlugin, identifier: Identifier): Option[CatalogTable] =
    if (!catalog.name.equalsIgnoreCase(SessionCatalog) || identifier.namespace.length != 1) None
    else {
      val (tables, name) = (session.sessionState.catalog, TableIdentifier(identifier.name, identifier.namespace.headOption))
      Option.when(tables.tableExists(name))(tables.getTableMetadata(name))
    }

  def isOurs(table: CatalogTable): Boolean = table.provider.exists(_.equalsIgnoreCase(FrontierSource.Name))

  /** Returns the options of a table, with its location as `path`. */
  def options(table: CatalogTable): Map[String, String] =
    table.storage.properties ++ table.storage.locationUri.map("path" -> CatalogUtils.URIToString(_))
}
