package strandline.spark.plan

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.execution.SparkPlan
import strandline.spark.time.TimeColumn

/**
 * Hides the tag of what is below it: the value is the same, nothing says when it is closed.
 *
 * Spark gives an alias the metadata of the named expression, or of the struct's field, right below it, and drops empty metadata that
 * an alias is given instead. Something in between ends both.
 */
final case class Untagged(child: Expression) extends TaggingExpression {
  override protected def withNewChildInternal(newChild: Expression): Untagged = copy(child = newChild)
}

/**
 * Tags inside structs, which count for nothing.
 *
 * Spark keeps a field's metadata in the struct's type, whatever becomes of the struct: an aggregate may take the greatest of a group, a
 * schema may be passed on to `from_json`, an array may be exploded. A column that is taken out again shows the tag of the time that
 * once went in.
 */
private[spark] object FieldTags {

  /** The field of a struct, if it has a tag there. */
  object Tagged {
    def unapply(e: Expression): Option[GetStructField] = e match {
      case field: GetStructField if TimeColumn.isTagged(field.metadata) => Some(field)
      case _ => None
    }
  }

  /**
   * The optimizer takes fields out of structs early, by aliases of its own: their tags go, from the columns made of them too. What the
   * analysed plan says of such a field stands above something that is no field.
   */
  def stripped(plan: SparkPlan): SparkPlan = {
    def showing(node: SparkPlan): Boolean = node.expressions.exists(_.exists { case Alias(Tagged(_), _) => true; case _ => false })
    if (!plan.exists(showing)) plan
    else
      plan.transformUp { case node =>
        val below = AttributeMap(node.children.flatMap(_.output).map(a => a -> a.metadata))
        node.transformExpressionsUp {
          case alias @ Alias(Tagged(field), name) =>
            Alias(Untagged(field), name)(alias.exprId, alias.qualifier, alias.explicitMetadata.map(TimeColumn.removeFrom), alias.nonInheritableMetadataKeys)
          case a: AttributeReference if TimeColumn.isTagged(a.metadata) && below.get(a).exists(!TimeColumn.isTagged(_)) => a.withMetadata(below(a))
        }
      }
  }
}
