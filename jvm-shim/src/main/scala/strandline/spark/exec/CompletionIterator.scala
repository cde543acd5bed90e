package strandline.spark.exec

/**
 * `rows`, and then, once, what is to be done at their end, which is told how many milliseconds they took to be made. What a consumer
 * does between them is not counted (Spark's own operators count it).
 */
private[spark] final class CompletionIterator[A](rows: => Iterator[A], atEnd: Long => Unit) extends Iterator[A] {
  private lazy val made = rows
  private var current: A = _
  private var ready, ended = false
  private var taken = 0L

  // Made here, not in `next`: the clock is read once a row.
  override def hasNext: Boolean = ready || !ended && {
    val begun = System.nanoTime
    ready = made.hasNext
    if (ready) current = made.next()
    taken += System.nanoTime - begun
    if (!ready) {
      ended = true
      atEnd(taken / 1000000)
    }
    ready
  }

  override def next(): A = {
    if (!hasNext) throw new NoSuchElementException("all rows have been given")
    ready = false
    current
  }
}
