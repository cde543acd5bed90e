package org.apache.spark.sql.execution.streaming.state.strandline

import java.io.DataOutput
import java.util.{HashMap => Settings, UUID}

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.io.{Text, WritableUtils}
import org.apache.spark.SparkContext
import org.apache.spark.broadcast.Broadcast
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.util.SerializableConfiguration

/**
 * Hadoop's configuration for tasks. It has more than a thousand settings, and Hadoop compresses the source of each setting when
 * it writes them. Spark does so for each stateful operator and each scan of each batch.
 */
object HadoopSettings {
  private val Kept = 16
  private var sent = List.empty[Sent]

  private final case class Sent(context: SparkContext, run: UUID, settings: Settings[String, String],
      broadcast: Broadcast[SerializableConfiguration]) {
    def isFor(session: SparkSession, other: UUID): Boolean = (context eq session.sparkContext) && run == other
  }

  /**
   * Returns the session's configuration, sent once for all batches and operators of a query's run that have the same settings.
   * Runs do not share it, because a state store writes the run's id into it.
   */
  private[strandline] def broadcast(session: SparkSession, run: UUID): Broadcast[SerializableConfiguration] = {
    val conf = session.sessionState.newHadoopConf()
    val settings = new Settings[String, String]
    conf.forEach(setting => settings.put(setting.getKey, setting.getValue))
    synchronized {
      val (same, others) =
        sent.filterNot(_.context.isStopped).partition(each => each.isFor(session, run) && each.settings == settings)
      val found = same.headOption.getOrElse(Sent(session.sparkContext, run, settings,
          SerializableConfiguration.broadcast(session.sparkContext, compact(conf))))
      sent = (found :: others).take(Kept)
      found.broadcast
    }
  }

  /** Returns a copy that is written without the sources of its settings. Only messages for people would show them. */
  def compact(conf: Configuration): Configuration = new CompactConfiguration(conf)

  private final class CompactConfiguration(conf: Configuration) extends Configuration(conf) {

    /** The format is that of `Configuration.readFields`. */
    override def write(out: DataOutput): Unit = {
      val settings = new Settings[String, String]
      forEach(setting => settings.put(setting.getKey, setting.getValue))
      WritableUtils.writeVInt(out, settings.size)
      settings.forEach { (name, value) =>
        Text.writeString(out, name)
        Text.writeString(out, value)
        WritableUtils.writeCompressedStringArray(out, null)
      }
    }
  }
}
