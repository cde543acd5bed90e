"""Frontiers and holds of all channels of a folder or scope, as tables."""

from strandline.report.overview.channels import Found, GivenPath, find_channels
from strandline.report.overview.tables import FRONTIERS, HOLDS, frontiers, holds, rows_of

__all__ = ["FRONTIERS", "HOLDS", "Found", "GivenPath", "find_channels", "frontiers", "holds", "rows_of"]
