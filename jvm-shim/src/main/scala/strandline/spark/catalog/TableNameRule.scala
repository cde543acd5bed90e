package strandline.spark.catalog

import org.apache.spark.sql.catalyst.analysis.{AnalysisContext, RelationTimeTravel, UnresolvedRelation}
import org.apache.spark.sql.catalyst.plans.logical.{InsertIntoStatement, LogicalPlan, SubqueryAlias, UnresolvedDataSource, V2WriteCommand}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.util.CaseInsensitiveMap
import org.apache.spark.sql.classic.SparkSession
import strandline.spark.errors.Errors
import strandline.spark.plan.FrontierSource

/**
 * Reads a channel by the name of its table in the catalog, or by its path: `SELECT * FROM strandline.`/lake/flights``.
 *
 * Spark gives a Python source neither the location nor the options of its table, and refuses a Python source that is named with
 * a path. So this rule takes the place of Spark's, before Spark looks for the name. It is a hint rule, because only these
 * injected rules run early enough. For sessions with Hive's catalog, which run none, see [[LateTableRule]].
 */
final class TableNameRule(session: SparkSession) extends Rule[LogicalPlan] {

  override def apply(plan: LogicalPlan): LogicalPlan = plan.resolveOperators {
    case insert: InsertIntoStatement => refuse(insert, insert.table)
    case write: V2WriteCommand => refuse(write, write.table)
    case relation: UnresolvedRelation => channel(relation, Map.empty).getOrElse(relation)
    case travel @ RelationTimeTravel(relation: UnresolvedRelation, None, Some(version)) =>
      channel(relation, Map("asOfVersion" -> version)).getOrElse(travel)
  }

  /** Refuses a batch that is written into a channel. Some catalogs give Spark no table that could refuse it. */
  private def refuse(write: LogicalPlan, table: LogicalPlan): LogicalPlan = table match {
    case relation: UnresolvedRelation if channel(relation, Map.empty).isDefined => throw Errors.batchWriteUnsupported
    case _ => write
  }

  private def channel(relation: UnresolvedRelation, more: Map[String, String]): Option[LogicalPlan] = {
    val name = relation.multipartIdentifier
    if (session.sessionState.catalog.isTempView(name)) None
    else {
      val found = CatalogTables.find(session, inView(name)) match {
        case Some(table) => Option.when(CatalogTables.isOurs(table))(CatalogTables.options(table))
        case None => Option.when(isPath(name))(Map("path" -> name.last))
      }
      import scala.jdk.CollectionConverters._
      found.map { options =>
        val all = CaseInsensitiveMap(options ++ relation.options.asCaseSensitiveMap.asScala ++ more)
        SubqueryAlias(name, UnresolvedDataSource(FrontierSource.Name, None, all, relation.isStreaming, Nil))
      }
    }
  }

  /** A name in the text of a view is one of the catalog and the database that were current when the view was created. */
  private def inView(name: Seq[String]): Seq[String] = AnalysisContext.get.catalogAndNamespace match {
    case current if current.nonEmpty && name.length == 1 => current ++ name
    case _ => name
  }

  private def isPath(name: Seq[String]): Boolean =
    name.length == 2 && name.head.equalsIgnoreCase(FrontierSource.Name) && session.sessionState.conf.runSQLonFile
}
