package strandline.spark.time

import org.apache.spark.sql.catalyst.expressions.{GenericInternalRow, SpecializedGetters}
import org.apache.spark.sql.types._
import org.json4s.{JArray, JInt, JValue}
import strandline.spark.errors.Errors

/**
 * A time domain: a set of times and their partial order.
 *
 * A time is the flat array of its leaf coordinates, in schema order. A leaf is a `Long` whose signed order is the coordinate's
 * order. (The top bit of an unsigned coordinate is flipped.) A domain inside another one has the `width` leaves from index
 * `at`.
 */
sealed trait TimeDomain extends Serializable {

  /** The number of leaves of a time. */
  def width: Int

  /** Whether the time in `a` is ≤ the time in `b`, both from leaf `at`. */
  def lessEqual(a: Array[Long], b: Array[Long], at: Int): Boolean

  /** Writes the least upper bound of the times in `a` and in `b`, all from leaf `at`. */
  def join(a: Array[Long], b: Array[Long], at: Int, into: Array[Long]): Unit

  /** Writes the leaves of the least time, from `at`. */
  def fillMinimum(into: Array[Long], at: Int): Unit

  /** Writes the leaves of the greatest time, from `at`. */
  def fillMaximum(into: Array[Long], at: Int): Unit

  /** Whether of two times one is always ≤ the other. */
  def isTotal: Boolean

  /** The Spark type of a column of such times. */
  def dataType: DataType

  /**
   * Reads the field `ordinal` of `row` into `into`, from `at`. Returns false if the field or one of its coordinates is null.
   */
  def read(row: SpecializedGetters, ordinal: Int, into: Array[Long], at: Int): Boolean

  /** Reads the JSON form into `into`, from `at`. Returns an error text if it is invalid. */
  def readJson(json: JValue, into: Array[Long], at: Int): Option[String]

  def toJson(time: Array[Long], at: Int): JValue

  /** Returns the time at leaf `at` as a value of Spark's rows: the inverse of [[read]]. */
  def value(time: Array[Long], at: Int): Any

  /** Returns the least times after `time`: none after the greatest time, several in a product. */
  def successors(time: Array[Long]): Seq[Array[Long]]

  /** Returns a time in readable form. */
  def format(time: Array[Long], at: Int): String

  final def minimum: Array[Long] = {
    val time = new Array[Long](width)
    fillMinimum(time, 0)
    time
  }

  final def maximum: Array[Long] = {
    val time = new Array[Long](width)
    fillMaximum(time, 0)
    time
  }

  final def fromJson(json: JValue): Either[String, Array[Long]] = {
    val time = new Array[Long](width)
    readJson(json, time, 0).toLeft(time)
  }
}

/** A totally ordered domain of bounded integers, or of `timestamp` microseconds since 1970 (UTC). */
final case class Scalar(name: String, dataType: DataType, low: BigInt, high: BigInt) extends TimeDomain {
  override def width: Int = 1

  override def lessEqual(a: Array[Long], b: Array[Long], at: Int): Boolean = a(at) <= b(at)

  override def join(a: Array[Long], b: Array[Long], at: Int, into: Array[Long]): Unit = into(at) = a(at).max(b(at))

  override def fillMinimum(into: Array[Long], at: Int): Unit = into(at) = least

  override def fillMaximum(into: Array[Long], at: Int): Unit = into(at) = greatest

  override def isTotal: Boolean = true

  /** The leaves of the least and of the greatest time. */
  def least: Long = leaf(low)
  def greatest: Long = leaf(high)

  /** Returns the leaf of a value within the bounds. An unsigned value is shifted, so that signed order is its order. */
  def leaf(value: BigInt): Long = (if (isUnsigned) value + Long.MinValue else value).toLong

  def value(leaf: Long): BigInt = if (isUnsigned) BigInt(leaf) - Long.MinValue else BigInt(leaf)

  private def isUnsigned: Boolean = high > Long.MaxValue

  override def read(row: SpecializedGetters, ordinal: Int, into: Array[Long], at: Int): Boolean =
    !row.isNullAt(ordinal) && {
      into(at) = dataType match {
        case LongType | TimestampType => row.getLong(ordinal)
        case IntegerType => row.getInt(ordinal).toLong
        case ShortType => row.getShort(ordinal).toLong
        case ByteType => row.getByte(ordinal).toLong
        case _ => leaf(BigInt(row.getDecimal(ordinal, 20, 0).toJavaBigDecimal.toBigIntegerExact))
      }
      true
    }

  override def readJson(json: JValue, into: Array[Long], at: Int): Option[String] = json match {
    case JInt(value) if value >= low && value <= high => into(at) = leaf(value); None
    case JInt(value) => Some(s"$value is outside $name ($low to $high)")
    case other => Some(s"${Json.render(other)} is not an integer, but times of $name are")
  }

  override def toJson(time: Array[Long], at: Int): JValue = JInt(value(time(at)))

  override def value(time: Array[Long], at: Int): Any = dataType match {
    case IntegerType => time(at).toInt
    case ShortType => time(at).toShort
    case ByteType => time(at).toByte
    case _: DecimalType => Decimal(BigDecimal(value(time(at))), 20, 0)
    case _ => time(at)
  }

  override def successors(time: Array[Long]): Seq[Array[Long]] = if (time(0) < greatest) Seq(Array(time(0) + 1)) else Nil

  override def format(time: Array[Long], at: Int): String =
    if (low < 0 && value(time(at)) == low) Scalar.Beginning
    else if (dataType == TimestampType) Scalar.formatMicros(time(at))
    else value(time(at)).toString

  override def toString: String = name
}

object Scalar {
  private val Micros = 1000000L

  val all: Map[String, Scalar] = {
    def signed(name: String, dataType: DataType, bits: Int) =
      Scalar(name, dataType, -(BigInt(1) << (bits - 1)), (BigInt(1) << (bits - 1)) - 1)
    Seq(
      signed("int8", ByteType, 8),
      signed("int16", ShortType, 16),
      signed("int32", IntegerType, 32),
      signed("int64", LongType, 64),
      signed("timestamp", TimestampType, 64),
      Scalar("uint64", DecimalType(20, 0), BigInt(0), (BigInt(1) << 64) - 1)).map(s => s.name -> s).toMap
  }

  val timestamp: Scalar = all("timestamp")

  /** The text of the least time of a signed domain, at which nothing is promised yet. */
  private val Beginning = "the beginning"

  /** Returns the form `1970-01-01T00:00:01Z`, also of years below 0 and beyond 9999, which have a sign. */
  private def formatMicros(micros: Long): String = {
    val instant = java.time.Instant.ofEpochSecond(Math.floorDiv(micros, Micros), Math.floorMod(micros, Micros) * 1000)
    val seconds =
      java.time.format.DateTimeFormatter.ISO_INSTANT.format(instant.truncatedTo(java.time.temporal.ChronoUnit.SECONDS))
    val fraction = instant.getNano / 1000
    if (fraction == 0) seconds else f"${seconds.dropRight(1)}.$fraction%06dZ"
  }
}

/** A domain with named coordinates, `product` or `lex`. Its times are structs. */
sealed trait Composite extends TimeDomain {
  def kind: String
  def coordinates: Seq[(String, TimeDomain)]

  /** Domain and first leaf of each coordinate. Arrays, because the order is evaluated once a row. */
  protected lazy val parts: Array[TimeDomain] = coordinates.map(_._2).toArray
  protected lazy val starts: Array[Int] = coordinates.map(_._2.width).scanLeft(0)(_ + _).toArray

  override def width: Int = starts.last

  /** Returns the index of the coordinate `name`, or -1. */
  final def indexOf(name: String): Int = coordinates.indexWhere(_._1.equalsIgnoreCase(name))

  /** Returns the leaves of a coordinate: the first one, and the one after the last. */
  final def range(i: Int): (Int, Int) = (starts(i), starts(i + 1))

  override def fillMinimum(into: Array[Long], at: Int): Unit =
    parts.indices.foreach(i => parts(i).fillMinimum(into, at + starts(i)))

  override def fillMaximum(into: Array[Long], at: Int): Unit =
    parts.indices.foreach(i => parts(i).fillMaximum(into, at + starts(i)))

  /** The same order of the first `count` coordinates. */
  def first(count: Int): Composite

  /** The domains of the coordinates after the first `count`. */
  final def rest(count: Int): Seq[TimeDomain] = coordinates.drop(count).map(_._2)

  override lazy val dataType: DataType = StructType(coordinates.map { case (name, part) => StructField(name, part.dataType) })

  override def read(row: SpecializedGetters, ordinal: Int, into: Array[Long], at: Int): Boolean =
    !row.isNullAt(ordinal) && readStruct(row.getStruct(ordinal, parts.length), into, at)

  /** Reads the struct of the coordinates into `into`, from `at`. Returns false if a coordinate is null. */
  final def readStruct(struct: SpecializedGetters, into: Array[Long], at: Int): Boolean = {
    var i = 0
    while (i < parts.length && parts(i).read(struct, i, into, at + starts(i))) i += 1
    i == parts.length
  }

  override def readJson(json: JValue, into: Array[Long], at: Int): Option[String] = json match {
    case JArray(values) if values.length == parts.length =>
      values.indices.iterator.map(i => parts(i).readJson(values(i), into, at + starts(i))).collectFirst { case Some(why) => why }
    case other => Some(s"${Json.render(other)} is not a list of the ${parts.length} coordinates of $this")
  }

  override def toJson(time: Array[Long], at: Int): JValue =
    JArray(parts.indices.map(i => parts(i).toJson(time, at + starts(i))).toList)

  override def value(time: Array[Long], at: Int): Any =
    new GenericInternalRow(Array.tabulate[Any](parts.length)(i => parts(i).value(time, at + starts(i))))

  override def format(time: Array[Long], at: Int): String =
    coordinates.indices.map(i => s"${coordinates(i)._1}=${parts(i).format(time, at + starts(i))}").mkString("(", ", ", ")")

  override def toString: String = coordinates.map { case (name, part) => s"$name $part" }.mkString(s"$kind(", ", ", ")")
}

/** The product order: a time is ≤ another if every coordinate is. */
final case class Product(coordinates: Seq[(String, TimeDomain)]) extends Composite {
  override def kind: String = "product"

  override def first(count: Int): Product = Product(coordinates.take(count))

  override def isTotal: Boolean = parts.length == 1 && parts(0).isTotal

  override def join(a: Array[Long], b: Array[Long], at: Int, into: Array[Long]): Unit =
    parts.indices.foreach(i => parts(i).join(a, b, at + starts(i), into))

  override def lessEqual(a: Array[Long], b: Array[Long], at: Int): Boolean = {
    var i = 0
    while (i < parts.length && parts(i).lessEqual(a, b, at + starts(i))) i += 1
    i == parts.length
  }

  override def successors(time: Array[Long]): Seq[Array[Long]] = for {
    i <- parts.indices
    (from, until) = range(i)
    next <- parts(i).successors(time.slice(from, until))
  } yield time.take(from) ++ next ++ time.drop(until)
}

/** The lexicographic order: the first coordinate that differs decides. */
final case class Lex(coordinates: Seq[(String, TimeDomain)]) extends Composite {
  override def kind: String = "lex"

  override def first(count: Int): Lex = Lex(coordinates.take(count))

  override def isTotal: Boolean = parts.forall(_.isTotal)

  /** Of two coordinates of which neither is ≤ the other, the bound is after both, with the least coordinates after it. */
  override def join(a: Array[Long], b: Array[Long], at: Int, into: Array[Long]): Unit = {
    def end = at + width
    val i = parts.indices.indexWhere { i =>
      val (from, until) = (at + starts(i), at + starts(i + 1))
      !java.util.Arrays.equals(a, from, until, b, from, until)
    }
    val from = if (i < 0) end else at + starts(i)
    Array.copy(a, at, into, at, from - at)
    if (i >= 0) {
      val part = parts(i)
      if (part.lessEqual(a, b, from)) Array.copy(b, from, into, from, end - from)
      else if (part.lessEqual(b, a, from)) Array.copy(a, from, into, from, end - from)
      else {
        part.join(a, b, from, into)
        for (rest <- i + 1 until parts.length) parts(rest).fillMinimum(into, at + starts(rest))
      }
    }
  }

  override def lessEqual(a: Array[Long], b: Array[Long], at: Int): Boolean = {
    var i = 0
    while (i < parts.length) {
      val from = at + starts(i)
      val until = at + starts(i + 1)
      if (!java.util.Arrays.equals(a, from, until, b, from, until)) return parts(i).lessEqual(a, b, from)
      i += 1
    }
    true
  }

  /** Takes the successors of the last coordinate that has any. The coordinates after it become minimal. */
  override def successors(time: Array[Long]): Seq[Array[Long]] =
    parts.indices.reverseIterator
      .map { i =>
        val (from, until) = range(i)
        parts(i).successors(time.slice(from, until)).map(time.take(from) ++ _ ++ minimum.drop(until))
      }
      .find(_.nonEmpty)
      .getOrElse(Nil)
}

object TimeDomain {
  private val MaxDepth = 8
  private val MaxText = 4096
  private val Token = """\s*([A-Za-z_][A-Za-z0-9_]*|[(),])""".r

  /** Parses a domain's text, such as `product(epoch int64, iter int64)`. A coordinate without a type is an `int64`. */
  def parse(text: String): TimeDomain = {
    def fail(why: String) = throw Errors.domainInvalid(text.take(80), why)
    if (text.length > MaxText) fail(s"is longer than $MaxText characters")
    val tokens = Token.findAllMatchIn(text).map(_.group(1)).toArray
    if (tokens.map(_.length).sum != text.count(!_.isWhitespace)) fail("has an unexpected character")
    var at = 0
    def peek: String = if (at < tokens.length) tokens(at) else ""
    def next(): String = { val token = peek; at += 1; token }
    def isName(token: String): Boolean = token.nonEmpty && !"(),".contains(token)

    def domain(depth: Int): TimeDomain = next() match {
      case kind @ ("product" | "lex") if peek == "(" =>
        if (depth == 0) fail(s"nests deeper than $MaxDepth")
        val parts = Seq.newBuilder[(String, TimeDomain)]
        do {
          at += 1
          val name = next()
          if (!isName(name)) fail("lacks a coordinate name")
          parts += name -> (if (isName(peek)) domain(depth - 1) else Scalar.all("int64"))
        } while (peek == ",")
        if (next() != ")") fail("lacks a closing parenthesis")
        val coordinates = parts.result()
        if (coordinates.map(_._1.toLowerCase(java.util.Locale.ROOT)).distinct.size != coordinates.size)
          fail("names a coordinate twice")
        if (kind == "product") Product(coordinates) else Lex(coordinates)
      case name => Scalar.all.getOrElse(name,
          fail(s"has '$name' in place of a scalar domain (${Scalar.all.keys.toSeq.sorted.mkString(", ")})"))
    }
    val parsed = domain(MaxDepth)
    if (at != tokens.length) fail(s"continues after its end with '$peek'")
    parsed
  }
}
