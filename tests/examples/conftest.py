"""Examples are programs, not installed packages: their folder goes on the path, here and for the processes that tests start."""

from __future__ import annotations

import os
import sys
from pathlib import Path

EXAMPLES = str(Path(__file__).resolve().parents[2] / "examples")
if EXAMPLES not in sys.path:
    sys.path.insert(0, EXAMPLES)
os.environ["PYTHONPATH"] = os.pathsep.join([EXAMPLES, *filter(None, [os.environ.get("PYTHONPATH")])])
