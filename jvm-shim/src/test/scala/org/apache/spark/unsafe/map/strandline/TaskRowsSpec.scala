package org.apache.spark.unsafe.map.strandline

import scala.collection.mutable
import scala.reflect.ClassTag
import scala.util.Random

import org.apache.spark.SparkEnv
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String
import strandline.spark.{Drawn, StreamSpec}

/** Rows in a task's memory, compared with a map of lists. */
class TaskRowsSpec extends StreamSpec {
  import TaskRowsSpec._

  private def inTask[T: ClassTag](body: () => T): T = spark.sparkContext.parallelize(Seq(1), 1).map(_ => body()).collect().head

  test("it has the rows of each key with their marks, as a map of lists has") {
    val seed = Drawn.seed
    val (found, expected) = inTask(() => played(seed))
    assert(found == expected, s"-Dstrandline.seed=$seed")
  }

  test("a key is there once it was added, and keys that do not fit are refused from then on") {
    val said = inTask(() => filled())
    val (fit, refused) = said.span(_._1.nonEmpty)
    assert(fit.nonEmpty && fit.forall(_ == (Some(false), Some(true))))
    assert(refused.nonEmpty && refused.forall(_ == (None, None)))
  }

  test("without pages it takes nothing") {
    assert(inTask(() => without()) == ((false, None, 0, 0)))
  }

  test("a negative number of pages is refused by name") {
    val wrong = intercept[Exception](withConf("spark.strandline.taskRows.pages" -> "-1")(()))
    assert(wrong.getMessage.contains("spark.strandline.taskRows.pages"))
  }
}

/** What runs in tasks. */
object TaskRowsSpec {
  private val keyOf = UnsafeProjection.create(Array[DataType](LongType, StringType))
  private val rowOf = UnsafeProjection.create(Array[DataType](LongType))

  private def key(k: Int, size: Int) = keyOf(InternalRow(k.toLong, UTF8String.fromString("k" * size)))

  /** Returns what the rows of a task said in a random run, and what a map of lists says. */
  private def played(seed: Long): (Seq[Any], Seq[Any]) = {
    val (rows, random) = (new TaskRows(4), new Random(seed))
    val model = mutable.Map.empty[Int, Seq[(Long, Boolean)]].withDefaultValue(Nil)
    val said = mutable.ArrayBuffer.empty[(Any, Any)]
    def read(entries: Iterator[TaskRows.Entry]) = entries.map(e => (e.row.getLong(0), e.isMarked)).toSeq.sorted
    for (_ <- 1 to 3000) {
      val (k, n) = (random.nextInt(40), random.nextInt(1000))
      def keyed = key(k, k % 7)
      random.nextInt(4) match {
        case 0 => said += read(rows.get(keyed, 1)) -> model(k).sorted
        case 1 =>
          rows.get(keyed, 1).filter(_.row.getLong(0) < n).foreach(_.mark())
          model(k) = model(k).map { case (value, isMarked) => (value, isMarked || value < n) }
        case _ =>
          said += rows.add(keyed, rowOf(InternalRow(n.toLong)), n % 5 == 0) -> true
          model(k) :+= ((n.toLong, n % 5 == 0))
      }
    }
    said += read(rows.all(1)) -> model.values.flatten.toSeq.sorted
    (said.map(_._1).toSeq, said.map(_._2).toSeq)
  }

  /** Adds more keys than fit, and then the same keys again. Returns both answers for each. */
  private def filled(): Seq[(Option[Boolean], Option[Boolean])] = {
    val (rows, size) = (new TaskRows(1), 100000)
    val keys = 0 until 2 * (SparkEnv.get.memoryManager.pageSizeBytes / size).toInt + 20
    keys.map(k => rows.addKey(key(k, size))).zip(keys.map(k => rows.addKey(key(k, size))))
  }

  private def without(): (Boolean, Option[Boolean], Int, Int) = {
    val rows = new TaskRows(0)
    (rows.add(key(1, 1), rowOf(InternalRow(2L))), rows.addKey(key(1, 1)), rows.get(key(1, 1), 1).size, rows.all(1).size)
  }
}
