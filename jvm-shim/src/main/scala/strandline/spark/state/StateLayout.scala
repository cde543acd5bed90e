package strandline.spark.state

import java.nio.charset.StandardCharsets.UTF_8
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
import org.apache.spark.sql.execution.streaming.state.strandline.StreamingInternals
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.StructType
import strandline.spark.errors.{Errors, StrandlineDataException}
import strandline.spark.state.cache.LruCache
import strandline.spark.time.TimeColumn

/**
 * The layout of an operator's keys in its state store. The first `times` columns of a key are times, by which its keys are
 * found.
 *
 * If other columns follow, the times are a prefix that the store can look up (`PrefixKeyScanStateEncoderSpec`, as for Spark's
 * session windows). A key of times only is looked up itself. The operator's metadata in the checkpoint states the prefix, so
 * that Spark's state reader (`format("statestore")`) can decode the keys. An existing checkpoint keeps its layout.
 */
final case class StateLayout(keySchema: StructType, times: Int) {

  /** The number of columns that the store looks up; 0 if it looks up the whole key. */
  def prefix: Int = if (times < keySchema.length) times else 0

  def encoder: KeyStateEncoderSpec =
    if (prefix > 0) PrefixKeyScanStateEncoderSpec(keySchema, prefix) else NoPrefixKeyStateEncoderSpec(keySchema)

  /** Returns the times of a key, in the bytes under which the store has them. The returned row is reused. */
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
   * Returns the layout of an operator with these keys. None: its times do not come first, or its state was begun without them
   * as prefix. Then the operator tests every key, as Spark's does. A state that does not exist yet begins with the prefix if
   * `mayBegin`.
   *
   * Throws if the state was begun with a prefix, but the operator's keys have no times any more.
   */
  def of(keys: Seq[Attribute], info: StatefulOperatorStateInfo, hadoop: Configuration, mayBegin: Boolean = true)
      : Option[StateLayout] = {
    val layout = byTimes(keys)
    val wanted = layout.fold(0)(_.prefix)
    val found = OperatorMetadata.prefix(info, wanted, mayBegin || layout.isEmpty, hadoop)
    layout.filter(_ => found == wanted)
  }

  /** Returns the layout of a marked operator. Its state always begins with the prefix. */
  def ofMarked(keys: Seq[Attribute], info: StatefulOperatorStateInfo, hadoop: Configuration): StateLayout = {
    val layout =
      byTimes(keys).getOrElse(throw new IllegalStateException(s"The times of ${keys.mkString(", ")} do not come first."))
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
 * The metadata of an operator's state in the checkpoint. Spark writes it before the first batch; this object adds the prefix.
 *
 * Only the metadata states how the keys are encoded, and RocksDB does not notice another encoding. So the query stops if the
 * metadata is missing or wrong. [[StateMetadataRule]] checks that it exists, before Spark would write it again.
 */
private object OperatorMetadata {
  private val known = new LruCache[(UUID, Long), Int]

  /** Returns the number of prefix columns of the operator's state: 0 or `wanted`. Usually read once in a run. */
  def prefix(info: StatefulOperatorStateInfo, wanted: Int, mayBegin: Boolean, hadoop: Configuration): Int =
    known.get((info.queryRunId, info.operatorId))(settle(info, wanted, mayBegin, hadoop))

  def otherPrefix(info: StatefulOperatorStateInfo, found: Int, wanted: String): StrandlineDataException =
    invalid(info, s"its metadata file states a prefix of $found key columns instead of $wanted")

  private def settle(info: StatefulOperatorStateInfo, wanted: Int, mayBegin: Boolean, hadoop: Configuration): Int = {
    val folder = folderOf(info)
    val stated =
      try OperatorStateMetadataReader.createReader(folder, hadoop, 1, info.storeVersion).read()
      catch {
        case NonFatal(error) =>
          throw invalid(info, s"its metadata file cannot be read (${error.toString.linesIterator.next().take(200)})")
      }
    val files = CheckpointFileManager.create(folder, hadoop)
    if (info.storeVersion == 0) unfinished(folder, files).foreach(files.delete)
    stated match {
      case Some(OperatorStateMetadataV1(_, Array(store)))
          if info.storeVersion > 0 && store.numColsPrefixKey == 0 && wasNotReplaced(folder, files) =>
        throw invalid(info,
          "an earlier release has encoded its keys with a prefix, and Spark kept a metadata file that states none")
      case Some(OperatorStateMetadataV1(operator, Array(store))) =>
        if (info.storeVersion == 0 && mayBegin && store.numColsPrefixKey != wanted) {
          write(folder, OperatorStateMetadataV1(operator, Array(store.copy(numColsPrefixKey = wanted))), files)
          wanted
        } else if (store.numColsPrefixKey == wanted || store.numColsPrefixKey == 0) store.numColsPrefixKey
        else throw otherPrefix(info, store.numColsPrefixKey, if (wanted == 0) "none" else s"$wanted or none")
      case other => throw invalid(info, s"its metadata file belongs to another kind of operator: ${other.mkString}")
    }
  }

  private def folderOf(info: StatefulOperatorStateInfo) = new Path(info.checkpointLocation, info.operatorId.toString)

  private def invalid(info: StatefulOperatorStateInfo, why: String) =
    Errors.stateMetadataInvalid(info.operatorId, folderOf(info).toString, why)

  /** Returns the temporary files that a manager leaves where it has replaced no file. */
  private def unfinished(folder: Path, files: CheckpointFileManager): Seq[Path] =
    files.list(OperatorStateMetadataV1.metadataFilePath(folder).getParent).toSeq.map(_.getPath).filter(
      _.getName.matches("""\.metadata\..*\.tmp"""))

  /**
   * Whether RocksDB would read the keys with another encoding than an earlier release has written them with.
   *
   * That release overwrote the metadata file. Where a rename replaces no file, Spark's manager kept the old file and left the new
   * one under its temporary name. Keys without RocksDB look the same in either encoding.
   */
  private def wasNotReplaced(folder: Path, files: CheckpointFileManager): Boolean =
    !StreamingInternals.countsRows(SQLConf.get.stateStoreProviderClass) && unfinished(folder, files).exists { file =>
      val in = files.open(file)
      try """"numColsPrefixKey":[1-9]""".r.findFirstIn(new String(in.readAllBytes(), UTF_8)).isDefined
      finally in.close()
    }

  /**
   * Replaces the file that Spark has written before its first batch.
   *
   * The old file is deleted first, because not every file system's rename replaces a file, and Spark's manager reports no error
   * if it does not. After a crash in between there is no file: the first batch begins again, and Spark writes another.
   */
  private def write(folder: Path, metadata: OperatorStateMetadata, files: CheckpointFileManager): Unit = {
    val file = OperatorStateMetadataV1.metadataFilePath(folder)
    files.delete(file)
    OperatorStateMetadataUtils.writeMetadata(files.createAtomic(file, overwriteIfPossible = false), metadata, file)
  }
}
