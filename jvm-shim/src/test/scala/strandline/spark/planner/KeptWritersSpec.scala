package strandline.spark.planner

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.write.{DataWriter, DataWriterFactory}
import org.apache.spark.sql.execution.streaming.runtime.{StreamExecution, StreamingQueryWrapper}
import org.apache.spark.sql.streaming.Trigger
import strandline.spark.StreamSpec

class KeptWritersSpec extends StreamSpec {
  private final class Factory extends DataWriterFactory {
    override def createWriter(partitionId: Int, taskId: Long): DataWriter[InternalRow] = throw new UnsupportedOperationException
  }

  /** Runs a query whose sink has these options, and gives it to `body`. */
  private def ran[A](options: (String, String)*)(body: StreamExecution => A): A = {
    val query = read(script("int64")).writeStream.format("noop").options(options.toMap)
      .option("checkpointLocation", tempDir()).trigger(Trigger.AvailableNow).start()
    query.awaitTermination()
    body(query.asInstanceOf[StreamingQueryWrapper].streamingQuery)
  }

  test("the writers of a sink with a path are made once a run") {
    val first = ran("path" -> "a") { query =>
      val made = KeptWriters.of(query, new Factory)
      assert(KeptWriters.of(query, fail("made again")) eq made)
      made
    }
    assert(ran("path" -> "a")(KeptWriters.of(_, new Factory)) ne first)
  }

  test("the writers of an ingest, and of a table by name, are made in each batch") {
    for (options <- Seq(Seq("path" -> "a", "Policy" -> "ordered"), Nil)) ran(options: _*) { query =>
      assert(KeptWriters.of(query, new Factory) ne KeptWriters.of(query, new Factory))
    }
  }
}
