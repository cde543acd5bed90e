package strandline.spark.catalog

import org.apache.spark.sql.catalyst.TableIdentifier
import org.apache.spark.sql.catalyst.analysis.{AnalysisContext, NoSuchNamespaceException, NoSuchTableException}
import org.apache.spark.sql.catalyst.catalog.{CatalogTable, CatalogUtils}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.connector.catalog.{CatalogPlugin, Identifier}
import org.apache.spark.sql.internal.SQLConf
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
      // A look whether it exists would be one more call to a metastore, for each name of any table.
      try Some(session.sessionState.catalog.getTableMetadata(TableIdentifier(identifier.name, identifier.namespace.headOption)))
      catch { case _: NoSuchTableException | _: NoSuchNamespaceException => None }
    }

  def isOurs(table: CatalogTable): Boolean = table.provider.exists(_.equalsIgnoreCase(FrontierSource.Name))

  /** Returns the options of a table, with its location as `path`. */
  def options(table: CatalogTable): Map[String, String] =
    table.storage.properties ++ table.storage.locationUri.map("path" -> CatalogUtils.URIToString(_))

  /** Returns the statement that creates a table of ours anew. Spark's setting for secrets hides the values of options. */
  def createStatement(table: CatalogTable): String = {
    val (path, others) = options(table).partition { case (name, _) => name.equalsIgnoreCase("path") }
    val named = SQLConf.get.redactOptions(others).toSeq.sorted.map { case (name, value) => s"${text(name)} ${text(value)}" }
    Seq(s"CREATE TABLE ${table.identifier.quotedString}", s"USING ${FrontierSource.Name}") ++
      Option.when(named.nonEmpty)(named.mkString("OPTIONS (", ", ", ")")) ++ path.values.map(p => s"LOCATION ${text(p)}") ++
      table.comment.map(comment => s"COMMENT ${text(comment)}")
  }.mkString("", "\n", "\n")

  private def text(value: String): String = s"'${value.replace("\\", "\\\\").replace("'", "\\'")}'"

  /**
   * Returns the options of the channel that a name in a query means: a table of ours, or strandline.`/lake/readings`. A temporary
   * view of the name comes first, as for any table.
   */
  def channel(session: SparkSession, name: Seq[String]): Option[Map[String, String]] = named(session, name).map(_._2)

  /** Returns the table of ours that a command names. A temporary view of the name comes first. */
  def table(session: SparkSession, name: Seq[String]): Option[CatalogTable] =
    if (isTempView(session, name)) None else find(session, name).filter(isOurs)

  /**
   * As [[channel]], with the name that columns are qualified by: the table's with its catalog and its database, as Spark's own.
   */
  def named(session: SparkSession, name: Seq[String]): Option[(Seq[String], Map[String, String])] =
    if (isTempView(session, name)) None
    else
      find(session, inView(name)) match {
        case Some(table) => Option.when(isOurs(table))((table.identifier.nameParts.init :+ name.last, options(table)))
        case None => Option.when(isPath(session, name))((name, Map("path" -> name.last)))
      }

  /**
   * Whether a name can only be a path. A catalog or a database of our name comes first, and other catalogs have names of their
   * own.
   */
  private def isPath(session: SparkSession, name: Seq[String]): Boolean =
    name.length == 2 && name.head.equalsIgnoreCase(FrontierSource.Name) && session.sessionState.conf.runSQLonFile && {
      val (catalogs, tables) = (session.sessionState.catalogManager, session.sessionState.catalog)
      catalogs.currentCatalog.name.equalsIgnoreCase(SessionCatalog) && !catalogs.isCatalogRegistered(
        name.head) && !tables.databaseExists(name.head)
    }

  /** Whether a name means a temporary view. In the text of a view it does so only if it did when the view was created. */
  private def isTempView(session: SparkSession, name: Seq[String]): Boolean = session.sessionState.catalog.isTempView(name) && {
    val context = AnalysisContext.get
    context.catalogAndNamespace.isEmpty || context.referredTempViewNames.exists(_.corresponds(name)(SQLConf.get.resolver))
  }

  /** A name in the text of a view is one of the catalog and the database that were current when the view was created. */
  private def inView(name: Seq[String]): Seq[String] = AnalysisContext.get.catalogAndNamespace match {
    case current if current.nonEmpty && name.length == 1 => current ++ name
    case _ => name
  }
}
