package strandline.spark.time

import org.apache.spark.sql.catalyst.expressions.{Attribute, Expression, GetStructField}
import org.apache.spark.sql.catalyst.plans.logical.EventTimeWatermark
import org.apache.spark.sql.types.{DataType, Metadata, MetadataBuilder, StructType}
import org.json4s._
import strandline.spark.errors.Errors

/**
 * The times of a column, as its field metadata states them: the domain, and the path summary from the sources' times.
 *
 * A window column (a struct of start and end) is not a time, but its bounds are. Its metadata has `strandline.window` instead.
 */
final case class TimeColumn(domain: TimeDomain, summary: Summary, windows: Option[WindowKind] = None) {

  /**
   * Returns the column of a bound of this window column. A session's start has none, because an open session may have begun
   * long ago.
   */
  def bound(name: String): Option[TimeColumn] =
    windows.filter(w => name != "start" || w != Sessions).map(w => TimeColumn(domain, summary :+ WindowStep(name, w)))

  /** Returns the window column over these times. */
  def windowed(w: WindowKind): Option[TimeColumn] =
    if (windows.isEmpty && domain == Scalar.timestamp) Some(copy(windows = Some(w))) else None

  /**
   * Returns `metadata` with this column's keys, and with the key that Spark's checker requires for an append aggregation: a
   * delay in milliseconds.
   */
  def addTo(metadata: Metadata, delay: Long = 0): Metadata = {
    val builder = new MetadataBuilder().withMetadata(TimeColumn.removeFrom(metadata)).putLong(EventTimeWatermark.delayKey, delay)
    windows match {
      case Some(w) =>
        val fields = JObject(Seq("domain" -> JString(domain.toString), "summary" -> summary.toJson) ++ w.toJson: _*)
        builder.putString(TimeColumn.WindowKey, Json.render(fields)).build()
      case None =>
        builder.putString(TimeColumn.TimeKey, domain.toString)
        if (!summary.isIdentity) builder.putString(TimeColumn.SummaryKey, Json.render(summary.toJson))
        builder.build()
    }
  }

  /** Returns the frontier of this column's times; for a window column, of the windows' ends. */
  def frontier(sources: InputFrontiers): Antichain = {
    val derived = summary.results(sources)
    if (derived.domain != domain)
      throw Errors.domainMismatch(
        s"A time column has the domain $domain, but its path summary yields ${derived.domain} from its sources' " +
          s"${sources.domain}.")
    windows.fold(derived)(w => WindowStep("end", w).results(derived))
  }

  def frontier(source: Antichain): Antichain = frontier(InputFrontiers(source))

  /** Returns the expression over `column` that is compared with [[frontier]]. */
  def time(column: Expression): Expression = if (windows.isDefined) GetStructField(column, 1, Some("end")) else column

  override def toString: String = {
    val time = if (summary.isIdentity) s"a time of $domain" else s"a time of $domain ($summary)"
    if (windows.isDefined) s"a window over $time" else time
  }
}

object TimeColumn {
  val TimeKey = "strandline.time"
  val SummaryKey = "strandline.summary"
  val WindowKey = "strandline.window"
  private val Keys = Seq(TimeKey, SummaryKey, WindowKey, EventTimeWatermark.delayKey)

  /** Reads `metadata`. Returns none if it has no time. Throws if it is malformed. */
  def of(metadata: Metadata): Option[TimeColumn] =
    if (metadata.contains(WindowKey)) Some(fromWindow(metadata.getString(WindowKey)))
    else if (metadata.contains(TimeKey)) {
      val summary = if (metadata.contains(SummaryKey)) Summary.parse(metadata.getString(SummaryKey)) else Summary.identity
      Some(TimeColumn(TimeDomain.parse(metadata.getString(TimeKey)), summary))
    } else None

  /** Reads a column of a running plan. Returns none for a column that the rule has not tagged, such as a plain reader's. */
  def of(attribute: Attribute): Option[TimeColumn] =
    if (attribute.metadata.contains(EventTimeWatermark.delayKey)) of(attribute.metadata) else None

  /** Returns the delay of `withWatermark` on a column, in milliseconds; 0 without one. */
  def delayIn(metadata: Metadata): Long =
    if (metadata.contains(EventTimeWatermark.delayKey)) metadata.getLong(EventTimeWatermark.delayKey) else 0L

  /** Whether `metadata` has one of these keys. Parses nothing. */
  def isTagged(metadata: Metadata): Boolean = metadata.contains(TimeKey) || metadata.contains(WindowKey)

  def removeFrom(metadata: Metadata): Metadata =
    if (!isTagged(metadata) && !metadata.contains(SummaryKey)) metadata
    else Keys.foldLeft(new MetadataBuilder().withMetadata(metadata))((builder, key) => builder.remove(key)).build()

  /** Returns `metadata` with its time keys replaced by those of `from`. */
  def carry(from: Metadata, metadata: Metadata): Metadata = {
    val builder = new MetadataBuilder().withMetadata(removeFrom(metadata))
    Seq(TimeKey, SummaryKey, WindowKey).filter(from.contains).foreach(key => builder.putString(key, from.getString(key)))
    if (from.contains(EventTimeWatermark.delayKey))
      builder.putLong(EventTimeWatermark.delayKey, from.getLong(EventTimeWatermark.delayKey))
    builder.build()
  }

  def sameKeys(a: Metadata, b: Metadata): Boolean = Seq(TimeKey, SummaryKey, WindowKey).forall { key =>
    a.contains(key) == b.contains(key) && (!a.contains(key) || a.getString(key) == b.getString(key))
  } && a.contains(EventTimeWatermark.delayKey) == b.contains(EventTimeWatermark.delayKey) &&
    (!a.contains(EventTimeWatermark.delayKey) || a.getLong(EventTimeWatermark.delayKey) == b.getLong(EventTimeWatermark.delayKey))

  /** Throws if a column of `domain` does not have the domain's Spark type, apart from nullability. */
  def checkType(name: String, domain: TimeDomain, found: DataType): Unit = {
    def same(a: DataType, b: DataType): Boolean = (a, b) match {
      case (x: StructType, y: StructType) =>
        x.length == y.length && x.zip(y).forall { case (f, g) => f.name.equalsIgnoreCase(g.name) && same(f.dataType, g.dataType) }
      case _ => a == b
    }
    if (!same(found, domain.dataType))
      throw Errors.timeTypeMismatch(name, domain.toString, found.simpleString, domain.dataType.simpleString)
  }

  private def fromWindow(text: String): TimeColumn = {
    val column = for {
      fields <- Json.parse(text).collect { case JObject(fields) => fields.toMap }
      domain <- fields.get("domain").collect { case JString(domain) => TimeDomain.parse(domain) }
      summary <- fields.get("summary").map(steps => Summary.parse(Json.render(steps)))
      windows <- WindowKind.fromJson(fields)
    } yield TimeColumn(domain, summary, Some(windows))
    column.getOrElse(throw Errors.summaryInvalid(text, "is not a window"))
  }
}
