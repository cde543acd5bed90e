package strandline.spark

import scala.util.Random

/**
 * The cases that one run takes of many: some, drawn by a seed. With the property `strandline.runs`, all of them. The property
 * `strandline.seed` repeats a run.
 */
object Drawn {
  val seed: Long = sys.props.get("strandline.seed").fold(System.nanoTime())(_.toLong)
  println(s"Cases are drawn by -Dstrandline.seed=$seed")

  def apply[A](cases: Seq[A], most: Int): Seq[A] =
    if (sys.props.contains("strandline.runs")) cases else new Random(seed).shuffle(cases).take(most)
}
