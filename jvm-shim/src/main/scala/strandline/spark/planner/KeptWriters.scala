package strandline.spark.planner

import java.util.{Collections, WeakHashMap}

import org.apache.spark.sql.connector.write.DataWriterFactory
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.sql.execution.streaming.sources.WriteToMicroBatchDataSource

/**
 * Keeps what Python has made for the tasks of a query's sink. Spark asks Python for it in each batch, and waits for the answer.
 * The options are the same each time, and so are the columns, but for what may be null in them.
 *
 * An ingest needs another one in each batch, because it has what the partitions hold; so does a recording, because it has the
 * instant. The options of a table by name are in the catalog, so it may be an ingest too.
 */
private[spark] object KeptWriters {
  // An entry lives as long as its query, which is made anew for each run.
  private val kept = Collections.synchronizedMap(new WeakHashMap[StreamExecution, DataWriterFactory])

  /** Returns the kept writers of a query, and makes them if there are none. */
  def of(query: StreamExecution, make: => DataWriterFactory): DataWriterFactory =
    if (!isFixed(query)) make
    else Option(kept.get(query)).getOrElse {
      val made = make
      kept.put(query, made)
      made
    }

  private def isFixed(query: StreamExecution): Boolean = query.logicalPlan match {
    case write: WriteToMicroBatchDataSource =>
      def has(option: String) = write.writeOptions.keysIterator.exists(_.equalsIgnoreCase(option))
      has("path") && !has("policy") && !has("node")
    case _ => false
  }
}
