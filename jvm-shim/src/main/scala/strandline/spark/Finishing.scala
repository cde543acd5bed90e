package strandline.spark

/**
 * `rows`, and then, once, what is to be done at their end, which is told how many milliseconds they took to be made. What a consumer
 * does between them is not counted (Spark's own operators count it).
 */
private[spark] final class Finishing[A](rows: => Iterator[A], atEnd: Long => Unit) extends Iterator[A] {
  private lazy val made = rows
  private var ended = false
  private var taken = 0L

  override def hasNext: Boolean = timed(made.hasNext) || {
    if (!ended) {
      ended = true
      atEnd(taken / 1000000)
    }
    false
  }

  override def next(): A = timed(made.next())

  private def timed[B](body: => B): B = {
    val begun = System.nanoTime
    val result = body
    taken += System.nanoTime - begun
    result
  }
}
