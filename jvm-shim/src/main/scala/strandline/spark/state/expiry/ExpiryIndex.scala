package strandline.spark.state.expiry

import org.apache.spark.sql.catalyst.expressions.UnsafeRow

/**
 * The entries of one version of a state store that expire before a horizon: each key under its expiry. Entries beyond the
 * horizon are unknown. Without a horizon, all are known. A key may be under an earlier expiry than its current one, or may be
 * gone.
 *
 * Every batch adds a sorted run. A run is merged with the next one unless that one is at least twice as long. So there are few
 * runs, and each entry is moved a logarithmic number of times (log-structured merge tree: O'Neil et al., Acta Informatica 33,
 * 1996).
 */
private[spark] final case class ExpiryIndex(runs: List[ExpiryRun], horizon: Option[Long]) {

  /** The number of entries. */
  def size: Long = runs.map(_.size.toLong).sum

  /** The memory in bytes. */
  def bytesTaken: Long = runs.map(_.bytesTaken).sum

  /** Whether entries with this expiry are known. */
  def knows(expiry: Long): Boolean = horizon.forall(expiry < _)

  /** Whether an entry may have this expiry. */
  def mayContain(expiry: Long): Boolean = !knows(expiry) || runs.exists(_.contains(expiry))

  /** Returns the index with one more run. */
  def add(run: ExpiryRun, fields: Int): ExpiryIndex =
    if (run.isEmpty) this else copy(runs = ExpiryIndex.merged(run, runs, fields))

  /** Returns the closed entries, and the index without them. */
  def closed(isClosed: Long => Boolean): (List[ExpiryRun], ExpiryIndex) = {
    val counts = runs.map(run => run -> run.closed(isClosed))
    (counts.collect { case (run, n) if n > 0 => run.slice(n) },
      copy(runs = counts.map { case (run, n) => if (n > 0) run.drop(n) else run }.filterNot(_.isEmpty)))
  }

  /** Returns the index with a nearer horizon if it takes more than `limit` bytes. It then takes about half of `limit`. */
  def within(limit: Long, fields: Int): ExpiryIndex =
    if (bytesTaken <= limit) this else ExpiryIndex.nearest(ExpiryIndex.together(runs, fields), limit, horizon)
}

private[spark] object ExpiryIndex {
  val empty: ExpiryIndex = ExpiryIndex(Nil, None)

  private def merged(run: ExpiryRun, others: List[ExpiryRun], fields: Int): List[ExpiryRun] = others match {
    case next :: rest if next.size < 2 * run.size => merged(together(List(run, next), fields), rest, fields)
    case _ => run :: others
  }

  private def together(runs: List[ExpiryRun], fields: Int): ExpiryRun = {
    val (builder, key) = (new ExpiryRun.Builder, new UnsafeRow(fields))
    runs.foreach(builder.addAll(_, key))
    builder.result()
  }

  /** Cuts a run at a horizon that leaves about half of `limit`. All entries that expire at the horizon are left out. */
  private def nearest(run: ExpiryRun, limit: Long, horizon: Option[Long]): ExpiryIndex = {
    val most = (run.size * (limit / 2.0 / run.bytesTaken)).toInt
    if (most >= run.size) ExpiryIndex(List(run), horizon)
    else {
      val cut = run.expiry(most)
      val kept = run.slice(run.closed(_ < cut))
      ExpiryIndex(if (kept.isEmpty) Nil else List(kept), Some(cut))
    }
  }

  /** Adds entries one by one, and keeps as many as fit in `limit` bytes. */
  final class Builder(private var index: ExpiryIndex, limit: Long, fields: Int) {
    private var recent = new ExpiryRun.Builder

    def add(expiry: Long, key: UnsafeRow): Unit = if (index.knows(expiry)) {
      recent.add(expiry, key)
      if (recent.bytesTaken > limit) fold()
    }

    def result(): ExpiryIndex = {
      fold()
      index
    }

    private def fold(): Unit = {
      if (!recent.isEmpty) index = index.add(recent.result(), fields).within(limit, fields)
      recent = new ExpiryRun.Builder
    }
  }
}
