package strandline.spark.time

import scala.util.Random

import org.scalatest.funsuite.AnyFunSuite
import strandline.spark.errors.StrandlineException

/** Path summaries of windows, compared with an enumeration of all windows. */
class SummarySpec extends AnyFunSuite {

  private def frontier(times: Long*): Antichain = Antichain(Scalar.timestamp, times.map(Array(_)))

  /** Returns bounds of all windows that hold a time in [from, from + span), by Spark's definition. */
  private def bounds(w: Windows, bound: String, times: Seq[Long]): Seq[Long] =
    for {
      time <- times
      start <- time - w.width + 1 to time
      if Math.floorMod(start - w.offset, w.slide) == 0
    } yield bound match {
      case "start" => start
      case "end" => start + w.width
      case "time" => start + w.width - 1
    }

  test("a bound's frontier is the least bound of a window that an open time may be in") {
    val r = new Random(3)
    for (_ <- 1 to 500) {
      val slide = 1L + r.nextInt(9)
      val w = Windows(slide * (1 + r.nextInt(3)) + r.nextInt(2) * r.nextInt(slide.toInt), slide, r.nextInt(9).toLong - 4)
      val f = r.nextInt(100).toLong - 50
      for (bound <- Seq("start", "end", "time")) {
        val expected = bounds(w, bound, f until f + 2 * w.slide + 1).min
        assert(Summary(Seq(WindowStep(bound, w))).results(frontier(f)) == frontier(expected), s"$bound of $w after $f")
      }
    }
  }

  test("steps compose: windows of windows close when the last time that falls into them does") {
    val (hour, day) = (Windows(10, 10, 0), Windows(240, 240, 0))
    for (f <- 0L until 600L; inner <- Seq("start", "end", "time")) {
      val open = bounds(day, "end", bounds(hour, inner, f until f + 300).distinct)
      assert(Summary(Seq(WindowStep(inner, hour), WindowStep("end", day))).results(frontier(f)) == frontier(open.min))
    }
  }

  test("the least and the greatest time stay in range, and an empty frontier stays empty") {
    val w = Windows(3600000000L, 3600000000L, 0)
    for (bound <- Seq("start", "end", "time")) {
      val summary = Summary(Seq(WindowStep(bound, w)))
      assert(summary.results(frontier()) == frontier())
      assert(summary.results(frontier(Long.MinValue)).elements.head(0) <= Long.MinValue + w.width)
    }
    assert(Summary(Seq(WindowStep("end", w))).results(frontier(Long.MaxValue)) == frontier())
  }

  test("a window's start before the first timestamp cannot appear, so the next start is the least") {
    val w = Windows(67, 27, 0)
    val next = Iterator.iterate(Long.MinValue)(_ + 1).find(Math.floorMod(_, 27L) == 0).get
    for (time <- Seq(Long.MinValue, Long.MinValue + 1, next, next + 66))
      assert(Summary(Seq(WindowStep("start", w))).results(frontier(time)) == frontier(next), time)
    assert(Summary(Seq(WindowStep("start", w))).results(frontier(next + 67)) == frontier(next + 27))
  }

  test("paths from several inputs have the frontiers of their inputs, and those that are not stated the frontier of all") {
    val r = new Random(5)
    val names = Seq("a", "b", "c")
    def draw(depth: Int): Summary = {
      val start = if (r.nextInt(4) == 0) Nil else Seq(InputStep(names(r.nextInt(3))))
      val moved = Seq.fill(r.nextInt(2))(ShiftStep(r.nextInt(7) - 3L))
      if (depth > 0 && r.nextBoolean()) LeastStep.of(Seq.fill(1 + r.nextInt(3))(draw(depth - 1))).followedBy(Summary(moved))
      else Summary(start ++ moved)
    }
    // Each path by itself: its input and how far it moves times.
    def paths(steps: Seq[Step]): Seq[(Option[String], Long)] = steps match {
      case InputStep(name) +: rest => paths(rest).map(p => Some(name) -> p._2)
      case LeastStep(several, _) +: rest => for (p <- several.flatMap(s => paths(s.steps)); q <- paths(rest))
          yield p._1 -> (p._2 + q._2)
      case ShiftStep(by, _) +: rest => paths(rest).map(p => p._1 -> (p._2 + by.toLong))
      case _ => Seq(None -> 0L)
    }
    for (_ <- 1 to 2000) {
      val summary = draw(2)
      val stated = names.filter(_ => r.nextInt(3) > 0).map(_ -> (r.nextInt(40) + 10L)).toMap
      val all = 10L - r.nextInt(3)
      val sources = InputFrontiers(frontier(all), stated.map { case (name, f) => name -> frontier(f) })
      def least(of: Seq[(Option[String], Long)]) = frontier(of.map { case (input, by) =>
        input.flatMap(stated.get).getOrElse(all) + by
      }.min)
      val each = paths(summary.steps)
      assert(summary.results(sources) == least(each), summary)
      assert(summary.inputs == each.map(_._1).toSet, summary)
      assert(Summary.parse(Json.render(summary.toJson)) == summary)
      val others = Set(Option(names(r.nextInt(3))), if (r.nextInt(5) == 0) None else Some("b"))
      val both = if ((others ++ summary.inputs).contains(None)) Set[Option[String]](None) else others ++ summary.inputs
      assert(summary.alsoFrom(others).results(sources) == least(for (path <- each; start <- both.toSeq) yield start -> path._2),
        summary)
      assert(summary.from(others).inputs == (if (others.contains(None)) Set(None) else others), summary)
      assert(summary.alsoFrom(summary.inputs).alsoFrom(summary.inputs) == summary.alsoFrom(summary.inputs), summary)
    }
    val two = InputFrontiers.together(Seq(InputFrontiers(frontier(3), Map("a" -> frontier(9), "b" -> frontier(3))),
        InputFrontiers(frontier(5), Map("a" -> frontier(5))), InputFrontiers(frontier(7))))
    assert(two == InputFrontiers(frontier(3), Map("a" -> frontier(5), "b" -> frontier(3))))
  }

  test("the inputs taken together, summaries are combined as if there were none") {
    val r = new Random(6)
    val names = Seq("a", "b", "c")
    def moves: Summary = Summary(Seq.fill(r.nextInt(3))(ShiftStep(r.nextInt(5) - 2L)))
    // A summary, and what it was in a release without inputs.
    def draw(depth: Int): (Summary, Summary) = (if (depth == 0) 0 else r.nextInt(5)) match {
      case 0 => Summary(Seq(InputStep(names(r.nextInt(3))))) -> Summary.identity
      case 1 =>
        val several = Seq.fill(1 + r.nextInt(3))(draw(depth - 1))
        LeastStep.of(several.map(_._1)) -> LeastStep.of(several.map(_._2))
      case 2 =>
        val ((one, before), (other, otherBefore)) = (draw(depth - 1), draw(depth - 1))
        val by = r.nextInt(7) - 3
        if (before == otherBefore && one != other) // as above a join by a distance
          Summary(Seq(LeastStep(Seq(one, other.followedBy(Summary(Seq(ShiftStep(by))))),
                Some(before.followedBy(Summary(Seq(ShiftStep(by.min(0))))))))) ->
            before.followedBy(Summary(Seq(ShiftStep(by.min(0)))))
        else LeastStep.of(Seq(one, other)) -> LeastStep.of(Seq(before, otherBefore))
      case 3 =>
        val (one, before) = draw(depth - 1)
        one.alsoFrom(Set(Some(names(r.nextInt(3))))) -> before
      case _ =>
        val ((one, before), more) = (draw(depth - 1), moves)
        one.followedBy(more) -> before.followedBy(more)
    }
    for (_ <- 1 to 5000) {
      val (summary, before) = draw(4)
      assert(summary.together == before, summary)
      assert(before.together == before)
      assert(Summary.parse(Json.render(summary.toJson)) == summary)
      val others = Set[Option[String]](Some(names(r.nextInt(3))), if (r.nextInt(5) == 0) None else Some("b"))
      assert(summary.from(others).together == before && summary.alsoFrom(others).together == before, summary)
      val all = frontier(r.nextInt(100).toLong)
      assert(summary.results(InputFrontiers(all, Map("a" -> all, "b" -> all))) == before.results(all), summary)
    }
  }

  test("a summary is parsed as it was written, and an unknown step is refused") {
    val summary = Summary(Seq(WindowStep("start", Windows(5, 3, -1)), WindowStep("time", Windows(7, 7, 0))))
    assert(Summary.parse(Json.render(summary.toJson)) == summary)
    val bad = Seq("", "{}", "[1]", """[{"window":"middle","width":1,"slide":1,"offset":0}]""",
      """[{"window":"end","width":0,"slide":1,"offset":0}]""", """[{"advance":1}]""", """[{"coordinate":1}]""",
      """[{"window":"start","session":true}]""")
    for (text <- bad)
      assert(intercept[StrandlineException](Summary.parse(text)).getCondition == "STRANDLINE_SUMMARY_INVALID", text)
  }
}
