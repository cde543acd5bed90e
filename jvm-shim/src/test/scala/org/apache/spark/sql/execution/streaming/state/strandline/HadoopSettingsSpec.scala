package org.apache.spark.sql.execution.streaming.state.strandline

import java.io.{ByteArrayInputStream, ByteArrayOutputStream, DataInputStream, DataOutputStream}
import java.util.UUID

import scala.jdk.CollectionConverters._

import org.apache.hadoop.conf.Configuration
import org.apache.spark.sql.classic
import _root_.strandline.spark.StreamSpec

class HadoopSettingsSpec extends StreamSpec {
  private def session = spark.asInstanceOf[classic.SparkSession]
  private def settings(conf: Configuration): Map[String, String] =
    conf.iterator.asScala.map(each => each.getKey -> each.getValue).toMap

  private def written(conf: Configuration): Array[Byte] = {
    val bytes = new ByteArrayOutputStream
    conf.write(new DataOutputStream(bytes))
    bytes.toByteArray
  }

  test("a configuration without the sources of its settings is read as it was, and is smaller") {
    val conf = session.sessionState.newHadoopConf()
    conf.set("strandline.test", "<a> & ☃")
    val bytes = written(HadoopSettings.compact(conf))
    val read = new Configuration(false)
    read.readFields(new DataInputStream(new ByteArrayInputStream(bytes)))
    assert(settings(read) == settings(conf))
    assert(settings(conf).size > 100)
    assert(bytes.length < written(conf).length)
  }

  test("the batches of a run share a configuration until a setting changes, and runs do not") {
    val (run, other) = (UUID.randomUUID, UUID.randomUUID)
    val first = HadoopSettings.broadcast(session, run)
    assert(HadoopSettings.broadcast(session, run) eq first)
    assert(HadoopSettings.broadcast(session, other) ne first)
    assert(HadoopSettings.broadcast(session, other).value.value ne first.value.value)
    session.conf.set("strandline.test", "changed")
    try {
      val changed = HadoopSettings.broadcast(session, run)
      assert(changed.value.value.get("strandline.test") == "changed")
      assert(first.value.value.get("strandline.test") == null)
    } finally session.conf.unset("strandline.test")
  }
}
