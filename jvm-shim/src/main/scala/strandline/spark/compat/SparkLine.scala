package strandline.spark.compat

/** Spark's line: what its internals are stable within. `4.2` is the line of `4.2.0`, of its patch releases and of vendors' builds. */
private[spark] object SparkLine {
  def of(version: String): String = version.split("[.-]").take(2).mkString(".")
}
