package strandline.spark.state.expiry

import java.util.UUID

import scala.util.Random

import org.apache.hadoop.conf.Configuration
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.sql.execution.streaming.state.{
  NoPrefixKeyStateEncoderSpec, StateStoreConf, StateStoreId, StateStoreProvider, StateStoreProviderId
}
import org.apache.spark.sql.execution.streaming.state.strandline.SharedStateStoreProvider
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String
import strandline.spark.{Drawn, StreamSpec}
import strandline.spark.state.cache.{CacheBudget, StorePart}
import strandline.spark.time.{Antichain, TimeDomain}

/**
 * The index finds what a look at all entries would find, however little fits in memory, and from whichever version a task
 * begins.
 */
class ExpiryIndexSpec extends StreamSpec {
  private type Model = Map[String, Long]
  private val keys = new StructType().add("k", StringType)
  private val values = new StructType().add("expiry", LongType)
  private val seed = Drawn.seed
  private val runs = sys.props.get("strandline.runs").fold(12)(_.toInt)

  private val times = TimeDomain.parse("int64")
  private val keyRow = UnsafeProjection.create(keys)
  private val valueRow = UnsafeProjection.create(values)
  private def row(key: String): UnsafeRow = keyRow(InternalRow(UTF8String.fromString(key))).copy()
  private def keyOf(row: UnsafeRow): String = row.getUTF8String(0).toString
  private def before(frontier: Long)(expiry: Long): Boolean = expiry < frontier

  private def keysOf(run: ExpiryRun): Seq[(Long, String)] = {
    val key = new UnsafeRow(1)
    (0 until run.size).map(i => run.expiry(i) -> keyOf(run.read(i, key)))
  }

  private def newStore(): (StateStoreProvider, StateStoreProviderId) = {
    val provider = new SharedStateStoreProvider
    val id = StateStoreProviderId(StateStoreId(tempDir(), 0, 0), UUID.randomUUID())
    val hadoop = new Configuration
    hadoop.set(StreamExecution.RUN_ID_KEY, id.queryRunId.toString)
    provider.init(id.storeId, keys, values, NoPrefixKeyStateEncoderSpec(keys), false, new StateStoreConf(new SQLConf), hadoop)
    (provider, id)
  }

  test(s"runs ($runs runs, seed $seed)") {
    for (n <- 0 until runs) {
      val random = new Random(seed + n)
      val entries = Seq.fill(random.nextInt(40))((random.nextInt(20) - 5).toLong -> "x" * random.nextInt(20))
      val builder = new ExpiryRun.Builder
      entries.foreach { case (expiry, key) => builder.add(expiry, row(key)) }
      val run = builder.result()
      assert(keysOf(run).map(_._1) == keysOf(run).map(_._1).sorted)
      assert(keysOf(run).sorted == entries.sorted)
      val frontier = (random.nextInt(22) - 6).toLong
      val count = run.closed(before(frontier))
      assert(keysOf(run.slice(count)).toSet == entries.filter(_._1 < frontier).toSet)
      assert(keysOf(run.drop(count)).toSet == entries.filterNot(_._1 < frontier).toSet)
      assert(keysOf(run.drop(count).drop(run.drop(count).size)).isEmpty)
    }
  }

  test("many runs are merged to few") {
    var index = ExpiryIndex.empty
    for (n <- 0 until 1000) {
      val builder = new ExpiryRun.Builder
      builder.add(n.toLong, row(s"$n"))
      index = index.add(builder.result(), 1)
    }
    assert(index.runs.size <= 11 && index.runs.map(_.size).sum == 1000)
  }

  for (limit <- Seq(150L, 800L, 1L << 20)) test(s"against a look at all, with $limit bytes (${runs / 12} runs, seed $seed)") {
    for (n <- 0 until runs / 12) {
      val random = new Random(seed + n)
      Expiries.forget()
      val (provider, storeId) = newStore()
      var versions: Vector[(Model, Long)] = Vector(Map.empty[String, Long] -> 0L)
      try
        for (_ <- 1 to 25) {
          // Usually the next batch, sometimes the last one again, as in a batch with several actions.
          if (versions.size > 1 && random.nextInt(6) == 0) versions = versions.init
          if (random.nextInt(8) == 0) Expiries.forget()
          var (model, frontier) = versions.last
          frontier += random.nextInt(4).toLong
          val end = if (random.nextInt(40) == 0) Antichain(times, Nil) else Antichain(times, Seq(Array(frontier)))
          val store = provider.getStore(versions.size - 1L)
          val expiries = new Expiries(store, storeId, None, end, 1, limit)
          for (_ <- 1 to random.nextInt(12)) {
            val key = s"k${random.nextInt(60)}"
            // Only later than before, like prolonged sessions; some are closed at once.
            val expiry = model.getOrElse(key, 0L).max(frontier - 1 + random.nextInt(30))
            store.put(row(key), valueRow(InternalRow(expiry)))
            if (!model.contains(key)) expiries.put(row(key), expiry)
            model += key -> expiry
          }
          val found = expiries
            .expired(_.value.getLong(0))
            .flatMap { key =>
              Option(store.get(key)).map(_.getLong(0)).flatMap { expiry =>
                if (expiries.isClosed(expiry)) {
                  store.remove(key)
                  expiries.removed()
                  Some(keyOf(key) -> expiry)
                } else {
                  expiries.prolonged(key, expiry)
                  None
                }
              }
            }
            .toSeq
          val (gone, left) = model.partition { case (_, expiry) => expiries.isClosed(expiry) }
          assert(found.sorted == gone.toSeq.sorted)
          assert(expiries.keys == left.size)
          expiries.committed(store.commit())
          versions :+= left -> frontier
        }
      finally provider.close()
    }
  }

  test(
    "a key has one entry however often it is prolonged, and two versions of a store are kept, whichever executors make the " +
      "others") {
    Expiries.forget()
    val (provider, id) = newStore()
    val standing = Antichain(times, Seq(Array(0L)))
    try
      for (version <- 0L to 30L) {
        val store = provider.getStore(version)
        for (k <- 1 to 100) store.put(row(s"k$k"), valueRow(InternalRow(100 + version)))
        if (version % 3 == 2) store.commit() // on another executor
        else {
          val expiries = new Expiries(store, id, None, standing, 1)
          if (version == 0) for (k <- 1 to 100) expiries.put(row(s"k$k"), 100)
          assert(expiries.expired(_.value.getLong(0)).isEmpty)
          expiries.committed(store.commit())
          assert(expiries.keys == 100)
          assert(Expiries.bytesHeld <= 2 * 100 * (12 + row("k100").getSizeInBytes))
        }
      }
    finally provider.close()
  }

  test("an index of which most keys are gone is not kept") {
    Expiries.forget()
    val (provider, id) = newStore()
    val standing = Antichain(times, Seq(Array(0L)))
    val looks = Expiries.scans.sum
    try
      for (version <- 0L to 30L) { // like a session whose start changes, so that its key does
        val store = provider.getStore(version)
        val expiries = new Expiries(store, id, None, standing, 1)
        for (k <- 1 to 100) {
          if (version > 0) {
            store.remove(row(s"k$k-${version - 1}"))
            expiries.removed()
          }
          store.put(row(s"k$k-$version"), valueRow(InternalRow(100L)))
          expiries.put(row(s"k$k-$version"), 100)
        }
        assert(expiries.expired(_.value.getLong(0)).isEmpty)
        expiries.committed(store.commit())
        assert(expiries.keys == 100)
        assert(Expiries.bytesHeld <= 2 * 1300 * (12 + row("k100-30").getSizeInBytes))
      }
    finally provider.close()
    assert((1L to 4L).contains(Expiries.scans.sum - looks))
  }

  test("all stores together stay within a limit, and the least recently used one is forgotten") {
    val ids = Vector.fill(4)(StorePart(StateStoreProviderId(StateStoreId("", 0, 0), UUID.randomUUID())))
    var forgotten = Vector.empty[StorePart]
    val held = new CacheBudget(100, forgotten :+= _, _ => true)
    for (id <- ids.take(3)) held.used(id, 30)
    assert(held.bytes == 90 && held.stores == 3 && forgotten.isEmpty)
    held.used(ids(0), 35)
    held.used(ids(3), 10)
    assert(held.bytes == 75 && held.stores == 3 && forgotten == Vector(ids(1)))
    held.used(ids(0), 101)
    assert(held.bytes == 0 && held.stores == 0 && forgotten.toSet == ids.toSet)
  }

  test("unloaded stores do not count") {
    def part = StorePart(StateStoreProviderId(StateStoreId("", 0, 0), UUID.randomUUID()))
    var loaded = Set.empty[StorePart]
    val held = new CacheBudget(1 << 20, _ => (), id => loaded.exists(_.id == id))
    for (_ <- 1 to 10) {
      loaded = Set.fill(30)(part)
      for (one <- loaded) held.used(one, 10)
    }
    assert(held.stores <= 64 && held.bytes == 10 * held.stores)
    for (_ <- 1 to 100) held.used(part, 0)
    assert(held.stores <= 64)
  }
}
