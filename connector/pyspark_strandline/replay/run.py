"""``replay`` runs a pipeline file over recorded inputs and compares; ``start`` runs the same function live."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from pyspark_strandline.read.replay.frontier import parse_frontier
from pyspark_strandline.replay import errors
from pyspark_strandline.replay.folder import ReplayFolder
from pyspark_strandline.replay.inputs import Inputs
from pyspark_strandline.replay.pipeline_file import PipelineFile, checked_outputs
from pyspark_strandline.replay.plan import varying_parts
from pyspark_strandline.replay.spark_comparison import compare as compare_by_spark
from strandline.channel import Channel
from strandline.delta.storage import location_of
from strandline.errors import StrandlineError
from strandline.page.cursor import Cursor
from strandline.replay import Replayed, ReplayedInput, compare
from strandline.time.antichain import Antichain
from strandline.time.path.steps import Steps

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["replay", "start"]

_OURS, _THEIRS = "channels", "against"
_LOOK_S = 0.3
_OPTIONS = (
    *("startingFrontier", "startingVersion", "startingTimestamp"),
    *("endingFrontier", "endingVersion", "endingTimestamp"),
)


def start(
    spark: SparkSession,
    pipeline: Callable[[SparkSession, Inputs], Mapping[str, DataFrame]],
    outputs: Mapping[str, str | os.PathLike[str]],
    checkpoints: str | os.PathLike[str],
    *,
    inputs: Mapping[str, str | os.PathLike[str]] | None = None,
    trigger: Mapping[str, Any] | None = None,
    storage: Mapping[str, str] | None = None,
    **options: Any,
) -> dict[str, StreamingQuery]:
    """Run a pipeline live: the function that ``strandline replay`` runs over what was recorded.

    Args:
        spark: The session.
        pipeline: A function of the session and of :class:`Inputs`, which returns streams by name.
        outputs: By the name of an output, the path of its channel.
        checkpoints: A folder. Each output's query has its checkpoint there, by its name.
        inputs: Names for the paths of inputs.
        trigger: What ``DataStreamWriter.trigger`` takes, such as ``{"availableNow": True}``.
        storage: Options of the object store.
        options: Options of the sink.

    Returns:
        The queries, by the names of their outputs.

    Raises:
        StrandlineError: ``STRANDLINE_PIPELINE_INVALID``, ``STRANDLINE_REPLAY_OUTPUTS``, or as a query that is started.

    ``start(spark, pipeline, {"sums": "/lake/sums"}, "/lake/checkpoints", trigger={"processingTime": "10 seconds"})``
    """
    name = getattr(pipeline, "__name__", "pipeline")
    made = checked_outputs(name, pipeline(spark, Inputs(spark, inputs, storage=storage, pipeline=name)))
    _check_names(made, outputs, "The mapping of outputs")
    _check_names(outputs, made, name)
    told = {**options, **{f"storage.{key}": value for key, value in (storage or {}).items()}}
    queries = {}
    for output, frame in made.items():
        checkpoint = f"{os.fspath(checkpoints).rstrip('/')}/{output}"
        writer = frame.writeStream.format("strandline").options(**told).option("checkpointLocation", checkpoint)
        writer = writer if trigger is None else writer.trigger(**trigger)
        queries[output] = writer.start(os.fspath(outputs[output]))
    return queries


def replay(
    spark: SparkSession,
    pipeline: str | os.PathLike[str],
    into: str | os.PathLike[str],
    *,
    against: str | os.PathLike[str] | Mapping[str, str | os.PathLike[str]] | None = None,
    inputs: Mapping[str, str | os.PathLike[str]] | None = None,
    speed: str = "max",
    since: Any = None,
    key: Sequence[str] | None = None,
    most: int = 3,
    by_spark: bool = False,
    storage: Mapping[str, str] | None = None,
    progress: Callable[[str, int, int], None] | None = None,
    **options: str,
) -> Replayed:
    """Run a pipeline file over what its inputs have recorded, into channels of its own, and compare.

    The originals are only read. Another call with the same arguments goes on where one was killed.

    Args:
        spark: The session, not of Spark Connect.
        pipeline: The file. Its function ``pipeline(spark, read)`` returns streams by name.
        into: A folder for the outputs' channels, for what ``against`` writes, and for checkpoints.
        against: What to compare with: another pipeline file (``.py``), a channel if there is one output, or channels by the
            names of outputs. Without it nothing is compared.
        inputs: Names for the paths of inputs.
        speed: ``max``, ``realtime`` or such as ``10x``.
        since: Compare the times of the outputs from this frontier on. By default, if there is a ``startingFrontier``, it is what
            the steps of the query make of it.
        key: As for :func:`strandline.replay.compare`.
        most: As for :func:`strandline.replay.compare`.
        by_spark: Whether Spark compares, which is for large channels.
        storage: Options of the object store.
        progress: Called with the name of an output, the commits of its input that it has read, and how many there are.
        options: Where the replay begins and ends, as options of the source: ``startingFrontier``, ``startingVersion`` or
            ``startingTimestamp``; ``endingFrontier``, ``endingVersion`` or ``endingTimestamp`` (docs/replay.md).

    Returns:
        What was replayed, and how the outputs compare.

    Raises:
        StrandlineError: ``STRANDLINE_PIPELINE_INVALID``, ``STRANDLINE_PIPELINE_WRITES``, ``STRANDLINE_INPUT_UNRECORDED``,
            ``STRANDLINE_REPLAY_FOLDER``, ``STRANDLINE_REPLAY_OUTPUTS``, ``STRANDLINE_ORIGINAL_CHANGED``,
            ``STRANDLINE_REPLAY_FAILED``, and those of a replay.

    ``replay(spark, "rule.py", "/tmp/whatif", against={"sums": "/lake/sums"}, endingFrontier="2013-01-08T05:00Z")``
    """
    if unknown := sorted(set(options) - set(_OPTIONS)):
        raise TypeError(f"replay() has no option {unknown[0]!r}; it has {', '.join(_OPTIONS)}")
    given = {}
    for path in (inputs or {}).values():
        with suppress(StrandlineError):  # what is no channel is refused where it is read
            given[location_of(path)] = Channel.open(path, storage).version
    sides = _Sides(spark, Path(pipeline), against, Inputs(spark, inputs, {**options, "replay": speed}, storage), storage)
    folder = ReplayFolder(into, sides.originals)
    folder.begin(sides.named(options))
    # What the file itself has done, before it read an input by its name, counts too.
    before = {path: given.get(path, channel.version) for path, channel in sides.originals.items()}
    _run(sides.frames, folder, progress)
    hints = [*sides.hints(), *_check_originals(sides.originals, before)]
    comparisons = {}
    for output in sides.frames[_OURS]:
        own = folder.channel(_OURS, output)
        other = folder.channel(_THEIRS, output) if _THEIRS in sides.frames else sides.recorded.get(output)
        if other is not None:
            begin = since if since is not None else _image(own, options.get("startingFrontier"), storage)
            asked: dict[str, Any] = {"since": begin, "key": key, "most": most, "storage_options": storage}
            comparisons[output] = compare_by_spark(spark, other, own, **asked) if by_spark else compare(other, own, **asked)
    told = tuple(ReplayedInput(path, before[path], channel.frontier) for path, channel in sorted(sides.inputs.items()))
    channels = {name: folder.channel(_OURS, name) for name in sides.frames[_OURS]}
    return Replayed(str(pipeline), {**options, "speed": speed}, told, channels, comparisons, tuple(hints))


class _Sides:
    """The pipelines of a replay and what they read, before anything has run.

    Attributes:
        frames: By side, the streams by the names of their outputs.
        recorded: By the name of an output, the location of the channel to compare it with.
        inputs: The channels that are replayed, by location.
        originals: These, and the recorded ones.
    """

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Path,
        against: str | os.PathLike[str] | Mapping[str, str | os.PathLike[str]] | None,
        read: Inputs,
        storage: Mapping[str, str] | None,
    ) -> None:
        self._files = {_OURS: PipelineFile(pipeline)}
        given: Mapping[str, str | os.PathLike[str]] = {}
        if isinstance(against, Mapping):
            given = against
        elif against is not None and os.fspath(against).endswith(".py"):
            self._files[_THEIRS] = PipelineFile(Path(against))
        elif against is not None:
            given = {"": against}
        self.recorded = {name: location_of(path) for name, path in given.items()}
        self.originals = {path: Channel.open(path, storage) for path in self.recorded.values()}
        self.frames = {side: file.outputs(spark, read.of(str(file.path))) for side, file in self._files.items()}
        self.inputs = read.channels
        self.originals |= self.inputs
        self._check()

    def _check(self) -> None:
        """Raise unless both sides have the same outputs, as far as they are compared."""
        ours, path = self.frames[_OURS], str(self._files[_OURS].path)
        if "" in self.recorded:
            if len(ours) != 1:
                raise errors.replay_outputs("", path, ours)
            self.recorded = {next(iter(ours)): self.recorded[""]}
        _check_names(self.recorded, ours, path)
        if _THEIRS in self.frames:
            _check_names(self.frames[_THEIRS], ours, path)
            _check_names(ours, self.frames[_THEIRS], str(self._files[_THEIRS].path))

    def named(self, part: Mapping[str, str]) -> dict[str, Any]:
        """Return what this is a replay of, as JSON: a folder belongs to one."""
        other = self._files[_THEIRS].digest if _THEIRS in self._files else None
        return {
            "pipeline": self._files[_OURS].digest,
            "other pipeline": other,
            "inputs": sorted(self.inputs),
            "part": dict(sorted(part.items())),
        }

    def hints(self) -> Iterator[str]:
        """Yield what the plans show that may make two runs differ."""
        for side, made in self.frames.items():
            for name, frame in made.items():
                for part in varying_parts(frame):
                    yield f"{self._files[side].path.name} has {part} in output {name}: two runs may differ."


def _check_names(wanted: Iterable[str], known: Iterable[str], where: str) -> None:
    for name in wanted:
        if name not in (names := list(known)):
            raise errors.replay_outputs(name, where, names)


def _run(
    frames: Mapping[str, Mapping[str, DataFrame]], folder: ReplayFolder, progress: Callable[[str, int, int], None] | None
) -> None:
    queries: dict[str, StreamingQuery] = {}
    try:
        for side, made in frames.items():
            for output, frame in made.items():
                writer = frame.writeStream.format("strandline").option("checkpointLocation", folder.checkpoint(side, output))
                name = output if side == _OURS else f"{output} of the other pipeline"
                try:
                    queries[name] = writer.trigger(availableNow=True).start(folder.channel(side, output))
                except PySparkException as refused:
                    raise _failure(name, refused) from refused
        running = True
        while running:
            running = any(query.isActive for query in queries.values())  # what has failed or was read by then is told below
            for name, query in queries.items():
                if (error := query.exception()) is not None:
                    raise _failure(name, error) from error
                if progress is not None and (last := query.lastProgress) is not None:
                    progress(name, *_position(last))
            time.sleep(_LOOK_S if running else 0)
    finally:
        for query in queries.values():
            query.stop()


def _failure(output: str, error: Exception) -> StrandlineError:
    """Return the error of Strandline that has stopped a query, or another one that has its text."""
    problem = str(error).partition("\n")[0][:1000]
    return errors.stated(error, f"Output {output}") or errors.replay_failed(output, problem)


def _position(last: Any) -> tuple[int, int]:
    """Return how many commits a query has read, and of how many, as far as its progress says so."""
    read = whole = 0
    for source in last["sources"]:
        end, newest = (json.loads(source[name]) if source.get(name) else {} for name in ("endOffset", "latestOffset"))
        ends = end.get("channels") if isinstance(end.get("channels"), dict) else {"": end}
        for name, each in ends.items():
            latest = newest.get("channels", {}).get(name, {}) if name else newest
            read += int(each.get("commit") or 0)
            until = each.get("until")
            whole += int(until[0]) + 1 if until else int((latest or {}).get("commit") or each.get("commit") or 0)
    return read, max(read, whole)


def _check_originals(originals: Mapping[str, Channel], before: Mapping[str, int]) -> list[str]:
    """Raise if somebody has changed an original in a way that no stream and no producer does. Say which of them go on."""
    told = []
    for path, channel in originals.items():
        now = channel.log.latest(before[path])
        for version in range(before[path] + 1, now + 1):
            commit = channel.log.read(version)
            if commit is not None and commit.statement is None and (len(commit.files) or commit.removes):
                raise errors.original_changed(path, version)
        if now > before[path]:
            told.append(f"{path} went on while the replay ran: {now - before[path]} commits of its own producers.")
    return told


def _image(output: str, frontier: str | None, storage: Mapping[str, str] | None) -> Antichain | None:
    """Return what the query that writes a channel makes of the frontier with which its input began; ``None`` if not known."""
    if frontier is None:
        return None
    channel = Channel.open(output)
    cursor = Cursor(channel)
    cursor.update()
    for inputs in cursor.reads.values():
        for each in inputs:
            if each.summary is not None and each.path is not None:
                domain = Channel.open(each.path, storage).domain
                return Steps.from_json(list(each.summary)).results(parse_frontier("startingFrontier", frontier, domain))
    return None
