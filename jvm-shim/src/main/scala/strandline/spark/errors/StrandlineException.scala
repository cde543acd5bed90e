package strandline.spark.errors

import org.apache.spark.SparkThrowable
import org.apache.spark.sql.AnalysisException
import strandline.spark.compat.{BuildInfo, SparkLine}

/**
 * What the shim raises on purpose: `[CONDITION] what happened with the values. Remedy. SQLSTATE: 00000`, as Spark's own errors.
 *
 * What is wrong with a query is an analysis error, which PySpark shows as one.
 */
final class StrandlineException(condition: String, sqlState: String, what: String, remedy: String)
    extends AnalysisException(Errors.message(condition, sqlState, what, remedy), None, None, None, Some(condition), Map.empty, Array.empty) {
  override def getSqlState: String = sqlState
}

/** What is wrong with the data: a row, or a source's offset. */
final class StrandlineDataException(condition: String, sqlState: String, what: String, remedy: String)
    extends RuntimeException(Errors.message(condition, sqlState, what, remedy))
    with SparkThrowable {
  override def getCondition: String = condition
  override def getSqlState: String = sqlState
}

/** The shim's conditions, one method each, so that a message is written in one place. */
private[spark] object Errors {
  def message(condition: String, sqlState: String, what: String, remedy: String): String = s"[$condition] $what $remedy SQLSTATE: $sqlState"

  // Classes of the SQL standard: 0A feature not supported, 22 data exception, 42 rule violation, XX internal, 55 wrong state.

  def sparkVersionMismatch(running: String): StrandlineException = new StrandlineException(
    "STRANDLINE_SPARK_VERSION_MISMATCH",
    "0A000",
    s"This Spark is $running, but the session extension ${BuildInfo.version} was built for Spark ${BuildInfo.sparkVersion}.",
    s"Run Spark ${SparkLine.of(BuildInfo.sparkVersion)}, or use the strandline release whose jar names Spark ${SparkLine.of(running)}."
  )

  def sparkInternalsMissing(running: String, missing: Seq[String]): StrandlineException = new StrandlineException(
    "STRANDLINE_SPARK_INTERNALS_MISSING",
    "0A000",
    s"This Spark, $running, lacks ${missing.size} of the classes and members that the session extension ${BuildInfo.version} uses: " +
      missing.take(5).mkString("", ", ", if (missing.size > 5) ", ..." else "."),
    s"Run Apache Spark ${SparkLine.of(BuildInfo.sparkVersion)}, or build the extension for this one: sbt -Dspark.version=... package."
  )

  def domainInvalid(text: String, why: String): StrandlineException = new StrandlineException(
    "STRANDLINE_TIME_DOMAIN_INVALID",
    "22023",
    s"The time domain '$text' $why.",
    "Write it like timestamp, int64, product(epoch int64, iter int64) or lex(tick int64, stratum int64)."
  )

  def domainMismatch(what: String): StrandlineException = new StrandlineException(
    "STRANDLINE_TIME_DOMAIN_MISMATCH",
    "42846",
    what,
    "Bring both sides to one time domain first."
  )

  def timeTypeMismatch(column: String, domain: String, found: String, expected: String): StrandlineException = new StrandlineException(
    "STRANDLINE_TIME_TYPE_MISMATCH",
    "42804",
    s"Column $column has the time domain $domain, whose Spark type is $expected, but its type is $found.",
    "Keep the time column as the source gives it."
  )

  def offsetInvalid(source: String, why: String): StrandlineDataException = new StrandlineDataException(
    "STRANDLINE_OFFSET_INVALID",
    "22023",
    s"The offset of $source $why.",
    "It was written by another version, or by hand: start from another checkpoint, or upgrade."
  )

  def summaryInvalid(text: String, why: String): StrandlineException = new StrandlineException(
    "STRANDLINE_SUMMARY_INVALID",
    "22023",
    s"The path summary $text $why.",
    "A summary is a JSON list of steps; see docs/protocol.md."
  )

  def frontierRegressed(source: String, start: String, end: String): StrandlineDataException = new StrandlineDataException(
    "STRANDLINE_FRONTIER_REGRESSED",
    "55000",
    s"The frontier of $source went back, from $start to $end.",
    "What was closed cannot be opened again: the channel's log or the checkpoint was changed by hand."
  )

  def rowBehindFrontier(time: String, frontier: String, source: String, origin: Option[String]): StrandlineDataException = new StrandlineDataException(
    "STRANDLINE_ROW_BEHIND_FRONTIER",
    "22008",
    s"A row at time $time came from $source, whose frontier $frontier had closed that time before this batch.${readFrom(origin)}",
    "A producer wrote without holding a capability for that time; the row is refused, for its result is already out."
  )

  def timeNull(source: String, column: String, origin: Option[String]): StrandlineDataException = new StrandlineDataException(
    "STRANDLINE_TIME_NULL",
    "22004",
    s"A row from $source has a null in its time column '$column'.${readFrom(origin)}",
    "Every row needs a time: fill it in, or set such rows aside where they are written."
  )

  def timeOverflow(time: String, domain: String, step: String): StrandlineDataException = new StrandlineDataException(
    "STRANDLINE_TIME_OVERFLOW",
    "22003",
    s"A row's time $time, $step, is outside $domain.",
    "Move it by less, give the coordinate a wider type, or filter such rows before."
  )

  def notATime(column: String, from: String): StrandlineException = new StrandlineException(
    "STRANDLINE_TIME_COLUMN_MISSING",
    "42703",
    s"Column $column is $from moved, which is no time of the stream: nothing says how its values follow a frontier.",
    "Move the source's time column, or a time made of it by a window, advance, truncate or project."
  )

  private def readFrom(origin: Option[String]): String = origin.fold("")(place => s" It was read from $place.")

  def operatorUnsupported(
      operator: String,
      why: String,
      remedy: String = "Group by the time column or a window of it, or run this operator in a query of its own over a plain source."
  ): StrandlineException =
    new StrandlineException("STRANDLINE_OPERATOR_UNSUPPORTED", "0A000", s"$operator cannot be closed by an exact frontier: $why.", remedy)

  def watermarkUnsupported(column: String): StrandlineException = new StrandlineException(
    "STRANDLINE_WATERMARK_UNSUPPORTED",
    "0A000",
    s"withWatermark on '$column', which is not the time column of a strandline source, would mix a guessed watermark with an exact frontier.",
    "Remove withWatermark, or run the plain stream in a query of its own and ingest it as a channel."
  )

  def unionMismatch(column: String, first: String, other: String): StrandlineException = new StrandlineException(
    "STRANDLINE_UNION_MISMATCH",
    "42846",
    s"The union's column '$column' is $first in the first input and $other in another.",
    "Union times of one domain, or windows of one kind, or take the tag off the first with col(name).alias(name, metadata={})."
  )

  def stateRepartitioned(operator: Long, found: Int, belongs: Int, partitions: Int): StrandlineDataException = new StrandlineDataException(
    "STRANDLINE_STATE_REPARTITIONED",
    "55000",
    s"The state of operator $operator, a hold or a processor, has a key in partition $found that belongs to partition $belongs of $partitions.",
    "Spark's offline repartitioning does not know how such operators spread their keys: restore the checkpoint from before it, or begin a new one."
  )

  def stateMetadataInvalid(operator: Long, folder: String, why: String): StrandlineDataException = new StrandlineDataException(
    "STRANDLINE_STATE_METADATA_INVALID",
    "55000",
    s"The state of operator $operator in $folder is not read, for $why, and nothing else says how its keys are encoded.",
    s"Restore $folder/_metadata from a copy of the checkpoint, or begin a new checkpoint."
  )

  def noFrontier(column: String): StrandlineException = new StrandlineException(
    "STRANDLINE_NO_FRONTIER",
    "55000",
    s"The time column '$column' feeds a stateful operator, but no source of the query states a frontier.",
    "Read the channel with format(\"strandline\"), or declare a watermark with withWatermark."
  )
}
