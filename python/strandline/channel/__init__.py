"""Channels: Delta tables whose commits carry, atomically with their rows, what each producer may still write."""

from strandline.channel.capability import Capability
from strandline.channel.channel import Channel
from strandline.channel.commit_statement import CommitStatement
from strandline.channel.errors import CapabilityError, ChannelError, LogError, ProducerError, StatementError, StorageError
from strandline.channel.files import DataFile, FileWriter
from strandline.channel.log import Commit, Log
from strandline.channel.owner import Owner
from strandline.channel.producer import Producer
from strandline.channel.progress import Progress
from strandline.channel.statement import ProducerState, Span, Statement

__all__ = [
    "Capability",
    "CapabilityError",
    "Channel",
    "ChannelError",
    "Commit",
    "CommitStatement",
    "DataFile",
    "FileWriter",
    "Log",
    "LogError",
    "Owner",
    "Producer",
    "ProducerError",
    "ProducerState",
    "Progress",
    "Span",
    "Statement",
    "StatementError",
    "StorageError",
]
