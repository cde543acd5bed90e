package strandline.spark.scan

import scala.util.Random

import com.fasterxml.jackson.databind.ObjectMapper
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String
import org.scalatest.funsuite.AnyFunSuite

/** Skipping by the log's statistics, compared with Spark's own evaluation of the filter on every row of a generated file. */
class FileSkippingSpec extends AnyFunSuite {
  private val inner = StructType.fromDDL("y string, z timestamp")
  private val n = AttributeReference("n", LongType)()
  private val i = AttributeReference("i", IntegerType)()
  private val s = AttributeReference("s", inner)()
  private val x = AttributeReference("x", DoubleType)()
  private val columns = Seq(n, i, s, x)
  private val leaves: Seq[(Seq[String], Expression)] =
    Seq(Seq("n") -> n, Seq("i") -> i, Seq("s", "y") -> GetStructField(s, 0), Seq("s", "z") -> GetStructField(s, 1), Seq("x") -> x)
  private val words = Seq("", "a", "ab", "abc", "b", "é", "🌊", "z", "zz").map(UTF8String.fromString)

  private val mapper = new ObjectMapper
  private def parse(text: String, files: Int) = FileSkipping.of(mapper.readValue(text, classOf[SourceStatistics]), files)

  private def value(random: Random, kind: DataType): Any = kind match {
    case LongType | TimestampType => random.nextInt(8).toLong
    case IntegerType => random.nextInt(8)
    case DoubleType => Seq(Double.NaN, 1.0, 2.0)(random.nextInt(3))
    case _ => words(random.nextInt(words.length))
  }

  private def orNull(random: Random, some: => Any): Any = if (random.nextInt(5) == 0) null else some

  private def row(random: Random): InternalRow = InternalRow(
    orNull(random, value(random, LongType)),
    orNull(random, value(random, IntegerType)),
    orNull(random, InternalRow(orNull(random, value(random, StringType)), orNull(random, value(random, TimestampType)))),
    orNull(random, value(random, DoubleType)))

  private def predicate(random: Random, depth: Int): Expression = {
    val (_, leaf) = leaves(random.nextInt(leaves.length))
    def literal = Literal(orNull(random, value(random, leaf.dataType)), leaf.dataType)
    def sides(make: (Expression, Expression) => Expression) =
      if (random.nextBoolean()) make(leaf, literal) else make(literal, leaf)
    random.nextInt(if (depth == 0) 10 else 13) match {
      case 0 => sides(EqualTo(_, _))
      case 1 => sides(EqualNullSafe(_, _))
      case 2 => sides(LessThan(_, _))
      case 3 => sides(LessThanOrEqual(_, _))
      case 4 => sides(GreaterThan(_, _))
      case 5 => sides(GreaterThanOrEqual(_, _))
      case 6 => IsNull(leaf)
      case 7 => IsNotNull(leaf)
      case 8 => In(leaf, Seq.fill(random.nextInt(3))(literal))
      case 9 => if (random.nextBoolean()) InSet(leaf, Seq.fill(2)(literal.value).toSet)
        else StartsWith(GetStructField(s, 0), Literal(words(random.nextInt(words.length)), StringType))
      case 10 => And(predicate(random, depth - 1), predicate(random, depth - 1))
      case 11 => Or(predicate(random, depth - 1), predicate(random, depth - 1))
      case 12 => Not(predicate(random, depth - 1))
    }
  }

  private def json(value: Any): String = value match {
    case null => "null"
    case text: UTF8String => s""""$text""""
    case other => other.toString
  }

  /** Generates statistics of the rows, as a log may have them: bounds of the values, sometimes wider, sometimes none. */
  private def statistics(random: Random, rows: Seq[InternalRow]): String = {
    val each = leaves.filter(_ => random.nextInt(6) > 0).map { case (path, leaf) =>
      val values = rows.map(BindReferences.bindReference(leaf, columns).eval)
      val ordered = values.filter(_ != null).sortWith((a, b) =>
        (a, b) match {
          case (a: UTF8String, b: UTF8String) => a.binaryCompare(b) < 0
          case _ => a.asInstanceOf[Number].doubleValue < b.asInstanceOf[Number].doubleValue
        })
      def widened(bound: Any, by: Int): Any = bound match {
        case _: UTF8String if random.nextInt(3) == 0 => if (by < 0) UTF8String.fromString("") else UTF8String.fromString("🌊🌊")
        case number: Number if leaf.dataType != DoubleType => number.longValue + by * random.nextInt(2)
        case other => other
      }
      def known(bound: Option[Any], by: Int): Any = if (random.nextInt(6) == 0) null else bound.map(widened(_, by)).orNull
      val nulls = if (random.nextInt(6) == 0) null else values.count(_ == null)
      s"""{"path":[${path.map(p => s""""$p"""").mkString(",")}],"low":[${json(known(ordered.headOption, -1))}],""" +
        s""""high":[${json(known(ordered.lastOption, 1))}],"nulls":[${json(nulls)}]}"""
    }
    s"""{"rows":[${if (random.nextInt(6) == 0) -1 else rows.length}],"columns":[${each.mkString(",").replace("NaN", "null")}]}"""
  }

  test("a file with a matching row is never skipped, and many other files are") {
    val seed = sys.props.get("strandline.seed").fold(Random.nextLong())(_.toLong)
    val random = new Random(seed)
    var (skipped, skippable) = (0, 0)
    for (_ <- 1 to 4000) {
      val rows = Seq.fill(1 + random.nextInt(3))(row(random))
      val text = statistics(random, rows)
      val filter = predicate(random, 2)
      val passes = rows.exists(BindReferences.bindReference(filter, columns).eval(_) == true)
      val may = parse(text, 1).get.mayPass(Seq(filter))(0)
      if (passes) assert(may, s"seed $seed: $filter over $rows with $text")
      else {
        skippable += 1
        if (!may) skipped += 1
      }
    }
    assert(skipped > skippable / 5, s"seed $seed: $skipped of $skippable")
  }

  test("statistics of other files are ignored") {
    assert(parse("""{"rows":[1],"columns":[]}""", 2).isEmpty && parse("{}", 2).isEmpty && FileSkipping.of(null, 2).isEmpty)
    val nine = Seq(EqualTo(n, Literal(9L)))
    val short = parse("""{"rows":[1,1],"columns":[{"path":["n"],"low":[5],"high":[6],"nulls":[0]}]}""", 2).get
    assert(short.mayPass(nine)(0))
    val one = parse("""{"rows":[1,1],"columns":[{"path":["n"],"low":[5,null],"high":[6,null],"nulls":[0,null]}]}""", 2).get
    assert(!one.mayPass(nine)(0) && one.mayPass(nine)(1))
  }

  test("only columns with bounds are requested") {
    val condition = And(And(IsNotNull(n), GreaterThan(GetStructField(s, 1), Literal(0L, TimestampType))),
      Or(LessThan(x, Literal(1.0)), IsNull(s)))
    assert(NativeScanRule.boundedPaths(condition) == Seq(Seq("n"), Seq("s", "z")))
  }
}
