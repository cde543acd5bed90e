package org.apache.spark.sql.execution.streaming.state.strandline

import java.io.DataOutputStream
import java.nio.channels.Channels

import scala.jdk.CollectionConverters._

import org.apache.arrow.vector.VectorSchemaRoot
import org.apache.arrow.vector.ipc.{ArrowStreamWriter, WriteChannel}
import org.apache.arrow.vector.ipc.message.MessageSerializer
import org.apache.spark.TaskContext
import org.apache.spark.api.python.{ChainedPythonFunctions, PythonEvalType}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.NamedExpression
import org.apache.spark.sql.connector.metric.CustomTaskMetric
import org.apache.spark.sql.connector.write.{DataWriter, DataWriterFactory, PhysicalWriteInfo, WriterCommitMessage}
import org.apache.spark.sql.execution.datasources.v2.python.{
  PythonBatchWriterFactory, PythonCustomMetric, PythonWriterCommitMessage
}
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.execution.python.ArrowPythonRunner
import org.apache.spark.sql.execution.streaming.sources.MicroBatchWrite
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types._

/**
 * Writes a batch to a sink in Python as Spark does, with the same Arrow batches, but fills them by [[SizedBatches]].
 *
 * @param kept Returns the query's factory of writers, which it may have kept from an earlier batch instead of making it.
 */
final class SinkWrite(write: MicroBatchWrite, kept: (=> DataWriterFactory) => DataWriterFactory)
    extends MicroBatchWrite(0, write.writeSupport) {
  override def toString: String = write.toString
  override def commit(messages: Array[WriterCommitMessage]): Unit = write.commit(messages)
  override def abort(messages: Array[WriterCommitMessage]): Unit = write.abort(messages)

  override def createBatchWriterFactory(info: PhysicalWriteInfo): DataWriterFactory =
    kept {
      writeSupport.createStreamingWriterFactory(info) match {
        case python: PythonBatchWriterFactory => new SinkWriterFactory(python)
        case other => throw new IllegalStateException(s"${other.getClass} does not write in Python")
      }
    }
}

private final class SinkWriterFactory(python: PythonBatchWriterFactory) extends DataWriterFactory {
  override def createWriter(partitionId: Int, taskId: Long): DataWriter[InternalRow] = new SinkWriter(python, partitionId)
}

/** Gives a task's rows to Python, and returns Python's message. */
private final class SinkWriter(python: PythonBatchWriterFactory, partition: Int) extends DataWriter[InternalRow] {
  private val metrics = PythonCustomMetric.pythonMetrics
  private var message: Option[PythonWriterCommitMessage] = None

  override def writeAll(records: java.util.Iterator[InternalRow]): Unit = {
    val found = SinkRunner(python, metrics).compute(Iterator(records.asScala), partition, TaskContext.get()).flatMap { batch =>
      val messages = batch.column(0).getChild(0)
      (0 until batch.numRows).map(messages.getBinary)
    }.toSeq
    if (found.size != 1)
      throw new IllegalStateException(s"the sink's writer in Python has returned ${found.size} messages instead of one")
    message = found.headOption.map(PythonWriterCommitMessage)
  }

  override def write(row: InternalRow): Unit =
    throw new UnsupportedOperationException("the sink takes all rows of a task at once")
  override def commit(): WriterCommitMessage = message.orNull
  override def abort(): Unit = ()
  override def close(): Unit = ()
  override def currentMetricsValues(): Array[CustomTaskMetric] =
    python.source.createPythonTaskMetrics(metrics.map { case (name, metric) => name -> metric.value })
}

private object SinkRunner {
  def apply(python: PythonBatchWriterFactory, metrics: Map[String, SQLMetric]): SinkRunner =
    new SinkRunner(python, ChainedPythonFunctions(Seq(python.source.createPythonFunction(python.pickledWriteFunc))), SQLConf.get,
      metrics)
}

/**
 * Sends rows to Python in Arrow batches of at most `maxRecordsPerBatch` rows, which end when they have reached
 * `maxBytesPerBatch`.
 */
private final class SinkRunner(python: PythonBatchWriterFactory, function: ChainedPythonFunctions, conf: SQLConf,
    metrics: Map[String, SQLMetric])
    extends ArrowPythonRunner(
      Seq(function -> NamedExpression.newExprId.id),
      PythonEvalType.SQL_MAP_ARROW_ITER_UDF,
      Array(Array(0)),
      // A later batch may have nulls where the first one had none: Spark plans a union without its empty sides.
      new StructType().add("struct", python.inputSchema.asNullable),
      conf.sessionLocalTimeZone,
      conf.arrowUseLargeVarTypes,
      ArrowPythonRunner.getPythonRunnerConfMap(conf),
      metrics,
      python.jobArtifactUUID,
      python.sessionUUID) {
  private val batches = new SizedBatches(python.inputSchema)
  private var rows: Iterator[InternalRow] = Iterator.empty

  override protected def writeNextBatchToArrowStream(
      root: VectorSchemaRoot,
      writer: ArrowStreamWriter,
      dataOut: DataOutputStream,
      input: Iterator[Iterator[InternalRow]]): Boolean = {
    if (!rows.hasNext && input.hasNext) rows = input.next()
    if (rows.hasNext) {
      val begin = dataOut.size()
      batches.fill(arrowWriter, rows, maxRecordsPerBatch, maxBytesPerBatch)
      arrowWriter.finish()
      val batch = unloader.getRecordBatch()
      try MessageSerializer.serialize(new WriteChannel(Channels.newChannel(dataOut)), batch)
      finally batch.close()
      arrowWriter.reset()
      pythonMetrics("pythonDataSent") += dataOut.size() - begin
      true
    } else {
      close()
      false
    }
  }
}
