package org.apache.spark.api.python.strandline

import scala.jdk.OptionConverters._

import org.apache.spark.api.python.{LocalPythonWorkerHandle, PythonWorkerHandle}

/** The process of a Python worker, by what Spark gives of it. */
private[spark] object WorkerProcess {
  def of(handle: PythonWorkerHandle): Option[ProcessHandle] = handle match {
    case local: LocalPythonWorkerHandle => ProcessHandle.of(local.pid).toScala
    case _ => None
  }
}
