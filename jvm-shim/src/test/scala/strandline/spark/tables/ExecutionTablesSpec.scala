package strandline.spark.tables

import org.apache.spark.SparkThrowable
import org.scalatest.funsuite.AnyFunSuite

/** Which version each read of a table gets, while the table goes on. Python tests it with channels and Delta. */
class ExecutionTablesSpec extends AnyFunSuite {

  /** A table that gets a version with each look at it. */
  private final class Growing(id: String, first: Long, gone: Long => Boolean = _ => false) {
    private var version = first - 1

    def read(name: String, at_ : String = s"/$id"): VersionedTable = new VersionedTable {
      override def key: Any = name
      override def path: String = at_
      override def newest(): TableReading = {
        version += 1
        at(TableVersion(at_, id, version))
      }
      override def at(wanted: TableVersion): TableReading =
        if (gone(wanted.version)) throw new IllegalStateException("a file is missing\nfrom the table")
        else TableReading(wanted.copy(path = at_, table = id), identity)
    }
  }

  private def repeated(begun: TableVersion*) = new ExecutionTables(Some(RepeatedBatch(7, begun, "/c/strandline/tables/7")))

  private def refusal(run: => Any): (String, String) = intercept[Exception](run) match {
    case error: SparkThrowable => (error.getCondition, error.toString)
    case error => throw error
  }

  test("all reads of a table get the version of the first, by whichever path") {
    val (table, other) = (new Growing("a", 3), new Growing("b", 9))
    val tables = new ExecutionTables(None)
    val found = Seq(table.read("x"), table.read("y"), other.read("z"), table.read("x"), table.read("w", "/link")).map(
      tables.choose(_).version.version)
    assert(found == Seq(3, 3, 9, 3, 3))
    assert(tables.versions == Seq(TableVersion("/a", "a", 3), TableVersion("/b", "b", 9)))
  }

  test("a repeated batch gets the versions that it began with") {
    val tables = repeated(TableVersion("/a", "a", 3), TableVersion("/b", "b", 9))
    assert(tables.choose(new Growing("a", 5).read("x")).version.version == 3)
    assert(tables.choose(new Growing("b", 9).read("y", "/moved")).version.version == 9)
    assert(tables.versions.map(_.version) == Seq(3, 9))
  }

  test("never another version: what cannot be read is named") {
    val was = TableVersion("/a", "a", 3)
    val (gone, text) = refusal(repeated(was).choose(new Growing("a", 5, _ == 3).read("x")))
    assert(gone == "STRANDLINE_TABLE_VERSION_UNAVAILABLE")
    assert(Seq("Batch 7", "version 3", "/a", "a file is missing.", "remove /c/strandline/tables/7").forall(text.contains), text)
    assert(refusal(repeated(was).choose(new Growing("c", 5).read("x", "/a")))._1 == "STRANDLINE_TABLE_VERSION_UNAVAILABLE")
    assert(refusal(repeated(was).choose(new Growing("c", 5).read("x")))._1 == "STRANDLINE_TABLES_CHANGED")
    assert(refusal(repeated().choose(new Growing("c", 5).read("x")))._1 == "STRANDLINE_TABLES_CHANGED")
  }
}
