package strandline.spark.compat

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.internal.SQLConf

/**
 * Makes Spark hide the values of all options `storage.*` where it shows options, unless the session has a pattern of its own.
 *
 * Spark hides values by their names, and its own pattern does not know names such as `AZURE_STORAGE_ACCOUNT_KEY`. The rule
 * changes no plan. It runs at every analysis, because a sink is in no plan that is analysed.
 */
private[spark] object StorageRedactionRule extends Rule[LogicalPlan] {
  private val Key = SQLConf.SQL_OPTIONS_REDACTION_PATTERN.key

  override def apply(plan: LogicalPlan): LogicalPlan = {
    val conf = SQLConf.get
    if (!conf.contains(Key)) conf.setConfString(Key, "(?i)url|^storage\\.") // the first half is Spark's own
    plan
  }
}
