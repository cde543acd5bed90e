package strandline.spark.scan

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.logical.{Filter, LogicalPlan}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable
import org.apache.spark.sql.types.{Metadata, MetadataBuilder}
import strandline.spark.plan.{ExtensionOption, FrontierSource}
import strandline.spark.time.{Antichain, ClosedBy, Json, Scalar, TimeColumn}

/**
 * Leaves out the rows of a source at times that its option `startingFrontier` closes.
 *
 * The source gives the frontier in the metadata of its time column. By an option it learns that the plan has the filter.
 */
object SinceRule extends Rule[LogicalPlan] {
  private val Asked = "startingFrontier"
  private val Key = ExtensionOption.Since // also the key of the metadata

  override def apply(plan: LogicalPlan): LogicalPlan = plan.resolveOperators {
    case relation @ StreamingRelationV2(_, _, table: PythonTable, options, output, _, _, _, _)
        if FrontierSource.isOurs(table) && options.containsKey(Asked) && !options.containsKey(Key) =>
      output.find(_.metadata.contains(Key)).fold[LogicalPlan](relation) { time =>
        val condition = isSince(time, frontierOf(time.metadata))
        val marked = ExtensionOption.add(relation, table, Key, options.get(Asked))
        Filter(condition, marked.copy(output = output.map(withoutKey)))
      }
  }

  private def frontierOf(metadata: Metadata): Antichain = {
    val domain = TimeColumn.of(metadata).map(_.domain)
    val json = Json.parse(metadata.getString(Key))
    domain.zip(json).flatMap { case (domain, json) => Antichain.fromJson(domain, json).toOption }.getOrElse(
      throw new IllegalStateException(s"a source's metadata has no frontier: ${metadata.getString(Key)}"))
  }

  /** Whether the frontier has not closed a time. The scan skips files by a comparison. A null is the guard's to find. */
  private def isSince(time: Attribute, frontier: Antichain): Expression = (frontier.domain, frontier.elements) match {
    case _ if frontier == Antichain.least(frontier.domain) => Literal.TrueLiteral
    case (domain: Scalar, Array(least)) =>
      Or(IsNull(time), GreaterThanOrEqual(time, Literal(domain.value(least, 0), domain.dataType)))
    case _ => Not(ClosedBy(time, frontier))
  }

  private def withoutKey(a: AttributeReference): AttributeReference =
    if (a.metadata.contains(Key))
      a.withMetadata(new MetadataBuilder().withMetadata(a.metadata).remove(Key).build()).asInstanceOf[AttributeReference]
    else a
}
