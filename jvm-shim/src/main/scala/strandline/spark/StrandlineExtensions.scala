package strandline.spark

import java.util.{Collections, WeakHashMap}

import org.apache.spark.SPARK_VERSION
import org.apache.spark.sql.{SparkSessionExtensions, SparkSessionExtensionsProvider}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.classic
import org.apache.spark.sql.execution.streaming.state.strandline.SparkInternals
import strandline.spark.catalog.{DescribeStrategy, LateTableRule, SinkCheckRule, TableNameRule, TableSinkRule, TableWriteRule}
import strandline.spark.compat.{BuildInfo, HiveHintRules, SparkLine, SparkReferences, StorageRedactionRule}
import strandline.spark.errors.{Errors, StrandlineException}
import strandline.spark.plan.{
  ExtensionOption, ExtensionOptionRule, ForkedSourceRule, LateExtensionOptionRule, PushThroughTimeTransform, TagRule,
  TimePrefixRule, TimeTransformStrategy
}
import strandline.spark.planner.{FrontierRule, LoopBodyRule}
import strandline.spark.scan.{NativeScanRule, SinceRule, UnconstrainedStrategy}
import strandline.spark.state.StateMetadataRule
import strandline.spark.tables.TableVersionRule
import strandline.spark.time.TransformTime

/**
 * The session extension. In queries that read a frontier, it makes Spark's stateful operators close by that frontier.
 *
 * It loads by itself if the jar is on the class path when the session starts (`META-INF/services`). Naming it in
 * `spark.sql.extensions` as well changes nothing.
 */
class StrandlineExtensions extends SparkSessionExtensionsProvider {
  override def apply(extensions: SparkSessionExtensions): Unit =
    if (StrandlineExtensions.isFirst(extensions)) install(extensions, SPARK_VERSION)

  // Spark only logs a warning if this method fails. So the rule reports a mismatch, and only to strandline streams.
  private[spark] def install(
      extensions: SparkSessionExtensions,
      running: String,
      missing: => Seq[SparkReferences.Reference] = SparkReferences.missing): Unit =
    if (SparkLine.of(running) != SparkLine.of(BuildInfo.sparkVersion))
      extensions.injectPostHocResolutionRule(_ => SparkCheckRule(() => Some(Errors.sparkVersionMismatch(running))))
    else {
      // The look for missing members takes some tenths of a second, so only a strandline stream triggers it. The rule runs
      // before our other rules, at two places, because a session with Hive's catalog may have no hint rules.
      def lacking = Option.when(missing.nonEmpty)(Errors.sparkInternalsMissing(running, missing.map(_.toString)))
      val hints = Seq[classic.SparkSession => Rule[LogicalPlan]](
        _ => SparkCheckRule(() => lacking),
        _ => StorageRedactionRule,
        new TableWriteRule(_),
        new TableNameRule(_),
        _ => ExtensionOptionRule,
        _ => SinkCheckRule)
      hints.foreach(rule => extensions.injectHintResolutionRule(session => rule(session.asInstanceOf[classic.SparkSession])))
      extensions.injectParser {
        case (session: classic.SparkSession, parser) if SparkInternals.hasHiveCatalog(session) =>
          new HiveHintRules(session, parser, hints)
        case (_, parser) => parser
      }
      extensions.injectResolutionRule(_ => SparkCheckRule(() => lacking))
      extensions.injectResolutionRule(_ => StorageRedactionRule)
      extensions.injectResolutionRule(session => new TableWriteRule(session.asInstanceOf[classic.SparkSession]))
      extensions.injectResolutionRule(session => new LateTableRule(session.asInstanceOf[classic.SparkSession]))
      extensions.injectResolutionRule(_ => LateExtensionOptionRule)
      extensions.injectResolutionRule(_ => SinceRule)
      extensions.injectResolutionRule(_ => ForkedSourceRule)
      extensions.injectPostHocResolutionRule(_ => TagRule)
      extensions.injectPostHocResolutionRule(_ => TimePrefixRule)
      extensions.injectPostHocResolutionRule(_ => LoopBodyRule)
      extensions.injectFunction(TransformTime.function)
      extensions.injectOptimizerRule(_ => PushThroughTimeTransform)
      extensions.injectOptimizerRule(session => TableVersionRule(session.asInstanceOf[classic.SparkSession]))
      extensions.injectOptimizerRule(session => new TableSinkRule(session.asInstanceOf[classic.SparkSession]))
      extensions.injectPlannerStrategy(_ => TimeTransformStrategy)
      extensions.injectPlannerStrategy(_ => UnconstrainedStrategy)
      extensions.injectPlannerStrategy(session => new DescribeStrategy(session.asInstanceOf[classic.SparkSession]))
      extensions.injectPreCBORule(session => StateMetadataRule(session.asInstanceOf[classic.SparkSession]))
      extensions.injectPreCBORule(session => NativeScanRule(session.asInstanceOf[classic.SparkSession]))
      extensions.injectColumnar(session => FrontierRule(session.asInstanceOf[classic.SparkSession]))
    }
}

private[spark] object StrandlineExtensions {
  private val installed = Collections.newSetFromMap(new WeakHashMap[SparkSessionExtensions, java.lang.Boolean])

  def isFirst(extensions: SparkSessionExtensions): Boolean = installed.synchronized(installed.add(extensions))
}

/** Refuses strandline streams on another Spark. Other queries are not affected. It uses no class that another line may lack. */
private[spark] final case class SparkCheckRule(error: () => Option[StrandlineException]) extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = {
    if (plan.exists(p => reads(p) || willRead(p))) error().foreach(throw _)
    plan
  }

  private def reads(p: LogicalPlan): Boolean =
    p.nodeName == "StreamingRelationV2" && p.resolved && p.output.exists(_.metadata.contains("strandline.time"))

  private def willRead(p: LogicalPlan): Boolean =
    p.nodeName == "UnresolvedDataSource" && p.isStreaming && p.productIterator.exists {
      case format: String => ExtensionOption.isOurs(format)
      case _ => false
    }
}
