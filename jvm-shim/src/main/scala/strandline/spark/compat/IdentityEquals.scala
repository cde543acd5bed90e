package strandline.spark.compat

/**
 * A plan node that is a subclass of one of Spark's case classes. It equals none of these, either way: a tree keeps its old child
 * when a rule gives an equal one, and they are equal when no more than the class has changed, as over a source that is idle.
 */
private[spark] trait IdentityEquals extends Equals {
  override def canEqual(other: Any): Boolean = other.getClass == getClass

  override def equals(other: Any): Boolean = other.isInstanceOf[IdentityEquals] && super.equals(other)

  override def hashCode: Int = super.hashCode
}
