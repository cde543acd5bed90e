package strandline.spark.errors

import org.apache.spark.SparkThrowable
import org.apache.spark.sql.AnalysisException
import strandline.spark.compat.{BuildInfo, SparkLine}

/**
 * An error in a query: `[CONDITION] what happened, with values. Remedy. SQLSTATE: 00000`, as in Spark.
 *
 * It is an analysis error, so PySpark shows it as one.
 */
final class StrandlineException(condition: String, sqlState: String, what: String, remedy: String)
    extends AnalysisException(Errors.message(condition, sqlState, what, remedy), None, None, None, Some(condition), Map.empty,
      Array.empty) {
  override def getSqlState: String = sqlState
}

/** An error in the data: a row, an offset, or a state. */
final class StrandlineDataException(condition: String, sqlState: String, what: String, remedy: String)
    extends RuntimeException(Errors.message(condition, sqlState, what, remedy)) with SparkThrowable {
  override def getCondition: String = condition
  override def getSqlState: String = sqlState
}

/** The shim's error conditions. One method for each keeps a message in one place. */
object Errors {
  def message(condition: String, sqlState: String, what: String, remedy: String): String =
    s"[$condition] $what $remedy SQLSTATE: $sqlState"

  // Classes of the SQL standard: 0A feature not supported, 22 data exception, 42 rule violation, XX internal, 55 wrong state, 58
  // system error.

  def sparkVersionMismatch(running: String): StrandlineException = new StrandlineException(
    "STRANDLINE_SPARK_VERSION_MISMATCH",
    "0A000",
    s"This Spark is $running, but the session extension ${BuildInfo.version} was built for Spark ${BuildInfo.sparkVersion}.",
    s"Run Spark ${SparkLine.of(BuildInfo.sparkVersion)}, or use the strandline release whose jar names Spark " +
      s"${SparkLine.of(running)}.")

  def sparkInternalsMissing(running: String, missing: Seq[String]): StrandlineException = new StrandlineException(
    "STRANDLINE_SPARK_INTERNALS_MISSING",
    "0A000",
    s"This Spark, $running, lacks ${missing.size} of the classes and members that the session extension ${BuildInfo.version} " +
      "uses: " +
      missing.take(5).mkString("", ", ", if (missing.size > 5) ", ..." else "."),
    s"Run Apache Spark ${SparkLine.of(BuildInfo.sparkVersion)}, or build the extension for this one: sbt -Dspark.version=... " +
      "package.")

  def sourceProcessEnded(cause: Option[Throwable]): StrandlineDataException = {
    val error = new StrandlineDataException(
      "STRANDLINE_SOURCE_PROCESS_ENDED",
      "58030",
      s"The Python process of this query's source has ended${cause.fold("")(each => s" (${each.getMessage})")}.",
      "Look for what ended it: a signal, the system's killer of processes without memory, or a crash in the driver's error " +
        "output. Then start the query again: it continues from its checkpoint.")
    cause.foreach(error.initCause)
    error
  }

  def domainInvalid(text: String, why: String): StrandlineException = new StrandlineException(
    "STRANDLINE_TIME_DOMAIN_INVALID",
    "22023",
    s"The time domain '$text' $why.",
    "Write it like timestamp, int64, product(epoch int64, iter int64) or lex(tick int64, stratum int64).")

  def domainMismatch(what: String): StrandlineException = new StrandlineException(
    "STRANDLINE_TIME_DOMAIN_MISMATCH",
    "42846",
    what,
    "Convert both sides to one time domain first.")

  def outputModeUnsupported(mode: String): StrandlineException = new StrandlineException(
    "STRANDLINE_OUTPUT_MODE_UNSUPPORTED",
    "0A000",
    s"The strandline sink does not support output mode $mode, which replaces earlier rows.",
    "Use output mode append. It emits every result once, when its time is closed.")

  def batchWriteUnsupported(command: String): StrandlineException = new StrandlineException(
    "STRANDLINE_BATCH_WRITE_UNSUPPORTED",
    "0A000",
    s"$command cannot write a channel, because a batch does not state which times it completes.",
    "Use strandline.channel.Channel.producer(...).send(...), or df.writeStream. " +
      "To delete old rows, use Delta's own DELETE FROM delta.`path`, in a session with Delta's catalog: see docs/channel.md " +
      "for what readers do then.")

  def tableColumnsUnsupported(what: String): StrandlineException = new StrandlineException(
    "STRANDLINE_TABLE_COLUMNS_UNSUPPORTED",
    "0A000",
    s"$what, but the columns of a table that is a channel are the channel's.",
    "Leave them out of CREATE TABLE. Make the channel with strandline.channel.Channel.create, and add columns with " +
      "Channel.add_columns.")

  def tableReplaceUnsupported(command: String, table: String, path: String): StrandlineException = new StrandlineException(
    "STRANDLINE_TABLE_CHANGE_UNSUPPORTED",
    "0A000",
    s"$command would make another table of $table, which is the channel at $path, and can delete the channel's files.",
    "Give the new table another name. Or run DROP TABLE first, which leaves a channel with a LOCATION alone, and give the new " +
      "table another location.")

  def tableConstraintUnsupported(): StrandlineException = new StrandlineException(
    "STRANDLINE_TABLE_CHANGE_UNSUPPORTED",
    "0A000",
    "ALTER TABLE would change a constraint, but nothing checks the rows of a channel against constraints.",
    "Check the rows where they are written: in the query, or in the program that sends them.")

  def tableSerdeUnsupported(): StrandlineException = new StrandlineException(
    "STRANDLINE_TABLE_CHANGE_UNSUPPORTED",
    "0A000",
    "ALTER TABLE would set properties of a Hive format, but a channel is not read by one.",
    "Give options in CREATE TABLE t USING strandline LOCATION '...' OPTIONS (...), or for one read in SELECT ... WITH (...).")

  def tableFeatureUnsupported(): StrandlineException = new StrandlineException(
    "STRANDLINE_TABLE_CHANGE_UNSUPPORTED",
    "0A000",
    "ALTER TABLE ... DROP FEATURE would have no effect by the name of a channel.",
    "Leave the features as they are: Channel.create has chosen those that a channel needs.")

  def tableRestoreUnsupported(): StrandlineException = new StrandlineException(
    "STRANDLINE_TABLE_CHANGE_UNSUPPORTED",
    "0A000",
    "RESTORE TABLE would take back commits that readers of the channel have read, and times that it has closed.",
    "To read an earlier version, use SELECT * FROM t VERSION AS OF v. To make the channel again from its inputs, see " +
      "docs/lost-checkpoint.md.")

  def aggregationWithoutTime(by: String): StrandlineException = new StrandlineException(
    "STRANDLINE_AGGREGATION_WITHOUT_TIME",
    "0A000",
    s"The streaming aggregation is grouped by $by. None of it is a time that closes, so no group is ever complete.",
    "Group by the time column, or by window(time, ...). Where date_trunc would round the time, use " +
      "pyspark_strandline.truncate(df, '1 hour') " +
      "before, because the result of date_trunc is no time. After an outer join, group by the time of a side that never lacks " +
      "a row.")

  def timeTypeMismatch(column: String, domain: String, found: String, expected: String): StrandlineException =
    new StrandlineException(
      "STRANDLINE_TIME_TYPE_MISMATCH",
      "42804",
      s"Column $column has the time domain $domain, whose Spark type is $expected, but its type is $found.",
      "Keep the type of the source's time column.")

  def offsetInvalid(source: String, why: String): StrandlineDataException = new StrandlineDataException(
    "STRANDLINE_OFFSET_INVALID",
    "22023",
    s"The offset of $source $why.",
    "Another version has written it, or it was edited. Upgrade Strandline, or start from another checkpoint.")

  def summaryInvalid(text: String, why: String): StrandlineException = new StrandlineException(
    "STRANDLINE_SUMMARY_INVALID",
    "22023",
    s"The path summary $text $why.",
    "A summary is a JSON list of steps; see docs/protocol.md.")

  def frontierRegressed(source: String, start: String, end: String): StrandlineDataException = new StrandlineDataException(
    "STRANDLINE_FRONTIER_REGRESSED",
    "55000",
    s"The frontier of $source went back, from $start to $end.",
    "A closed time cannot be opened again, so the channel's log or the checkpoint was edited. Restore it from a copy.")

  def rowBehindFrontier(time: String, frontier: String, source: String, origin: Option[String]): StrandlineDataException =
    new StrandlineDataException(
      "STRANDLINE_ROW_BEHIND_FRONTIER",
      "22008",
      s"A row at time $time came from $source, whose frontier $frontier had closed that time before this " +
        s"batch.${readFrom(origin)}",
      "The result of that time is already out, so the row is refused. A producer must hold a capability for the time of every " +
        "row that it writes.")

  def timeNull(source: String, column: String, origin: Option[String]): StrandlineDataException = new StrandlineDataException(
    "STRANDLINE_TIME_NULL",
    "22004",
    s"A row from $source has a null in its time column '$column'.${readFrom(origin)}",
    "Every row needs a time. Set it, or filter such rows out before they are written.")

  def incomparable(columns: Seq[String], values: Seq[Any]): StrandlineDataException = new StrandlineDataException(
    "STRANDLINE_RESULT_INVALID",
    "22004",
    s"A row has the values ${values.mkString("(", ", ", ")")} of ${columns.mkString("(", ", ", ")")}, with a null or a NaN.",
    "Filter such rows out: they are neither better nor worse.")

  def timeOverflow(time: String, domain: String, step: String): StrandlineDataException = new StrandlineDataException(
    "STRANDLINE_TIME_OVERFLOW",
    "22003",
    s"A row's time $time, $step, is outside $domain.",
    "Use a smaller distance, give the coordinate a wider type, or filter such rows out first.")

  def notATime(column: String, from: String): StrandlineException = new StrandlineException(
    "STRANDLINE_TIME_COLUMN_MISSING",
    "42703",
    s"Column $column is derived from $from, which is not a time of the stream, so its frontier is not known.",
    "Apply the function to the source's time column, or to a time derived from it by a window, advance, truncate, project or " +
      "enter.")

  private def readFrom(origin: Option[String]): String = origin.fold("")(place => s" It was read from $place.")

  def operatorUnsupported(
      operator: String,
      why: String,
      remedy: String =
        "Group by the time column or a window of it, or run this operator in a separate query over a plain source.")
      : StrandlineException =
    new StrandlineException("STRANDLINE_OPERATOR_UNSUPPORTED", "0A000", s"$operator cannot be closed by an exact frontier: $why.",
      remedy)

  def loopUnsupported(what: String, remedy: String): StrandlineException = new StrandlineException(
    "STRANDLINE_LOOP_UNSUPPORTED",
    "0A000",
    s"$what, which a query with a loop cannot have: rows could come round after their time was closed.",
    remedy)

  def loopBodyUnsupported(what: String, remedy: String): StrandlineException = new StrandlineException(
    "STRANDLINE_LOOP_BODY_UNSUPPORTED",
    "0A000",
    s"$what.",
    remedy)

  def loopOpen(sink: String): StrandlineException = new StrandlineException(
    "STRANDLINE_LOOP_OPEN",
    "55000",
    s"The query reads feedback channels, but writes to the sink $sink, so nothing comes round.",
    "Write every feedback channel in the query, with the method write or route of the loop. For another sink, write a channel " +
      "with " +
      "the loop too, and read it in a second query.")

  def watermarkUnsupported(column: String): StrandlineException = new StrandlineException(
    "STRANDLINE_WATERMARK_UNSUPPORTED",
    "0A000",
    s"withWatermark on '$column', which is not the time column of a strandline source, would mix a guessed watermark with an " +
      "exact frontier.",
    "Remove withWatermark, or ingest the plain stream into a channel in a separate query.")

  def unionMismatch(column: String, first: String, other: String): StrandlineException = new StrandlineException(
    "STRANDLINE_UNION_MISMATCH",
    "42846",
    s"The union's column '$column' is $first in the first input and $other in another.",
    "Union times of one domain, or windows of one kind, or remove the tag of the first input with col(name).alias(name, " +
      "metadata={}).")

  def stateRepartitioned(operator: Long, found: Int, belongs: Int, partitions: Int): StrandlineDataException =
    new StrandlineDataException(
      "STRANDLINE_STATE_REPARTITIONED",
      "55000",
      s"The state of operator $operator, a hold or a processor, has a key in partition $found that belongs to partition " +
        s"$belongs of $partitions.",
      "Spark's offline repartitioning does not know how these operators distribute their keys. Restore the checkpoint from " +
        "before the repartitioning, or begin a new one, in a loop with new channels for its feedback and its results.")

  def stateMetadataInvalid(operator: Long, folder: String, why: String): StrandlineDataException = new StrandlineDataException(
    "STRANDLINE_STATE_METADATA_INVALID",
    "55000",
    s"The state of operator $operator in $folder cannot be read, because $why. Only the metadata file states how the keys are " +
      "encoded.",
    s"Restore $folder/_metadata from a copy of the checkpoint, or begin a new checkpoint, in a loop with new channels for its " +
      "feedback and its results.")

  def noFrontier(column: String): StrandlineException = new StrandlineException(
    "STRANDLINE_NO_FRONTIER",
    "55000",
    s"The time column '$column' feeds a stateful operator, but no source of the query states a frontier.",
    "Read the channel with format(\"strandline\"), or declare a watermark with withWatermark.")

  def tableVersionUnavailable(batch: Long, path: String, version: Long, why: String, file: String): StrandlineDataException =
    new StrandlineDataException(
      "STRANDLINE_TABLE_VERSION_UNAVAILABLE",
      "55000",
      s"Batch $batch of the query began with version $version of the table $path. Repeated, it must read the same version, " +
        s"but that cannot be read: $why.",
      "Restore the table, with its log and its data files of that version. Or, if no output has the batch yet, remove " +
        s"$file: then the batch reads the tables as they are now, and outputs that have it refuse other rows.")

  def topicMadeAnew(
      batch: Long, topic: String, was: String, is: String, since: Long, startingOffsets: String): StrandlineDataException =
    new StrandlineDataException(
      "STRANDLINE_TOPIC_MADE_ANEW",
      "55000",
      s"The Kafka topic $topic was deleted and made anew: its id was $was in batch $since of the query, and is $is in batch " +
        s"$batch. The query would go on at the offsets that it had in the " +
        "topic that is gone, so the first messages of the new one would be missing. Nothing of the batch was written.",
      s"Start the query with a new checkpointLocation, with takeOver, and with startingOffsets set to $startingOffsets: it " +
        "reads all of the new topic (docs/sources/kafka.md). Or give the new topic another name.")

  def topicsInvalid(file: String, text: String): StrandlineDataException = new StrandlineDataException(
    "STRANDLINE_TOPICS_INVALID",
    "22023",
    s"The file $file of the query's checkpoint has the ids of its Kafka topics, but this release cannot read it: " +
      s"${text.take(200)}",
    "Upgrade Strandline, if a newer release has written it. Otherwise restore the file from a copy of the checkpoint. Or, if " +
      "no topic was deleted and made anew since the query's last batch, remove the file.")

  def tablesDiffer(batch: Long, before: Seq[String], now: String, file: String): StrandlineDataException =
    new StrandlineDataException(
      "STRANDLINE_TABLES_CHANGED",
      "55000",
      s"Batch $batch of the query began with the tables ${before.mkString(", ")}. Repeated, it would also read the table " +
        s"$now, so the program is another one.",
      "Start the program that began the batch, with trigger(availableNow=True), and change it when the batch has ended. Or, " +
        "if no output has the " +
        s"batch yet, remove $file: then the batch reads the tables as they are now, and outputs that have it refuse other rows.")

  def tableVersionsInvalid(file: String, text: String): StrandlineDataException = new StrandlineDataException(
    "STRANDLINE_TABLE_VERSIONS_INVALID",
    "22023",
    s"The file $file of the query's checkpoint has the versions of the tables that its batch reads, but this release cannot " +
      s"read it: ${text.take(200)}",
    "Upgrade Strandline, if a newer release has written it. Otherwise restore the file from a copy of the checkpoint. Or, if " +
      "no output has the " +
      "batch yet, remove it: then the batch reads the tables as they are now, and outputs that have it refuse other rows.")

  def tableVersionUnknown(path: String): StrandlineException = new StrandlineException(
    "STRANDLINE_EXTENSION_VERSION",
    "0A000",
    s"The Python package did not say which version of the channel $path it reads. The session has the extension of strandline " +
      s"${BuildInfo.version}.",
    "Use one release of strandline in Python and in the session.")
}
