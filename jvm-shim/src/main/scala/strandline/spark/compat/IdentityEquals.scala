package strandline.spark.compat

/**
 * Equality of a plan node that extends one of Spark's case classes: such a node never equals a node of Spark's class.
 *
 * A tree keeps its old child when a rule returns an equal one. Without this trait, a node that differs only in its class would
 * be equal, for example over an idle source, and the rule would have no effect.
 */
private[spark] trait IdentityEquals extends Equals {
  override def canEqual(other: Any): Boolean = other.getClass == getClass

  override def equals(other: Any): Boolean = other.isInstanceOf[IdentityEquals] && super.equals(other)

  override def hashCode: Int = super.hashCode
}
