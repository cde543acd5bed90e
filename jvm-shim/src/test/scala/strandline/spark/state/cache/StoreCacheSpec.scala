package strandline.spark.state.cache

import java.util.UUID

import org.apache.spark.sql.execution.streaming.state.{StateStoreId, StateStoreProviderId}
import org.scalatest.funsuite.AnyFunSuite

/** The values that an executor keeps for its stores. */
class StoreCacheSpec extends AnyFunSuite {
  private val run = UUID.randomUUID()
  private def store(n: Int) = StateStoreProviderId(StateStoreId("root", 0, n), run)

  test("values of unloaded stores are forgotten, and each task looks at few of them") {
    var (looks, loadedFrom) = (0, 0)
    val kept = new StoreCache[StateStoreProviderId, String](identity, id => { looks += 1; id.storeId.partitionId >= loadedFrom })
    for (_ <- 1 to 10; n <- 0 until 1000) kept.put(store(n))(_ => "")
    assert(kept.size == 1000 && looks <= 2000, s"$looks looks in 10000 tasks")
    loadedFrom = 1000
    for (n <- 1000 until 4000) kept.put(store(n))(_ => "")
    assert(kept.size <= 4000 && (0 until 1000).forall(n => kept.get(store(n)).isEmpty))
    assert(looks <= 10000, s"$looks looks in 13000 tasks")
  }

  test("of the ids of a version the first ones and the newest are kept, and their base") {
    val kept = new VersionCache[String](most = 2)
    def at(version: Long, id: String) = StoreVersion(StorePart(store(1)), version, Some(id))
    kept.read(at(1, "base"), "base")
    for (action <- Seq("first", "second", "third")) kept.written(at(2, action), action, at(1, "base"), "base")
    assert(Seq("first", "second", "third").map(id => kept.get(at(2, id))) == Seq(Some("first"), None, Some("third")))
    assert(kept.get(at(1, "base")).contains("base") && kept.all(StorePart(store(1))).size == 3)
    kept.written(at(3, "next"), "next", at(2, "first"), "first")
    assert(kept.all(StorePart(store(1))) == Seq("next", "first"))
  }

  test("a value is computed from the one before") {
    val kept = new StoreCache[StateStoreProviderId, String](identity)
    kept.put(store(1))(_.fold("a")(_ + "b"))
    kept.put(store(1))(_.fold("a")(_ + "b"))
    assert(kept.get(store(1)).contains("ab") && kept.remove(store(1)).contains("ab") && kept.get(store(1)).isEmpty)
  }
}
