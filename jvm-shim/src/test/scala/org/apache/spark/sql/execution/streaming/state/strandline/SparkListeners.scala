package org.apache.spark.sql.execution.streaming.state.strandline

import org.apache.spark.SparkContext

/** The listeners' queue, which is visible only inside Spark's package. */
object SparkListeners {

  /** Returns when the listeners have seen every event. */
  def drain(context: SparkContext): Unit = context.listenerBus.waitUntilEmpty()
}
