package strandline.spark.state

import java.util.UUID

import scala.util.control.NonFatal

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.types.DataTypeUtils.fromAttributes
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperatorStateInfo
import org.apache.spark.sql.execution.streaming.state.{
  KeyStateEncoderSpec, NoPrefixKeyStateEncoderSpec, OperatorStateMetadata, OperatorStateMetadataReader,
  OperatorStateMetadataUtils, OperatorStateMetadataV1, PrefixKeyScanStateEncoderSpec
}
import org.apache.spark.sql.types.StructType
import strandline.spark.errors.{Errors, StrandlineDataException}
import strandline.spark.state.cache.LruCache
import strandline.spark.time.TimeColumn

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
   * prefix: then Spark's own look at every key is what is left. A state that is not there yet is begun with the prefix if it `mayBegin`.
   *
   * A state that was begun with a prefix, of an operator whose keys have no times any more, cannot be read so: the query stops.
   */
  def of(keys: Seq[Attribute], info: StatefulOperatorStateInfo, hadoop: Configuration, mayBegin: Boolean = true): Option[StateLayout] = {
    val layout = byTimes(keys)
    val wanted = layout.fold(0)(_.prefix)
    val found = OperatorMetadata.prefix(info, wanted, mayBegin || layout.isEmpty, hadoop)
    layout.filter(_ => found == wanted)
  }

  /** The layout of an operator of our own, whose state no one begins otherwise. */
  def ofMarked(keys: Seq[Attribute], info: StatefulOperatorStateInfo, hadoop: Configuration): StateLayout = {
    val layout = byTimes(keys).getOrElse(throw new IllegalStateException(s"The times of ${keys.mkString(", ")} do not come first."))
    val found = OperatorMetadata.prefix(info, layout.prefix, mayBegin = true, hadoop)
    if (found != layout.prefix) throw OperatorMetadata.otherPrefix(info, found, layout.prefix.toString)
    layout
  }

  private def byTimes(keys: Seq[Attribute]): Option[StateLayout] = {
    val times = keys.takeWhile(TimeColumn.of(_).isDefined).length
    Option.unless(times == 0 || keys.drop(times).exists(TimeColumn.of(_).isDefined))(StateLayout(fromAttributes(keys), times))
  }
}

/**
 * What a checkpoint says of an operator's state: Spark writes it before the first batch, we add the prefix.
 *
 * It alone says how the keys are encoded, and RocksDB would read keys of another encoding as if they were others. So where it says
 * nothing, or what cannot be, the query stops; that it is there has been seen before Spark would write another ([[StateMetadataRule]]).
 */
private object OperatorMetadata {
  private val known = new LruCache[(UUID, Long), Int]

  /** The number of prefix columns of the operator's state: none, or those `wanted`. Looked up once a run, or a little more often. */
  def prefix(info: StatefulOperatorStateInfo, wanted: Int, mayBegin: Boolean, hadoop: Configuration): Int =
    known.get((info.queryRunId, info.operatorId))(settle(info, wanted, mayBegin, hadoop))

  def otherPrefix(info: StatefulOperatorStateInfo, found: Int, wanted: String): StrandlineDataException =
    invalid(info, s"by its metadata file $found columns of its keys are their prefix, where there should be $wanted")

  private def settle(info: StatefulOperatorStateInfo, wanted: Int, mayBegin: Boolean, hadoop: Configuration): Int = {
    val folder = folderOf(info)
    val stated =
      try OperatorStateMetadataReader.createReader(folder, hadoop, 1, info.storeVersion).read()
      catch { case NonFatal(error) => throw invalid(info, s"its metadata file cannot be read (${error.toString.linesIterator.next().take(200)})") }
    stated match {
      case Some(OperatorStateMetadataV1(operator, Array(store))) =>
        if (info.storeVersion == 0 && mayBegin && store.numColsPrefixKey != wanted) {
          write(folder, OperatorStateMetadataV1(operator, Array(store.copy(numColsPrefixKey = wanted))), hadoop)
          wanted
        } else if (store.numColsPrefixKey == wanted || store.numColsPrefixKey == 0) store.numColsPrefixKey
        else throw otherPrefix(info, store.numColsPrefixKey, if (wanted == 0) "none" else s"$wanted or none")
      case other => throw invalid(info, s"its metadata file is not that of such an operator: ${other.mkString}")
    }
  }

  private def folderOf(info: StatefulOperatorStateInfo) = new Path(info.checkpointLocation, info.operatorId.toString)

  private def invalid(info: StatefulOperatorStateInfo, why: String) = Errors.stateMetadataInvalid(info.operatorId, folderOf(info).toString, why)

  private def write(folder: Path, metadata: OperatorStateMetadata, hadoop: Configuration): Unit = {
    val file = OperatorStateMetadataV1.metadataFilePath(folder)
    val out = CheckpointFileManager.create(folder, hadoop).createAtomic(file, overwriteIfPossible = true)
    OperatorStateMetadataUtils.writeMetadata(out, metadata, file)
  }
}
