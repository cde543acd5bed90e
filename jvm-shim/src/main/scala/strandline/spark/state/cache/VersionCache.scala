package strandline.spark.state.cache

import org.apache.spark.sql.execution.streaming.state.{ReadStateStore, StateStore, StateStoreProviderId}

/** A store, or a part of its content. */
private[spark] final case class StorePart(id: StateStoreProviderId, part: String = "")

/** A version of a store. With checkpoint ids, several tasks may make a version, each with its own id. */
private[spark] final case class StoreVersion(of: StorePart, version: Long, checkpointId: Option[String]) {

  /**
   * Whether a task that asks for this version may get the one that another task has `made`. It may ask for a version with any
   * id.
   */
  def matches(made: StoreVersion): Boolean =
    of == made.of && version == made.version && checkpointId.forall(made.checkpointId.contains)
}

/**
 * What an executor knows about the content of its state stores, by version, so that it need not read the stores again.
 *
 * It keeps what it knows of a store's newest version and of the version before. A batch with several actions, such as a
 * `foreachBatch` that writes twice, begins with the version before again. With checkpoint ids, each action makes a version with
 * an id of its own. Spark continues with the first one, or with a later one if that task failed. So of more than `most` ids,
 * the first ones and the newest are kept.
 */
private[spark] final class VersionCache[A <: AnyRef](most: Int = VersionCache.Most) {
  private type Kept = List[(StoreVersion, A)]
  private val kept = new StoreCache[StorePart, Kept](_.id)

  def get(at: StoreVersion): Option[A] =
    kept.get(at.of).flatMap(_.collectFirst { case (made, known) if at.matches(made) => known })

  /** Keeps what was read of a version. */
  def read(at: StoreVersion, known: A): A = {
    kept.put(at.of)(old => firstAndNewest(others(at, old) :+ (at -> known)))
    known
  }

  /** Keeps what is known of the version that a task has made from `base`, and of `base`. */
  def written(at: StoreVersion, known: A, base: StoreVersion, knownBefore: A): Unit =
    kept.put(at.of)(old => firstAndNewest(others(at, old) :+ (at -> known)) :+ (base -> knownBefore))

  private def firstAndNewest(ways: Kept): Kept = if (ways.size <= most) ways else ways.take(most - 1) :+ ways.last

  private def others(at: StoreVersion, old: Option[Kept]): Kept = old.getOrElse(Nil).filter { case (other, _) =>
    other.version == at.version && other != at
  }

  /** Returns everything that is kept of a store. */
  def all(of: StorePart): Seq[A] = kept.get(of).toSeq.flatten.map(_._2)

  def forget(of: StorePart): Unit = {
    kept.remove(of)
    ()
  }

  def clear(): Unit = kept.clear()
}

private[spark] object VersionCache {
  private val Most = 7

  /** Returns the version that a task begins with. */
  def of(store: ReadStateStore, id: StateStoreProviderId, checkpointId: Option[String], part: String = ""): StoreVersion =
    StoreVersion(StorePart(id, part), store.version, checkpointId)

  /** Returns the version that a task has made. */
  def committed(store: StateStore, id: StateStoreProviderId, version: Long, part: String = ""): StoreVersion =
    StoreVersion(StorePart(id, part), version, store.getStateStoreCheckpointInfo().stateStoreCkptId)
}
