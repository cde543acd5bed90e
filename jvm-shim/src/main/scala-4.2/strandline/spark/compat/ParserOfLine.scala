package strandline.spark.compat

import org.apache.spark.sql.catalyst.parser.ParserInterface

/** What a parser that passes on to another has in this line of Spark alone. */
private[compat] trait ParserOfLine extends ParserInterface {
  protected def parser: ParserInterface
}
