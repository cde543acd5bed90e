package strandline.spark.state.expiry

import org.apache.spark.sql.catalyst.expressions.UnsafeRow

/**
 * Which entries of a version of a state store expire before a horizon, and when: each has its key here, under its expiry. The others
 * are not known; without a horizon there are none. A key may be here under an earlier expiry than it has now, or be gone.
 *
 * Every batch adds a run, sorted; a run is merged with one that is not twice as long, so there are few, and an entry is moved a
 * logarithmic number of times (the runs of a log-structured merge tree: O'Neil et al., Acta Informatica 33, 1996).
 */
private[spark] final case class ExpiryIndex(runs: List[ExpiryRun], horizon: Option[Long]) {

  /** How many entries it has. */
  def size: Long = runs.map(_.size.toLong).sum

  /** What it takes in memory, in bytes. */
  def bytesTaken: Long = runs.map(_.bytesTaken).sum

  /** Whether it has the key of an entry that expires then. */
  def knows(expiry: Long): Boolean = horizon.forall(expiry < _)

  /** With a run more. */
  def add(run: ExpiryRun, fields: Int): ExpiryIndex = if (run.isEmpty) this else copy(runs = ExpiryIndex.merged(run, runs, fields))

  /** Those that have closed, and what is left. */
  def closed(isClosed: Long => Boolean): (List[ExpiryRun], ExpiryIndex) = {
    val counts = runs.map(run => run -> run.closed(isClosed))
    (counts.collect { case (run, n) if n > 0 => run.slice(n) }, copy(runs = counts.map { case (run, n) => if (n > 0) run.drop(n) else run }.filterNot(_.isEmpty)))
  }

  /** With a nearer horizon where it takes more than `limit` bytes: about half of that then. */
  def within(limit: Long, fields: Int): ExpiryIndex = if (bytesTaken <= limit) this else ExpiryIndex.nearest(ExpiryIndex.together(runs, fields), limit, horizon)
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

  /** What of a run is before a horizon that leaves about half of `limit`. Those that expire at the horizon are all behind it. */
  private def nearest(run: ExpiryRun, limit: Long, horizon: Option[Long]): ExpiryIndex = {
    val most = (run.size * (limit / 2.0 / run.bytesTaken)).toInt
    if (most >= run.size) ExpiryIndex(List(run), horizon)
    else {
      val cut = run.expiry(most)
      val kept = run.slice(run.closed(_ < cut))
      ExpiryIndex(if (kept.isEmpty) Nil else List(kept), Some(cut))
    }
  }

  /** Adds entries one by one, and keeps what `limit` bytes hold. */
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
