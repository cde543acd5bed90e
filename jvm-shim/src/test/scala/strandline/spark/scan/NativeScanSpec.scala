package strandline.spark.scan

import java.util.Base64

import scala.collection.immutable.ArraySeq

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.spark.sql.sources._
import org.apache.spark.sql.types._
import org.scalatest.funsuite.AnyFunSuite
import strandline.spark.compat.PythonPartition

/**
 * The source's description of a batch, and which filters may skip rows. Python tests the scan itself, because the source is in
 * Python.
 */
class NativeScanSpec extends AnyFunSuite {
  private val schema = StructType.fromDDL("n bigint, x double, s struct<y: float, z: string>, `a.b` float")

  private def one(root: String, path: String) = NativeScan(root, ArraySeq(path), ArraySeq(1L), None)

  test("a file that several tasks share is one file, in the order of the batch") {
    val scan = NativeScan.of(Seq(
        """{"paths":["a b.parquet","big.parquet"],"sizes":[10,99],"shared":[[1,0,2]],""" +
          """"scan":{"native":true,"root":"/t","ignoreMissingFiles":true,"required":false}}""",
        """{"paths":["big.parquet","c.parquet"],"sizes":[99,5],"shared":[[0,1,2]]}"""))
    assert(scan.map(_.paths) contains Seq("a b.parquet", "big.parquet", "c.parquet"))
    assert(scan.map(_.sizes) contains Seq(10L, 99L, 5L))
    assert(scan.map(s => (s.root, s.refused, s.ignoreMissingFiles, s.required)) contains (("/t", None, true, false)))
  }

  test("a refusal keeps its reason, and a partition without our decision yields none") {
    assert(NativeScan.of(Seq("""{"scan":{"native":false,"reason":"why"}}""")).map(_.refused) contains Some("why"))
    val odd = Seq(
      """{"paths":[],"sizes":[],"scan":{"native":true}}""",
      """{"paths":["a"],"sizes":[],"scan":{"native":true,"root":"/t"}}""",
      """{"paths":[null],"sizes":[1],"scan":{"native":true,"root":"/t"}}""")
    assert(odd.forall(text => NativeScan.of(Seq(text)).flatMap(_.refused).isDefined))
    assert(Seq(Nil, Seq("no json"), Seq("""[["a",0,1]]"""), Seq("""{"paths":[],"sizes":[]}""")).forall(NativeScan.of(_).isEmpty))
  }

  test("paths are not parsed") {
    val index = new StrandlineFileIndex(one("/t x", "100%/a:b c#d.parquet"))
    assert(index.listFiles(Nil, Nil).flatMap(_.files).map(_.getPath.toUri.getPath) == Seq("/t x/100%/a:b c#d.parquet"))
    assert(index.inputFiles.toSeq == Seq("file:/t%20x/100%25/a:b%20c%23d.parquet"))
  }

  test("paths below a URL are not parsed either") {
    def of(root: String) = one(root, "a:b/c 100%.parquet")
    assert(of("s3a://bucket/t").path(0).toString == "s3a://bucket/t/a:b/c 100%.parquet")
    assert(of("s3a://bucket/t").rootPath.toString == "s3a://bucket/t" && of("s3a://bucket").rootPath.toString == "s3a://bucket/")
    assert(of("/t").unreachable(new Configuration).isEmpty, "a local one is looked for by the source")
    assert(of("nobody://knows/t").unreachable(new Configuration).exists(_.contains("No FileSystem for scheme \"nobody\"")))
  }

  test("plain names give the same paths as Hadoop's own way") {
    val names = Seq("part-5c02a8d56ae3-0f-00000.parquet", "day=2020-01-01/a_b.parquet", "a//b", "a/./b", "a/../b", "x.", "ü",
      "a+b", "a:b", "%41", "a/")
    for (root <- Seq("/t", "/t x/%41", "/", "s3a://bucket/t", "s3a://bucket"); name <- names) {
      val directory = root.stripPrefix("s3a://bucket").stripSuffix("/")
      val (scheme, authority) = if (root.startsWith("s3a")) ("s3a", "bucket") else ("file", null)
      val expected = new Path(scheme, authority, s"$directory/$name")
      val made = one(if (root == "/") "" else root, name).path(0)
      assert(made == expected && made.toString == expected.toString && made.toUri.toString == expected.toUri.toString)
    }
  }

  test("a pickled InputPartition of Python yields its text; any other object yields none") {
    // cloudpickle.dumps(InputPartition("hi"), 5) and pickle.dumps([1], 5)
    val partition = "gAWVQQAAAAAAAACMFnB5c3Bhcmsuc3FsLmRhdGFzb3VyY2WUjA5JbnB1dFBhcnRpdGlvbpSTlCmBlH2UjAV2YWx1ZZSMAmhplHNiLg=="
    assert(PythonPartition.json(Base64.getDecoder.decode(partition)) contains "hi")
    assert(PythonPartition.json(Base64.getDecoder.decode("gAWVBgAAAAAAAABdlEsBYS4=")).isEmpty)
    assert(PythonPartition.json(Array[Byte](1, 2)).isEmpty)
  }

  test("bounds of floating-point columns skip nothing, wherever they are in a filter") {
    import StrandlineParquetFormat.isSafe
    assert(isSafe(GreaterThan("n", 1L), schema) && isSafe(EqualTo("s.z", "a"), schema) && isSafe(IsNotNull("x"), schema))
    assert(!isSafe(GreaterThan("x", 1.0), schema) && !isSafe(In("s.y", Array(1f)), schema) && !isSafe(LessThan("`a.b`", 1f),
      schema))
    assert(!isSafe(And(GreaterThan("n", 1L), Not(LessThan("X", 1.0))), schema))
    assert(!isSafe(GreaterThan("unknown", 1L), schema))
  }
}
