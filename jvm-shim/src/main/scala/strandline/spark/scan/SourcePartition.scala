package strandline.spark.scan

import scala.beans.BeanProperty

/**
 * A partition as the source describes it: the files of one task. Other tasks may read parts of the `shared` ones. The first
 * partition's `scan` decides for all.
 */
private[spark] final class SourcePartition {
  @BeanProperty var paths: Array[String] = _
  @BeanProperty var sizes: Array[Long] = _
  @BeanProperty var shared: Array[Array[Int]] = _
  @BeanProperty var scan: SourceScan = _

  def isWhole: Boolean = paths != null && sizes != null && paths.length == sizes.length && !paths.contains(null)
}

/** The source's decision about a batch. */
private[spark] final class SourceScan {
  @BeanProperty var native: Boolean = _
  @BeanProperty var reason: String = _
  @BeanProperty var root: String = _
  @BeanProperty var ignoreMissingFiles: Boolean = _
  @BeanProperty var required: Boolean = _
  @BeanProperty var statistics: SourceStatistics = _
}

/** The source's statistics of a batch's files, with one entry for each file in each list. */
private[spark] final class SourceStatistics {
  @BeanProperty var rows: Array[Long] = _
  @BeanProperty var columns: Array[SourceColumn] = _
}

private[spark] final class SourceColumn {
  @BeanProperty var path: Array[String] = _
  @BeanProperty var low: Array[Object] = _
  @BeanProperty var high: Array[Object] = _
  @BeanProperty var nulls: Array[Object] = _
}
