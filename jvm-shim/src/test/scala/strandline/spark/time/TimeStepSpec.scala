package strandline.spark.time

import scala.util.Random

import org.scalatest.funsuite.AnyFunSuite
import strandline.spark.errors.StrandlineException

/** Steps to a coordinate of a composite time, compared with an enumeration of the times that may still appear. */
class TimeStepSpec extends AnyFunSuite {

  private val domain = TimeDomain.parse("product(at timestamp, loop lex(outer int8, inner int8), n int8)")

  private def projected(name: String, elements: Seq[Array[Long]]): Antichain =
    Summary(Seq(CoordinateStep(name))).results(Antichain(domain, elements))

  test("a value of a product's coordinate is closed when no open time has it") {
    val r = new Random(7)
    for (_ <- 1 to 300) {
      val elements = Seq.fill(1 + r.nextInt(4))(Array.fill(4)(r.nextInt(6).toLong))
      val frontier = Antichain(domain, elements)
      val open = for (a <- 0L to 6; b <- 0L to 6; c <- 0L to 6; d <- 0L to 6; t = Array(a, b, c, d) if frontier.lessEqual(t))
        yield t
      for ((name, from, until) <- Seq(("at", 0, 1), ("loop", 1, 3), ("n", 3, 4))) {
        val part = CoordinateStep.find(domain, name).get._2
        assert(projected(name, elements) == Antichain(part, open.map(_.slice(from, until))), s"$name of $frontier")
      }
    }
  }

  test("the empty frontier stays empty, and steps compose with windows") {
    assert(projected("at", Nil) == Antichain(Scalar.timestamp, Nil))
    val end = Summary(Seq(CoordinateStep("at"), WindowStep("end", Windows(10, 10, 0))))
    assert(end.results(Antichain(domain, Seq(Array(37L, 0L, 0L, 5L), Array(52L, 0L, 0L, 0L)))) == Antichain(Scalar.timestamp,
      Seq(Array(40L))))
    assert(Summary.parse(Json.render(end.toJson)) == end)
  }

  test("only the first coordinate of a lexicographic time is monotone") {
    val lex = TimeDomain.parse("lex(tick timestamp, iter int64)")
    assert(CoordinateStep.find(lex, "TICK").contains((0, Scalar.timestamp)))
    assert(CoordinateStep.find(lex, "iter").isEmpty)
    assert(CoordinateStep.find(Scalar.timestamp, "at").isEmpty)
    intercept[StrandlineException](Summary(Seq(CoordinateStep("iter"))).results(Antichain.least(lex)))
  }
}
