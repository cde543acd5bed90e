package strandline.spark.checkpoint

import java.io.{FileNotFoundException, OutputStream}
import java.nio.channels.{Channels, FileChannel}
import java.nio.file.{FileAlreadyExistsException => NioFileAlreadyExistsException, _}
import java.nio.file.StandardCopyOption.ATOMIC_MOVE
import java.nio.file.StandardOpenOption.{CREATE_NEW, READ, WRITE}
import java.nio.file.attribute.{FileAttribute, PosixFilePermissions}
import java.util.UUID

import scala.jdk.CollectionConverters._
import scala.util.Try

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{
  FSDataInputStream, FileAlreadyExistsException, FileStatus, LocalFileSystem, Path => HadoopPath, PathFilter, RawLocalFileSystem
}
import org.apache.hadoop.fs.permission.FsPermission
import org.apache.spark.TaskContext
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.CancellableFSDataOutputStream

/**
 * Spark's checkpoint files on a local path, without a process for each of them. Other file systems get Spark's own manager.
 *
 * Hadoop's local file system starts `chmod` for each file that it creates, unless Hadoop's native library is installed. That was
 * half of a small batch. Here a file gets its permissions when it is created, with the same umask.
 *
 * A file is whole or absent, also after a kill or a loss of power: its content is synced before it gets its name, and then the
 * folder is synced (`spark.hadoop.strandline.checkpoint.durable`, default true). A name that exists is never replaced unless
 * Spark wants it, not even in a race: a hard link fails if it exists. Spark's own managers look first and rename then, and sync
 * nothing.
 */
class LocalCheckpointFileManager(path: HadoopPath, hadoop: Configuration) extends CheckpointFileManager {
  private val files: CheckpointFileManager = path.getFileSystem(hadoop) match {
    case local @ (_: LocalFileSystem | _: RawLocalFileSystem) if local.getUri.getScheme == "file" => new NioFiles(path, hadoop)
    case _ => LocalCheckpointFileManager.ofSpark(path, hadoop)
  }

  override def createAtomic(path: HadoopPath, overwriteIfPossible: Boolean): CancellableFSDataOutputStream =
    files.createAtomic(path, overwriteIfPossible)
  override def open(path: HadoopPath): FSDataInputStream = files.open(path)
  override def list(path: HadoopPath, filter: PathFilter): Array[FileStatus] = files.list(path, filter)
  override def mkdirs(path: HadoopPath): Unit = files.mkdirs(path)
  override def exists(path: HadoopPath): Boolean = files.exists(path)
  override def delete(path: HadoopPath): Unit = files.delete(path)
  override def isLocal: Boolean = files.isLocal
  override def createCheckpointDirectory(): HadoopPath = files.createCheckpointDirectory()
  override def close(): Unit = files.close()
}

object LocalCheckpointFileManager {
  val Durable = "strandline.checkpoint.durable"
  private val Setting = "spark.sql.streaming.checkpointFileManagerClass"

  /** Returns the manager that Spark would choose by itself. */
  private def ofSpark(path: HadoopPath, hadoop: Configuration): CheckpointFileManager = {
    val without = new Configuration(hadoop)
    without.unset(Setting)
    CheckpointFileManager.create(path, without)
  }
}

/** The files of one checkpoint by `java.nio`. What starts no process is left to Hadoop, which also checks its old checksums. */
private final class NioFiles(root: HadoopPath, hadoop: Configuration) extends CheckpointFileManager {
  private val fs = root.getFileSystem(hadoop)
  private val durable = hadoop.getBoolean(LocalCheckpointFileManager.Durable, true)
  private val umask = FsPermission.getUMask(hadoop)

  override def createAtomic(path: HadoopPath, overwriteIfPossible: Boolean): CancellableFSDataOutputStream = {
    val target = local(path)
    val task = Option(TaskContext.get()).fold("")(context => s".TID${context.taskAttemptId()}")
    val draft = target.resolveSibling(s".${target.getFileName}.${UUID.randomUUID}$task.tmp")
    new AtomicOutput(create(draft), draft, target, overwriteIfPossible)
  }

  override def open(path: HadoopPath): FSDataInputStream = fs.open(path)
  override def list(path: HadoopPath, filter: PathFilter): Array[FileStatus] = fs.listStatus(path, filter)
  override def exists(path: HadoopPath): Boolean = Files.exists(local(path))
  override def isLocal: Boolean = true

  override def delete(path: HadoopPath): Unit =
    try fs.delete(path, true)
    catch { case _: FileNotFoundException => } // it is deleted already

  override def mkdirs(path: HadoopPath): Unit = makeFolders(local(path))

  override def createCheckpointDirectory(): HadoopPath = {
    val qualified = fs.makeQualified(root)
    mkdirs(qualified)
    qualified
  }

  private def local(path: HadoopPath): Path = Paths.get(fs.makeQualified(path).toUri.getPath)

  /** Creates a file, and its folder if there is none, as Hadoop does. */
  private def create(file: Path): FileChannel = {
    def open() = FileChannel.open(file, Set[OpenOption](CREATE_NEW, WRITE).asJava, permissions(FsPermission.getFileDefault): _*)
    try open()
    catch {
      case _: NoSuchFileException =>
        makeFolders(file.getParent)
        open()
    }
  }

  private def makeFolders(folder: Path): Unit =
    if (!Files.isDirectory(folder)) {
      val missing = Iterator.iterate(folder)(_.getParent).takeWhile(each => each != null && !Files.exists(each)).toSeq
      Files.createDirectories(folder, permissions(FsPermission.getDirDefault): _*)
      missing.foreach(made => syncFolder(made.getParent))
    }

  private def permissions(wanted: FsPermission): Seq[FileAttribute[_]] =
    if (!FileSystems.getDefault.supportedFileAttributeViews.contains("posix")) Nil
    else Seq(PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString(wanted.applyUMask(umask).toString.take(9))))

  /** Syncs the names in a folder, where the file system can. */
  private def syncFolder(folder: Path): Unit =
    if (durable) Try(FileChannel.open(folder, READ)).foreach { channel =>
      try Try(channel.force(true))
      finally channel.close()
    }

  /** A file that gets its name when it is closed. */
  private final class AtomicOutput(channel: FileChannel, draft: Path, target: Path, overwrites: Boolean)
      extends CancellableFSDataOutputStream(new java.io.BufferedOutputStream(Channels.newOutputStream(channel), 1 << 16)) {
    private def content: OutputStream = underlyingStream
    private var ended = false

    override def close(): Unit = synchronized {
      if (!ended) {
        ended = true
        try {
          content.flush()
          if (durable) channel.force(true)
          channel.close()
          name()
          syncFolder(target.getParent)
        } finally {
          channel.close()
          Files.deleteIfExists(draft)
        }
      }
    }

    override def cancel(): Unit = synchronized {
      if (!ended) {
        ended = true
        Try(channel.close())
        Try(Files.deleteIfExists(draft))
      }
    }

    private def name(): Unit = {
      // Hadoop's local file system keeps checksums in such files, and would refuse the new content by the old checksum.
      val checksum = target.resolveSibling(s".${target.getFileName}.crc")
      if (overwrites) {
        Files.deleteIfExists(checksum)
        Files.move(draft, target, ATOMIC_MOVE)
      } else {
        try Files.createLink(target, draft)
        catch {
          case _: NioFileAlreadyExistsException => throw exists
          case _: UnsupportedOperationException | _: FileSystemException if !Files.exists(target) =>
            Files.move(draft, target, ATOMIC_MOVE) // no links here
          case _: FileSystemException => throw exists
        }
        Files.deleteIfExists(checksum)
      }
    }

    private def exists = new FileAlreadyExistsException(s"$target already exists, and is not replaced.")
  }
}
