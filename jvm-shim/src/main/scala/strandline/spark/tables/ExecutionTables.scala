package strandline.spark.tables

import scala.collection.mutable
import scala.util.control.NonFatal

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import strandline.spark.errors.Errors

/** A batch that Spark repeats: its number, the versions that it has begun with, and the file that has them. */
private[tables] final case class RepeatedBatch(batch: Long, begun: Seq[TableVersion], file: String)

/** The tables that one execution of a plan reads, each at one version, wherever in the plan it is. */
private[tables] final class ExecutionTables(repeated: Option[RepeatedBatch]) {
  private val readings = mutable.Map.empty[Any, TableReading]
  private val chosen = mutable.LinkedHashMap.empty[String, TableVersion]

  /** The versions that are read, each table once. */
  def versions: Seq[TableVersion] = chosen.values.toSeq

  /** Returns a leaf of a plan that reads the table at its version. */
  def replace(leaf: LogicalPlan, table: VersionedTable): LogicalPlan = choose(table).replace(leaf)

  def choose(table: VersionedTable): TableReading = readings.getOrElseUpdate(
    table.key, {
      val newest = table.newest()
      val wanted = repeated.fold(chosen.getOrElse(newest.version.table, newest.version))(begunWith(_, newest.version))
      chosen.getOrElseUpdate(wanted.table, wanted)
      if (wanted.table == newest.version.table && wanted.version == newest.version.version) newest else before(table, wanted)
    })

  /** Returns the version that the repeated batch has begun with. A table that was made anew in its place may still have it. */
  private def begunWith(batch: RepeatedBatch, now: TableVersion): TableVersion =
    batch.begun.find(_.table == now.table).orElse(batch.begun.find(_.path == now.path)).getOrElse {
      throw Errors.tablesDiffer(batch.batch, batch.begun.map(_.path), now.path, batch.file)
    }

  private def before(table: VersionedTable, wanted: TableVersion): TableReading =
    try {
      val found = table.at(wanted)
      if (found.version.table != wanted.table)
        throw new IllegalStateException(s"another table is there: its id is ${found.version.table} instead of ${wanted.table}")
      found
    } catch {
      case NonFatal(error) => repeated match {
          case Some(batch) => throw unavailable(batch, wanted,
              Option(error.getMessage).getOrElse(error.toString).linesIterator.nextOption().getOrElse("").take(300)).initCause(
              error)
          case None => throw error
        }
    }

  private def unavailable(batch: RepeatedBatch, was: TableVersion, why: String) =
    Errors.tableVersionUnavailable(batch.batch, was.path, was.version, why, batch.file)
}
