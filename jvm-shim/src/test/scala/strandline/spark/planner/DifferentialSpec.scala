package strandline.spark.planner

import scala.collection.mutable
import scala.util.Random

import org.apache.spark.sql.{DataFrame, Row}
import org.apache.spark.sql.functions._
import org.apache.spark.sql.types._
import strandline.spark.{Batch, Drawn, Script, StreamSpec}

/**
 * Random sources and frontiers, compared batch by batch with a model that does not use Spark.
 *
 * Two sources are united and aggregated twice in a chain. In each round each source may be idle, have rows, or only move its
 * frontier. The model recomputes everything from the definition: a group is emitted in the first batch whose end frontier (the
 * meet of both sources') has no element at or below its time. Set `strandline.seed` to repeat a run.
 */
class DifferentialSpec extends StreamSpec {
  private val seed = Drawn.seed
  private val rounds = 12

  /** A time of the model: an integer, or a list of coordinates. */
  private sealed trait Order {
    def lessEqual(a: Any, b: Any): Boolean
    def random(r: Random, from: Any): Any
    def least: Any
  }
  private case object Integers extends Order {
    override def lessEqual(a: Any, b: Any): Boolean = a.asInstanceOf[Long] <= b.asInstanceOf[Long]
    override def random(r: Random, from: Any): Any = from.asInstanceOf[Long] + r.nextInt(3)
    override def least: Any = 0L
  }
  private case class Both(parts: List[Order]) extends Order {
    override def lessEqual(a: Any, b: Any): Boolean =
      parts.lazyZip(a.asInstanceOf[List[Any]]).lazyZip(b.asInstanceOf[List[Any]]).forall((p, x, y) => p.lessEqual(x, y))
    override def random(r: Random, from: Any): Any = parts.zip(from.asInstanceOf[List[Any]]).map { case (p, f) => p.random(r, f) }
    override def least: Any = parts.map(_.least)
  }
  private case class First(parts: List[Order]) extends Order {
    override def lessEqual(a: Any, b: Any): Boolean = {
      val (xs, ys) = (a.asInstanceOf[List[Any]], b.asInstanceOf[List[Any]])
      parts.indices.find(i => xs(i) != ys(i)).forall(i => parts(i).lessEqual(xs(i), ys(i)))
    }
    override def random(r: Random, from: Any): Any = {
      val start = from.asInstanceOf[List[Any]]
      val advanced = Both(parts).random(r, from).asInstanceOf[List[Any]]
      // After a coordinate that has advanced, any values may follow.
      advanced.indices.map(i => if (advanced.take(i) != start.take(i)) parts(i).random(r, parts(i).least) else advanced(i)).toList
    }
    override def least: Any = parts.map(_.least)
  }

  private val domains: Seq[(String, Order)] = Seq(
    "int64" -> Integers,
    "product(epoch int64, iter int64)" -> Both(List(Integers, Integers)),
    "product(a int64, b int64, c int64)" -> Both(List(Integers, Integers, Integers)),
    "product(e int64, loop lex(tick int64, iter int64))" -> Both(List(Integers, First(List(Integers, Integers)))))

  private type Frontier = List[Any]
  private case class Step(rows: Seq[(Any, Long)], frontier: Frontier)

  private def reaches(order: Order, frontier: Frontier, time: Any): Boolean = frontier.exists(order.lessEqual(_, time))

  private def minimal(order: Order, times: Frontier): Frontier =
    times.distinct.filterNot(t => times.exists(u => u != t && order.lessEqual(u, t)))

  /** Generates a step that keeps the promise of `from`: its rows are at open times, and its frontier is not behind `from`. */
  private def step(order: Order, r: Random, from: Frontier, last: Boolean): Step = {
    val rows =
      if (from.isEmpty) Nil else Seq.fill(r.nextInt(6))(order.random(r, from(r.nextInt(from.size))) -> r.nextInt(2).toLong)
    val frontier = if (last) Nil
    else minimal(order, from.flatMap(e => List.fill(r.nextInt(2) + 1)(if (r.nextBoolean()) e else order.random(r, e))))
    Step(rows, frontier)
  }

  private def json(time: Any): String = time match {
    case xs: List[_] => xs.map(json).mkString("[", ",", "]")
    case x => x.toString
  }

  private def value(time: Any): Any = time match {
    case xs: List[_] => Row(xs.map(value): _*)
    case x => x
  }

  /** Returns what each batch must emit, from the steps that it took of each source. */
  private def model(order: Order, steps: Map[String, Seq[Step]], batches: Seq[Batch]): Seq[Set[(Any, Long, Long)]] = {
    val open = mutable.Map.empty[(Any, Long), Long]
    batches.map { batch =>
      for {
        (name, played) <- steps
        (time, k) <- played.slice(batch.from.getOrElse(name, 0), batch.until(name)).flatMap(_.rows)
      } open((time, k)) = open.getOrElse((time, k), 0L) + 1
      val frontier = steps.toList.flatMap { case (name, played) =>
        batch.until(name) match {
          case 0 => List(order.least) // no time below it is used here
          case n => played(n - 1).frontier
        }
      }
      val closed = open.toSeq.filterNot { case ((time, _), _) => reaches(order, frontier, time) }
      open --= closed.map(_._1)
      closed.groupBy(_._1._1).map { case (time, groups) => (time, groups.size.toLong, groups.map(_._2).sum) }.toSet
    }
  }

  for (((domain, order), i) <- Drawn(domains.zipWithIndex, 1))
    test(s"two aggregations over a union of two sources, times of $domain (seed $seed)") {
      val r = new Random(seed + i)
      val scripts = Seq.fill(2)(script(domain, "k" -> LongType))
      val steps = mutable.Map(scripts.map(_.name -> Vector.empty[Step]): _*)
      val frame: DataFrame = read(scripts(0))
        .union(read(scripts(1)))
        .groupBy("time", "k")
        .agg(count("*").as("n"))
        .groupBy("time")
        .agg(count("*").as("groups"), sum("n").as("n"))
      def play(s: Script, last: Boolean): Unit = {
        val from = steps(s.name).lastOption.fold[Frontier](List(order.least))(_.frontier)
        val next = step(order, r, from, last)
        steps(s.name) :+= next
        s.add(json(next.frontier), next.rows.map { case (time, k) => Row(value(time), k) }: _*)
      }
      val checkpoint = tempDir()
      val batches = mutable.ArrayBuffer.empty[Batch]
      // Stopped half-way and started again. The second run knows of the first only what the checkpoint states.
      for (half <- 1 to 2) batches ++= run(frame, checkpoint = checkpoint) { query =>
        for (round <- 1 to rounds / 2) {
          val last = half == 2 && round == rounds / 2
          for (s <- scripts if last || r.nextInt(3) > 0) play(s, last)
          query.processAllAvailable()
        }
      }
      val expected = model(order, steps.toMap, batches.toSeq)
      def plain(v: Any): Any = v match {
        case row: Row => row.toSeq.map(plain).toList
        case x => x
      }
      val actual = batches.toSeq.map(_.rows.map(row => (plain(row.get(0)), row.getLong(1), row.getLong(2))))
      for ((batch, (got, want)) <- batches.zip(actual.zip(expected)))
        assert(got.toSet == want && got.size == want.size, s"batch ${batch.id}, from ${batch.from} until ${batch.until}")
      assert(actual.flatten.map(_._3).sum == steps.values.flatten.map(_.rows.size).sum, "every row is counted once")
    }
}
