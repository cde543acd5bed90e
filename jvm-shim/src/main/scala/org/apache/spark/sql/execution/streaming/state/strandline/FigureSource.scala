package org.apache.spark.sql.execution.streaming.state.strandline

import scala.collection.mutable

import com.codahale.metrics.{Gauge, MetricRegistry}
import org.apache.spark.SparkEnv
import org.apache.spark.metrics.source.Source

/** A source of Spark's metrics system with gauges that are set from outside. Its names are fixed when it is registered. */
private final class FigureSource(override val sourceName: String, names: Set[String]) extends Source {
  @volatile private var values = Map.empty[String, Double]

  override val metricRegistry: MetricRegistry = new MetricRegistry

  names.foreach { name =>
    val gauge: Gauge[Double] = () => values.getOrElse(name, Double.NaN)
    metricRegistry.register(name, gauge)
  }

  def has(others: Set[String]): Boolean = others.subsetOf(names)
  def set(numbers: Map[String, Double]): Unit = values = numbers
  def known: Set[String] = names
}

/** The sources that are registered in this driver. */
object FigureSource {
  private val sources = mutable.HashMap.empty[String, (SparkEnv, FigureSource)]

  /** Sets the values of a source, and registers it if it is new or has a new name. Without a running Spark it does nothing. */
  def set(name: String, numbers: Map[String, Double]): Unit = synchronized {
    for (env <- Option(SparkEnv.get)) {
      val before = sources.get(name).collect { case (in, found) if in eq env => found }
      val source = before.filter(_.has(numbers.keySet)).getOrElse {
        before.foreach(env.metricsSystem.removeSource)
        val made = new FigureSource(name, numbers.keySet ++ before.fold(Set.empty[String])(_.known))
        env.metricsSystem.registerSource(made)
        sources(name) = env -> made
        made
      }
      source.set(numbers)
    }
  }

  def remove(name: String): Unit = synchronized {
    for ((env, source) <- sources.remove(name) if env eq SparkEnv.get) env.metricsSystem.removeSource(source)
  }
}
