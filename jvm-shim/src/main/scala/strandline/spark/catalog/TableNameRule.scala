package strandline.spark.catalog

import org.apache.spark.sql.catalyst.analysis.{RelationTimeTravel, UnresolvedRelation, UnresolvedTableOrView}
import org.apache.spark.sql.catalyst.plans.logical._
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
 * injected rules run early enough. Sessions with Hive's catalog run them by [[strandline.spark.compat.HiveHintRules]].
 */
final class TableNameRule(session: SparkSession) extends Rule[LogicalPlan] {

  override def apply(plan: LogicalPlan): LogicalPlan = plan.resolveOperators {
    case relation: UnresolvedRelation => channel(relation, Map.empty).getOrElse(relation)
    case travel @ RelationTimeTravel(relation: UnresolvedRelation, None, Some(version)) =>
      channel(relation, Map("asOfVersion" -> version)).getOrElse(travel)
    case describe @ DescribeRelation(table: UnresolvedTableOrView, extended, output)
        if !extended || CatalogTables.find(session,
          table.multipartIdentifier).isEmpty => // DESCRIBE EXTENDED shows more of a table
      CatalogTables.channel(session, table.multipartIdentifier).fold[LogicalPlan](describe)(DescribeChannel(_, extended, output))
    case show @ ShowCreateTable(table: UnresolvedTableOrView, false, output) =>
      CatalogTables.table(session, table.multipartIdentifier).fold[LogicalPlan](show)(ShowCreateChannel(_, output))
    // Each read of a channel's table looks at the channel anew, so there is nothing to refresh.
    case refresh @ RefreshTable(table: UnresolvedTableOrView) =>
      CatalogTables.channel(session, table.multipartIdentifier).fold[LogicalPlan](refresh)(_ => LocalRelation())
  }

  private def channel(relation: UnresolvedRelation, more: Map[String, String]): Option[LogicalPlan] = {
    import scala.jdk.CollectionConverters._
    CatalogTables.named(session, relation.multipartIdentifier).map { case (name, options) =>
      // TableWriteRule knows the commands, but not a table that IDENTIFIER(...) names.
      if (relation.options.containsKey(UnresolvedRelation.REQUIRED_WRITE_PRIVILEGES))
        throw Errors.batchWriteUnsupported("This command")
      val all = CaseInsensitiveMap(options ++ relation.options.asCaseSensitiveMap.asScala ++ more)
      SubqueryAlias(name, UnresolvedDataSource(FrontierSource.Name, None, all, relation.isStreaming, Nil))
    }
  }
}
