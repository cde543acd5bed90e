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


MODULES = """
import pyspark_strandline
print(pyspark_strandline.session.configure.__name__, pyspark_strandline.report.exporters.__name__)
for name in ("nothing", "__wrapped__"):
    try:
        getattr(pyspark_strandline, name)
    except AttributeError as error:
        print(error)
"""


def test_a_module_is_there_without_its_own_import() -> None:
    done = subprocess.run([sys.executable, "-c", MODULES], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [
        "configure pyspark_strandline.report.exporters",
        "module 'pyspark_strandline' has no attribute 'nothing'",
        "module 'pyspark_strandline' has no attribute '__wrapped__'",
    ], done.stderr
