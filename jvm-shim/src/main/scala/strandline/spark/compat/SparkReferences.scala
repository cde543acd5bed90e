package strandline.spark.compat

import java.io.InputStream
import java.net.JarURLConnection
import java.nio.file.{Files, Path, Paths}

import scala.annotation.nowarn
import scala.collection.mutable
import scala.jdk.CollectionConverters._

import org.apache.xbean.asm9.{ClassReader, ClassVisitor, ConstantDynamic, FieldVisitor, Handle, Label, MethodVisitor, Opcodes, Type}

/**
 * What the extension's classes refer to in Spark, and what of it the running Spark does not have.
 *
 * They use Spark's internals, and a vendor's build of the same version may have others. Java looks for a member when it is first
 * used: in the middle of a batch. So all are looked for at the first strandline stream, as Java would: in the class, in those that
 * it extends, in interfaces.
 */
private[spark] object SparkReferences {

  /** A class, when there is no `name`, or a member of it, in the names of class files. */
  final case class Reference(owner: String, name: String = "", descriptor: String = "") {
    override def toString: String = {
      val of = owner.replace('/', '.')
      if (name.isEmpty) s"class $of" else if (descriptor.startsWith("(")) s"method $of.$name$descriptor" else s"field $of.$name"
    }
  }

  /** What the running Spark lacks; looked for once in a JVM. */
  lazy val missing: Seq[Reference] = missingIn(getClass.getClassLoader)

  /** What `loader` lacks of what the extension's classes refer to. */
  def missingIn(loader: ClassLoader): Seq[Reference] = {
    val ours = new ExtensionClasses
    classFiles(in => new ClassReader(in).accept(ours, ClassReader.SKIP_DEBUG | ClassReader.SKIP_FRAMES))
    val theirs = new SparkClasses(loader)
    ours.references.filterNot { case Reference(owner, name, descriptor) => ours.resolved(owner, name + descriptor, theirs) }.toSeq.sortBy(_.toString)
  }

  private def isSparks(name: String): Boolean = name.startsWith("org/apache/spark/") && !name.contains("/strandline/")
  private def isOurs(name: String): Boolean = name.startsWith("strandline/") || name.startsWith("org/apache/spark/") && name.contains("/strandline/")

  /** Gives each class file of the extension to `read`, from its jar or, in tests, from a folder. */
  private def classFiles(read: InputStream => Unit): Unit = {
    val itself = getClass.getName.replace('.', '/') + ".class"
    def opened(in: InputStream): Unit = try read(in) finally in.close()
    getClass.getClassLoader.getResource(itself).openConnection() match {
      case jar: JarURLConnection =>
        val file = jar.getJarFile
        file.entries.asScala.filter(e => e.getName.endsWith(".class") && isOurs(e.getName)).foreach(e => opened(file.getInputStream(e)))
      case other =>
        val root = itself.split('/').foldLeft(Paths.get(other.getURL.toURI))((path, _) => path.getParent)
        val found = Files.walk(root)
        try found.iterator.asScala.filter(p => p.toString.endsWith(".class") && isOurs(nameIn(root, p))).foreach(p => opened(Files.newInputStream(p)))
        finally found.close()
    }
  }

  private def nameIn(root: Path, file: Path): String = root.relativize(file).toString.replace('\\', '/')

  /** The members of Spark's classes, as reflection finds them; none of a class is initialised. */
  private final class SparkClasses(loader: ClassLoader) {
    private val classes = mutable.HashMap.empty[String, Option[Class[_]]]
    private val members = mutable.HashMap.empty[Class[_], Set[String]]

    private def named(name: String): Option[Class[_]] = classes.getOrElseUpdate(
      name,
      try Some(Class.forName(name.replace('/', '.'), false, loader))
      catch { case _: ClassNotFoundException | _: LinkageError => None }
    )

    def has(owner: String, member: String): Boolean = named(owner).exists(c => member.isEmpty || search(c, member))

    private def search(in: Class[_], member: String): Boolean =
      declared(in).contains(member) || Option(in.getSuperclass).exists(search(_, member)) || in.getInterfaces.exists(search(_, member)) ||
        in.isInterface && declared(classOf[Object]).contains(member)

    private def declared(of: Class[_]): Set[String] = members.getOrElseUpdate(
      of,
      // A class that has a member of a type that there is not is not usable either.
      try
        (of.getDeclaredMethods.map(m => m.getName + Type.getMethodDescriptor(m)) ++ of.getDeclaredConstructors.map(c => "<init>" + Type.getConstructorDescriptor(c)) ++
          of.getDeclaredFields.map(f => f.getName + Type.getDescriptor(f.getType))).toSet
      catch { case _: LinkageError => Set.empty }
    )
  }

  /** Collects what our classes refer to; of our own classes, only what they may have from Spark's. */
  private final class ExtensionClasses extends ClassVisitor(Opcodes.ASM9) {
    val references = mutable.HashSet.empty[Reference]
    private val supers = mutable.HashMap.empty[String, Seq[String]]
    private val declared = mutable.HashSet.empty[(String, String)]
    private var current: String = _

    /** Whether a member is in a class of ours, in what it extends, or in Spark's. */
    def resolved(owner: String, member: String, theirs: SparkClasses): Boolean =
      if (isOurs(owner)) declared(owner -> member) || supers.getOrElse(owner, Nil).exists(resolved(_, member, theirs)) else theirs.has(owner, member)

    private def refer(owner: String, name: String, descriptor: String): Unit = {
      if (isSparks(owner) || isOurs(owner)) references += Reference(owner, name, descriptor)
      types(Type.getType(descriptor))
    }

    private def types(of: Type): Unit = of.getSort match {
      case Type.ARRAY => types(of.getElementType)
      case Type.METHOD => (of.getReturnType +: of.getArgumentTypes.toSeq).foreach(types)
      case Type.OBJECT if isSparks(of.getInternalName) => references += Reference(of.getInternalName)
      case _ =>
    }

    private def constants(of: AnyRef): Unit = of match {
      case t: Type => types(t)
      case h: Handle => refer(h.getOwner, h.getName, h.getDesc)
      case d: ConstantDynamic => (0 until d.getBootstrapMethodArgumentCount).foreach(i => constants(d.getBootstrapMethodArgument(i)))
      case _ =>
    }

    override def visit(version: Int, access: Int, name: String, signature: String, parent: String, interfaces: Array[String]): Unit = {
      current = name
      supers(name) = Option(parent).toSeq ++ interfaces
      supers(name).foreach(s => types(Type.getObjectType(s)))
    }

    override def visitField(access: Int, name: String, descriptor: String, signature: String, value: AnyRef): FieldVisitor = {
      declared += current -> (name + descriptor)
      types(Type.getType(descriptor))
      null
    }

    override def visitMethod(access: Int, name: String, descriptor: String, signature: String, exceptions: Array[String]): MethodVisitor = {
      declared += current -> (name + descriptor)
      types(Type.getType(descriptor))
      new MethodVisitor(Opcodes.ASM9) {
        override def visitMethodInsn(opcode: Int, owner: String, name: String, descriptor: String, isInterface: Boolean): Unit =
          if (!owner.startsWith("[")) refer(owner, name, descriptor)
        override def visitFieldInsn(opcode: Int, owner: String, name: String, descriptor: String): Unit = refer(owner, name, descriptor)
        override def visitTypeInsn(opcode: Int, of: String): Unit = types(Type.getObjectType(of))
        override def visitLdcInsn(value: AnyRef): Unit = constants(value)
        override def visitTryCatchBlock(start: Label, end: Label, handler: Label, of: String): Unit =
          if (of != null) types(Type.getObjectType(of))
        @nowarn("cat=unused") // the bridge to Java's variable arguments, which the compiler adds, is what is used
        override def visitInvokeDynamicInsn(name: String, descriptor: String, bootstrap: Handle, arguments: AnyRef*): Unit = {
          types(Type.getType(descriptor))
          arguments.foreach(constants)
        }
      }
    }
  }
}
