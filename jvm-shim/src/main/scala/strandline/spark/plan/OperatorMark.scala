package strandline.spark.plan

import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.plans.logical.Deduplicate

/** Metadata keys of the marking column by which a query requests an operator of Strandline (docs/protocol.md). */
private[spark] object OperatorMark {

  /** The operator's kind. */
  val Key = "strandline.operator"

  /** For an operator without a key: whether rows are partitioned by time. Otherwise all rows go to one partition. */
  val Spread = "strandline.spread"

  /** For `best`: which rows are better, as JSON. */
  val Order = "strandline.order"

  /** For `meet`: how the rows of two sides meet, as JSON. */
  val Meet = "strandline.meet"

  /**
   * The columns that an operator needs, also if nobody selects them above it: all of those of a meet. What its state has may be
   * null where no row of a batch's own plan is.
   */
  def neededBy(dedup: Deduplicate): Seq[Attribute] = if (dedup.keys.exists(_.metadata.contains(Meet))) dedup.output else Nil
}
