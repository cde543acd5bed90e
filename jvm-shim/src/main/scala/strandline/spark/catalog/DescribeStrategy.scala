package strandline.spark.catalog

import scala.util.Try
import scala.util.control.NonFatal

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.analysis.ResolvedTable
import org.apache.spark.sql.catalyst.catalog.CatalogTable
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.plans.logical.{DescribeRelation, LeafCommand, LogicalPlan}
import org.apache.spark.sql.classic.{DataFrameReader, SparkSession}
import org.apache.spark.sql.execution.{LocalTableScanExec, SparkPlan, SparkStrategy}
import org.apache.spark.sql.execution.command.{DescribeTableCommand, ExecutedCommandExec}
import org.apache.spark.sql.execution.datasources.v2.{DescribeTableExec, LeafV2CommandExec}
import org.apache.spark.sql.functions.col
import org.apache.spark.sql.types.StructType
import org.apache.spark.unsafe.types.UTF8String
import strandline.spark.plan.FrontierSource

/** Adds a channel's path, its time, its version and its frontier to what `DESCRIBE EXTENDED` shows of its table. */
final class DescribeStrategy(session: SparkSession) extends SparkStrategy {

  override def apply(plan: LogicalPlan): Seq[SparkPlan] = plan match {
    case DescribeRelation(ResolvedTable(catalog, identifier, table, _), true, output) if FrontierSource.isOurs(table) =>
      CatalogTables.find(session, catalog, identifier).toSeq.map { found =>
        DescribeChannelExec(output, DescribeTableExec(output, catalog.name, identifier, table, true), session,
          CatalogTables.options(found))
      }
    // Delta's catalog leaves other tables to the command of Spark's first catalog.
    case command @ DescribeTableCommand(_, table, partition, true, output)
        if partition.isEmpty && !session.sessionState.catalog.isTempView(table) =>
      CatalogTables.find(session, table.nameParts).filter(CatalogTables.isOurs).toSeq.map { found =>
        DescribeChannelExec(output, ExecutedCommandExec(command), session, CatalogTables.options(found))
      }
    case DescribeChannel(options, extended, output) =>
      val schema = session.read.format(FrontierSource.Name).options(options).load().schema
      val described = LocalTableScanExec(output, DescribeChannelExec.columns(schema), None)
      Seq(if (extended) DescribeChannelExec(output, described, session, options) else described)
    case ShowCreateChannel(table, output) =>
      Seq(LocalTableScanExec(output, Seq(InternalRow(UTF8String.fromString(CatalogTables.createStatement(table)))), None))
    case _ => Nil
  }
}

/**
 * `SHOW CREATE TABLE` of a channel's table. Spark's own shows columns, which `CREATE TABLE` refuses, and in some catalogs no
 * location.
 */
final case class ShowCreateChannel(table: CatalogTable, override val output: Seq[Attribute]) extends LeafCommand {
  override def simpleString(maxFields: Int): String = "ShowCreateChannel" // its options may have secrets
}

/** `DESCRIBE strandline.`/lake/flights``: a channel that no table of the catalog names. */
final case class DescribeChannel(options: Map[String, String], extended: Boolean, override val output: Seq[Attribute])
    extends LeafCommand {
  override def simpleString(maxFields: Int): String = "DescribeChannel" // its options may have secrets
}

/** Runs Spark's own description of a table, and appends the channel's. */
final case class DescribeChannelExec(
    output: Seq[Attribute],
    described: SparkPlan,
    @transient spark: SparkSession,
    options: Map[String, String])
    extends LeafV2CommandExec {

  override def simpleString(maxFields: Int): String = "DescribeChannel" // its options may have secrets

  override protected def run(): Seq[InternalRow] = {
    val reader = spark.read.format(FrontierSource.Name).options(options)
    // A channel that cannot be opened must not hide the table's description.
    val schema = Try(reader.load().schema)
    val (columns, table) = described.executeCollect().toSeq.span(row => row.numFields > 0 && row.getUTF8String(0).numBytes > 0)
    // The catalog has the columns of CREATE TABLE.
    schema.toOption.fold(columns)(DescribeChannelExec.columns) ++ table ++ channel(reader, schema).map { case (name, value) =>
      toCatalystRow(name, value, "")
    }
  }

  /** Returns what is known about the channel now. */
  private def channel(reader: DataFrameReader, schema: Try[StructType]): Seq[(String, String)] = {
    val known =
      try {
        val times = schema.get.fields.collect {
          case field if field.metadata.contains("strandline.time") =>
            s"${field.name} (${field.metadata.getString("strandline.time")})"
        }
        val progress = reader.option("show", "progress").load().select(col("version"), col("frontier")).head(1)
        Seq("Time" -> times.mkString(", ")) ++ progress.toSeq.flatMap { row =>
          val frontier = row.getSeq[String](1)
          Seq("Version" -> row.getLong(0).toString,
            "Frontier" -> (if (frontier.isEmpty) "everything is closed" else frontier.mkString(", ")))
        }
      } catch { case NonFatal(error) => Seq("Frontier" -> s"unknown: ${shortened(error)}") }
    // The option resume takes a path. Not every catalog shows a table's location.
    Seq("" -> "", "# Channel" -> "") ++ options.get("path").map("Path" -> _) ++ known
  }

  /** Returns our own line of an error. Spark's has the stack of a Python process. */
  private def shortened(error: Throwable): String = {
    val lines = String.valueOf(error.getMessage).linesIterator.toSeq
    lines.find(_.contains("STRANDLINE_")).orElse(lines.headOption).getOrElse("").trim.take(300)
  }
}

object DescribeChannelExec {
  def columns(schema: StructType): Seq[InternalRow] = schema.map { field =>
    InternalRow.fromSeq(Seq(field.name, field.dataType.simpleString, field.getComment().orNull).map(UTF8String.fromString))
  }
}
