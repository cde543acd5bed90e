package org.apache.spark.sql.execution.streaming.state.strandline

import java.util.concurrent.atomic.{AtomicBoolean, AtomicInteger}

import scala.collection.mutable
import scala.ref.WeakReference
import scala.util.Random

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.execution.streaming.state.{
  KeyValueChecksum, KeyValueIntegrityVerifier, StateStoreRow, StateStoreRowWithChecksum, UnsafeRowPair, UnsafeRowWrapper
}
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String
import org.scalatest.funsuite.AnyFunSuite
import _root_.strandline.spark.Drawn

/** A map whose versions share rows behaves, version by version, like a map that is copied for each version. */
class SharedStateMapSpec extends AnyFunSuite {
  private type Model = Map[(Long, Long), Long]
  private val keys = new StructType().add("time", LongType).add("k", LongType)
  private val seed = Drawn.seed
  private val runs = sys.props.get("strandline.runs").fold(4)(_.toInt)

  private def row(values: Long*): UnsafeRow =
    UnsafeProjection.create(Array.fill[DataType](values.size)(LongType)).apply(InternalRow(values: _*)).copy()
  private def wrapped(value: Long): UnsafeRowWrapper = StateStoreRow(row(value))
  private def empty(prefix: Int): SharedStateMap = SharedStateMap.empty(keys, prefix, () => None)
  private def entry(pair: UnsafeRowPair) = (pair.key.getLong(0), pair.key.getLong(1)) -> pair.value.getLong(0)
  private def read(map: SharedStateMap): Model = map.iterator().map(entry).toMap

  private def check(map: SharedStateMap, model: Model, prefix: Int): Unit = {
    assert(read(map) == model)
    assert(map.size() == model.size)
    assert(
      map.entryIterator().map(e =>
        (e.getKey.getLong(0), e.getKey.getLong(1)) -> e.getValue.unsafeRow().getLong(0)).toMap == model)
    val held = model.keys.toSeq.map { case (time, k) => row(time, k).getSizeInBytes + row(0).getSizeInBytes + 200L }.sum
    val buckets = model.keys.map { case (time, k) => Seq(time, k).take(prefix) }.toSet.size
    assert(map.estimatedSize == held + SharedStateMap.BytesOfABucket * buckets)
    model.foreach { case ((time, k), value) => assert(map.get(row(time, k)).getLong(0) == value) }
    if (prefix == 1) for (time <- 0L to 4L) assert(map.prefixScan(row(time)).map(entry).toMap == model.filter(_._1._1 == time))
  }

  private def removePrefix(map: SharedStateMap, time: Long): Model = {
    var logged = Set.empty[(Long, Long)]
    val removed = map.removePrefix(row(time)) { key =>
      assert(map.remove(key) != null)
      logged += (key.getLong(0) -> key.getLong(1))
    }.map(entry).toMap
    assert(logged == removed.keySet)
    removed
  }

  for (prefix <- Drawn(0 to 2, 1)) test(s"versions of maps with $prefix columns as prefix ($runs runs, seed $seed)") {
    for (n <- 0 until runs) {
      val random = new Random(seed + n)
      var versions = Seq(empty(prefix) -> (Map.empty: Model))
      var (map, model) = (versions.head._1.fork(), versions.head._2)
      // Open scans, each with the entries that it must still return.
      var scans = Seq.empty[(Iterator[UnsafeRowPair], Model)]
      def key(): (Long, Long) = (random.nextInt(5).toLong, random.nextInt(6).toLong)
      val reused = row(0, 0)
      def get(at: (Long, Long)): Unit = {
        reused.setLong(0, at._1)
        reused.setLong(1, at._2)
        assert(Option(map.get(reused)).map(_.getLong(0)) == model.get(at))
      }
      def put(at: (Long, Long), value: Long): Unit = {
        if (random.nextBoolean()) get(if (random.nextInt(4) == 0) key() else at)
        assert(Option(map.put(row(at._1, at._2), wrapped(value))).map(_.unsafeRow().getLong(0)) == model.get(at))
        model += at -> value
      }
      def remove(at: (Long, Long)): Unit = {
        assert(Option(map.remove(row(at._1, at._2))).map(_.unsafeRow().getLong(0)) == model.get(at))
        model -= at
      }
      for (_ <- 1 to 80) random.nextInt(10) match {
        case 0 => // a commit, and the next task, mostly on the newest version
          versions :+= map -> model
          scans = Nil
          map = versions(random.nextInt(versions.size)) match {
            case (older, its) if random.nextInt(4) == 0 => model = its; older.fork()
            case _ => map.fork()
          }
        case 1 => // a task that fails
          versions(random.nextInt(versions.size)) match { case (version, its) => map = version.fork(); model = its }
          scans = Nil
        case 2 | 3 | 4 => put(key(), random.nextInt(100).toLong)
        case 5 => remove(key())
        case 6 if prefix == 1 =>
          val time = random.nextInt(5).toLong
          assert(removePrefix(map, time) == model.filter(_._1._1 == time))
          model = model.filterNot(_._1._1 == time)
        case 7 if prefix == 1 =>
          val time = random.nextInt(5).toLong
          scans :+= map.prefixScan(row(time)) -> model.filter(_._1._1 == time)
        case 7 => scans :+= map.iterator() -> model
        case 8 if scans.nonEmpty => // a scan continues, and the returned entry may be removed and put back
          val ((scan, left), at) = { val i = random.nextInt(scans.size); scans(i) -> i }
          assert(scan.hasNext == left.nonEmpty)
          if (scan.hasNext) {
            val (next, value) = entry(scan.next())
            assert(left.get(next).contains(value))
            scans = scans.updated(at, scan -> (left - next))
            if (random.nextBoolean()) remove(next)
            if (random.nextInt(3) == 0) put(next, random.nextInt(100).toLong)
          }
        case _ => check(map, model, prefix)
      }
      for ((scan, left) <- scans) assert(scan.map(entry).toMap == left)
      (versions :+ (map -> model)).foreach { case (version, its) => check(version, its, prefix) }
    }
  }

  test("prefixes of any types are told apart, also by a key in a row that is reused") {
    val time = new StructType().add("outer", StringType).add("iter", LongType)
    val schema = new StructType().add("time", time).add("day", DecimalType(30, 2)).add("n", IntegerType).add("k", LongType)
    val unsafe = UnsafeProjection.create(schema.map(_.dataType).toArray)
    val random = new Random(seed)
    def text() = if (random.nextInt(4) == 0) null else UTF8String.fromString("x" * random.nextInt(12))
    def number() = if (random.nextInt(4) == 0) null else Integer.valueOf(random.nextInt(2))
    val prefixes = Seq.fill(30)(Seq(
        if (random.nextInt(6) == 0) null else InternalRow(text(), random.nextInt(2).toLong),
        if (random.nextInt(4) == 0) null else Decimal(BigDecimal(random.nextInt(3)), 30, 2),
        number()))
    val map = SharedStateMap.empty(schema, 3, () => None)
    var model = Map.empty[UnsafeRow, Long]
    for (n <- 1L to 3000L) {
      val key = unsafe(InternalRow.fromSeq(prefixes(random.nextInt(if (n < 1500) 30 else 4)) :+ random.nextInt(3).toLong))
      assert(Option(map.get(key)).map(_.getLong(0)) == model.get(key))
      if (random.nextInt(3) > 0) {
        map.put(key.copy(), wrapped(n))
        model += key.copy() -> n
      } else {
        assert(Option(map.remove(key)).map(_.unsafeRow().getLong(0)) == model.get(key))
        model -= key
      }
    }
    assert(map.iterator().map(pair => pair.key.copy() -> pair.value.getLong(0)).toMap == model)
  }

  test("a row that is removed and put back during a scan is there") {
    val map = empty(1)
    for (k <- 0L until 3L) map.put(row(1, k), wrapped(k))
    val scan = map.prefixScan(row(1))
    val (time, k) = entry(scan.next())._1
    map.remove(row(time, k))
    map.put(row(time, k), wrapped(99))
    assert(scan.size == 2)
    assert(map.get(row(time, k)).getLong(0) == 99 && map.size() == 3 && read(map).size == 3)
  }

  test("a version can be read completely while maps forked from it are written") {
    val base = empty(1)
    for (time <- 0L until 20L; k <- 0L until 20L) base.put(row(time, k), wrapped(k))
    val expected = read(base)
    val (done, reads) = (new AtomicBoolean, new AtomicInteger)
    @volatile var wrong = Option.empty[String]
    val reader = new Thread(() =>
      while (!done.get || reads.get == 0) {
        val found = base.fork().iterator().map(entry).toMap
        if (found != expected) wrong = Some(s"${found.size} rows of ${expected.size}")
        reads.incrementAndGet()
      })
    reader.start()
    for (n <- 1 to 50) {
      val next = base.fork()
      for (k <- 0L until 20L) next.put(row(n % 20L, k), wrapped(-1))
      assert(removePrefix(next, (n + 1) % 20L).size == 20)
      assert(next.size() == 380)
    }
    done.set(true)
    reader.join()
    assert(wrong.isEmpty, wrong)
  }

  for (one <- Drawn(Seq(true, false), 1))
    test(s"most of what is removed is not kept by versions that no one has any more, in one bucket: $one") {
      var map = empty(1)
      var values = Seq.empty[WeakReference[UnsafeRowWrapper]]
      def key(n: Long) = if (one) row(0, n) else row(n, 0)
      for (n <- 1L to 200L) {
        map = map.fork()
        val value = wrapped(n)
        values :+= new WeakReference(value)
        map.put(key(n), value)
        map.put(key(n + 1000), wrapped(0)) // which stays
        if (n > 1) assert(map.get(key(n - 1)) != null && map.remove(key(n - 1)) != null)
      }
      // 201 entries are live. A table is merged once the one above has a quarter of its keys, so removed entries take at most
      // about half as much again.
      def kept = values.count(_.get.isDefined)
      val begun = System.nanoTime()
      while (kept > 100 && System.nanoTime() - begun < 20e9) System.gc()
      assert(kept <= 100 && values.last.get.isDefined)
      assert(map.size() == 201)
    }

  test("reading and forking a version does not change it, whatever it is merged with") {
    val random = new Random(seed)
    var versions = Seq(LayeredMap.empty[String] -> Map.empty[Long, String])
    for (n <- 1 to 20) {
      val (base, its) = versions(random.nextInt(versions.size.min(4)))
      val (map, model) = (base.fork(), mutable.Map.from(its))
      for (_ <- 1 to random.nextInt(200)) {
        val key = random.nextInt(400).toLong
        if (random.nextInt(3) == 0) assert(Option(map.remove(row(key))) == model.remove(key))
        else assert(Option(map.put(row(key), s"$n-$key")) == model.put(key, s"$n-$key"))
      }
      versions +:= map -> model.toMap
    }
    for ((map, model) <- versions) {
      assert(map.iterator.map { case (key, value) => key.getLong(0) -> value }.toSeq.sorted == model.toSeq.sorted)
      for (key <- 0L until 400L) assert(Option(map.get(row(key))) == model.get(key))
    }
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
