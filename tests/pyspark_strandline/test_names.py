"""The public names: imported on first use, and there for whoever looks."""

from __future__ import annotations

import subprocess
import sys

LOOK = """
import sys
import pyspark_strandline
assert set(pyspark_strandline.__all__) <= set(dir(pyspark_strandline))
assert not any(name.partition(".")[0] == "pyspark" for name in sys.modules)
for name in pyspark_strandline.__all__:
    assert getattr(pyspark_strandline, name) is not None, name
assert pyspark_strandline.DefaultSource is pyspark_strandline.StrandlineDataSource
from pyspark_strandline import *
print(iterate.__module__)
"""


def test_public_names_are_imported_on_first_use() -> None:
    done = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "pyspark_strandline.loops.iterate"), done.stderr
