package strandline.spark.plan

/** Metadata keys of the marking column by which a query requests an operator of Strandline (docs/protocol.md). */
private[spark] object OperatorMark {

  /** The operator's kind. */
  val Key = "strandline.operator"

  /** Whether the rows of one time go to one partition when the operator has no key of its own. */
  val Spread = "strandline.spread"
}
