package strandline.spark.compat

import java.io.InputStream
import java.net.JarURLConnection
import java.nio.file.{Files, Path, Paths}

import scala.annotation.nowarn
import scala.collection.mutable
import scala.jdk.CollectionConverters._

import org.apache.xbean.asm9.{
  ClassReader, ClassVisitor, ConstantDynamic, FieldVisitor, Handle, Label, MethodVisitor, Opcodes, Type
}

/**
 * Finds the classes and members of Spark that the extension's classes refer to, and that the running Spark lacks.
 *
 * The extension uses Spark's internals, and a vendor's build of the same version may have others. Java looks for a member when
 * it is first used, which is in the middle of a batch. So this object looks for all of them at the first strandline stream. It
 * looks where Java does: in the class, its superclasses and its interfaces.
 */
private[spark] object SparkReferences {

  /** A class, or a member of it if there is a `name`. The names are those of class files. */
  final case class Reference(owner: String, name: String = "", descriptor: String = "") {
    override def toString: String = {
      val of = owner.replace('/', '.')
      if (name.isEmpty) s"class $of" else if (descriptor.startsWith("(")) s"method $of.$name$descriptor" else s"field $of.$name"
    }
  }

  /** The references that the running Spark lacks. Computed once in a JVM. */
  lazy val missing: Seq[Reference] = missingIn(getClass.getClassLoader)

  /** Returns the extension's references that `loader` does not have. */
  def missingIn(loader: ClassLoader): Seq[Reference] = {
    val extension = new ExtensionClasses
    classFiles(in => new ClassReader(in).accept(extension, ClassReader.SKIP_DEBUG | ClassReader.SKIP_FRAMES))
    val spark = new SparkClasses(loader)
    extension.references.filterNot { case Reference(owner, name, descriptor) =>
      extension.resolved(owner, name + descriptor, spark)
    }.toSeq.sortBy(_.toString)
  }

  private def isSparks(name: String): Boolean = name.startsWith("org/apache/spark/") && !name.contains("/strandline/")
  private def isOurs(name: String): Boolean =
    name.startsWith("strandline/") || name.startsWith("org/apache/spark/") && name.contains("/strandline/")

  /** Calls `read` with each class file of the extension, from its jar or, in tests, from a folder. */
  private def classFiles(read: InputStream => Unit): Unit = {
    val itself = getClass.getName.replace('.', '/') + ".class"
    def opened(in: InputStream): Unit =
      try read(in)
      finally in.close()
    getClass.getClassLoader.getResource(itself).openConnection() match {
      case jar: JarURLConnection =>
        val file = jar.getJarFile
        file.entries.asScala.filter(e => e.getName.endsWith(".class") && isOurs(e.getName)).foreach(e =>
          opened(file.getInputStream(e)))
      case other =>
        val root = itself.split('/').foldLeft(Paths.get(other.getURL.toURI))((path, _) => path.getParent)
        val found = Files.walk(root)
        try found.iterator.asScala.filter(p => p.toString.endsWith(".class") && isOurs(nameIn(root, p))).foreach(p =>
            opened(Files.newInputStream(p)))
        finally found.close()
    }
  }

  private def nameIn(root: Path, file: Path): String = root.relativize(file).toString.replace('\\', '/')

  /** The members of Spark's classes, by reflection. No class is initialised. */
  private final class SparkClasses(loader: ClassLoader) {
    private val classes = mutable.HashMap.empty[String, Option[Class[_]]]
    private val members = mutable.HashMap.empty[Class[_], Set[String]]

    private def named(name: String): Option[Class[_]] = classes.getOrElseUpdate(
      name,
      try Some(Class.forName(name.replace('/', '.'), false, loader))
      catch { case _: ClassNotFoundException | _: LinkageError => None })

    def has(owner: String, member: String): Boolean = named(owner).exists(c => member.isEmpty || search(c, member))

    private def search(in: Class[_], member: String): Boolean =
      declared(in).contains(member) || Option(in.getSuperclass).exists(search(_, member)) || in.getInterfaces.exists(search(_,
          member)) ||
        in.isInterface && declared(classOf[Object]).contains(member)

    private def declared(of: Class[_]): Set[String] = members.getOrElseUpdate(
      of,
      // Reflection fails if the type of any member is missing, such as a class of protobuf in Spark 4.3. Java looks for a type
      // when a member with it is used, so then the class file says which members there are.
      try
        (of.getDeclaredMethods.map(m => m.getName + Type.getMethodDescriptor(m)) ++ of.getDeclaredConstructors.map(c =>
          "<init>" + Type.getConstructorDescriptor(c)) ++
          of.getDeclaredFields.map(f => f.getName + Type.getDescriptor(f.getType))).toSet
      catch { case _: LinkageError => declaredInFile(of) })

    private def declaredInFile(of: Class[_]): Set[String] = {
      val found = Set.newBuilder[String]
      val in = loader.getResourceAsStream(of.getName.replace('.', '/') + ".class")
      if (in != null)
        try
          new ClassReader(in).accept(
            new ClassVisitor(Opcodes.ASM9) {
              override def visitField(
                  access: Int, name: String, descriptor: String, signature: String, value: AnyRef): FieldVisitor = {
                found += name + descriptor
                null
              }
              override def visitMethod(
                  access: Int, name: String, descriptor: String, signature: String, errors: Array[String]): MethodVisitor = {
                found += name + descriptor
                null
              }
            },
            ClassReader.SKIP_CODE | ClassReader.SKIP_DEBUG | ClassReader.SKIP_FRAMES)
        finally in.close()
      found.result()
    }
  }

  /**
   * Collects the references of the extension's classes. Of the extension's own members, keeps those that may be inherited from
   * Spark.
   */
  private final class ExtensionClasses extends ClassVisitor(Opcodes.ASM9) {
    val references = mutable.HashSet.empty[Reference]
    private val supers = mutable.HashMap.empty[String, Seq[String]]
    private val declared = mutable.HashSet.empty[(String, String)]
    private var current: String = _

    /** Whether one of the extension's classes, a class that it extends, or Spark has the member. */
    def resolved(owner: String, member: String, spark: SparkClasses): Boolean =
      if (isOurs(owner)) declared(owner -> member) || supers.getOrElse(owner, Nil).exists(resolved(_, member, spark))
      else spark.has(owner, member)

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
      case d: ConstantDynamic =>
        (0 until d.getBootstrapMethodArgumentCount).foreach(i => constants(d.getBootstrapMethodArgument(i)))
      case _ =>
    }

    override def visit(
        version: Int, access: Int, name: String, signature: String, parent: String, interfaces: Array[String]): Unit = {
      current = name
      supers(name) = Option(parent).toSeq ++ interfaces
      supers(name).foreach(s => types(Type.getObjectType(s)))
    }

    override def visitField(access: Int, name: String, descriptor: String, signature: String, value: AnyRef): FieldVisitor = {
      declared += current -> (name + descriptor)
      types(Type.getType(descriptor))
      null
    }

    override def visitMethod(
        access: Int, name: String, descriptor: String, signature: String, exceptions: Array[String]): MethodVisitor = {
      declared += current -> (name + descriptor)
      types(Type.getType(descriptor))
      new MethodVisitor(Opcodes.ASM9) {
        override def visitMethodInsn(opcode: Int, owner: String, name: String, descriptor: String, isInterface: Boolean): Unit =
          if (!owner.startsWith("[")) refer(owner, name, descriptor)
        override def visitFieldInsn(opcode: Int, owner: String, name: String, descriptor: String): Unit =
          refer(owner, name, descriptor)
        override def visitTypeInsn(opcode: Int, of: String): Unit = types(Type.getObjectType(of))
        override def visitLdcInsn(value: AnyRef): Unit = constants(value)
        override def visitTryCatchBlock(start: Label, end: Label, handler: Label, of: String): Unit =
          if (of != null) types(Type.getObjectType(of))
        @nowarn("cat=unused") // only the compiler's bridge to Java's variable arguments uses it
        override def visitInvokeDynamicInsn(name: String, descriptor: String, bootstrap: Handle, arguments: AnyRef*): Unit = {
          types(Type.getType(descriptor))
          arguments.foreach(constants)
        }
      }
    }
  }
}
