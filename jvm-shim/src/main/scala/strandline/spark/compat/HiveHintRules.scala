package strandline.spark.compat

import scala.util.control.NonFatal

import org.apache.spark.internal.Logging
import org.apache.spark.sql.catalyst.{FunctionIdentifier, TableIdentifier}
import org.apache.spark.sql.catalyst.analysis.Analyzer
import org.apache.spark.sql.catalyst.expressions.Expression
import org.apache.spark.sql.catalyst.parser.{ParameterContext, ParserInterface}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.types.{DataType, StructType}

/**
 * Gives the analyzer of a session with Hive's catalog the hint rules that extensions inject.
 *
 * Spark 4.2 forgets them when it builds such a session, and no other injected rule runs before Spark looks for the names of
 * tables. Each name of a table comes from a parser, so this parser sets the rules before it parses. If this Spark does not let
 * it, the session is without them, as it would be without this class.
 */
final class HiveHintRules(
    session: SparkSession,
    protected val parser: ParserInterface,
    rules: Seq[SparkSession => Rule[LogicalPlan]])
    extends ParserOfLine with Logging {

  private lazy val set: Unit =
    try {
      val field = classOf[Analyzer].getDeclaredField("hintResolutionRules")
      field.setAccessible(true)
      val analyzer = session.sessionState.analyzer
      if (analyzer.hintResolutionRules.isEmpty) field.set(analyzer, rules.map(_(session)))
    } catch {
      case NonFatal(error) =>
        logWarning("The rules of strandline for names of tables are not set in this session with Hive's catalog", error)
    }

  override def parsePlan(text: String): LogicalPlan = { set; parser.parsePlan(text) }
  override def parsePlanWithParameters(text: String, parameters: ParameterContext): LogicalPlan = {
    set; parser.parsePlanWithParameters(text, parameters)
  }
  override def parseQuery(text: String): LogicalPlan = { set; parser.parseQuery(text) }
  override def parseMultipartIdentifier(text: String): Seq[String] = { set; parser.parseMultipartIdentifier(text) }
  override def parseExpression(text: String): Expression = parser.parseExpression(text)
  override def parseTableIdentifier(text: String): TableIdentifier = parser.parseTableIdentifier(text)
  override def parseFunctionIdentifier(text: String): FunctionIdentifier = parser.parseFunctionIdentifier(text)
  override def parseRoutineParam(text: String): StructType = parser.parseRoutineParam(text)
  override def parseTableSchema(text: String): StructType = parser.parseTableSchema(text)
  override def parseDataType(text: String): DataType = parser.parseDataType(text)
}
