package strandline.spark.plan

import java.util.{Collections, HashMap, Locale}

import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, UnresolvedDataSource}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2
import org.apache.spark.sql.catalyst.util.CaseInsensitiveMap
import org.apache.spark.sql.execution.datasources.v2.python.{PythonDataSourceV2, PythonTable}
import org.apache.spark.sql.execution.datasources.v2.python.strandline.ForkedSource
import org.apache.spark.sql.util.CaseInsensitiveStringMap
import strandline.spark.compat.BuildInfo

/** The option that tells a strandline source that its session has the extension. Its value is the shim's version. */
private[spark] object ExtensionOption {
  val Key = "strandline.extension"

  /** The option that tells a source that the plan leaves out the rows before its starting frontier. Nobody else may set it. */
  val Since = "strandline.since"

  def isOurs(format: String): Boolean = format.toLowerCase(Locale.ROOT).startsWith("strandline")

  /** Sets an option of a source that is resolved already. Spark creates the Python source again when the stream starts. */
  def add(relation: StreamingRelationV2, table: PythonTable, key: String, value: String): StreamingRelationV2 = {
    val source = new PythonDataSourceV2
    source.setShortName(table.name)
    val options = new HashMap[String, String](relation.extraOptions.asCaseSensitiveMap)
    options.put(key, value)
    relation.copy(
      source = Some(source),
      table = source.getTable(table.schema, Array.empty, Collections.emptyMap[String, String]),
      extraOptions = new CaseInsensitiveStringMap(options))
  }
}

/**
 * Sets the option before the source is resolved, because resolution creates the Python source and pickles it with its options.
 *
 * It is a hint rule, because only these injected rules run early enough. A session with Hive's catalog has
 * them when it has named a table; see [[LateExtensionOptionRule]].
 */
object ExtensionOptionRule extends Rule[LogicalPlan] {
  import ExtensionOption._

  override def apply(plan: LogicalPlan): LogicalPlan = plan.resolveOperators {
    case source: UnresolvedDataSource if source.isStreaming && isOurs(source.format) =>
      ForkedSource.prepare()
      source.copy(options = CaseInsensitiveMap(source.options - Since) + (Key -> BuildInfo.version))
  }
}

/**
 * Sets the option on a source that was resolved without it, as in a session with Hive's catalog (such as the `pyspark`
 * shell's).
 */
object LateExtensionOptionRule extends Rule[LogicalPlan] {
  import ExtensionOption._

  override def apply(plan: LogicalPlan): LogicalPlan = plan.resolveOperators {
    case relation @ StreamingRelationV2(_, name, table: PythonTable, options, _, _, _, _, _)
        if isOurs(name) && !options.containsKey(Key) =>
      val others = new HashMap[String, String](options.asCaseSensitiveMap)
      others.keySet.removeIf(_.equalsIgnoreCase(Since))
      add(relation.copy(extraOptions = new CaseInsensitiveStringMap(others)), table, Key, BuildInfo.version)
  }
}

/** Lets strandline streams start without a new Python process. */
object ForkedSourceRule extends Rule[LogicalPlan] {

  override def apply(plan: LogicalPlan): LogicalPlan = plan.resolveOperators {
    case relation: StreamingRelationV2 if FrontierSource.isOurs(relation.table) => ForkedSource.of(relation)
  }
}
