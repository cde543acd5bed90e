"""Errors of channels: what a table, its log, a statement or a producer did that the protocol does not allow."""

from __future__ import annotations

from strandline.errors import StrandlineError

__all__ = ["CapabilityError", "ChannelError", "LogError", "ProducerError", "StatementError", "StorageError"]


class ChannelError(StrandlineError):
    """The table is no channel, or not one that can be read and written safely."""


class LogError(ChannelError):
    """The Delta log lacks a commit that is needed, or holds one that breaks the channel's contract."""


class StatementError(ChannelError):
    """A progress statement cannot be read, or contradicts an earlier one."""


class ProducerError(ChannelError):
    """A producer's name is unknown, taken, or was taken over."""


class StorageError(ChannelError):
    """The storage failed or refused: a full disk, missing rights, too many open files, a broken device."""


class CapabilityError(StrandlineError, ValueError):
    """A time, of a row or of a new capability, is not in advance of any capability that the producer holds."""
