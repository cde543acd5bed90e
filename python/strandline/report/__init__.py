"""Reports on progress: why a time is open, and whether a channel is sound. It imports everything of the core but no Spark."""

from strandline.report.ailments import Behind, Holder
from strandline.report.explanation import Explanation
from strandline.report.history import Since
from strandline.report.soundness.verification import Verification, Violation
from strandline.report.soundness.verify import verify
from strandline.report.why import explain

__all__ = ["Behind", "Explanation", "Holder", "Since", "Verification", "Violation", "explain", "verify"]
