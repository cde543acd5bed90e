"""``replay_loop`` runs a recorded loop again at its recorded times, and compares what comes round with the recording."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from pyspark_strandline.loops.loop import Loop, read_loop
from pyspark_strandline.operators.summary_steps import By, distances
from pyspark_strandline.read.several.streams import Streams, read_channels
from pyspark_strandline.replay import errors
from pyspark_strandline.replay.folder import ReplayFolder
from pyspark_strandline.replay.links import ReplayedLinks
from pyspark_strandline.replay.pipeline_file import checked_outputs
from pyspark_strandline.replay.plan import varying_parts
from pyspark_strandline.schema import quoted, schema_above, time_field_of
from pyspark_strandline.write.outputs import write_outputs
from strandline.channel import Channel
from strandline.delta.storage import location_of
from strandline.replay import CLOCK, ORIGINAL, Comparison
from strandline.replay.originals import Compared, Originals
from strandline.report.soundness.verify import verify
from strandline.time.domain import Time, TimeDomain

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["LoopReplay", "OnDivergence", "RecordedStreams", "replay_loop"]

OnDivergence: TypeAlias = Literal["abort", "report", "restamp"]
_LOOK_S = 1
_PRODUCER = "loop"
_SUMS = re.compile(r"\b(sum|avg|stddev\w*|variance|var_\w+|corr|covar_\w+)\(")


class RecordedStreams:
    """The streams of a loop that is replayed: ``loop["name"]``, as in the loop that was recorded."""

    def __init__(self, streams: Streams | Loop, recorded: Mapping[str, str], until: Time | None) -> None:
        self._streams, self._recorded, self._until = streams, recorded, until

    def __getitem__(self, name: str) -> DataFrame:
        """Return the stream of a channel. Raises :class:`StrandlineError` for an unknown name.

        A recorded link has its recorded times. After a divergence, what comes round instead has new ones.
        """
        if name not in self._recorded:
            return self._streams[name]
        rows = self._streams[self._recorded[name]]
        if self._until is None:
            return rows.drop(ORIGINAL)
        before = rows.where(_leaves(ORIGINAL) < _literal(self._until)).drop(ORIGINAL)
        return before.unionByName(self._streams[name])

    @property
    def domain(self) -> TimeDomain:
        """The domain of the loop."""
        return CLOCK

    def write(self, *_: object, **__: object) -> NoReturn:
        """Refuse: the replay writes what the body returns."""
        raise errors.pipeline_writes("the body", "loop.write")

    def route(self, *_: object, **__: object) -> NoReturn:
        """Refuse, too."""
        raise errors.pipeline_writes("the body", "loop.route")


@dataclass(frozen=True)
class LoopReplay:
    """What a replay of a loop has found.

    Attributes:
        links: For each feedback channel, how the recording (``a``) and what came round in the replay (``b``) compare. Recorded
            links are compared at the times that the rows had before they came round.
        outputs: The paths of the replay's other channels, by name.
        hints: What in the program may make two runs differ, such as ``rand()``, and what was not compared, as sentences.
        restamped: With ``restamp``, the time from which what came round has new times; ``None`` if nothing differed.
    """

    links: Mapping[str, Comparison]
    outputs: Mapping[str, str]
    restamped: Time | None = None
    hints: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether the same came round at all times that the recording has closed. Of each link that has rows, some must be."""
        return all(each.equal and not each.is_empty for each in self.links.values())

    @property
    def first(self) -> tuple[str, Time] | None:
        """The link and the time of the first divergence; ``None`` if there is none."""
        return min(((name, each.first) for name, each in self.links.items() if each.first is not None), key=_time, default=None)

    def to_text(self) -> str:
        """Return a few lines for people."""
        lines = [f"link {name}\n{each.to_text()}" for name, each in self.links.items()]
        if self.restamped is not None:
            lines.append(f"From {CLOCK.format(self.restamped)} on, times are new.")
        return "\n".join([*lines, *self.hints])


def replay_loop(
    spark: SparkSession,
    channels: Mapping[str, str | os.PathLike[str]],
    body: Callable[[Any], Mapping[str, Any]],
    into: str | os.PathLike[str],
    *,
    feedback: Mapping[str, Mapping[str, By] | By],
    record: Literal["clock", "earliest"] | bool = True,
    events: Mapping[str, str] | None = None,
    on_divergence: OnDivergence = "abort",
    most: int = 3,
    verified: bool = True,
    resume: bool = False,
    storage: Mapping[str, str] | None = None,
    **options: Any,
) -> LoopReplay:
    """Run a loop of :func:`pyspark_strandline.read_loop` again over what was recorded, in a folder of its own, and compare.

    Recorded links are read with their recorded times. What comes round is not: it is compared with them, with its times from
    before. A link that is not recorded comes round again, and is compared with the channel that was written then. The originals
    are only read. Another call with the same arguments and ``resume=True`` goes on where one was killed.

    Source: seed 5 (Triceps), case 1, and what it says of a replay that diverges.

    Args:
        spark: The session.
        channels: As for ``read_loop``: the paths of all channels, the feedback channels of the recorded run among them.
        body: A function of the loop that returns the outputs, as :meth:`Loop.write` takes them. The paths of other channels are
            left out, or not looked at: the replay's own are in ``into``.
        into: A folder of this machine that is new or empty, or with ``resume`` of this replay.
        feedback: As for ``read_loop``.
        record: As the loop was recorded.
        events: As for ``read_loop``.
        on_divergence: What happens where a link's rows are not those of the recording. ``"abort"``: the replay stops with an
            error that has the first difference. ``"report"``: it goes to the end, and all differences are returned.
            ``"restamp"``: everything before the first difference is as recorded. From there on, the replay goes on with what
            comes round in it, which gets new times as with ``record="earliest"``.
        most: At how many times of a link the rows that differ are shown.
        verified: Whether the recorded links are read and verified first, each row against what its commit states of it.
        resume: Whether to go on with the replay that the folder has, if it has one. You state with it that ``body`` and all that
            it uses are the same as then: nothing checks this. Without it, such a folder is refused.
        storage: Options of the object store.
        options: Options of the source, such as ``maxFilesPerTrigger``.

    Returns:
        How the links compare, and where the outputs are.

    Raises:
        StrandlineError: ``STRANDLINE_REPLAY_DIVERGED`` for ``"abort"``; ``STRANDLINE_RECORDING_DAMAGED``;
            ``STRANDLINE_REPLAY_FOLDER``, ``STRANDLINE_REPLAY_OUTPUTS``, ``STRANDLINE_REPLAY_FAILED``;
            ``STRANDLINE_COLUMN_MISSING`` for a link that is not recorded; and those of ``read_loop``.

    ``replay_loop(spark, channels, body, "/tmp/again", feedback={"back": {"instant": "1 second"}}).equal``
    """
    if on_divergence not in ("abort", "report", "restamp"):
        raise errors.option_invalid_divergence(on_divergence)
    plain = {name.removeprefix("storage."): value for name, value in (storage or {}).items()} or None
    paths = {name: location_of(path) for name, path in channels.items()}  # absolute
    folder = ReplayFolder(into, paths.values())
    links = [name for name in feedback if name not in (events or {})] if record else []
    sides: dict[str, Compared] = {
        name: Originals(paths[name], plain) if name in links else Channel.open(paths[name], plain) for name in feedback
    }
    what = {
        "channels": paths,
        "feedback": {name: distances(CLOCK, by if isinstance(by, Mapping) else {"": by}) for name, by in feedback.items()},
        "record": links,
        "events": dict(events or {}),
        "onDivergence": on_divergence,
    }
    folder.begin(what, resume=resume)
    for name in links if verified else ():
        if (violation := verify(paths[name], plain).violation) is not None:
            raise errors.recording_damaged(name, paths[name], str(violation))
    run = _Run(spark, paths, body, folder, feedback, links, dict(events or {}), plain, options)
    compared = ReplayedLinks(sides, links, feedback, folder.path / "replayed", most, plain)
    found = run.whole(compared, stops=on_divergence == "abort")
    if found.first is not None and on_divergence == "restamp" and links:
        since = min([found.first[1], *compared.common])  # from there on the recording of some link has nothing
        since = CLOCK.from_json(folder.kept("restamped", CLOCK.to_json(since)))  # a recording may have grown since then
        found = LoopReplay(found.links, run.restamped(since), since, found.hints)
    folder.ended()
    if found.first is not None and on_divergence == "abort":
        name, first = found.first
        text = "\n".join([found.links[name].to_text(), *found.hints])
        raise errors.replay_diverged(name, CLOCK.format(first), paths[name], text)
    return found


@dataclass(frozen=True)
class _Run:
    spark: SparkSession
    paths: Mapping[str, str]
    body: Callable[[Any], Mapping[str, Any]]
    folder: ReplayFolder
    feedback: Mapping[str, Mapping[str, By] | By]
    recorded: list[str]
    events: dict[str, str]
    storage: dict[str, str] | None
    options: Mapping[str, Any]

    def whole(self, links: ReplayedLinks, *, stops: bool) -> LoopReplay:
        """Replay all that is recorded, or until the first difference. What comes round is compared with the recorded links."""
        at = links.at
        again = {name: by for name, by in self.feedback.items() if name not in self.recorded}
        channels = self._channels(at, again)
        streams = self._read(channels, again, record=False)
        made = self._made(RecordedStreams(streams, {name: _recorded(name) for name in self.recorded}, None), at)
        for name in self.recorded:
            made[name] = (_at_originals(made[name][0]), str(at / name))
        frames = [frame for frame, _ in made.values()]
        hints = _hints(frames)
        found: dict[str, Comparison] = {}
        next_look = time.monotonic()
        with closing(self._run(self._writer(streams, made, again), at)) as looks:
            for running in looks:
                if running and (not stops or time.monotonic() < next_look):
                    continue
                if not running:
                    found, uncompared = links.end()
                    hints += uncompared
                    break
                began = time.monotonic()
                found = links.look()
                if any(not each.equal for each in found.values()):
                    break
                # A look reads both recordings, so it takes a fifth of the time at most.
                next_look = time.monotonic() + 4 * (time.monotonic() - began)
        return LoopReplay(found, self._others(made), hints=tuple(hints))

    def restamped(self, since: Time) -> dict[str, str]:
        """Replay what is recorded before a time, and go on from there with new times. Return the outputs."""
        at = self.folder.path / "restamped"
        channels = self._channels(at, self.feedback)
        streams = self._read(channels, self.feedback, record=True)
        made = self._made(RecordedStreams(streams, {name: _recorded(name) for name in self.recorded}, since), at)
        for name in self.recorded:
            rows, path = made[name]
            made[name] = (rows.where(_leaves(time_field_of(schema_above(rows))[0]) >= _literal(since)), path)
        for _ in self._run(self._writer(streams, made, self.feedback), at):
            pass
        return self._others(made)

    def _channels(self, at: Path, again: Mapping[str, Any]) -> dict[str, str]:
        """Return the channels to read: those from outside, the recorded links, and own ones for what comes round again."""
        for name in again:
            original = Channel.open(self.paths[name], self.storage)
            made = Channel.create(at / name, original.schema, storage_options=self.storage, exist_ok=True)
            # It goes on with the numbers of the recorded link, whose rows it may be read beside.
            if _PRODUCER not in made.progress.producers:
                made.register([_PRODUCER], exist_ok=True, state=partial(_counted, original))
            made.seal()
        outside = {name: path for name, path in self.paths.items() if name not in self.feedback}
        recorded = {_recorded(name): self.paths[name] for name in self.recorded}
        if clash := [name for name in recorded if name in outside]:
            raise errors.replay_outputs(clash[0], "The replay reads a recorded link by this name, and the channels", outside)
        return {**outside, **recorded, **{name: str(at / name) for name in again}}

    def _read(self, channels: Mapping[str, str], again: Mapping[str, Any], *, record: bool) -> Streams | Loop:
        if not again:
            storage = {f"storage.{name}": value for name, value in (self.storage or {}).items()}
            return read_channels(self.spark, channels, domain=CLOCK, **self.options, **storage)
        return read_loop(
            self.spark,
            channels,
            feedback=again,
            domain=CLOCK,
            record="earliest" if record else False,
            events=self.events,
            storage=self.storage,
            **self.options,
        )

    def _made(self, streams: RecordedStreams, at: Path) -> dict[str, tuple[DataFrame, str]]:
        """Return what the body makes: by name, a stream and the path of the replay's own channel."""
        outputs = self.body(streams)
        if not isinstance(outputs, Mapping):
            raise errors.pipeline_invalid("the body", "has returned something else than streams by name")
        missing = [name for name in self.feedback if name not in outputs]
        if missing:
            raise errors.replay_outputs(missing[0], "The feedback has this link, and the body returned", outputs)
        made = checked_outputs("the body", {n: each[0] if isinstance(each, tuple) else each for n, each in outputs.items()})
        return {name: (frame, str(at / name)) for name, frame in made.items()}

    def _writer(self, streams: Streams | Loop, made: Mapping[str, tuple[DataFrame, str]], again: Mapping[str, Any]) -> Any:
        if not isinstance(streams, Loop):
            return write_outputs(made, storage=self.storage)
        return streams.write({name: each[0] if name in again else each for name, each in made.items()})

    def _run(self, writer: Any, at: Path) -> Generator[bool]:
        """Run a query to the end of what is recorded. Yield now and then whether it still runs."""
        self.folder.started()
        query: StreamingQuery = writer.option("checkpointLocation", str(at / "_checkpoint")).trigger(availableNow=True).start()
        try:
            while not query.awaitTermination(_LOOK_S):
                yield True
        except PySparkException as error:
            problem = str(error).partition("\n")[0][:1000]
            raise errors.stated(error, "The replay") or errors.replay_failed("the replay", problem) from error
        finally:
            query.stop()
        yield False

    def _others(self, made: Mapping[str, tuple[DataFrame, str]]) -> dict[str, str]:
        return {name: path for name, (_, path) in made.items() if name not in self.feedback}


def _recorded(name: str) -> str:
    """Return under which name a recorded link is read. What comes round instead has the link's own."""
    return f"{name}_recorded"


def _hints(frames: list[DataFrame]) -> list[str]:
    """Return what the plans show of parts that may make two runs differ."""
    shown = [name for frame in frames if hasattr(frame, "_jdf") for name in varying_parts(frame)]
    hints = [f"The program has {name}, which may give something else each time." for name in dict.fromkeys(shown)]
    if any(_adds_floats(frame) for frame in frames):
        hints.append(
            "The program adds floating-point numbers. The last digits of a sum depend on how rows are cut into batches and "
            "tasks: round the sums, or add decimals."
        )
    return hints


def _adds_floats(frame: DataFrame) -> bool:
    plan = getattr(frame, "_jdf", None)
    text = "" if plan is None else plan.queryExecution().analyzed().toString()
    return bool(_SUMS.search(text)) and any(field.dataType.typeName() in ("double", "float") for field in frame.schema)


def _counted(original: Channel, _: object) -> dict[str, Any] | None:
    """Return the state with which a link of the replay begins: how many numbers the recorded one has given."""
    states = [each.state for each in original.progress.producers.values() if isinstance(each.state, dict)]
    return {key: state[key] for state in states for key in ("node", "n") if key in state} or None


def _at_originals(rows: DataFrame) -> DataFrame:
    """Return the rows of a link with the times from before they come round, in the column that a recording has for them."""
    column, _ = time_field_of(schema_above(rows))
    return rows.select(*(F.col(quoted(each)).alias(ORIGINAL if each == column else each) for each in rows.columns))


def _leaves(column: str) -> Column:
    return F.struct(*(F.col(quoted(column)).getField(name).alias(name) for name, _ in CLOCK.coordinates))


def _literal(time: Time) -> Column:
    instant, node, n = time
    return F.struct(F.timestamp_micros(F.lit(instant)).alias("instant"), F.lit(node).alias("node"), F.lit(n).alias("n"))


def _time(found: tuple[str, Time]) -> Time:
    return found[1]
