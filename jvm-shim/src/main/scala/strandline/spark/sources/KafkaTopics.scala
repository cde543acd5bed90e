package strandline.spark.sources

import java.lang.reflect.InvocationTargetException
import java.util.{Collection => JCollection, Map => JMap}
import java.util.concurrent.{ExecutionException, Future}

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.connector.read.streaming.SparkDataStream

/**
 * Asks a Kafka cluster for the ids of topics.
 *
 * Kafka's classes are Spark's package for Kafka, which a session has or has not, so they are called by reflection. The client is
 * the one by which Spark's source asks for offsets, with its configuration and its token. If the source asks with a consumer
 * (`spark.sql.streaming.kafka.useDeprecatedOffsetFetching`), a client is made and closed.
 */
private[sources] object KafkaTopics {
  private val Source = "org.apache.spark.sql.kafka010.KafkaMicroBatchStream"
  private val NoId = "AAAAAAAAAAAAAAAAAAAAAA" // of a broker that gives none (before Kafka 2.8)

  def isKafka(source: SparkDataStream): Boolean = source.getClass.getName == Source

  /** Returns the id of each topic that is there, and has one. */
  def idsOf(source: SparkDataStream, topics: Set[String]): Map[String, String] = {
    val reader = call(source, "kafkaOffsetReader")
    val own = if (has(reader, "admin")) None else Some(newClient(reader))
    try {
      val described =
        call(own.getOrElse(call(reader, "admin")), "describeTopics", classOf[JCollection[_]] -> topics.toSeq.sorted.asJava)
      call(described, "topicNameValues").asInstanceOf[JMap[String, Future[AnyRef]]].asScala.toMap.flatMap {
        case (topic, answer) =>
          try Some(topic -> call(answer.get(), "topicId").toString).filter(_._2 != NoId)
          catch {
            case error: ExecutionException if error.getCause.getClass.getSimpleName == "UnknownTopicOrPartitionException" => None
          }
      }
    } finally own.foreach(call(_, "close"))
  }

  private def newClient(reader: AnyRef): AnyRef = {
    val kind = Class.forName("org.apache.kafka.clients.admin.Admin", true, reader.getClass.getClassLoader)
    kind.getMethod("create", classOf[JMap[_, _]]).invoke(null, call(reader, "driverKafkaParams"))
  }

  private def has(of: AnyRef, method: String): Boolean =
    of.getClass.getMethods.exists(each => each.getName == method && each.getParameterCount == 0)

  /** Calls a method of an interface, or of a class of Spark's or Kafka's that is not public. */
  private def call(on: AnyRef, name: String, arguments: (Class[_], AnyRef)*): AnyRef = {
    val method = on.getClass.getMethod(name, arguments.map(_._1): _*)
    method.setAccessible(true)
    try method.invoke(on, arguments.map(_._2): _*)
    catch { case error: InvocationTargetException => throw error.getCause }
  }
}
