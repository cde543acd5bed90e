"""Runs a pipeline again over what its inputs have recorded, beside the originals, and compares by Spark."""

from pyspark_strandline.replay.inputs import Inputs
from pyspark_strandline.replay.loop import LoopReplay, replay_loop
from pyspark_strandline.replay.run import replay, start
from pyspark_strandline.replay.spark_comparison import compare

__all__ = ["Inputs", "LoopReplay", "compare", "replay", "replay_loop", "start"]
