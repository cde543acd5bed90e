package strandline.spark

import java.util.Base64

import org.apache.hadoop.conf.Configuration
import org.apache.spark.sql.sources._
import org.apache.spark.sql.types._
import org.scalatest.funsuite.AnyFunSuite

/** What the source says of a batch, and which filters may skip rows. The scan itself is tested from Python, where the source is. */
class NativeScanSpec extends AnyFunSuite {
  private val schema = StructType.fromDDL("n bigint, x double, s struct<y: float, z: string>, `a.b` float")

  test("a file that several tasks share is one file, in the order of the batch") {
    val scan = NativeScan.of(Seq(
      """{"files":[["a b.parquet",10,0,1],["big.parquet",99,0,2]],"scan":{"native":true,"root":"/t","ignoreMissingFiles":true,"required":false}}""",
      """{"files":[["big.parquet",99,1,2],["c.parquet",5,0,1]]}"""
    ))
    assert(scan.map(_.files) contains Seq(NativeFile("a b.parquet", 10), NativeFile("big.parquet", 99), NativeFile("c.parquet", 5)))
    assert(scan.map(s => (s.root, s.refused, s.ignoreMissingFiles, s.required)) contains (("/t", None, true, false)))
  }

  test("a refusal keeps its reason, and what is no decision of ours is none") {
    assert(NativeScan.of(Seq("""{"files":[],"scan":{"native":false,"reason":"why"}}""")).map(_.refused) contains Some("why"))
    assert(NativeScan.of(Seq("""{"files":[],"scan":{"native":true}}""")).flatMap(_.refused).isDefined, "a root is missing")
    assert(Seq(Nil, Seq("no json"), Seq("""[["a",0,1]]"""), Seq("""{"files":[]}""")).forall(NativeScan.of(_).isEmpty))
  }

  test("paths are taken as they are") {
    val files = scala.collection.immutable.ArraySeq(NativeFile("100%/a:b c#d.parquet", 1))
    val index = new StrandlineFileIndex(NativeScan("/t x", files, None))
    assert(index.listFiles(Nil, Nil).flatMap(_.files).map(_.getPath.toUri.getPath) == Seq("/t x/100%/a:b c#d.parquet"))
    assert(index.inputFiles.toSeq == Seq("file:/t%20x/100%25/a:b%20c%23d.parquet"))
  }

  test("paths below a URL are taken as they are too") {
    val file = NativeFile("a:b/c 100%.parquet", 1)
    def of(root: String) = NativeScan(root, scala.collection.immutable.ArraySeq(file), None)
    assert(of("s3a://bucket/t").path(file).toString == "s3a://bucket/t/a:b/c 100%.parquet")
    assert(of("s3a://bucket/t").rootPath.toString == "s3a://bucket/t" && of("s3a://bucket").rootPath.toString == "s3a://bucket/")
    assert(of("/t").unreachable(new Configuration).isEmpty, "a local one is looked for by the source")
    assert(of("nobody://knows/t").unreachable(new Configuration).exists(_.contains("No FileSystem for scheme \"nobody\"")))
  }

  test("a pickled InputPartition of Python gives its text; anything else gives none") {
    // cloudpickle.dumps(InputPartition("hi"), 5) and pickle.dumps([1], 5)
    val partition = "gAWVQQAAAAAAAACMFnB5c3Bhcmsuc3FsLmRhdGFzb3VyY2WUjA5JbnB1dFBhcnRpdGlvbpSTlCmBlH2UjAV2YWx1ZZSMAmhplHNiLg=="
    assert(NativeScanRule.unpickled(Base64.getDecoder.decode(partition)) contains "hi")
    assert(NativeScanRule.unpickled(Base64.getDecoder.decode("gAWVBgAAAAAAAABdlEsBYS4=")).isEmpty)
    assert(NativeScanRule.unpickled(Array[Byte](1, 2)).isEmpty)
  }

  test("bounds of floating-point columns, wherever they are in a filter, rule nothing out") {
    import StrandlineParquetFormat.isSafe
    assert(isSafe(GreaterThan("n", 1L), schema) && isSafe(EqualTo("s.z", "a"), schema) && isSafe(IsNotNull("x"), schema))
    assert(!isSafe(GreaterThan("x", 1.0), schema) && !isSafe(In("s.y", Array(1f)), schema) && !isSafe(LessThan("`a.b`", 1f), schema))
    assert(!isSafe(And(GreaterThan("n", 1L), Not(LessThan("X", 1.0))), schema))
    assert(!isSafe(GreaterThan("unknown", 1L), schema))
  }
}
