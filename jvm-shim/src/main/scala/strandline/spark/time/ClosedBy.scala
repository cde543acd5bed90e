package strandline.spark.time

import org.apache.spark.sql.catalyst.expressions.Expression

/** Whether a time is closed; a null is not. */
final class Closure(frontier: Antichain) extends TimeCheck(frontier) {
  override protected def open: Boolean = false
  override protected def closed(time: Array[Long]): Boolean = true
  override def missing: Boolean = false
}

/** The predicate "this time is closed": no element of the frontier is less or equal to it. */
final case class ClosedBy(child: Expression, check: Closure) extends TimeTest {
  override def toString: String = s"$child closed by ${check.frontier}"

  override protected def withNewChildInternal(newChild: Expression): ClosedBy = copy(child = newChild)
}

object ClosedBy {
  def apply(time: Expression, frontier: Antichain): ClosedBy = ClosedBy(time, new Closure(frontier))
}
