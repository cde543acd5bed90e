// The Spark session extension: one jar for one Spark line, named after it.
import java.nio.file.{Files, StandardCopyOption}

import sbt.io.{Hash, IO}

// The Spark line is a property of the build: `sbt -Dspark.version=4.2.0 package`, with Spark from Maven, or
// `sbt -Dspark.jars=…/pyspark/jars package`, with the jars inside a package pyspark (tools/build_shim.py --spark 4.3.0).
val sparkJars = sys.props.get("spark.jars").map(file)
val sparkVersion = sparkJars.map(folder => IO.listFiles(folder, "spark-core_2.13-*.jar")) match {
  case Some(Array(core)) => core.getName.stripPrefix("spark-core_2.13-").stripSuffix(".jar")
  case Some(_) => sys.error(s"there is no spark-core_2.13-*.jar in ${sparkJars.get}")
  case None => sys.props.getOrElse("spark.version", "4.2.0")
}
val sparkLine = sparkVersion.split('.').take(2).mkString(".")

// One version for the whole distribution: the one in pyproject.toml.
val projectVersion = {
  val text = IO.read(file("pyproject.toml"))
  """(?m)^version = "([^"]+)"$""".r.findFirstMatchIn(text).map(_.group(1)).getOrElse(sys.error("pyproject.toml has no version"))
}

lazy val bundled = file("connector/pyspark_strandline/jars")

lazy val shim = (project in file("."))
  .settings(
    organization := "strandline",
    name := s"strandline-spark-$sparkLine",
    moduleName := name.value, // the dot of the Spark line stays in the jar's name
    version := projectVersion,
    scalaVersion := "2.13.18",
    target := file(s".build/sbt-target-$sparkLine"),
    Compile / scalaSource := baseDirectory.value / "jvm-shim/src/main/scala",
    // What differs between Spark's lines, and nothing else.
    Compile / unmanagedSourceDirectories += baseDirectory.value / s"jvm-shim/src/main/scala-$sparkLine",
    Compile / unmanagedJars ++= sparkJars.toSeq.flatMap(folder => IO.listFiles(folder, "*.jar").toSeq).classpath,
    Test / unmanagedJars ++= (Compile / unmanagedJars).value,
    Compile / resourceDirectory := baseDirectory.value / "jvm-shim/src/main/resources",
    Test / scalaSource := baseDirectory.value / "jvm-shim/src/test/scala",
    Test / resourceDirectory := baseDirectory.value / "jvm-shim/src/test/resources",
    scalacOptions ++= Seq("-release:17", "-deprecation", "-feature", "-unchecked", "-Xlint:_,-byname-implicit", "-Wunused", "-Wdead-code", "-Werror"),
    libraryDependencies ++= (if (sparkJars.isDefined) Nil else Seq("org.apache.spark" %% "spark-sql" % sparkVersion % Provided)),
    libraryDependencies ++= Seq(
      "org.scalatest" %% "scalatest" % "3.2.19" % Test,
      "com.globalmentor" % "hadoop-bare-naked-local-fs" % "0.1.0" % Test intransitive ()
    ),
    // What the jar was built for and as, known to it at run time.
    Compile / sourceGenerators += Def.task {
      val generated = (Compile / sourceManaged).value / "strandline/spark/compat/BuildInfo.scala"
      IO.write(
        generated,
        s"""package strandline.spark.compat
           |
           |/** What this jar was built as, and for which Spark. */
           |private[spark] object BuildInfo {
           |  val version: String = "$projectVersion"
           |  val sparkVersion: String = "$sparkVersion"
           |}
           |""".stripMargin
      )
      Seq(generated)
    },
    // `package` leaves the jar where the Python package carries it, and no older one of the line beside it. Moved into place: a session
    // that runs with the old one keeps reading that.
    Compile / packageBin := {
      val jar = (Compile / packageBin).value
      val target = bundled / jar.getName
      IO.createDirectory(bundled)
      IO.listFiles(bundled, s"strandline-spark-${sparkLine}_*.jar").filter(_ != target).foreach(IO.delete)
      if (!target.exists || !Hash(target).sameElements(Hash(jar))) {
        val part = bundled / s"${jar.getName}.part"
        IO.copyFile(jar, part)
        Files.move(part.toPath, target.toPath, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING)
      }
      jar
    },
    Compile / packageBin / packageTimestamp := Some(315532800L), // 1980, as zip has it: the same sources give the same jar
    Compile / doc / sources := Nil,
    Test / parallelExecution := false,
    Test / testOptions += Tests.Argument(TestFrameworks.ScalaTest, "-oD"),
    Test / fork := true,
    Test / javaOptions ++= Seq("strandline.seed", "strandline.runs").flatMap(key => sys.props.get(key).map(value => s"-D$key=$value")),
    // No test lives long enough for the second compiler to pay. With the first alone, the JVM's cache of compiled code is small: it
    // was full after a few suites, and code was compiled again and again.
    Test / javaOptions ++= Seq("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=256m", "-XX:+UseSerialGC", "-XX:MetaspaceSize=256m"),
    Test / javaOptions ++= (if (sys.props("os.name") == "Linux") Seq("-Djdk.lang.Process.launchMechanism=VFORK") else Nil),
    Test / javaOptions ++= Seq("-Xmx2g", "-XX:+IgnoreUnrecognizedVMOptions", "-Djdk.reflect.useDirectMethodHandle=false") ++ Seq(
      "java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util",
      "java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref", "sun.nio.ch", "sun.nio.cs",
      "sun.security.action", "sun.util.calendar"
    ).map(p => s"--add-opens=java.base/$p=ALL-UNNAMED")
  )
