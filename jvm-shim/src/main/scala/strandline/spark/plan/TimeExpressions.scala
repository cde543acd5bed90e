package strandline.spark.plan

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.types.StructType
import strandline.spark.errors.Errors
import strandline.spark.time.{CoordinateStep, Sessions, TimeColumn, TransformTime, Windows}

/** The expressions whose effect on a time is known: a window, a window's bound, `window_time`, a [[TransformTime]]. */
private[spark] object TimeExpressions {

  /** Matches a transformed time, under any aliases. Its result is known, whatever tags the aliases have. */
  object Transformed {
    def unapply(expression: Expression): Option[TransformTime] = expression match {
      case transform: TransformTime => Some(transform)
      case Alias(child, _) => unapply(child)
      case _ => None
    }
  }

  /** Returns the times or windows that an expression yields. A struct is a window only if Spark's analyser created it. */
  def columnOf(expression: Expression): Option[TimeColumn] = expression match {
    case struct: CreateNamedStruct => windowOf(struct).orElse(sessionOf(struct))
    case other => timeOf(other)
  }

  /**
   * Returns the times that an expression yields: a time column, a bound of a window column, its `window_time`, or a transformed
   * time.
   */
  def timeOf(expression: Expression): Option[TimeColumn] = expression match {
    case a: Attribute => TimeColumn.of(a)
    case GetStructField(a: Attribute, 0, _) => TimeColumn.of(a).flatMap(_.bound("start"))
    case GetStructField(a: Attribute, 1, _) => TimeColumn.of(a).flatMap(_.bound("end"))
    case PreciseTimestampConversion(Subtract(PreciseTimestampConversion(GetStructField(a: Attribute, 1, _), _, _), Literal(1L, _),
            _), _, _) =>
      TimeColumn.of(a).flatMap(_.bound("time"))
    case transform: TransformTime =>
      timeOf(transform.child).map { column =>
        if (column.windows.isDefined || column.domain != transform.domain)
          throw Errors.domainMismatch(
            s"The function ${TransformTime.Name} expects a time of ${transform.domain}, but ${transform.child.sql} is $column.")
        transform.from(column)
      }
    case _ => None
  }

  /** Returns a coordinate of a composite time. Only for windows: as a column it would be a second time beside the whole one. */
  private def coordinateOf(expression: Expression): Option[TimeColumn] = expression match {
    case GetStructField(struct, ordinal, _) =>
      for {
        column <- timeOf(struct).orElse(coordinateOf(struct))
        name <- struct.dataType match { case s: StructType => s.fieldNames.lift(ordinal); case _ => None }
        (_, part) <- CoordinateStep.find(column.domain, name)
      } yield TimeColumn(part, column.summary :+ CoordinateStep(name))
    case _ => None
  }

  /**
   * Returns the windows that Spark's `TimeWindowing` has expanded to arithmetic: `(time - offset) % slide`, and `start +
   * width`.
   */
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

  /**
   * Returns the sessions that Spark's `SessionWindowing` has expanded: `time`, and `time + gap`, each cast to a long and back.
   */
  def sessionOf(struct: CreateNamedStruct): Option[TimeColumn] = for {
    start <- struct.valExprs.headOption
    time <- start.collectFirst { case PreciseTimestampConversion(PreciseTimestampConversion(time, _, _), _, _) => time }
    column <- timeOf(time).orElse(coordinateOf(time))
    windowed <- column.windowed(Sessions)
  } yield windowed
}
