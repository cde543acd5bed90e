package org.apache.spark.sql.execution.datasources.v2.python.strandline

import java.io._
import java.lang.reflect.Field
import java.nio.channels.{Channels, ClosedChannelException}
import java.util.HashMap

import scala.jdk.CollectionConverters._
import scala.util.Try
import scala.util.control.NonFatal

import org.apache.spark.SparkEnv
import org.apache.spark.api.python.{PythonFunction, PythonWorkerUtils, SimplePythonFunction, SpecialLengths}
import org.apache.spark.internal.config.BUFFER_SIZE
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2
import org.apache.spark.sql.connector.read.{Scan, ScanBuilder}
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream
import org.apache.spark.sql.errors.QueryCompilationErrors
import org.apache.spark.sql.execution.datasources.v2.python._
import org.apache.spark.sql.execution.python.streaming.PythonStreamingSourceRunner
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.sources.Filter
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap
import _root_.strandline.spark.errors.Errors

/** Spark's table of a Python source. The processes of its streams are forks of a daemon (see [[SourceDaemons]]). */
final class ForkedSource(source: PythonDataSourceV2, shortName: String, columns: StructType)
    extends PythonTable(source, shortName, columns) {

  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder =
    new PythonScanBuilder(source, shortName, columns, options) {
      override def build(): Scan = new ForkedScan(source, shortName, columns, options, pushedFilters())
    }
}

object ForkedSource {

  /** Starts the daemon of sources, if it is not there. It imports while Spark looks for the source. */
  def prepare(): Unit = SourceDaemons.prepare()

  /** Returns the relation with forked processes, if its source is one of Spark's Python sources. */
  def of(relation: StreamingRelationV2): LogicalPlan = relation.table match {
    case table: PythonTable if !table.isInstanceOf[ForkedSource] =>
      val source = relation.source.collect { case source: PythonDataSourceV2 => source }.getOrElse {
        val made = new PythonDataSourceV2 // the one that a catalog has made is private to its table
        made.setShortName(table.name)
        made
      }
      SourceDaemons.prepare()
      relation.copy(table = new ForkedSource(source, table.name, table.schema))
    case _ => relation
  }

  /**
   * Returns a function of a source, with an environment of its own. All queries share the source's: a plain hash map, to which
   * Spark's runner adds entries, and which every task carries. Two threads that add at once can break it.
   */
  private[strandline] def function(source: PythonDataSourceV2, command: Array[Byte]): PythonFunction =
    source.source.createPythonFunction(command) match {
      case simple: SimplePythonFunction => simple.copy(envVars = new HashMap(simple.envVars))
      case other => other
    }
}

private final class ForkedScan(
    source: PythonDataSourceV2,
    shortName: String,
    columns: StructType,
    options: CaseInsensitiveStringMap,
    filters: Array[Filter])
    extends PythonScan(source, shortName, columns, options, filters) {

  override def toMicroBatchStream(checkpointLocation: String): MicroBatchStream = {
    val created = source.getOrCreateDataSourceInPython(shortName, options, Some(columns))
    val runner = new ForkedSourceRunner(ForkedSource.function(source, created.dataSource), columns)
    runner.init()
    try {
      val supported = runner.checkSupportedFeatures()
      require(supported.triggerAvailableNow, "a strandline source has admission control and a trigger for what is available")
      new PythonMicroBatchStreamWithTriggerAvailableNow(source, shortName, columns, options, runner)
    } catch { case error: Throwable => runner.stop(); throw error }
  }
}

/** Spark's runner of a source, which asks a fork instead of a new process. Where no daemon starts, it is Spark's own. */
private final class ForkedSourceRunner(function: PythonFunction, columns: StructType)
    extends PythonStreamingSourceRunner(function, columns) {

  private var fork: Option[SourceDaemons.Fork] = None

  override def init(): Unit = {
    fork = if (ForkedSourceRunner.streams.isEmpty) None else SourceDaemons.fork(function)
    fork.fold(super.init()) { of =>
      try begin(of)
      catch { case error: Throwable => of.end(); throw error }
    }
  }

  override def stop(): Unit =
    try fork.fold(super.stop())(_.end())
    catch { case NonFatal(error) => logError("The process of a source could not be ended", error) }

  /** Tells the process what its source is, as Spark's runner does. */
  private def begin(of: SourceDaemons.Fork): Unit = {
    val size = SparkEnv.get.conf.get(BUFFER_SIZE)
    val out = new DataOutputStream(new BufferedOutputStream(new ToProcess(Channels.newOutputStream(of.worker.channel)), size))
    PythonWorkerUtils.writePythonVersion(function.pythonVer, out)
    PythonWorkerUtils.writeSparkFiles(Some("streaming_job"), function.pythonIncludes.asScala.toSet, out)
    PythonWorkerUtils.writePythonFunction(function, out)
    PythonWorkerUtils.writeUTF(columns.json, out)
    out.writeInt(SQLConf.get.arrowMaxRecordsPerBatch)
    out.flush()
    val in = new DataInputStream(new BufferedInputStream(new FromProcess(Channels.newInputStream(of.worker.channel)), size))
    if (in.readInt() == SpecialLengths.PYTHON_EXCEPTION_THROWN)
      throw QueryCompilationErrors.pythonDataSourceError(
        action = "plan",
        tpe = "initialize source",
        msg = PythonWorkerUtils.readUTF(in))
    ForkedSourceRunner.streams.foreach { case (output, input) =>
      output.set(this, out)
      input.set(this, in)
    }
  }
}

/** What a source's process says. Its end is an error with a name. */
private final class FromProcess(in: InputStream) extends FilterInputStream(in) {
  override def read(): Int = ended(super.read())

  override def read(bytes: Array[Byte], offset: Int, length: Int): Int = ended(super.read(bytes, offset, length))

  private def ended(read: => Int): Int = {
    val got = ForkedSourceRunner.named(read)
    if (got < 0) throw Errors.sourceProcessEnded(None)
    got
  }
}

/** What a source's process is told. */
private final class ToProcess(out: OutputStream) extends FilterOutputStream(out) {
  override def write(bytes: Array[Byte], offset: Int, length: Int): Unit =
    ForkedSourceRunner.named(out.write(bytes, offset, length))
}

private object ForkedSourceRunner {

  /** A query that is stopped closes the channel itself. */
  private[strandline] def named[T](body: => T): T =
    try body
    catch {
      case stopped: ClosedChannelException => throw stopped
      case error: IOException => throw Errors.sourceProcessEnded(Some(error))
    }

  /** The fields of Spark's runner with the streams by which it asks its process, if it has them. */
  private val streams: Option[(Field, Field)] =
    Try(Seq("dataOut", "dataIn").map(classOf[PythonStreamingSourceRunner].getDeclaredField)).toOption.map { fields =>
      fields.foreach(_.setAccessible(true))
      (fields.head, fields.last)
    }
}
