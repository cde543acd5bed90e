"""Channels: Delta tables whose commits carry rows and, atomically with them, what each producer may still write."""

from strandline.channel.channel import Channel
from strandline.channel.progress.progress import Progress
from strandline.channel.statements.commit_statement import CommitStatement
from strandline.channel.statements.log import Commit, Log
from strandline.channel.statements.session import WriterSession
from strandline.channel.statements.statement import ProducerState, Span, Statement
from strandline.channel.write.capability import Capability
from strandline.channel.write.file_writer import FileWriter
from strandline.channel.write.producer import Producer
from strandline.delta.data_file import DataFile
from strandline.errors import CapabilityError, ChannelError, LogError, ProducerError, StatementError, StorageError

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
    "Producer",
    "ProducerError",
    "ProducerState",
    "Progress",
    "Span",
    "Statement",
    "StatementError",
    "StorageError",
    "WriterSession",
]
