"""Programs: recursive rules over sets of rows, in strata and ticks, and their run in one process.

Imports ``time``, ``tracker``, ``dataflow`` and ``channel``.
"""

from strandline.program.expression import Expression, col, lit
from strandline.program.program import Program
from strandline.program.rows import Rows

__all__ = ["Expression", "Program", "Rows", "col", "lit"]
