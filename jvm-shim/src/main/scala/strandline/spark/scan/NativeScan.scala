package strandline.spark.scan

import java.net.URI

import scala.collection.immutable.ArraySeq
import scala.util.Try
import scala.util.control.NonFatal

import com.fasterxml.jackson.databind.{DeserializationFeature, ObjectMapper}
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileStatus, FileSystem, Path}

/**
 * What the Python source says of one batch: its files, and whether they may be read natively (`refused` says why not).
 *
 * `root` is a directory of the local file system, or a URL; `paths` are below it, and `sizes` are bytes as the channel's log has them.
 * `required` says that the user allows no other way, `ignoreMissingFiles` that a file which vanishes is passed over. `skipping`
 * knows what the log says of the columns that the query filters by. Columns, not objects: a batch may have very many files.
 */
private[spark] final case class NativeScan(
    root: String,
    paths: ArraySeq[String],
    sizes: ArraySeq[Long],
    refused: Option[String],
    ignoreMissingFiles: Boolean = false,
    required: Boolean = false,
    skipping: Option[FileSkipping] = None) {

  // Neither is parsed: a path may have any character in it.
  private lazy val at: String => Path = NativeScan.Url.findFirstMatchIn(root) match {
    case Some(url) => new Path(url.group(1), url.group(2), _)
    case None => new Path("file", null, _)
  }
  private lazy val plainly = at(s"$directory/x").toUri.toString.stripSuffix("x")
  private lazy val directory = NativeScan.Url.findFirstMatchIn(root).fold(root)(_.group(3))

  def rootPath: Path = at(if (directory.isEmpty) "/" else directory)

  /** Most names need no quoting, and then Hadoop's own way, which looks for what to quote, takes four times as long. */
  def path(file: Int): Path = {
    val name = paths(file)
    if (NativeScan.isPlain(name)) new Path(new URI(plainly + name)) else at(s"$directory/$name")
  }

  def status(file: Int): FileStatus = new FileStatus(sizes(file), false, 1, 0L, 0L, path(file))

  /** Why Hadoop does not find, at a URL, what the source has found there; none when it does, as far as one file can tell. */
  def unreachable(conf: Configuration): Option[String] = if (paths.isEmpty || !NativeScan.Url.matches(root)) None
  else {
    val first = path(0)
    try {
      val length = FileSystem.get(first.toUri, conf).getFileStatus(first).getLen
      if (length == sizes(0)) None else Some(s"Hadoop finds $first with $length bytes, and the log has ${sizes(0)}")
    } catch {
      case NonFatal(error) => Some(s"Hadoop does not reach $root (${error.toString.linesIterator.next().take(200)})")
    }
  }

  /** Rows as Python gives them, whatever the session says: no shift between calendars, nothing damaged passed over. */
  def readerOptions: Map[String, String] = Map(
    "datetimeRebaseMode" -> "CORRECTED",
    "int96RebaseMode" -> "CORRECTED",
    "ignoreCorruptFiles" -> "false",
    "ignoreMissingFiles" -> ignoreMissingFiles.toString
  )
}

private[spark] object NativeScan {
  private val mapper = new ObjectMapper().configure(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES, false)
  private val Url = "^([A-Za-z][A-Za-z0-9+.-]*)://([^/]*)(.*)$".r

  /** Reads a batch's partitions (docs/protocol.md), or none when they say nothing of a native scan. */
  def of(partitions: Seq[String]): Option[NativeScan] = {
    val parsed = partitions.map(text => Try(mapper.readValue(text, classOf[SourcePartition])).getOrElse(new SourcePartition))
    parsed.headOption.flatMap(first => Option(first.scan)).map { scan =>
      if (!scan.native) refusal(Option(scan.reason).getOrElse("the source gives no reason"))
      else if (scan.root == null || !parsed.forall(_.isWhole)) refusal("what the source says of its files cannot be read")
      else {
        val (paths, sizes) = files(parsed)
        NativeScan(scan.root, paths, sizes, None, scan.ignoreMissingFiles, scan.required, FileSkipping.of(scan.statistics, paths.length))
      }
    }
  }

  /** Whether a path is the same in a URI, and has nothing in it that a path might be shortened by. */
  private def isPlain(path: String): Boolean = path.nonEmpty && !path.contains("//") && !path.contains("./") && !path.endsWith("/") &&
    path.forall(c => (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || "-._=/".indexOf(c.toInt) >= 0)

  private def refusal(reason: String): NativeScan = NativeScan("", ArraySeq.empty, ArraySeq.empty, Some(reason))

  /** A file that several tasks would share is named by each; the JVM splits files by itself. */
  private def files(partitions: Seq[SourcePartition]): (ArraySeq[String], ArraySeq[Long]) = {
    val (paths, sizes) = (ArraySeq.newBuilder[String], ArraySeq.newBuilder[Long])
    for (partition <- partitions) {
      val again = Option(partition.shared).iterator.flatten.collect { case Array(index, part, _) if part > 0 => index }.toSet
      for (index <- partition.paths.indices if !again(index)) {
        paths += partition.paths(index)
        sizes += partition.sizes(index)
      }
    }
    (paths.result(), sizes.result())
  }
}
