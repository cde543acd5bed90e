package strandline.spark.exec

/**
 * Returns `rows`. Then calls `atEnd` once, with the milliseconds spent producing rows. The time that a consumer spends between
 * rows is not included. (Spark's own operators include it.)
 */
private[spark] final class CompletionIterator[A](rows: => Iterator[A], atEnd: Long => Unit) extends Iterator[A] {
  private lazy val produced = rows
  private var current: A = _
  private var ready, ended = false
  private var nanos = 0L

  // Produced here, not in `next`, so that the clock is read once a row.
  override def hasNext: Boolean = ready || !ended && {
    val begun = System.nanoTime
    ready = produced.hasNext
    if (ready) current = produced.next()
    nanos += System.nanoTime - begun
    if (!ready) {
      ended = true
      atEnd(nanos / 1000000)
    }
    ready
  }

  override def next(): A = {
    if (!hasNext) throw new NoSuchElementException("all rows have been given")
    ready = false
    current
  }
}
