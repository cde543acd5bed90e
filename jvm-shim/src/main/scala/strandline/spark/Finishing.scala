package strandline.spark

/** `rows`, and then, once, what is to be done at their end. */
private[spark] final class Finishing[A](rows: Iterator[A], atEnd: () => Unit) extends Iterator[A] {
  private var ended = false

  override def hasNext: Boolean = rows.hasNext || {
    if (!ended) {
      ended = true
      atEnd()
    }
    false
  }

  override def next(): A = rows.next()
}
