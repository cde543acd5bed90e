package strandline.spark.progress

import scala.collection.mutable

import org.apache.spark.scheduler.{AccumulableInfo, SparkListenerTaskEnd}
import org.json4s._

/** What the tasks of one stage have done so far. Times are in milliseconds. The caller locks. */
private[progress] final class StageFigures(val stage: Int, val shuffle: Option[Int], val tasks: Int) {
  private final class Running(val launched: Long) {
    var (in, out) = (0L, 0L)
  }

  private val running = mutable.HashMap.empty[Long, Running]
  private var (done, spent, in, out) = (0, 0L, 0L, 0L)
  private var (first, last) = (Long.MaxValue, 0L)

  def started(task: Long, at: Long): Unit = {
    first = math.min(first, at)
    running(task) = new Running(at)
  }

  def ended(event: SparkListenerTaskEnd): Unit = {
    running.remove(event.taskInfo.taskId)
    last = math.max(last, event.taskInfo.finishTime)
    val metrics = event.taskMetrics
    if (event.taskInfo.successful && metrics != null) {
      done += 1
      spent += metrics.executorRunTime
      in += metrics.inputMetrics.recordsRead + metrics.shuffleReadMetrics.recordsRead
      out += metrics.shuffleWriteMetrics.recordsWritten + metrics.outputMetrics.recordsWritten
    }
  }

  /** What a running task has done so far, as its executor tells with each heartbeat. */
  def told(task: Long, values: Seq[AccumulableInfo]): Unit = running.get(task).foreach { each =>
    def sum(names: String*) =
      values.collect { case info if info.name.exists(names.contains) => info.update }.collect { case Some(n: Long) => n }.sum
    each.in = sum(StageFigures.InputRecords, StageFigures.ShuffleRecordsRead)
    each.out = sum(StageFigures.ShuffleRecordsWritten, StageFigures.OutputRecords)
  }

  def hasBegun: Boolean = first != Long.MaxValue

  def toJson(now: Long): JObject = JObject(
    "stage" -> JInt(stage),
    "tasks" -> JInt(tasks),
    "done" -> JInt(done),
    "active" -> JInt(running.size),
    "ms" -> JInt(spent),
    "activeMs" -> JInt(running.values.map(each => math.max(0L, now - each.launched)).sum),
    "in" -> JInt(in),
    "out" -> JInt(out),
    "activeIn" -> JInt(running.values.map(_.in).sum),
    "activeOut" -> JInt(running.values.map(_.out).sum),
    "first" -> (if (first == Long.MaxValue) JNull else JInt(first)),
    "last" -> JInt(if (running.isEmpty) last else now))
}

private object StageFigures {
  private val InputRecords = "internal.metrics.input.recordsRead"
  private val ShuffleRecordsRead = "internal.metrics.shuffle.read.recordsRead"
  private val ShuffleRecordsWritten = "internal.metrics.shuffle.write.recordsWritten"
  private val OutputRecords = "internal.metrics.output.recordsWritten"
}
