package strandline.spark

import java.util.UUID
import java.util.concurrent.ConcurrentHashMap

import scala.util.control.NonFatal

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.types.DataTypeUtils.fromAttributes
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperatorStateInfo
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.types.StructType

/**
 * How an operator's keys lie in its state store: the first `times` columns are times, and by them its keys are found.
 *
 * With other columns behind them they are the prefix that the store can look up (`PrefixKeyScanStateEncoderSpec`, as Spark's session
 * windows have it); a key that is nothing but times is looked up itself. The operator's metadata in the checkpoint says which it is,
 * so that Spark's reader of the state (`format("statestore")`) decodes it, and a checkpoint is gone on with as it was begun.
 */
final case class StateLayout(keySchema: StructType, times: Int) {

  /** How many columns the store looks up; 0 when the whole key is known. */
  def prefix: Int = if (times < keySchema.length) times else 0

  def encoder: KeyStateEncoderSpec =
    if (prefix > 0) PrefixKeyScanStateEncoderSpec(keySchema, prefix) else NoPrefixKeyStateEncoderSpec(keySchema)

  /** The times of a key, in the very bytes by which the store knows them; the row is used again for the next key. */
  def timesOf: UnsafeRow => UnsafeRow =
    if (prefix == 0) identity
    else {
      val columns = keySchema.take(times).zipWithIndex.map { case (f, i) => BoundReference(i, f.dataType, f.nullable) }
      val projection = UnsafeProjection.create(columns)
      projection(_)
    }
}

object StateLayout {

  /**
   * The layout of an operator with these keys, or none when its times do not come first, or when its state was begun without them as
   * prefix: then Spark's own look at every key is what is left.
   */
  def of(keys: Seq[Attribute], info: StatefulOperatorStateInfo, hadoop: Configuration): Option[StateLayout] = {
    val times = keys.takeWhile(TimeColumn.of(_).isDefined).length
    if (times == 0 || keys.drop(times).exists(TimeColumn.of(_).isDefined)) None
    else {
      val layout = StateLayout(fromAttributes(keys), times)
      Some(layout).filter(_.prefix == OperatorMetadata.prefix(info, layout.prefix, hadoop))
    }
  }
}

/** What a checkpoint says of an operator's state: Spark writes it before the first batch, we add the prefix. */
private object OperatorMetadata {
  private val known = new ConcurrentHashMap[(UUID, Long), Integer]

  /** The number of prefix columns of the operator's state; `wanted` where no batch has been written yet. Looked up once a run. */
  def prefix(info: StatefulOperatorStateInfo, wanted: Int, hadoop: Configuration): Int =
    known.computeIfAbsent((info.queryRunId, info.operatorId), _ => settle(info, wanted, hadoop))

  private def settle(info: StatefulOperatorStateInfo, wanted: Int, hadoop: Configuration): Integer = {
    val folder = new Path(info.checkpointLocation, info.operatorId.toString)
    val stated =
      try OperatorStateMetadataReader.createReader(folder, hadoop, 1, info.storeVersion).read()
      catch { case NonFatal(_) => None }
    stated match {
      case Some(OperatorStateMetadataV1(operator, Array(store))) if info.storeVersion == 0 && store.numColsPrefixKey != wanted =>
        write(folder, OperatorStateMetadataV1(operator, Array(store.copy(numColsPrefixKey = wanted))), hadoop)
        wanted
      case Some(metadata) => metadata.stateStoresMetadata.head.numColsPrefixKey
      case None => 0
    }
  }

  private def write(folder: Path, metadata: OperatorStateMetadata, hadoop: Configuration): Unit = {
    val file = OperatorStateMetadataV1.metadataFilePath(folder)
    val out = CheckpointFileManager.create(folder, hadoop).createAtomic(file, overwriteIfPossible = true)
    OperatorStateMetadataUtils.writeMetadata(out, metadata, file)
  }
}
