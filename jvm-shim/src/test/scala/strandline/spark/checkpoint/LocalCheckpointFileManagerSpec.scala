package strandline.spark.checkpoint

import java.net.URI
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path => NioPath}
import java.nio.file.attribute.PosixFilePermissions
import java.util.concurrent.atomic.AtomicInteger

import scala.jdk.CollectionConverters._
import scala.util.Try

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileAlreadyExistsException, LocalFileSystem, Path, RawLocalFileSystem}
import org.apache.spark.sql.execution.streaming.checkpointing.{
  CheckpointFileManager, FileContextBasedCheckpointFileManager, FileSystemBasedCheckpointFileManager
}
import org.scalatest.funsuite.AnyFunSuite

/** A file system of another scheme than `file`, over local files. */
class ElsewhereFileSystem extends RawLocalFileSystem {
  override def getUri: URI = URI.create("elsewhere:///")
  override def getScheme: String = "elsewhere"
}

class LocalCheckpointFileManagerSpec extends AnyFunSuite {
  private val folder = Files.createTempDirectory("strandline-checkpoint")
  private val numbers = new AtomicInteger

  private def place(): NioPath = folder.resolve(numbers.incrementAndGet().toString).resolve("offsets")
  private def hadoop(settings: (String, String)*): Configuration = {
    val made = new Configuration(false)
    made.set("fs.file.impl", classOf[LocalFileSystem].getName)
    settings.foreach { case (key, value) => made.set(key, value) }
    made
  }

  private def manager(at: NioPath, settings: (String, String)*) =
    new LocalCheckpointFileManager(new Path(at.toUri), hadoop(settings: _*))
  private def write(files: CheckpointFileManager, at: NioPath, text: String, overwrite: Boolean = false): Unit = {
    val out = files.createAtomic(new Path(at.toUri), overwrite)
    out.write(text.getBytes(UTF_8))
    out.close()
  }
  private def read(files: CheckpointFileManager, at: NioPath): String = {
    val in = files.open(new Path(at.toUri))
    try new String(in.readAllBytes(), UTF_8)
    finally in.close()
  }
  private def names(at: NioPath): Set[String] = Files.list(at).iterator.asScala.map(_.getFileName.toString).toSet

  for (durable <- Seq("true", "false")) {
    test(s"a file has its name when it is closed, and leaves nothing else (durable: $durable)") {
      val at = place()
      val files = manager(at, LocalCheckpointFileManager.Durable -> durable)
      files.mkdirs(new Path(at.toUri))
      val out = files.createAtomic(new Path(at.resolve("7").toUri), overwriteIfPossible = false)
      out.write("seven".getBytes(UTF_8))
      out.flush()
      assert(!names(at).contains("7"))
      assert(names(at).forall(_.matches("""\.7\..*\.tmp""")))
      out.close()
      out.close()
      assert(names(at) == Set("7"))
      assert(read(files, at.resolve("7")) == "seven")
    }

    test(s"a cancelled file leaves nothing (durable: $durable)") {
      val at = place()
      val files = manager(at, LocalCheckpointFileManager.Durable -> durable)
      val out = files.createAtomic(new Path(at.resolve("7").toUri), overwriteIfPossible = false)
      out.write(1)
      out.cancel()
      out.close()
      assert(names(at).isEmpty)
    }
  }

  test("of many that create one file at once, one wins and the others are told, and the file is the winner's") {
    val at = place()
    val files = manager(at, LocalCheckpointFileManager.Durable -> "false")
    for (round <- 0 until 50) {
      val target = at.resolve(round.toString)
      val tries = new Array[Try[Unit]](8)
      val threads = tries.indices.map { i => new Thread(() => tries(i) = Try(write(files, target, s"writer $i"))) }
      threads.foreach(_.start())
      threads.foreach(_.join())
      val winners = tries.indices.filter(tries(_).isSuccess)
      assert(winners.size == 1)
      assert(tries.filter(_.isFailure).forall(_.failed.get.isInstanceOf[FileAlreadyExistsException]))
      assert(read(files, target) == s"writer ${winners.head}")
    }
    assert(names(at) == (0 until 50).map(_.toString).toSet)
  }

  test("a file is replaced where Spark wants it, also one of another manager with its checksum") {
    val at = place()
    val others = Seq(
      new FileSystemBasedCheckpointFileManager(new Path(at.toUri), hadoop()),
      new FileContextBasedCheckpointFileManager(new Path(at.toUri),
        hadoop("fs.AbstractFileSystem.file.impl" -> "org.apache.hadoop.fs.local.LocalFs")))
    val ours = manager(at)
    ours.mkdirs(new Path(at.toUri))
    for ((other, i) <- others.zipWithIndex) {
      val target = at.resolve(s"state$i")
      write(other, target, "theirs")
      write(ours, target, "ours", overwrite = true)
      assert(read(ours, target) == "ours")
      assert(read(other, target) == "ours") // a wrong checksum would fail here
      write(other, target, "theirs again", overwrite = true)
      assert(read(ours, target) == "theirs again")
      intercept[FileAlreadyExistsException](write(ours, target, "second"))
      assert(read(ours, target) == "theirs again")
    }
    ours.delete(new Path(at.toUri))
    assert(!ours.exists(new Path(at.toUri)))
    ours.delete(new Path(at.toUri))
  }

  test("files and folders have the permissions of Hadoop's umask") {
    val at = place()
    val files = manager(at, "fs.permissions.umask-mode" -> "077")
    write(files, at.resolve("7"), "seven")
    def of(file: NioPath) = PosixFilePermissions.toString(Files.getPosixFilePermissions(file))
    assert(of(at.resolve("7")) == "rw-------")
    assert(of(at) == "rwx------")
    assert(files.createCheckpointDirectory().toUri.getPath == at.toString)
    assert(files.isLocal)
    assert(files.list(new Path(at.toUri)).map(_.getPath.getName).toSeq == Seq("7"))
  }

  test("names with blanks, percents and other letters") {
    val at = place().resolve("a b%20ü")
    val files = manager(at)
    write(files, at.resolve("x y"), "text")
    assert(read(files, at.resolve("x y")) == "text")
    assert(names(at) == Set("x y"))
  }

  test("another file system gets the manager that Spark would choose") {
    val at = place()
    val conf = hadoop(
      "fs.elsewhere.impl" -> classOf[ElsewhereFileSystem].getName,
      "spark.sql.streaming.checkpointFileManagerClass" -> classOf[LocalCheckpointFileManager].getName)
    val path = new Path(s"elsewhere://$at")
    val files = CheckpointFileManager.create(path, conf).asInstanceOf[LocalCheckpointFileManager]
    assert(!files.isLocal || files.createCheckpointDirectory().toUri.getScheme == "elsewhere")
    val out = files.createAtomic(new Path(path, "7"), overwriteIfPossible = false)
    out.write("seven".getBytes(UTF_8))
    out.close()
    assert(Files.readString(at.resolve("7")) == "seven")
  }
}
