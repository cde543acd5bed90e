package org.apache.spark.api.python.strandline

/** The process of a Python worker, by what Spark gives of it. */
private[spark] object WorkerProcess {
  def of(handle: ProcessHandle): Option[ProcessHandle] = Some(handle)
}
