"""Puts the shim's jar into a wheel. Compiles the shim first if the source tree has no jar, or an older one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ShimBuildHook(BuildHookInterface):
    """A wheel without the jar would install and then fail at the first query, so a wheel build needs the shim."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the shim unless this is an editable install. Raise ``RuntimeError`` if that gives no jar."""
        if version == "editable":
            return
        root = Path(self.root)
        sys.path.insert(0, str(root / "tools"))
        from build_shim import SPARKS, line_of

        # The other lines need half a gigabyte of Spark, which `make wheel` fetches.
        for spark in SPARKS if os.environ.get("STRANDLINE_ALL_SPARKS") else SPARKS[:1]:
            subprocess.run([sys.executable, str(root / "tools" / "build_shim.py"), "--spark", spark], check=True, cwd=root)
            if not list((root / "connector" / "pyspark_strandline" / "jars").glob(f"strandline-spark-{line_of(spark)}_*.jar")):
                raise RuntimeError(f"the shim for {spark} was compiled, but its jar is not in connector/pyspark_strandline/jars")
