package strandline.spark

import scala.util.Random

/** The cases of a random comparison that one run takes: some, drawn by its seed. With the property `strandline.runs`, all of them. */
object Drawn {
  def apply[A](seed: Long, cases: Seq[A], most: Int): Seq[A] =
    if (sys.props.contains("strandline.runs")) cases else new Random(seed).shuffle(cases).take(most)
}
