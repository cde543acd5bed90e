"""Puts the shim's jar into a wheel. Compiles the shim first if the source tree has no jar, or an older one."""

from __future__ import annotations

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
        from build_shim import SPARKS, is_fresh, jars_of

        subprocess.run([sys.executable, str(root / "tools" / "build_shim.py")], check=True, cwd=root)
        if not jars_of(SPARKS[0]):
            raise RuntimeError("the shim was compiled, but its jar is not in connector/pyspark_strandline/jars")
        for spark in SPARKS[1:]:  # these need half a gigabyte of Spark, which `make wheel` fetches before
            if jars_of(spark) and not is_fresh(spark):
                raise RuntimeError(f"the jar for Spark {spark} is of other sources: python tools/build_shim.py --spark {spark}")
