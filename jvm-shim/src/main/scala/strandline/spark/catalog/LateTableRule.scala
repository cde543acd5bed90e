package strandline.spark.catalog

import java.util.{Collections, HashMap}

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.connector.catalog.{CatalogPlugin, Identifier, Table}
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation
import org.apache.spark.sql.execution.datasources.v2.python.{PythonDataSourceV2, PythonTable}
import org.apache.spark.sql.execution.streaming.sources.WriteToMicroBatchDataSource
import org.apache.spark.sql.util.CaseInsensitiveStringMap
import strandline.spark.plan.FrontierSource

/**
 * Gives a channel that Spark has found in its catalog the location and the options of its table. [[TableNameRule]] has done so
 * before, except in sessions with Hive's catalog where the hint rules could not be set. There the columns are those that the
 * catalog has.
 */
final class LateTableRule(session: SparkSession) extends Rule[LogicalPlan] {

  override def apply(plan: LogicalPlan): LogicalPlan = plan.resolveOperators {
    case relation @ DataSourceV2Relation(table: PythonTable, _, Some(catalog), Some(identifier), options, _)
        if lacks(table, options) =>
      val (found, all) = located(table, catalog, identifier, options)
      relation.copy(table = found, options = all)
    case relation @ StreamingRelationV2(None, _, table: PythonTable, options, _, Some(catalog), Some(identifier), _, _)
        if lacks(table, options) =>
      val (found, all) = located(table, catalog, identifier, options)
      relation.copy(table = found, extraOptions = all)
  }

  private def lacks(table: Table, options: CaseInsensitiveStringMap): Boolean =
    FrontierSource.isOurs(table) && !options.containsKey("path")

  private def located(table: PythonTable, catalog: CatalogPlugin, identifier: Identifier, own: CaseInsensitiveStringMap)
      : (Table, CaseInsensitiveStringMap) = {
    val options = new HashMap[String, String]
    CatalogTables.find(session, catalog, identifier).foreach(CatalogTables.options(_).foreach { case (name, value) =>
      options.put(name, value)
    })
    options.putAll(own.asCaseSensitiveMap)
    val source = new PythonDataSourceV2 // the one of the catalog may have been made without a path
    source.setShortName(FrontierSource.Name)
    (source.getTable(table.schema, Array.empty, Collections.emptyMap[String, String]), new CaseInsensitiveStringMap(options))
  }
}

/** Gives a sink that `toTable` has found in the catalog the location and the options of its table. */
final class TableSinkRule(session: SparkSession) extends Rule[LogicalPlan] {

  override def apply(plan: LogicalPlan): LogicalPlan = plan.transform {
    case write @ WriteToMicroBatchDataSource(relation: DataSourceV2Relation, _, _, options, _, _)
        if FrontierSource.isOurs(relation.table) && !options.keysIterator.exists(_.equalsIgnoreCase("path")) =>
      val table = relation.catalog.zip(relation.identifier).flatMap { case (catalog, identifier) =>
        CatalogTables.find(session, catalog, identifier)
      }
      write.copy(writeOptions = table.fold(Map.empty[String, String])(CatalogTables.options) ++ options)
  }
}
