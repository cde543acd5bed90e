package strandline.spark.scan

import java.net.URI

import scala.collection.immutable.ArraySeq
import scala.util.Try
import scala.util.control.NonFatal

import com.fasterxml.jackson.databind.{DeserializationFeature, ObjectMapper}
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileStatus, FileSystem, Path}

/**
 * The source's description of one batch: its files, and whether the JVM may read them natively (`refused` says why not).
 *
 * `root` is a directory of the local file system, or a URL. `paths` are below it. `sizes` are bytes, from the channel's log.
 * `required`: the user allows no other way. `ignoreMissingFiles`: a missing file is skipped. `skipping` has the log's
 * statistics of the columns in the query's filters. These are columns, not objects, because a batch may have very many files.
 */
private[spark] final case class NativeScan(
    root: String,
    paths: ArraySeq[String],
    sizes: ArraySeq[Long],
    refused: Option[String],
    ignoreMissingFiles: Boolean = false,
    required: Boolean = false,
    skipping: Option[FileSkipping] = None) {

  // Neither is parsed, because a path may contain any character.
  private lazy val at: String => Path = NativeScan.Url.findFirstMatchIn(root) match {
    case Some(url) => new Path(url.group(1), url.group(2), _)
    case None => new Path("file", null, _)
  }
  private lazy val plainly = at(s"$directory/x").toUri.toString.stripSuffix("x")
  private lazy val directory = NativeScan.Url.findFirstMatchIn(root).fold(root)(_.group(3))

  def rootPath: Path = at(if (directory.isEmpty) "/" else directory)

  /**
   * Most names need no quoting. For these, Hadoop's own way takes four times as long, because it looks for characters to quote.
   */
  def path(file: Int): Path = {
    val name = paths(file)
    if (NativeScan.isPlain(name)) new Path(new URI(plainly + name)) else at(s"$directory/$name")
  }

  def status(file: Int): FileStatus = new FileStatus(sizes(file), false, 1, 0L, 0L, path(file))

  /** Returns why Hadoop does not find the source's files at a URL. None: it does, as far as the first file shows. */
  def unreachable(conf: Configuration): Option[String] = if (paths.isEmpty || !NativeScan.Url.matches(root)) None
  else {
    val first = path(0)
    try {
      val length = FileSystem.get(first.toUri, conf).getFileStatus(first).getLen
      if (length == sizes(0)) None else Some(s"Hadoop finds $first with $length bytes, but the log states ${sizes(0)}")
    } catch {
      case NonFatal(error) => Some(s"Hadoop does not reach $root (${error.toString.linesIterator.next().take(200)})")
    }
  }

  /**
   * Options that give the same rows as Python, whatever the session's settings: no shift between calendars, no damaged file
   * skipped.
   */
  def readerOptions: Map[String, String] = Map(
    "datetimeRebaseMode" -> "CORRECTED",
    "int96RebaseMode" -> "CORRECTED",
    "ignoreCorruptFiles" -> "false",
    "ignoreMissingFiles" -> ignoreMissingFiles.toString)
}

private[spark] object NativeScan {
  private val mapper = new ObjectMapper().configure(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES, false)
  private val Url = "^([A-Za-z][A-Za-z0-9+.-]*)://([^/]*)(.*)$".r

  /** Reads a batch's partitions (docs/protocol.md). Returns none if they do not mention a native scan. */
  def of(partitions: Seq[String]): Option[NativeScan] = described(partitions.map(parsed))

  /** Reads the partitions of a source of several channels: one for each channel. */
  def ofSeveral(partitions: Seq[String]): Map[String, ChannelScan] = partitions.flatMap { text =>
    for {
      scan <- of(Seq(text))
      channel <- SeveralScan.channel(scan, mapper.readTree(text))
    } yield channel.channel -> channel
  }.toMap

  private def parsed(text: String) = Try(mapper.readValue(text, classOf[SourcePartition])).getOrElse(new SourcePartition)

  private def described(parsed: Seq[SourcePartition]): Option[NativeScan] =
    parsed.headOption.flatMap(first => Option(first.scan)).map { scan =>
      if (!scan.native) refusal(Option(scan.reason).getOrElse("the source gives no reason"))
      else if (scan.root == null || !parsed.forall(_.isWhole)) refusal("the source's description of its files cannot be read")
      else {
        val (paths, sizes) = files(parsed)
        NativeScan(scan.root, paths, sizes, None, scan.ignoreMissingFiles, scan.required,
          FileSkipping.of(scan.statistics, paths.length))
      }
    }

  /** Whether a path is the same in a URI, and has no part that Hadoop would normalise. */
  private def isPlain(
      path: String): Boolean = path.nonEmpty && !path.contains("//") && !path.contains("./") && !path.endsWith("/") &&
    path.forall(c => (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || "-._=/".indexOf(c.toInt) >= 0)

  private def refusal(reason: String): NativeScan = NativeScan("", ArraySeq.empty, ArraySeq.empty, Some(reason))

  /** If several tasks share a file, each partition names it. It is taken once, because the JVM splits files itself. */
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
