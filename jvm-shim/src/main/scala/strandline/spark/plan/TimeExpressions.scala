package strandline.spark.plan

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.types.StructType
import strandline.spark.errors.Errors
import strandline.spark.time.{CoordinateStep, Sessions, TimeColumn, TransformTime, Windows}

/** The expressions of which it is known what they make of a time: a window, a window's bound, `window_time`, a [[TransformTime]]. */
private[spark] object TimeExpressions {

  /** A moved time. What it gives is known, whatever tag the names that it was given carry. */
  object Transformed {
    def unapply(expression: Expression): Option[TransformTime] = expression match {
      case move: TransformTime => Some(move)
      case Alias(child, _) => unapply(child)
      case _ => None
    }
  }

  /** The times or windows that an expression gives: a struct is a window only where Spark's analyser wrote it out. */
  def columnOf(expression: Expression): Option[TimeColumn] = expression match {
    case struct: CreateNamedStruct => windowOf(struct).orElse(sessionOf(struct))
    case other => timeOf(other)
  }

  /** The times that an expression gives, when it is a time column, a bound of a window column, `window_time` of one, or one moved. */
  def timeOf(expression: Expression): Option[TimeColumn] = expression match {
    case a: Attribute => TimeColumn.of(a)
    case GetStructField(a: Attribute, 0, _) => TimeColumn.of(a).flatMap(_.bound("start"))
    case GetStructField(a: Attribute, 1, _) => TimeColumn.of(a).flatMap(_.bound("end"))
    case PreciseTimestampConversion(Subtract(PreciseTimestampConversion(GetStructField(a: Attribute, 1, _), _, _), Literal(1L, _), _), _, _) =>
      TimeColumn.of(a).flatMap(_.bound("time"))
    case move: TransformTime =>
      timeOf(move.child).map { column =>
        if (column.windows.isDefined || column.domain != move.domain)
          throw Errors.domainMismatch(s"A time of ${move.domain} is moved, but ${move.child.sql} is $column.")
        move.from(column)
      }
    case _ => None
  }

  /** A coordinate of a composite time. Only a window asks for it: as a column of its own it would be a second time beside the whole. */
  private def coordinateOf(expression: Expression): Option[TimeColumn] = expression match {
    case GetStructField(struct, ordinal, _) =>
      for {
        column <- timeOf(struct).orElse(coordinateOf(struct))
        name <- struct.dataType match { case s: StructType => s.fieldNames.lift(ordinal); case _ => None }
        (_, part) <- CoordinateStep.find(column.domain, name)
      } yield TimeColumn(part, column.summary :+ CoordinateStep(name))
    case _ => None
  }

  /** The windows that Spark's `TimeWindowing` wrote out as arithmetic: `(time - offset) % slide`, and `start + width`. */
  def windowOf(struct: CreateNamedStruct): Option[TimeColumn] = for {
    end <- struct.valExprs.lift(1)
    width <- end.collectFirst { case Add(_, Literal(width: Long, _), _) => width }
    (time, offset, slide) <- end.collectFirst {
      case Remainder(Subtract(PreciseTimestampConversion(time, _, _), Literal(offset: Long, _), _), Literal(slide: Long, _), _) =>
        (time, offset, slide)
    }
    column <- timeOf(time).orElse(coordinateOf(time))
    windowed <- column.windowed(Windows(width, slide, offset))
  } yield windowed

  /** The sessions that Spark's `SessionWindowing` wrote out: `time`, and `time + gap`, each there and back as a long. */
  def sessionOf(struct: CreateNamedStruct): Option[TimeColumn] = for {
    start <- struct.valExprs.headOption
    time <- start.collectFirst { case PreciseTimestampConversion(PreciseTimestampConversion(time, _, _), _, _) => time }
    column <- timeOf(time).orElse(coordinateOf(time))
    windowed <- column.windowed(Sessions)
  } yield windowed
}
