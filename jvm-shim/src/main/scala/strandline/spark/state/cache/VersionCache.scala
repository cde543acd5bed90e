package strandline.spark.state.cache

import org.apache.spark.sql.execution.streaming.state.{ReadStateStore, StateStore, StateStoreProviderId}

/** A store, or a part of what it has. */
private[spark] final case class StorePart(id: StateStoreProviderId, part: String = "")

/** A version of a store: with checkpoint ids, which of those that tasks have made. */
private[spark] final case class StoreVersion(of: StorePart, version: Long, checkpointId: Option[String]) {

  /** Whether a task that asks for this version is given what another has `made`; it may ask for none in particular. */
  def is(made: StoreVersion): Boolean = of == made.of && version == made.version && checkpointId.forall(made.checkpointId.contains)
}

/**
 * What an executor knows of the content of its state stores, version by version, so that it need not be read again.
 *
 * Kept is what is known of a store's newest version, in the ways in which its tasks have made it, and then of the version that they
 * began with: a batch with several actions, such as a `foreachBatch` that writes twice, begins with it again. With checkpoint ids
 * each action makes the version in a way of its own, and Spark goes on with the first, or, where that task failed, with a later one. So of
 * more than `most` ways the first and the newest are kept.
 */
private[spark] final class VersionCache[A <: AnyRef](most: Int = VersionCache.Most) {
  private type Kept = List[(StoreVersion, A)]
  private val kept = new StoreCache[StorePart, Kept](_.id)

  def get(at: StoreVersion): Option[A] = kept.get(at.of).flatMap(_.collectFirst { case (made, known) if at.is(made) => known })

  /** Keeps what has been read of a version. */
  def read(at: StoreVersion, known: A): A = {
    kept.put(at.of)(old => firstAndNewest(others(at, old) :+ (at -> known)))
    known
  }

  /** Keeps what is known of a version that a task has made of `base`, and of that. */
  def written(at: StoreVersion, known: A, base: StoreVersion, knownBefore: A): Unit =
    kept.put(at.of)(old => firstAndNewest(others(at, old) :+ (at -> known)) :+ (base -> knownBefore))

  private def firstAndNewest(ways: Kept): Kept = if (ways.size <= most) ways else ways.take(most - 1) :+ ways.last

  private def others(at: StoreVersion, old: Option[Kept]): Kept = old.getOrElse(Nil).filter { case (other, _) => other.version == at.version && other != at }

  /** All that is kept of a store. */
  def all(of: StorePart): Seq[A] = kept.get(of).toSeq.flatten.map(_._2)

  def forget(of: StorePart): Unit = {
    kept.remove(of)
    ()
  }

  def clear(): Unit = kept.clear()
}

private[spark] object VersionCache {
  private val Most = 7

  /** The version that a task begins with. */
  def of(store: ReadStateStore, id: StateStoreProviderId, checkpointId: Option[String], part: String = ""): StoreVersion =
    StoreVersion(StorePart(id, part), store.version, checkpointId)

  /** The version that a task has made. */
  def committed(store: StateStore, id: StateStoreProviderId, version: Long, part: String = ""): StoreVersion =
    StoreVersion(StorePart(id, part), version, store.getStateStoreCheckpointInfo().stateStoreCkptId)
}
