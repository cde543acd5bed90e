package strandline.spark.time

import java.io.FileInputStream
import java.util.zip.GZIPInputStream

import scala.io.Source
import scala.util.Using

import org.apache.spark.SparkThrowable
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow
import org.json4s._
import org.scalatest.funsuite.AnyFunSuite

/**
 * Path summaries, compared with recorded cases. The specification in Python (`tests/support/path_summaries.py`) has computed
 * their answers.
 */
class RecordedSummarySpec extends AnyFunSuite {
  private val file = "tests/golden/path-summaries/cases.jsonl.gz"

  private val lines =
    Using.resource(new GZIPInputStream(new FileInputStream(file)))(in =>
      Source.fromInputStream(in, "UTF-8").getLines().map(Json.parse(_).get).toList)

  private val (head, cases) = (lines.head, lines.tail)

  private val (frontiers, rows) = cases.partition(_ \ "frontier" != JNothing)

  private def domainOf(json: JValue, field: String = "domain"): TimeDomain = (json \ field: @unchecked) match {
    case JString(text) => TimeDomain.parse(text)
  }

  /** Fails with the cases for which `wrong` returns a message. */
  private def none(of: Seq[JValue])(wrong: JValue => Option[String]): Unit = {
    val found = of.flatMap(json => wrong(json).map(why => s"${Json.render(json)}\n  but: $why"))
    if (found.nonEmpty) fail(s"${found.size} of ${of.size} differ, such as\n${found.take(5).mkString("\n")}")
  }

  test("the file is complete") {
    assert(head \ "cases" == JInt(cases.size) && frontiers.size >= 2000 && rows.size >= 1000)
  }

  test("a summary maps a frontier as the specification does") {
    none(frontiers) { json =>
      val from = Antichain.fromJson(domainOf(json), json \ "frontier").fold(sys.error, identity)
      val found = Summary.parse(Json.render(json \ "steps")).results(from)
      if (found.domain != domainOf(json, "target")) Some(s"of ${found.domain}")
      else if (found.toJson != json \ "result") Some(Json.render(found.toJson))
      else None
    }
  }

  test("a row's time is transformed as in the specification, or is refused if it has no image") {
    none(rows) { json =>
      val domain = domainOf(json)
      val transformer =
        new TimeTransformer(domain, Summary.parse(Json.render(json \ "steps")).steps.collect { case step: TimeStep => step })
      val time = domain.fromJson(json \ "time").fold(sys.error, identity)
      val found =
        try {
          val transformed = new Array[Long](transformer.target.width)
          assert(transformer.target.read(new GenericInternalRow(Array[Any](transformer.transform(domain.value(time, 0)))), 0,
              transformed, 0))
          transformer.target.toJson(transformed, 0)
        } catch {
          case refused: SparkThrowable if refused.getCondition == "STRANDLINE_TIME_OVERFLOW" => JString("overflow")
        }
      if (found == json \ "moved") None else Some(Json.render(found))
    }
  }

  test("steps are written as they were parsed") {
    none(cases) { json =>
      val again = Summary.parse(Json.render(json \ "steps")).toJson
      if (Json.parse(Json.render(again)).map(sorted) == Some(sorted(json \ "steps"))) None else Some(Json.render(again))
    }
  }

  /** Sorts the fields of objects by name, because their order has no meaning. */
  private def sorted(json: JValue): JValue = json match {
    case JObject(fields) => JObject(fields.map { case (name, value) => name -> sorted(value) }.sortBy(_._1))
    case JArray(values) => JArray(values.map(sorted))
    case other => other
  }
}
