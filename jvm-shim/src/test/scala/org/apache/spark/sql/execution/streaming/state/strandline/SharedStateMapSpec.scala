package org.apache.spark.sql.execution.streaming.state.strandline

import java.util.concurrent.atomic.{AtomicBoolean, AtomicInteger}

import scala.ref.WeakReference
import scala.util.Random

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.types._
import org.scalatest.funsuite.AnyFunSuite

/** A map whose versions share rows is, version by version, what a map is whose versions are copied. */
class SharedStateMapSpec extends AnyFunSuite {
  private type Model = Map[(Long, Long), Long]
  private val keys = new StructType().add("time", LongType).add("k", LongType)
  private val seed = sys.props.get("strandline.seed").fold(System.nanoTime())(_.toLong)
  private val runs = sys.props.get("strandline.runs").fold(60)(_.toInt)

  private def row(values: Long*): UnsafeRow = UnsafeProjection.create(Array.fill[DataType](values.size)(LongType)).apply(InternalRow(values: _*)).copy()
  private def wrapped(value: Long): UnsafeRowWrapper = StateStoreRow(row(value))
  private def empty(prefix: Int): SharedStateMap = SharedStateMap.empty(keys, prefix, () => None)
  private def entry(pair: UnsafeRowPair) = (pair.key.getLong(0), pair.key.getLong(1)) -> pair.value.getLong(0)
  private def read(map: SharedStateMap): Model = map.iterator().map(entry).toMap

  private def check(map: SharedStateMap, model: Model, prefix: Int): Unit = {
    assert(read(map) == model)
    assert(map.size() == model.size)
    assert(map.entryIterator().map(e => (e.getKey.getLong(0), e.getKey.getLong(1)) -> e.getValue.unsafeRow().getLong(0)).toMap == model)
    val held = model.keys.toSeq.map { case (time, k) => row(time, k).getSizeInBytes + row(0).getSizeInBytes + 200L }.sum
    assert(map.estimatedSize == held)
    model.foreach { case ((time, k), value) => assert(map.get(row(time, k)).getLong(0) == value) }
    if (prefix == 1) for (time <- 0L to 4L) assert(map.prefixScan(row(time)).map(entry).toMap == model.filter(_._1._1 == time))
  }

  for (prefix <- 0 to 2) test(s"versions of maps with $prefix columns as prefix ($runs runs, seed $seed)") {
    for (n <- 0 until runs) {
      val random = new Random(seed + n)
      var versions = Seq(empty(prefix) -> (Map.empty: Model))
      var (map, model) = (versions.head._1.fork(), versions.head._2)
      def key(): (Long, Long) = (random.nextInt(5).toLong, random.nextInt(6).toLong)
      for (_ <- 1 to 60) random.nextInt(8) match {
        case 0 =>
          map.settle()
          versions :+= map -> model
          map = versions(random.nextInt(versions.size)) match {
            case (older, its) if random.nextInt(4) == 0 => model = its; older.fork()
            case _ => map.fork()
          }
        case 1 | 2 | 3 =>
          val (time, k) = key()
          val value = random.nextInt(100).toLong
          assert(Option(map.put(row(time, k), wrapped(value))).map(_.unsafeRow().getLong(0)) == model.get((time, k)))
          model += (time, k) -> value
        case 4 =>
          val (time, k) = key()
          assert(Option(map.remove(row(time, k))).map(_.unsafeRow().getLong(0)) == model.get((time, k)))
          model -= ((time, k))
        case 5 | 6 if prefix == 1 => // a scan that removes all of its rows, or some, and is disturbed now and then
          val time = random.nextInt(5).toLong
          val all = random.nextBoolean()
          val of = row(time)
          map.prefixScan(of).foreach { pair =>
            val (at, _) = entry(pair)
            if (model.contains(at) && (all || random.nextBoolean())) {
              if (random.nextInt(9) == 0) assert(map.get(pair.key) != null)
              assert(map.remove(pair.key) != null)
              if (random.nextInt(9) == 0) assert(map.remove(pair.key) == null)
              model -= at
            }
            if (random.nextInt(20) == 0) {
              val (other, k) = key()
              Option(map.remove(row(other, k)))
              model -= ((other, k))
            }
          }
        case _ => check(map, model, prefix)
      }
      map.settle()
      (versions :+ (map -> model)).foreach { case (version, its) => check(version, its, prefix) }
    }
  }

  test("of two scans of the same rows one removes them") {
    val map = empty(1)
    for (k <- 0L until 10L) map.put(row(1, k), wrapped(k))
    val (first, second) = (map.prefixScan(row(1)), map.prefixScan(row(1)))
    assert(first.forall(pair => map.remove(pair.key) != null))
    assert(map.size() == 0 && map.estimatedSize == 0)
    assert(second.map(pair => map.remove(pair.key)).toSeq == Seq.fill(10)(null))
    val again = map.fork()
    assert(again.size() == 0 && again.iterator().isEmpty)
  }

  test("a version can be read, all of it, while others that began with it are written") {
    val base = empty(1)
    for (time <- 0L until 20L; k <- 0L until 100L) base.put(row(time, k), wrapped(k))
    val expected = read(base)
    val (done, reads) = (new AtomicBoolean, new AtomicInteger)
    @volatile var wrong = Option.empty[String]
    val reader = new Thread(() =>
      while (!done.get || reads.get == 0) {
        val found = base.fork().iterator().map(entry).toMap
        if (found != expected) wrong = Some(s"${found.size} rows of ${expected.size}")
        reads.incrementAndGet()
      }
    )
    reader.start()
    for (n <- 1 to 50) {
      val next = base.fork()
      for (k <- 0L until 100L) next.put(row(n % 20L, k), wrapped(-1))
      next.prefixScan(row((n + 1) % 20L)).foreach(pair => next.remove(pair.key))
      assert(next.size() == 1900)
    }
    done.set(true)
    reader.join()
    assert(wrong.isEmpty, wrong)
  }

  for (one <- Seq(true, false)) test(s"what is removed is not kept by versions that no one has any more, in one bucket: $one") {
    var map = empty(1)
    var values = Seq.empty[WeakReference[UnsafeRowWrapper]]
    def key(n: Long) = if (one) row(0, n) else row(n, 0)
    for (n <- 1L to 20L) {
      map = map.fork()
      val value = wrapped(n)
      values :+= new WeakReference(value)
      map.put(key(n), value)
      map.put(key(n + 100), wrapped(0)) // which stays
      if (n > 1) assert(map.get(key(n - 1)) != null && map.remove(key(n - 1)) != null)
      map.settle()
    }
    val begun = System.nanoTime()
    while (values.init.exists(_.get.isDefined) && System.nanoTime() - begun < 20e9) System.gc()
    assert(values.map(_.get.isDefined) == Seq.fill(19)(false) :+ true)
    assert(map.size() == 21)
  }

  test("values with checksums are verified as they are read") {
    val map = SharedStateMap.empty(keys, 1, () => KeyValueIntegrityVerifier.create("store", true, 1))
    val (key, value) = (row(1, 2), row(3))
    map.put(key, StateStoreRowWithChecksum(value, KeyValueChecksum.create(key, Some(value))))
    assert(map.get(key) == value && map.prefixScan(row(1)).map(_.value.getLong(0)).toSeq == Seq(3))
    map.put(row(1, 4), StateStoreRowWithChecksum(value, 5))
    assert(intercept[Exception](map.get(row(1, 4))).getMessage.contains("checksum"))
    assert(map.entryIterator().map(_.getKey).size == 2)
  }
}
