package org.apache.spark.sql.execution.datasources.v2.python.strandline

import java.util.HashMap
import java.util.concurrent.{CompletableFuture, ConcurrentHashMap, TimeoutException, TimeUnit}

import scala.collection.mutable
import scala.jdk.CollectionConverters._
import scala.util.Try

import org.apache.spark.{SparkContext, SparkEnv}
import org.apache.spark.api.python.{PythonFunction, PythonUtils, PythonWorker, PythonWorkerFactory}
import org.apache.spark.api.python.strandline.WorkerProcess
import org.apache.spark.internal.Logging
import org.apache.spark.internal.config.BUFFER_SIZE
import org.apache.spark.internal.config.Python.{PYTHON_AUTH_SOCKET_TIMEOUT, PYTHON_USE_DAEMON}
import org.apache.spark.scheduler.{SparkListener, SparkListenerApplicationEnd, SparkListenerEvent}
import org.apache.spark.sql.streaming.StreamingQueryListener.QueryTerminatedEvent

/**
 * The daemons that have imported what a source needs, and fork a process for each source. Spark starts a new process for each
 * source of each query, and that process imports for a second.
 *
 * There is one daemon for each Python and each environment, as there is for Spark's own workers. So nothing of one session's
 * environment reaches another's process. A daemon runs no user code: its forks do.
 */
private[strandline] object SourceDaemons extends Logging {
  private val Module = "pyspark_strandline.source_daemon"
  private val Runner = "pyspark.sql.streaming.python_streaming_source_runner"

  /** How many times as long as Spark waits for a worker it may take a daemon to start, which is a second or two, and to fork. */
  private val MostTimeouts = 4
  private val MostSecondsOfEnd = 5L
  private val MostMillisOfDaemon = 1000L

  /** After a failure, sources get processes of Spark's for so long. A second attempt may take as long as the first. */
  private val SecondsAfterFailure = 300L

  private type Key = (String, Map[String, String])

  /** A daemon: Spark's factory, which starts it when it is asked first. */
  private final class Daemon(val factory: PythonWorkerFactory) {

    /** Until when it is not asked, because it could not fork; by `System.nanoTime`. */
    @volatile var failedUntil: Option[Long] = None

    def hasFailed: Boolean = failedUntil.exists(_ - System.nanoTime > 0)

    /** Whether its context has ended. The factory would start it again for a query that asks meanwhile. */
    @volatile var hasEnded = false
  }

  /** Those of each running context. */
  private val daemons = mutable.Map[SparkEnv, mutable.Map[Key, Daemon]]()

  /** The process of a source, which a run of a query has asked for. */
  final class Fork(val worker: PythonWorker, process: Option[ProcessHandle], val run: Option[String]) {

    /** Ends the process before it sees that nobody asks it any more. */
    def end(): Unit = {
      forks.remove(this)
      try process.foreach(_.destroyForcibly())
      finally worker.stop()
    }
  }

  /**
   * Those that run. A fork does not end with its daemon, so a context that ends, ends them. If a query fails before it knows all
   * its sources, its end does.
   */
  private val forks = ConcurrentHashMap.newKeySet[Fork]

  /** The processes of daemons that have forked. The others are just starting, or stuck. */
  private val answered = ConcurrentHashMap.newKeySet[Long]

  /**
   * Returns a new process. None: no daemon can fork one, and the log says why.
   *
   * Another thread asks the daemon. A query that is stopped interrupts its own, and the factory would take this for a daemon that
   * does not answer, and start it again.
   */
  def fork(function: PythonFunction): Option[Fork] = {
    val daemon = daemonOf(function)
    val run = SparkContext.getActive.flatMap(context => Option(context.getLocalProperty("spark.jobGroup.id")))
    if (daemon.hasFailed) None
    else {
      val made = new CompletableFuture[Option[Fork]]
      start { () =>
        val fork = forkOf(daemon, run)
        if (!made.complete(fork)) fork.foreach(_.end())
      }
      val seconds = MostTimeouts * SparkEnv.get.conf.get(PYTHON_AUTH_SOCKET_TIMEOUT)
      try made.get(seconds, TimeUnit.SECONDS)
      catch {
        case stopped: InterruptedException =>
          if (!made.cancel(false)) made.get().foreach(_.end())
          throw stopped
        case _: TimeoutException =>
          if (made.complete(None)) {
            failed(daemon, new TimeoutException(s"it did not answer within $seconds seconds"))
            processes().filterNot(process => answered.contains(process.pid)).foreach(_.destroyForcibly())
          }
          made.get()
      }
    }
  }

  private def forkOf(daemon: Daemon, run: Option[String]): Option[Fork] =
    try {
      val (worker, handle) = daemon.factory.create()
      val process = handle.flatMap(WorkerProcess.of)
      process.flatMap(of => Option(of.parent.orElse(null))).foreach(parent => answered.add(parent.pid))
      Option(worker.selector).foreach(_.close()) // a channel of a selector cannot block
      worker.channel.configureBlocking(true)
      val fork = new Fork(worker.refresh(), process, run)
      forks.add(fork)
      if (daemon.hasEnded) {
        fork.end()
        daemon.factory.stop()
      }
      Some(fork)
    } catch {
      // Whatever a daemon says that is none, such as a size that no memory has.
      case error: Throwable =>
        failed(daemon, error)
        None
    }

  private def failed(daemon: Daemon, error: Throwable): Unit = daemon.synchronized {
    if (!daemon.hasFailed && !daemon.hasEnded)
      logWarning(
        s"Spark starts a Python process for each source, for $SecondsAfterFailure s at least, because no daemon can fork one: " +
          error.getMessage,
        error)
    daemon.failedUntil = Some(System.nanoTime + TimeUnit.SECONDS.toNanos(SecondsAfterFailure))
  }

  private def processes(): Seq[ProcessHandle] = ProcessHandle.current.children.iterator.asScala.filter { process =>
    process.info.arguments.orElse(Array.empty).contains(Module)
  }.toSeq

  private def start(run: Runnable): Thread = {
    val thread = new Thread(run, "strandline-source-daemon")
    thread.setDaemon(true)
    thread.start()
    thread
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
    val isFirst = env.conf.get(PYTHON_USE_DAEMON) && !daemons.contains(env)
    if (isFirst) daemons(env) = daemonsOf(runningContext)
    isFirst
  }

  private def daemonOf(function: PythonFunction): Daemon = synchronized {
    val env = SparkEnv.get
    val context = runningContext
    val environment = new HashMap(function.envVars)
    environment.put("SPARK_LOCAL_DIRS", env.blockManager.diskBlockManager.localDirs.map(_.getPath).mkString(","))
    environment.put("SPARK_AUTH_SOCKET_TIMEOUT", env.conf.get(PYTHON_AUTH_SOCKET_TIMEOUT).toString)
    environment.put("SPARK_BUFFER_SIZE", env.conf.get(BUFFER_SIZE).toString)
    environment.put("SPARK_PYTHON_RUNTIME", "PYTHON_WORKER")
    val key = (function.pythonExec, environment.asScala.toMap)
    daemons.getOrElseUpdate(env, daemonsOf(context)).getOrElseUpdate(
      key,
      new Daemon(new PythonWorkerFactory(key._1, Runner, Module, key._2, env.conf.get(PYTHON_USE_DAEMON))))
  }

  private def runningContext: SparkContext =
    SparkContext.getActive.filterNot(_.isStopped).getOrElse(throw new IllegalStateException("The Spark context has ended"))

  /** Returns no daemons yet. Those of a context end with it, and the forks of a query with the query. */
  private def daemonsOf(context: SparkContext): mutable.Map[Key, Daemon] = {
    val env = SparkEnv.get
    context.addSparkListener(new SparkListener {
      override def onApplicationEnd(end: SparkListenerApplicationEnd): Unit = ended(env)

      override def onOtherEvent(event: SparkListenerEvent): Unit = event match {
        case terminated: QueryTerminatedEvent => endForks(_.run.contains(terminated.runId.toString))
        case _ =>
      }
    })
    mutable.Map.empty
  }

  private def endForks(of: Fork => Boolean): Unit = forks.asScala.filter(of).foreach(_.end())

  private def ended(env: SparkEnv): Unit = {
    val those = synchronized(daemons.remove(env)).toSeq.flatMap(_.values)
    those.foreach(_.hasEnded = true)
    // A factory that starts a daemon keeps its lock until the daemon answers. To end a daemon may take as long.
    start(() => those.foreach(_.factory.stop())).join(MostSecondsOfEnd * 1000)
    // A daemon removes its socket when it ends by itself.
    val ending = processes()
    Try(CompletableFuture.allOf(ending.map(_.onExit): _*).get(MostMillisOfDaemon, TimeUnit.MILLISECONDS))
    ending.foreach(_.destroyForcibly())
    endForks(_ => true)
    answered.clear()
    endMonitors()
  }

  /** Ends the threads that look for idle workers. Spark starts one for each kind of workers, and leaves it with its context. */
  private def endMonitors(): Unit = {
    val name = s"${classOf[PythonWorkerFactory].getName}$$MonitorThread"
    for (thread <- Thread.getAllStackTraces.keySet.asScala if thread.getClass.getName == name) {
      thread.setUncaughtExceptionHandler((_, _) => ())
      thread.interrupt()
    }
  }
}
