package strandline.spark.time

/**
 * The frontier of all sources of a query together, and that of each input of a source of several channels, by its name.
 *
 * A path summary that begins at an input ([[InputStep]]) has the input's frontier. In timely, each input port has its own.
 */
final case class InputFrontiers(all: Antichain, inputs: Map[String, Antichain] = Map.empty) {
  def domain: TimeDomain = all.domain

  /** The frontier of an input; of all sources together where the offset does not state its own. */
  def of(input: String): Antichain = inputs.getOrElse(input, all)
}

object InputFrontiers {

  /**
   * Returns the frontiers of several sources together. Two sources may have inputs of one name. A source that states no inputs may
   * have one of that name, so it counts as a whole.
   */
  def together(sources: Seq[InputFrontiers]): InputFrontiers = InputFrontiers(
    sources.map(_.all).reduce(_ meet _),
    sources.flatMap(_.inputs.keys).distinct.map { name =>
      name -> sources.filter(each => each.inputs.isEmpty || each.inputs.contains(name)).map(_.of(name)).reduce(_ meet _)
    }.toMap
  )
}
