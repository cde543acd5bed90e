"""Errors of the ingest: options, policies and manifests that cannot be, rows that ``onLate`` refuses."""

from __future__ import annotations

from strandline.errors import StrandlineError

__all__ = ["IngestError", "PolicyError"]


class IngestError(StrandlineError):
    """An outside stream cannot be taken in as it was asked for."""


class PolicyError(IngestError, ValueError):
    """A capability policy is written wrongly, or does not fit the times that it is to judge."""
