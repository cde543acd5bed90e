package org.apache.spark.sql.execution.streaming.state.strandline

import scala.util.Random

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection
import org.apache.spark.sql.catalyst.util.{ArrayBasedMapData, GenericArrayData}
import org.apache.spark.sql.execution.arrow.ArrowWriter
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String
import org.scalatest.funsuite.AnyFunSuite
import _root_.strandline.spark.Drawn

/** Arrow batches end after the same rows as if their size were computed after each row, for rows of any types. */
class SizedBatchesSpec extends AnyFunSuite {
  private val seed = Drawn.seed

  private def kind(r: Random, depth: Int): DataType = r.nextInt(if (depth == 0) 9 else 12) match {
    case 0 => BooleanType
    case 1 => ByteType
    case 2 => IntegerType
    case 3 => LongType
    case 4 => DecimalType(5 + r.nextInt(30), 2)
    case 5 => StringType
    case 6 => BinaryType
    case 7 => TimestampType
    case 8 => DayTimeIntervalType()
    case 9 => struct(r, depth - 1)
    case 10 => ArrayType(kind(r, depth - 1))
    case _ => MapType(LongType, kind(r, depth - 1))
  }

  private def struct(r: Random, depth: Int): StructType =
    StructType(Seq.tabulate(1 + r.nextInt(6))(i => StructField(s"c$i", kind(r, depth))))

  private def value(r: Random, of: DataType): Any =
    if (r.nextInt(3) == 0) null
    else of match {
      case BooleanType => r.nextBoolean()
      case ByteType => r.nextInt().toByte
      case IntegerType => r.nextInt()
      case LongType | TimestampType | _: DayTimeIntervalType => r.nextLong()
      case decimal: DecimalType => Decimal(BigDecimal(r.nextInt(100)), decimal.precision, decimal.scale)
      case StringType => UTF8String.fromString("é" * r.nextInt(20))
      case BinaryType => r.nextBytes(r.nextInt(30))
      case struct: StructType => InternalRow.fromSeq(struct.map(field => value(r, field.dataType)))
      case array: ArrayType => new GenericArrayData(Array.fill[Any](r.nextInt(20))(value(r, array.elementType)))
      case map: MapType =>
        val size = r.nextInt(20)
        new ArrayBasedMapData(new GenericArrayData(Array.fill[Any](size)(r.nextLong())),
          new GenericArrayData(Array.fill[Any](size)(value(r, map.valueType))))
      case other => throw new IllegalArgumentException(other.toString)
    }

  test(s"batches of rows of any types have the same rows (seed $seed)") {
    val r = new Random(seed)
    for (_ <- 1 to 40) {
      val schema = struct(r, 2)
      val unsafe = UnsafeProjection.create(schema)
      val rows = Seq.fill(200)(unsafe(InternalRow.fromSeq(schema.map(field => value(r, field.dataType)))).copy())
      def writer() = ArrowWriter.create(new StructType().add("struct", schema), "UTC")
      val (ours, plain, batches) = (writer(), writer(), new SizedBatches(schema))
      val (mostRows, mostBytes) = (1 + r.nextInt(150), 1L + r.nextInt(20000))
      val (left, right) = (rows.iterator, rows.iterator)
      try while (left.hasNext) {
          var count = 0
          while (right.hasNext && count < mostRows && plain.sizeInBytes() < mostBytes) {
            plain.write(InternalRow(right.next()))
            count += 1
          }
          assert(batches.fill(ours, left, mostRows, mostBytes) == count,
            s"${schema.sql}, at most $mostRows rows and $mostBytes bytes")
          assert(ours.sizeInBytes() == plain.sizeInBytes())
          Seq(ours, plain).foreach { each =>
            each.finish()
            each.reset()
          }
        }
      finally Seq(ours, plain).foreach(_.root.close())
    }
  }

  test("null structs in an array, which take eight bytes in a row") {
    val fields = StructType(Seq.tabulate(50)(i => StructField(s"c$i", DecimalType(38, 0))))
    val schema = new StructType().add("a", ArrayType(fields))
    val writer = ArrowWriter.create(schema, "UTC")
    val row = UnsafeProjection.create(schema)(InternalRow(new GenericArrayData(Array.fill[Any](1000)(null))))
    try {
      writer.write(row)
      assert(writer.sizeInBytes() > 20L * row.getSizeInBytes)
      assert(writer.sizeInBytes() <= new SizedBatches(schema).atMost(row))
    } finally writer.root.close()
  }

  test("a row in another format may have any size") {
    assert(new SizedBatches(new StructType().add("n", LongType)).atMost(InternalRow(1L)) >= Int.MaxValue)
  }
}
