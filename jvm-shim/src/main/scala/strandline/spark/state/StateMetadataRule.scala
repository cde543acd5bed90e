package strandline.spark.state

import java.util.{Collections, WeakHashMap}

import org.apache.hadoop.fs.Path
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.sql.execution.streaming.state.{OperatorStateMetadataV1, OperatorStateMetadataV2}
import strandline.spark.batch.BatchFrontiers
import strandline.spark.errors.Errors

/**
 * Stops a query whose checkpoint has a state without its metadata.
 *
 * If an operator has no metadata, Spark takes its state for a new one and writes metadata. Then nothing shows any more how the
 * keys of the existing state are encoded ([[StateLayout]]). Spark does this when it prepares the physical plan of a run's first
 * batch. So this rule checks before that, while Spark optimizes the batch's plan. It changes no plan.
 */
final case class StateMetadataRule(session: SparkSession) extends Rule[LogicalPlan] {
  import StateMetadataRule._

  override def apply(plan: LogicalPlan): LogicalPlan = {
    for (query <- BatchFrontiers.activeQuery(session) if seen.add(query)) {
      // Before the first batch no state can exist.
      if (query.getLatestExecutionContext().batchId > 0)
        for ((operator, folder) <- withoutMetadata(query, session) if BatchFrontiers.of(query).isDefined)
          throw Errors.stateMetadataInvalid(operator, folder.toString, "there is no metadata file")
    }
    plan
  }
}

private[spark] object StateMetadataRule {
  private val seen = Collections.synchronizedSet(Collections.newSetFromMap(new WeakHashMap[StreamExecution, java.lang.Boolean]))

  /** Returns the first operator that has state, in any partition, but no metadata. */
  private def withoutMetadata(query: StreamExecution, session: SparkSession): Option[(Long, Path)] = {
    val state = new Path(query.resolvedCheckpointRoot, "state")
    val files = CheckpointFileManager.create(state, session.sessionState.newHadoopConf())
    def numbered(folder: Path) =
      if (files.exists(folder)) files.list(folder).toSeq.map(_.getPath).filter(_.getName.forall(_.isDigit)) else Nil
    numbered(state).sortBy(_.getName.toLong).map(folder => folder.getName.toLong -> folder).find { case (_, folder) =>
      numbered(folder).nonEmpty && !files.exists(OperatorStateMetadataV1.metadataFilePath(folder)) &&
      numbered(OperatorStateMetadataV2.metadataDirPath(folder)).isEmpty
    }
  }
}
