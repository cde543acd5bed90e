package strandline.spark.time

import scala.util.Random

import org.apache.spark.sql.types.ByteType
import org.scalatest.funsuite.AnyFunSuite
import strandline.spark.errors.StrandlineException

/** The steps that rows can take, compared with an enumeration of small domains. */
class LeafStepSpec extends AnyFunSuite {
  private val tiny = Scalar("tiny", ByteType, -3, 4)

  private val domains: Seq[TimeDomain] = Seq(
    tiny,
    Product(Seq("a" -> tiny, "b" -> tiny)),
    Lex(Seq("a" -> tiny, "b" -> tiny, "c" -> tiny)),
    Product(Seq("a" -> tiny, "l" -> Lex(Seq("b" -> tiny, "c" -> tiny)))),
    Lex(Seq("p" -> Product(Seq("a" -> tiny, "b" -> tiny)), "c" -> tiny)),
    Lex(Seq("a" -> tiny, "l" -> Lex(Seq("b" -> tiny, "c" -> tiny)))))

  /** The leaves of every time. */
  private def all(domain: TimeDomain): Seq[Array[Long]] = (1 to domain.width).foldLeft(Seq(Array.empty[Long])) { (times, _) =>
    for (time <- times; leaf <- tiny.least to tiny.greatest) yield time :+ leaf
  }

  private def paths(domain: TimeDomain): Seq[Seq[String]] = domain match {
    case _: Scalar => Seq(Nil)
    case composite: Composite => composite.coordinates.flatMap { case (name, part) => paths(part).map(name +: _) }
  }

  /** Generates a step for `domain`. Distances may lead out of the domain. */
  private def step(domain: TimeDomain, r: Random): TimeStep = {
    val path = paths(domain)(r.nextInt(paths(domain).size))
    (r.nextInt(4), domain) match {
      case (0, composite: Product) => CoordinateStep(composite.coordinates(r.nextInt(composite.coordinates.size))._1)
      case (0, composite: Lex) => CoordinateStep(composite.coordinates.head._1)
      case (1, composite: Product) => CoordinatesStep(Some(composite.coordinates.map(_._1).filter(_ => r.nextBoolean())).filter(
            _.nonEmpty).getOrElse(Seq(composite.coordinates.head._1)))
      case (1, composite: Lex) => CoordinatesStep(composite.coordinates.map(_._1).take(1 + r.nextInt(composite.coordinates.size)))
      case (2, _) => TruncateStep(1L + r.nextInt(9), r.nextInt(7).toLong - 3, path)
      case _ => ShiftStep(r.nextInt(19) - 6, path)
    }
  }

  private def frontier(domain: TimeDomain, r: Random): Antichain =
    Antichain(domain, Seq.fill(r.nextInt(4))(Array.fill(domain.width)(tiny.least + r.nextInt(8))))

  private def randomly(runs: Int)(body: (Random, TimeDomain) => Unit): Unit = {
    val seed = Option(System.getProperty("strandline.seed")).fold(Random.nextInt(1000000))(_.toInt)
    val r = new Random(seed)
    for (run <- 1 to runs; domain <- domains) withClue(s"-Dstrandline.seed=$seed, run $run, $domain: ")(body(r, domain))
  }

  test("a frontier's image consists of the least images of the open times") {
    randomly(120) { (r, domain) =>
      val (s, f) = (step(domain, r), frontier(domain, r))
      val map = s.on(domain)
      val images = all(domain).filter(f.lessEqual).flatMap(map(_))
      assert(s.results(f) == Antichain(map.target, images), s"$s of $f")
    }
  }

  test("a sequence of steps closes exactly what their composition closes, or less where some times have no intermediate image") {
    randomly(80) { (r, domain) =>
      val first = step(domain, r)
      val second = step(first.on(domain).target, r)
      val f = frontier(domain, r)
      val images = all(domain).filter(f.lessEqual).flatMap(first.on(domain)(_)).flatMap(second.on(first.on(domain).target)(_))
      val found = Summary(Seq(first, second)).results(f)
      assert(found == second.results(first.results(f)))
      assert(images.forall(found.lessEqual), s"$first, $second of $f")
    }
  }

  test("a step is monotone, and a shift forwards advances strictly") {
    randomly(8) { (r, domain) =>
      val s = step(domain, r)
      val map = s.on(domain)
      val times = r.shuffle(all(domain)).take(60)
      for (a <- times; x <- map(a)) {
        s match {
          case ShiftStep(d, _) if d > 0 => assert(domain.lessEqual(a, x, 0) && !domain.lessEqual(x, a, 0))
          case TruncateStep(_, _, _) => assert(domain.lessEqual(x, a, 0))
          case _ =>
        }
        for (b <- times if domain.lessEqual(a, b, 0); y <- map(b)) assert(map.target.lessEqual(x, y, 0), s"$s")
      }
    }
  }

  test("successors are the least times after a time") {
    randomly(10) { (r, domain) =>
      val time = Array.fill(domain.width)(tiny.least + r.nextInt(8))
      val after = all(domain).filter(t => domain.lessEqual(time, t, 0) && !domain.lessEqual(t, time, 0))
      assert(Antichain(domain, domain.successors(time)) == Antichain(domain, after), domain.format(time, 0))
    }
  }

  test("unsigned and widest coordinates move without wrapping") {
    for (name <- Seq("uint64", "int64", "timestamp", "int8")) {
      val scalar = Scalar.all(name)
      val values = Seq(scalar.low, scalar.low + 1, BigInt(0), BigInt(5), scalar.high - 1, scalar.high)
      for (value <- values; by <- Seq(BigInt(0), BigInt(1), BigInt(Long.MaxValue), ShiftStep.Most)) {
        val moved = ShiftStep(by).on(scalar)(Array(scalar.leaf(value))).map(t => scalar.value(t(0)))
        assert(moved == Some(value + by).filter(_ <= scalar.high), s"$value + $by in $name")
      }
      for (value <- values; unit <- Seq(1L, 7L, 3600000000L, Long.MaxValue); offset <- Seq(0L, 3L, -5L)) {
        val down = value - (value - offset).mod(unit)
        val found = TruncateStep(unit, offset).on(scalar)(Array(scalar.leaf(value))).map(t => scalar.value(t(0)))
        assert(found == Some(down).filter(_ >= scalar.low), s"$value to $unit from $offset in $name")
      }
    }
  }

  test("where paths meet, the frontier is the meet of theirs") {
    val least = LeastStep(Seq(Summary.identity, Summary(Seq(ShiftStep(3)))))
    val early = LeastStep(Seq(Summary(Seq(ShiftStep(3))), Summary(Seq(ShiftStep(5)))))
    val at = Antichain(Scalar.timestamp, Seq(Array(10L)))
    assert(least.results(at) == at && early.results(at) == Antichain(Scalar.timestamp, Seq(Array(13L))))
    val mixed = LeastStep(Seq(Summary(Seq(CoordinateStep("a"))), Summary.identity))
    assert(intercept[StrandlineException](
      mixed.results(Antichain.least(domains(1)))).getCondition == "STRANDLINE_TIME_DOMAIN_MISMATCH")
  }

  test("steps are parsed as they were written, and unknown ones are refused") {
    randomly(20) { (r, domain) =>
      val summary = Summary(Seq(step(domain, r), LeastStep(Seq(Summary.identity, Summary(Seq(step(domain, r)))))))
      assert(Summary.parse(Json.render(summary.toJson)) == summary)
    }
    val bad = Seq(
      """{"shift":1.5}""",
      """{"shift":36893488147419103232}""",
      """{"shift":1,"coordinate":""}""",
      """{"shift":1,"unit":2}""",
      """{"truncate":0,"offset":0}""",
      """{"truncate":5}""",
      """{"coordinates":[]}""",
      """{"coordinate":"a.b"}""",
      """{"enter":"product(a tiny)"}""",
      """{"enter":["int64"]}""",
      """{"enter":"product(a, b)","shift":1}""",
      """{"least":[]}""",
      """{"least":[{"shift":1}]}""")
    for (text <- bad)
      assert(intercept[StrandlineException](Summary.parse(s"[$text]")).getCondition == "STRANDLINE_SUMMARY_INVALID", text)
  }

  test("a step that does not fit the times is refused by name") {
    val lex = TimeDomain.parse("lex(tick int64, stratum int64, iter int64)")
    val product = TimeDomain.parse("product(epoch int64, loop lex(outer int64, inner int64))")
    val wrong = Seq(
      CoordinatesStep(Seq("tick", "iter")) -> lex,
      CoordinatesStep(Seq("stratum")) -> lex,
      CoordinatesStep(Seq("loop", "epoch")) -> product,
      CoordinatesStep(Seq("epoch", "epoch")) -> product,
      CoordinatesStep(Seq("x")) -> Scalar.timestamp,
      EnterStep(Scalar.timestamp) -> Scalar.all("int64"),
      EnterStep(TimeDomain.parse("product(epoch, at timestamp)")) -> Scalar.all("int64"),
      EnterStep(TimeDomain.parse("product(epoch, x product(at timestamp))")) -> Scalar.all("int64"),
      EnterStep(TimeDomain.parse("product(epoch int32, iter)")) -> Scalar.all("int64"),
      EnterStep(TimeDomain.parse("product(tick, stratum, iter, last)")) -> lex,
      EnterStep(TimeDomain.parse("lex(stratum, tick, iter, last)")) -> lex,
      ShiftStep(1) -> product,
      ShiftStep(1, Seq("loop")) -> product,
      ShiftStep(1, Seq("loop", "x")) -> product,
      ShiftStep(1, Seq("x")) -> Scalar.timestamp)
    for ((step, domain) <- wrong)
      assert(intercept[StrandlineException](step.on(domain)).getCondition == "STRANDLINE_TIME_DOMAIN_MISMATCH",
        s"$step of $domain")
  }
}
