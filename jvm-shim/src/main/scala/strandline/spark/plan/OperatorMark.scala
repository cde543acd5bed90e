package strandline.spark.plan

/** Metadata keys of the marking column by which a query requests an operator of Strandline (docs/protocol.md). */
private[spark] object OperatorMark {

  /** The operator's kind. */
  val Key = "strandline.operator"

  /** For an operator without a key: whether rows are partitioned by time. Otherwise all rows go to one partition. */
  val Spread = "strandline.spread"

  /** For `best`: which rows are better, as JSON. */
  val Order = "strandline.order"
}
