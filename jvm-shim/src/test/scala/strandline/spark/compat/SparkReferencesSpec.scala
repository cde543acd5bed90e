package strandline.spark.compat

import org.apache.spark.SPARK_VERSION
import org.apache.spark.sql.SparkSessionExtensions
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, UnresolvedDataSource}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.util.CaseInsensitiveMap
import org.apache.spark.sql.types.LongType
import org.apache.xbean.asm9.{ClassReader, ClassVisitor, ClassWriter, FieldVisitor, MethodVisitor, Opcodes}
import strandline.spark.{Script, StrandlineExtensions, StreamSpec}
import strandline.spark.errors.StrandlineException

/** A Spark of the right version with other internals is refused at the first strandline stream, with the missing members. */
class SparkReferencesSpec extends StreamSpec {
  private val internals = "org.apache.spark.sql.execution.streaming.runtime.StreamExecution"
  private val store = "org.apache.spark.sql.execution.streaming.state.ReadStateStore"

  /** Returns a loader of Spark's classes. It changes the `named` ones by `changed`, or hides them. */
  private def loader(named: String => Boolean)(changed: ClassWriter => Option[ClassVisitor]): ClassLoader =
    new ClassLoader(getClass.getClassLoader) {
      override def loadClass(name: String, resolve: Boolean): Class[_] =
        if (!named(name)) super.loadClass(name, resolve)
        else
          Option(findLoadedClass(name)).getOrElse {
            val writer = new ClassWriter(0)
            val visitor = changed(writer).getOrElse(throw new ClassNotFoundException(name))
            val in = getParent.getResourceAsStream(name.replace('.', '/') + ".class")
            try new ClassReader(in).accept(visitor, 0)
            finally in.close()
            val bytes = writer.toByteArray
            defineClass(name, bytes, 0, bytes.length)
          }
    }

  test("the Spark that the extension was built for lacks nothing") {
    val begun = System.nanoTime
    val missing = SparkReferences.missingIn(getClass.getClassLoader)
    info(s"looked for in ${(System.nanoTime - begun) / 1000000} ms")
    assert(missing.isEmpty, missing.mkString("\n"))
  }

  test("a missing class is named") {
    val missing = SparkReferences.missingIn(loader(_ == internals)(_ => None)).map(_.toString)
    assert(missing.contains(s"class $internals"), missing)
  }

  test("a missing method and a missing field are named") {
    val without = loader(_ == store) { writer =>
      Some(new ClassVisitor(Opcodes.ASM9, writer) {
        override def visitMethod(
            access: Int, name: String, descriptor: String, signature: String, exceptions: Array[String]): MethodVisitor =
          if (name == "prefixScan") null else super.visitMethod(access, name, descriptor, signature, exceptions)
      })
    }
    val missing = SparkReferences.missingIn(without)
    assert(missing.nonEmpty && missing.forall(_.toString.contains("prefixScan")), missing)
    val module = "org.apache.spark.sql.execution.streaming.state.StateStore$"
    val renamed = loader(_ == module) { writer =>
      Some(new ClassVisitor(Opcodes.ASM9, writer) {
        override def visitField(access: Int, name: String, descriptor: String, signature: String, value: AnyRef): FieldVisitor =
          super.visitField(access, if (name == "MODULE$") "OTHER$" else name, descriptor, signature, value)
      })
    }
    assert(SparkReferences.missingIn(renamed).map(_.toString) == Seq(s"field $module.MODULE$$"))
  }

  test("strandline streams are then refused by name, also in a session without hint rules, and other queries are not affected") {
    val missing = Seq(SparkReferences.Reference("org/apache/spark/Some", "thing", "()V"))
    var looked = 0
    var (hints, rules) = (Seq.empty[Rule[LogicalPlan]], Seq.empty[Rule[LogicalPlan]])
    val extensions = new SparkSessionExtensions {
      override def injectHintResolutionRule(builder: RuleBuilder): Unit = hints :+= builder(spark)
      override def injectResolutionRule(builder: RuleBuilder): Unit = rules :+= builder(spark)
    }
    new StrandlineExtensions().install(extensions, SPARK_VERSION, { looked += 1; missing })
    val plain = analyzed(read(Script.plain(freshName(), "x" -> LongType)))
    assert(looked == 0 && (rules.head(plain) eq plain) && looked == 0)
    val asked = UnresolvedDataSource("strandline", None, CaseInsensitiveMap(Map.empty[String, String]), isStreaming = true, Nil)
    for ((rule, plan) <- Seq(hints.head -> asked, rules.head -> analyzed(read(script("int64"))))) {
      val e = intercept[StrandlineException](rule(plan))
      assert(e.getMessage.startsWith("[STRANDLINE_SPARK_INTERNALS_MISSING] "), e.getMessage)
      assert(e.getMessage.contains("lacks 1 of") && e.getMessage.contains("method org.apache.spark.Some.thing()V"), e.getMessage)
    }
  }
}
