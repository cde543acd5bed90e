package strandline.spark.time

import scala.util.Random

import org.apache.spark.sql.catalyst.InternalRow
import org.json4s._
import org.scalatest.funsuite.AnyFunSuite
import strandline.spark.errors.StrandlineException

/** Domains and antichains, compared with a direct reading of their definitions. */
class TimeDomainSpec extends AnyFunSuite {
  private val texts = Seq(
    "int64",
    "timestamp",
    "uint64",
    "product(epoch int64, iter int64)",
    "lex(tick int64, stratum int32, iter int64)",
    "product(event timestamp, loop lex(tick int64, iter int64), x int8)",
    "lex(p product(a int64, b int64), c int64)")

  /** The order by its definition, over the JSON form. */
  private def lessEqual(domain: TimeDomain, a: JValue, b: JValue): Boolean = (domain, a, b) match {
    case (_: Scalar, JInt(x), JInt(y)) => x <= y
    case (Product(parts), JArray(xs), JArray(ys)) => parts.indices.forall(i => lessEqual(parts(i)._2, xs(i), ys(i)))
    case (Lex(parts), JArray(xs), JArray(ys)) =>
      parts.indices.find(i => xs(i) != ys(i)).forall(i => lessEqual(parts(i)._2, xs(i), ys(i)))
    case other => fail(s"not a time: $other")
  }

  private def random(domain: TimeDomain, r: Random): JValue = domain match {
    case _: Scalar => JInt(r.nextInt(3))
    case Product(parts) => JArray(parts.map(p => random(p._2, r)).toList)
    case Lex(parts) => JArray(parts.map(p => random(p._2, r)).toList)
  }

  private def time(domain: TimeDomain, json: JValue): Array[Long] = domain.fromJson(json).fold(fail(_), identity)

  test("a domain's text is parsed as it was written, and a coordinate without a type is an int64") {
    for (text <- texts) assert(TimeDomain.parse(text).toString == text)
    assert(TimeDomain.parse(" product( epoch ,iter  int64)").toString == "product(epoch int64, iter int64)")
  }

  test("a malformed domain is refused by name") {
    val bad = Seq("", "float", "product()", "product(", "product(a", "product(a int64", "product(a float)", "product(a, A)",
      "int64 x", "lex(a;b)") :+
      ("product(a " * 9 + "int64" + ")" * 9) :+ ("x" * 5000)
    for (text <- bad) {
      val e = intercept[StrandlineException](TimeDomain.parse(text))
      assert(e.getCondition == "STRANDLINE_TIME_DOMAIN_INVALID" && e.getSqlState == "22023", text)
    }
  }

  test("the order, and its JSON form, are those of the definition") {
    val r = new Random(7)
    for (text <- texts; _ <- 1 to 300) {
      val domain = TimeDomain.parse(text)
      val (a, b) = (random(domain, r), random(domain, r))
      assert(domain.lessEqual(time(domain, a), time(domain, b), 0) == lessEqual(domain, a, b), s"$text $a $b")
      assert(domain.toJson(time(domain, a), 0) == a)
      assert(domain.lessEqual(domain.minimum, time(domain, a), 0))
    }
  }

  test("an antichain keeps the minimal times, closes times that none of them is below, and has a meet") {
    val r = new Random(11)
    for (text <- texts; _ <- 1 to 200) {
      val domain = TimeDomain.parse(text)
      val times = Seq.fill(r.nextInt(5))(random(domain, r))
      val others = Seq.fill(r.nextInt(5))(random(domain, r))
      val frontier = Antichain(domain, times.map(time(domain, _)))
      val other = Antichain(domain, others.map(time(domain, _)))
      val minimal = times.distinct.filterNot(t => times.exists(u => u != t && lessEqual(domain, u, t)))
      assert(frontier.elements.map(domain.toJson(_, 0)).toSet == minimal.toSet)
      assert(Antichain(domain, r.shuffle(times).map(time(domain, _))) == frontier)
      val probe = random(domain, r)
      assert(frontier.lessEqual(time(domain, probe)) == times.exists(lessEqual(domain, _, probe)))
      assert(frontier.meet(other).lessEqual(time(domain, probe)) == (times ++ others).exists(lessEqual(domain, _, probe)))
      assert(frontier.dominates(other) == others.forall(o => times.exists(lessEqual(domain, _, o))))
    }
  }

  test("JSON that is not a list of times of the domain is refused") {
    val domain = TimeDomain.parse("product(a int64, b int8)")
    for (bad <- Seq("3", "[1,2]", "[[1]]", "[[1,2,3]]", "[[1,128]]", "[[1,\"2\"]]", "[[1,2.5]]", "[[1,null]]", "{}"))
      assert(Antichain.fromJson(domain, Json.parse(bad).get).isLeft, bad)
    assert(Antichain.fromJson(TimeDomain.parse("uint64"), Json.parse("[-1]").get).isLeft)
    assert(Antichain.fromJson(TimeDomain.parse("int64"), Json.parse("[9223372036854775808]").get).isLeft)
  }

  test("a row's time is read coordinate by coordinate, and a null is reported") {
    val domain = TimeDomain.parse("product(event timestamp, loop lex(tick int64, iter int32))")
    val into = new Array[Long](3)
    assert(domain.read(InternalRow(InternalRow(5L, InternalRow(6L, 7))), 0, into, 0) && into.toSeq == Seq(5L, 6L, 7L))
    assert(!domain.read(InternalRow(null), 0, into, 0))
    assert(!domain.read(InternalRow(InternalRow(5L, null)), 0, into, 0))
    assert(!domain.read(InternalRow(InternalRow(5L, InternalRow(null, 7))), 0, into, 0))
  }

  test("times have a readable form") {
    val domain = TimeDomain.parse("product(event timestamp, iter int64)")
    assert(domain.format(Array(1000000L, 3L), 0) == "(event=1970-01-01T00:00:01Z, iter=3)")
    val timestamp = TimeDomain.parse("timestamp")
    assert(timestamp.format(Array(Long.MinValue), 0) == "the beginning")
    assert(timestamp.format(Array(Long.MinValue + 1), 0) == "-290308-12-21T19:59:05.224193Z")
    assert(timestamp.format(Array(Long.MaxValue), 0) == "+294247-01-10T04:00:54.775807Z")
    assert(timestamp.format(Array(-62154086400000000L), 0) == "0000-06-01T00:00:00Z")
    assert(timestamp.format(Array(500000L), 0) == "1970-01-01T00:00:00.500000Z")
    assert(TimeDomain.parse("int8").format(Array(-128L), 0) == "the beginning")
    assert(TimeDomain.parse("uint64").format(Array(Long.MinValue), 0) == "0")
    assert(TimeDomain.parse("uint64").format(Array(Long.MaxValue), 0) == "18446744073709551615")
    assert(Antichain(domain, Nil).toString == "{}")
  }
}
