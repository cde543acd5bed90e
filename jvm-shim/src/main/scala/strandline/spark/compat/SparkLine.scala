package strandline.spark.compat

/** Spark's line, within which its internals are stable: `4.2` for `4.2.0`, its patch releases and vendors' builds of them. */
private[spark] object SparkLine {
  def of(version: String): String = version.split("[.-]").take(2).mkString(".")
}
