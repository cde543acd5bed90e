package strandline.spark.plan

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.execution.SparkPlan
import strandline.spark.time.TimeColumn

/**
 * Hides the tag of its child. The value is the same, but nothing states when it is closed.
 *
 * Spark gives an alias the metadata of the named expression, or of the struct's field, directly below it, and ignores empty
 * metadata of the alias itself. An expression in between prevents both.
 */
final case class Untagged(child: Expression) extends TaggingExpression {
  override protected def withNewChildInternal(newChild: Expression): Untagged = copy(child = newChild)
}

/**
 * Tags inside structs. They do not count.
 *
 * Spark keeps a field's metadata in the struct's type, whatever happens to the struct: an aggregate may take the greatest of a
 * group, `from_json` may parse with the schema, `explode` may unpack an array. So a field that is taken out of a struct shows
 * the tag of the time that was once put in.
 */
private[spark] object FieldTags {

  /** Matches the field of a struct, if it has a tag there. */
  object TaggedField {
    def unapply(e: Expression): Option[GetStructField] = e match {
      case field: GetStructField if TimeColumn.isTagged(field.metadata) => Some(field)
      case _ => None
    }
  }

  /**
   * Removes the tags from fields that the optimizer has taken out of structs by aliases of its own, and from the columns
   * derived from them. Where the analysed plan gives such a column a tag, it is above an expression that is not a field.
   */
  def withoutFieldTags(plan: SparkPlan): SparkPlan = {
    def showing(node: SparkPlan): Boolean =
      node.expressions.exists(_.exists { case Alias(TaggedField(_), _) => true; case _ => false })
    if (!plan.exists(showing)) plan
    else
      plan.transformUp { case node =>
        val below = AttributeMap(node.children.flatMap(_.output).map(a => a -> a.metadata))
        node.transformExpressionsUp {
          case alias @ Alias(TaggedField(field), name) =>
            Alias(Untagged(field), name)(alias.exprId, alias.qualifier, alias.explicitMetadata.map(TimeColumn.removeFrom),
              alias.nonInheritableMetadataKeys)
          case a: AttributeReference if TimeColumn.isTagged(a.metadata) && below.get(a).exists(!TimeColumn.isTagged(_)) =>
            a.withMetadata(below(a))
        }
      }
  }
}
