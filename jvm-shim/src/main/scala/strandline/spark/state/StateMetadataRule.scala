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
 * Spark writes the metadata of an operator that has none, as of a state that is not there yet; then no one can tell any more how the
 * keys of the state that is there are encoded ([[StateLayout]]). Spark does so when it prepares the physical plan of a run's first batch,
 * so this looks before, as the batch's plan is optimised. It changes no plan.
 */
final case class StateMetadataRule(session: SparkSession) extends Rule[LogicalPlan] {
  import StateMetadataRule._

  override def apply(plan: LogicalPlan): LogicalPlan = {
    for (query <- BatchFrontiers.activeQuery(session) if seen.add(query)) {
      // In the first batch of all there is nothing yet that could be encoded in some way.
      if (query.getLatestExecutionContext().batchId > 0)
        for ((operator, folder) <- withoutMetadata(query, session) if BatchFrontiers.of(query).isDefined)
          throw Errors.stateMetadataInvalid(operator, folder.toString, "there is no metadata file")
    }
    plan
  }
}

private[spark] object StateMetadataRule {
  private val seen = Collections.synchronizedSet(Collections.newSetFromMap(new WeakHashMap[StreamExecution, java.lang.Boolean]))

  /** The first operator that has state, in any partition, but no metadata. */
  private def withoutMetadata(query: StreamExecution, session: SparkSession): Option[(Long, Path)] = {
    val state = new Path(query.resolvedCheckpointRoot, "state")
    val files = CheckpointFileManager.create(state, session.sessionState.newHadoopConf())
    def numbered(folder: Path) = if (files.exists(folder)) files.list(folder).toSeq.map(_.getPath).filter(_.getName.forall(_.isDigit)) else Nil
    numbered(state).sortBy(_.getName.toLong).map(folder => folder.getName.toLong -> folder).find { case (_, folder) =>
      numbered(folder).nonEmpty && !files.exists(OperatorStateMetadataV1.metadataFilePath(folder)) &&
      numbered(OperatorStateMetadataV2.metadataDirPath(folder)).isEmpty
    }
  }
}
