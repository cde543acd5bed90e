package org.apache.spark.sql.execution.datasources.v2.python.strandline

import java.util.{Collections, HashMap, WeakHashMap}
import java.util.concurrent.CompletableFuture

import scala.collection.mutable
import scala.jdk.CollectionConverters._
import scala.util.Try
import scala.util.control.NonFatal

import org.apache.spark.{SparkContext, SparkEnv}
import org.apache.spark.api.python.{PythonFunction, PythonUtils, PythonWorker, PythonWorkerFactory}
import org.apache.spark.internal.Logging
import org.apache.spark.internal.config.BUFFER_SIZE
import org.apache.spark.internal.config.Python.{PYTHON_AUTH_SOCKET_TIMEOUT, PYTHON_USE_DAEMON}
import org.apache.spark.scheduler.{SparkListener, SparkListenerApplicationEnd}

/**
 * The daemons that have imported what a source needs, and fork a process for each source. Spark starts a new process for each
 * source of each query, and that process imports for a second.
 *
 * There is one daemon for each Python and each environment, as there is for Spark's own workers. So nothing of one session's
 * environment reaches another's process. A daemon runs no user code: its forks do.
 */
private[strandline] object SourceDaemons extends Logging {
  private val Daemon = "pyspark_strandline.source_daemon"
  private val Runner = "pyspark.sql.streaming.python_streaming_source_runner"

  private type Key = (String, Map[String, String])

  /** Those of each running context. */
  private val factories = mutable.Map[SparkEnv, mutable.Map[Key, PythonWorkerFactory]]()

  /** The process of a source. */
  final class Fork(val worker: PythonWorker, process: Option[ProcessHandle]) {

    /** Ends the process before it sees that nobody asks it any more. */
    def end(): Unit = {
      forks.remove(this)
      try process.foreach(_.destroyForcibly())
      finally worker.stop()
    }
  }

  /**
   * Those that run. A context that ends may leave some, because a fork does not end with its daemon. If a query fails before it
   * knows all its sources, nobody ends them. So a fork whose source is garbage is garbage, and its socket is closed.
   */
  private val forks = Collections.synchronizedSet(Collections.newSetFromMap(new WeakHashMap[Fork, java.lang.Boolean]))

  /** The factories whose daemon could not fork. A second attempt would take as long as the first. */
  private val failed =
    Collections.synchronizedSet(Collections.newSetFromMap(new WeakHashMap[PythonWorkerFactory, java.lang.Boolean]))

  /**
   * Returns a new process. None: no daemon can fork one, and the log says why.
   *
   * Another thread asks the daemon. A query that is stopped interrupts its own, and the factory would take this for a daemon that
   * does not answer, and start it again.
   */
  def fork(function: PythonFunction): Option[Fork] = {
    val factory = factoryOf(function)
    if (failed.contains(factory)) None
    else {
      val made = new CompletableFuture[Option[Fork]]
      start { () =>
        val fork = forkOf(factory)
        if (!made.complete(fork)) fork.foreach(_.end())
      }
      try made.get()
      catch {
        case stopped: InterruptedException =>
          if (!made.cancel(false)) made.get().foreach(_.end())
          throw stopped
      }
    }
  }

  private def forkOf(factory: PythonWorkerFactory): Option[Fork] =
    try {
      val (worker, process) = factory.create()
      Option(worker.selector).foreach(_.close()) // a channel of a selector cannot block
      worker.channel.configureBlocking(true)
      val fork = new Fork(worker.refresh(), process)
      forks.add(fork)
      Some(fork)
    } catch {
      case NonFatal(error) =>
        if (failed.add(factory))
          logWarning(s"Spark starts a Python process for each source, because no daemon can fork one: ${error.getMessage}", error)
        None
    }

  private def start(run: Runnable): Unit = {
    val thread = new Thread(run, "strandline-source-daemon")
    thread.setDaemon(true)
    thread.start()
  }

  /**
   * Starts the daemon of a context's sources while the driver goes on, once. A source that finds no daemon says why.
   *
   * The function asks Python for its version, by a process.
   */
  def prepare(): Unit =
    if (isFirstSource())
      start(() => Try(fork(PythonUtils.createPythonFunction(Array.emptyByteArray))).foreach(_.foreach(_.end())))

  private def isFirstSource(): Boolean = synchronized {
    val env = SparkEnv.get
    val isFirst = env.conf.get(PYTHON_USE_DAEMON) && !factories.contains(env)
    if (isFirst) factories(env) = daemonsOf(runningContext)
    isFirst
  }

  private def factoryOf(function: PythonFunction): PythonWorkerFactory = synchronized {
    val env = SparkEnv.get
    val context = runningContext
    val environment = new HashMap(function.envVars)
    environment.put("SPARK_LOCAL_DIRS", env.blockManager.diskBlockManager.localDirs.map(_.getPath).mkString(","))
    environment.put("SPARK_AUTH_SOCKET_TIMEOUT", env.conf.get(PYTHON_AUTH_SOCKET_TIMEOUT).toString)
    environment.put("SPARK_BUFFER_SIZE", env.conf.get(BUFFER_SIZE).toString)
    environment.put("SPARK_PYTHON_RUNTIME", "PYTHON_WORKER")
    val key = (function.pythonExec, environment.asScala.toMap)
    factories.getOrElseUpdate(env, daemonsOf(context)).getOrElseUpdate(
      key,
      new PythonWorkerFactory(key._1, Runner, Daemon, key._2, env.conf.get(PYTHON_USE_DAEMON)))
  }

  private def runningContext: SparkContext =
    SparkContext.getActive.filterNot(_.isStopped).getOrElse(throw new IllegalStateException("The Spark context has ended"))

  /** Returns no daemons yet. Those of a context end with it. */
  private def daemonsOf(context: SparkContext): mutable.Map[Key, PythonWorkerFactory] = {
    val env = SparkEnv.get
    context.addSparkListener(new SparkListener {
      override def onApplicationEnd(end: SparkListenerApplicationEnd): Unit = {
        val ended = SourceDaemons.synchronized(factories.remove(env)) // to end a daemon may take as long as to start it
        ended.foreach(_.values.foreach(_.stop()))
        forks.synchronized(forks.asScala.toSeq).foreach(_.end())
      }
    })
    mutable.Map.empty
  }
}
