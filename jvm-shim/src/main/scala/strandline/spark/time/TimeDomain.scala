package strandline.spark.time

import org.apache.spark.sql.catalyst.expressions.{GenericInternalRow, SpecializedGetters}
import org.apache.spark.sql.types._
import org.json4s.{JArray, JInt, JValue}
import strandline.spark.errors.Errors

/**
 * Time domains: which values are times, and the partial order between them.
 *
 * A time is the flat array of its leaf coordinates, in schema order. A leaf is a `Long` whose signed order is the coordinate's
 * order (an unsigned coordinate is stored with its top bit flipped). `width` leaves from index `at` belong to a domain.
 */
sealed trait TimeDomain extends Serializable {

  /** How many leaves a time has. */
  def width: Int

  /** Whether the time in `a` is less or equal the one in `b`, each looked at from leaf `at`. */
  def lessEqual(a: Array[Long], b: Array[Long], at: Int): Boolean

  /** Writes the least time's leaves from `at`. */
  def fillMinimum(into: Array[Long], at: Int): Unit

  /** The Spark type of such a time's column. */
  def dataType: DataType

  /** Reads the field `ordinal` of `row` into `into` from `at`; false when it, or a coordinate of it, is null. */
  def read(row: SpecializedGetters, ordinal: Int, into: Array[Long], at: Int): Boolean

  /** Reads the JSON form into `into` from `at`, or says what is wrong with it. */
  def readJson(json: JValue, into: Array[Long], at: Int): Option[String]

  def toJson(time: Array[Long], at: Int): JValue

  /** The value, as Spark's rows hold it, of the time at leaf `at`: what [[read]] reads back. */
  def value(time: Array[Long], at: Int): Any

  /** The least times after `time`: none after the greatest, several in a product. */
  def successors(time: Array[Long]): Seq[Array[Long]]

  /** A time as a person reads it. */
  def format(time: Array[Long], at: Int): String

  final def minimum: Array[Long] = {
    val time = new Array[Long](width)
    fillMinimum(time, 0)
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

  override def fillMinimum(into: Array[Long], at: Int): Unit = into(at) = least

  /** The leaves of the least and the greatest time. */
  def least: Long = leaf(low)
  def greatest: Long = leaf(high)

  /** The leaf of a value within bounds: an unsigned one is moved down, so that signed order is its order. */
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
    case other => Some(s"${Json.render(other)} is not an integer, as a time of $name is")
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
    if (dataType == TimestampType) Scalar.formatMicros(time(at)) else value(time(at)).toString

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
      Scalar("uint64", DecimalType(20, 0), BigInt(0), (BigInt(1) << 64) - 1)
    ).map(s => s.name -> s).toMap
  }

  val timestamp: Scalar = all("timestamp")

  /** `1970-01-01T00:00:01Z`, or the microseconds where no calendar year of four digits exists. */
  private def formatMicros(micros: Long): String = {
    val instant = java.time.Instant.ofEpochSecond(Math.floorDiv(micros, Micros), Math.floorMod(micros, Micros) * 1000)
    val year = instant.atOffset(java.time.ZoneOffset.UTC).getYear
    if (year >= 1 && year <= 9999) instant.toString else s"$micros µs"
  }
}

/** What `product` and `lex` share: named coordinates, times as structs. */
sealed trait Composite extends TimeDomain {
  def kind: String
  def coordinates: Seq[(String, TimeDomain)]

  /** Domain and first leaf of each coordinate, as arrays: the order is evaluated once a row. */
  protected lazy val parts: Array[TimeDomain] = coordinates.map(_._2).toArray
  protected lazy val starts: Array[Int] = coordinates.map(_._2.width).scanLeft(0)(_ + _).toArray

  override def width: Int = starts.last

  /** The place of the coordinate `name`, or -1. */
  final def indexOf(name: String): Int = coordinates.indexWhere(_._1.equalsIgnoreCase(name))

  /** The leaves of a coordinate: the first one, and the one after the last. */
  final def range(i: Int): (Int, Int) = (starts(i), starts(i + 1))

  override def fillMinimum(into: Array[Long], at: Int): Unit =
    parts.indices.foreach(i => parts(i).fillMinimum(into, at + starts(i)))

  override lazy val dataType: DataType = StructType(coordinates.map { case (name, part) => StructField(name, part.dataType) })

  override def read(row: SpecializedGetters, ordinal: Int, into: Array[Long], at: Int): Boolean =
    !row.isNullAt(ordinal) && readStruct(row.getStruct(ordinal, parts.length), into, at)

  /** Reads the struct of the coordinates into `into` from `at`; false when one is null. */
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

/** The product order: a time is ≤ another when every coordinate is. */
final case class Product(coordinates: Seq[(String, TimeDomain)]) extends Composite {
  override def kind: String = "product"

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

  /** Of the last coordinate that has one, with the least of those after it. */
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

  /** Reads a domain's text, e.g. `product(epoch int64, iter int64)`; a coordinate without a type is an `int64`. */
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
        if (coordinates.map(_._1.toLowerCase(java.util.Locale.ROOT)).distinct.size != coordinates.size) fail("names a coordinate twice")
        if (kind == "product") Product(coordinates) else Lex(coordinates)
      case name => Scalar.all.getOrElse(name, fail(s"has '$name' where a scalar domain (${Scalar.all.keys.toSeq.sorted.mkString(", ")}) should be"))
    }
    val parsed = domain(MaxDepth)
    if (at != tokens.length) fail(s"goes on after its end with '$peek'")
    parsed
  }
}
