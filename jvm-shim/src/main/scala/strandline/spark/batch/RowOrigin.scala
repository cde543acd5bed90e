package strandline.spark.batch

import java.util.concurrent.ConcurrentHashMap

import scala.annotation.tailrec
import scala.jdk.CollectionConverters._
import scala.util.Try

import com.fasterxml.jackson.databind.ObjectMapper
import org.apache.spark.{Partition, TaskContext}
import org.apache.spark.paths.SparkPath
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution._
import org.apache.spark.sql.execution.datasources.v2.DataSourceRDDPartition
import org.apache.spark.sql.execution.datasources.v2.python.PythonStreamingInputPartition
import org.apache.spark.sql.execution.streaming.state.strandline.SparkInternals
import strandline.spark.compat.PythonPartition

/**
 * Where the current row was read, for messages: its file, or the files of the partition that Python reads for this task.
 *
 * Spark knows the file in its own scans. For a Python source this object remembers the partition while its task runs.
 */
private[spark] object RowOrigin {
  private val Shown = 8
  private val mapper = new ObjectMapper
  private val inHand = new ConcurrentHashMap[Long, Partition]

  /** Whether `plan` is the scan of a stream's source, whose rows have an origin. */
  @tailrec def isOf(plan: SparkPlan): Boolean = plan match {
    case scan: StreamSourceAwareSparkPlan => scan.getStream.isDefined
    case ColumnarToRowExec(child) => isOf(child)
    case InputAdapter(child) => isOf(child)
    case stage: WholeStageCodegenExec => isOf(stage.child)
    case _ => false
  }

  /** Returns the same rows, and remembers which task reads which partition. */
  def remember(rows: RDD[InternalRow]): RDD[InternalRow] = new RememberingRDD(rows)

  private final class RememberingRDD(rows: RDD[InternalRow]) extends RDD[InternalRow](rows) {
    override protected def getPartitions: Array[Partition] = firstParent[InternalRow].partitions

    override def compute(split: Partition, context: TaskContext): Iterator[InternalRow] = {
      if (inHand.put(context.taskAttemptId(), split) == null)
        context.addTaskCompletionListener[Unit](done => inHand.remove(done.taskAttemptId()))
      firstParent[InternalRow].iterator(split, context)
    }
  }

  /** Returns `file f`, or `one of the 3 files f, g, h`, or none if it is unknown. */
  def describe: Option[String] = {
    SparkInternals.inputFile.map(url => s"file ${Try(shown(SparkPath.fromUrlString(url))).getOrElse(url)}").orElse(
      Option(TaskContext.get()).flatMap(task => Option(inHand.get(task.taskAttemptId()))).map(filesOf).collect {
        case Seq(one) => s"file $one"
        case several if several.nonEmpty =>
          val more = if (several.size > Shown) ", …" else ""
          s"one of the ${several.size} files ${several.take(Shown).mkString(", ")}$more"
      })
  }

  private def shown(path: SparkPath): String = if (path.toUri.getScheme == "file") path.toUri.getPath else path.toPath.toString

  /** Returns the data files that a partition of the Python source names (docs/protocol.md). */
  private def filesOf(partition: Partition): Seq[String] = partition match {
    case source: DataSourceRDDPartition =>
      val texts = source.inputPartition.toSeq.collect { case PythonStreamingInputPartition(_, pickled, _) =>
        PythonPartition.json(pickled)
      }
      for {
        text <- texts.flatten
        path <- Try(mapper.readTree(text).path("paths").elements.asScala.toSeq).getOrElse(Nil)
      } yield path.asText
    case _ => Nil
  }
}
