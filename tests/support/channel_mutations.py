"""Channels on disk, and what a stranger or a broken machine may make of them: one random change for each seed.

Changes keep to the structure of what they damage (statements, commits, actions, files, checkpoints), so that they come past
the first check. :func:`damaged` tells in words what it did.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import write_deltalake

from strandline.channel import Channel, WriterSession
from strandline.delta.storage import LOG_DIR, commit_name
from strandline.ingest import (
    Ingest,
    IngestTask,
    Moment,
    Settings,
    composed,
    drop_partitions,
    idle,
    manifest,
    ordered,
    readmit,
    release_parked,
)
from strandline.time.arrow import array_of, time_field
from strandline.time.domain import Time, TimeDomain, int64, product

PAIR = product(epoch="int64", iter="int64")
DEEP = "@@deep@@"
NO_STATE = ["none"]
VALUES: list[Any] = [
    *(None, True, False, -1, 0, 1, 1 << 31, (1 << 63) - 1, 1 << 63, -(1 << 63), 10**30, 1.5, 1e308, float("nan"), float("-inf")),
    *("", "x", "9", "\0", "a\nb", "\ud800", "\u202e", "$registrar", "$x", "../../etc/passwd", "a" * 2000, DEEP),
    *([], [[]], [None], {}, {"a": 1}, [[1, 2]], ["a"], [9, [9]], [1 << 63], [True], [1.0]),
]
NAMES = ["x", "", "\0", "\ud800", "a/../b", "statements", "known", "columns", "a", "b", "c", "a\nb", "__class__", "a" * 1025]
PATHS: list[Any] = [
    *("../../x.parquet", "..%2F..%2Fx.parquet", "%2e%2e/%2e%2e/x.parquet", "file:///etc/passwd", "http://127.0.0.1:1/x.parquet"),
    *(
        "s3://b/x.parquet",
        "",
        ".",
        "..",
        "a%",
        "%00",
        "%ff%fe",
        "\0",
        "a\nb",
        "\ud800",
        "/dev/zero",
        "a" * 5000,
        "~/x",
        "_delta_log",
    ),
    *(f"{LOG_DIR}/{0:020d}.json", None, 1, []),
]
STATS: list[Any] = [
    *(None, "", "{", "{}", "[]", "1", '{"numRecords":-5}', '{"numRecords":1e9}', '{"numRecords":99999999999999999999}', 1),
    *('{"numRecords":"x"}', '{"numRecords":7}', "[" * 100_000, '{"numRecords":2,"minValues":{"time":"x"},"maxValues":[]}'),
]


# ------------------------------------------------------------------------------------------------------------- the channels


def make_channels(folder: Path) -> None:
    """A few channels of other forms: two producers, times of two coordinates, statements in columns, a long log."""
    _fill(folder / "few", int64, ["a", "b"], lambda n: n, 8)
    _fill(folder / "pairs", PAIR, ["a", "b"], lambda n: (n, n), 6)
    _fill(folder / "columns", int64, ["a", "b", *(f"p{n}" for n in range(80))], lambda n: n, 90)
    _fill(folder / "long", int64, ["a", "b"], lambda n: n, 104)
    make_ingested(folder / "ingested")


def _fill(path: Path, domain: TimeDomain, names: list[str], time: Callable[[int], Time], commits: int) -> None:
    schema = pa.schema([time_field("time", domain), ("n", pa.int64())])
    channel = Channel.create(path, schema, producers=names, at=time(0), sealed=False)
    for n in range(1, commits):
        name = names[n % len(names)]
        with channel.file_writer() as writer:
            writer.write(pa.Table.from_arrays([array_of([time(n), time(n + 1)], domain), pa.array([n, n])], schema=schema))
            files, times = writer.finish()
        state = {"at": n, "held": [[n]]} if n % 3 == 0 else {"at": n}
        channel.append(
            files, statements={name: [time(n)]}, times=times, owner="query", states={name: state}, transaction=("query", n)
        )


# Of an ingest: sensors of which one falls silent, and machines of which a manifest announces the rows.
ARRIVALS = pa.schema([("time", pa.int64()), ("partition", pa.string()), ("n", pa.int64())])
ANNOUNCED = pa.table({"partition": ["m1", "m1", "m2", "m3"], "time": [5, 60, 7, 95], "expected": [2, 3, 1, 2]})
"""Saved beside the first channel, as ``announced``: the address is a part of the policy, which a copy is to share."""
_announced: list[str] = []


def ingest_settings(path: Path) -> Settings:
    """Of the ingest that wrote the channel ``ingested``, for a copy of it."""
    policy = composed({"m*": manifest(_announced[-1]), "*": idle(ordered(), "10 milliseconds")})
    return Settings.of(
        str(path), ARRIVALS, time="time", partition="partition", policy=policy, max_ahead=30, corrections=True, take_over=True
    )


def ingest_batch(path: Path, batch: int, rows: Sequence[tuple[int, str]], now: int) -> None:
    """One batch of a query that was started for it alone."""
    ingest = Ingest(ingest_settings(path))
    with IngestTask(ingest.settings.for_tasks(), ingest.start(), name="task", query="query", batch=batch, arrival=1) as task:
        times, partitions = [time for time, _ in rows], [name for _, name in rows]
        task.write(pa.table([times, partitions, list(range(len(rows)))], schema=ARRIVALS))
        report = replace(task.finish(), planned_ms=now)
    ingest.commit(("query", batch), [report], WriterSession.here("query"), Moment(now, now, "run", True, batch == 0))


def use_ingest(path: Path) -> None:
    """What the query and an operator do next with the channel ``ingested``."""
    ingest_batch(path, len(BATCHES), [(45, "a"), (46, "b"), (60, "m1"), (220, "m1")], 75)
    readmit(str(path))
    drop_partitions(str(path), ["b"])
    ingest_batch(path, len(BATCHES) + 1, [(47, "a"), (61, "m1"), (99, "a"), (95, "m3")], 80)
    release_parked(str(path), take_over=True)


BATCHES: list[list[tuple[int, str]]] = [
    [(1, "a"), (2, "b"), (5, "m1")],
    [(3, "a"), (4, "b"), (5, "m1"), (7, "m2")],
    [(9, "a"), (1, "b"), (90, "a")],
    [(20, "a"), (2, "b")],
    [(25, "a"), (26, "a"), (60, "m1"), (95, "m3"), (200, "a")],
]


def make_ingested(path: Path) -> None:
    """A channel of an ingest, with late rows, corrections, parked rows, a silent partition, and announced rows."""
    _announced.append(str(path.parent / "announced"))
    write_deltalake(_announced[-1], ANNOUNCED)
    for batch, rows in enumerate(BATCHES):
        ingest_batch(path, batch, rows, batch * 15)
    readmit(str(path))


# -------------------------------------------------------------------------------------------------------------- one change


def damaged(path: Path, random: Random, at: int) -> str:
    """Change one thing in the channel at ``path``, in version ``at`` where it is one of a commit; what it was, in words."""
    kinds = {_statement: 8, _state: 4, _bytes: 4, _add: 4, _parquet: 3, _log: 3, _table: 3}
    (change,) = random.choices(list(kinds), list(kinds.values()))
    return f"{change.__name__.strip('_')} at {at}: {change(path, random, at)}"


def versions(path: Path) -> list[int]:
    """Of the commits that are there."""
    return sorted(int(file.stem) for file in (path / LOG_DIR).glob("*.json") if len(file.stem) == 20 and file.stem.isdecimal())


def _read(path: Path, at: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / commit_name(at)).read_text().splitlines()]


def _write(path: Path, at: int, actions: list[Any]) -> None:
    text = "".join((action if isinstance(action, str) else json.dumps(action)) + "\n" for action in actions)
    # Not deeper: in a field that it knows, a nesting of 100 000 overflows deltalake's stack, which ends the process.
    (path / commit_name(at)).write_bytes(text.replace(f'"{DEEP}"', "[" * 5000 + "]" * 5000).encode("utf-8", "surrogatepass"))


def _places(tree: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if place:
        yield place
    inside = tree.items() if isinstance(tree, dict) else enumerate(tree[:6]) if isinstance(tree, list) else ()
    for key, value in inside:
        yield from _places(value, (*place, key))


def _anywhere(tree: Any, random: Random) -> str:
    """Change something in a tree of JSON."""
    places = list(_places(tree))
    if not places:
        return "nothing"
    *way, last = random.choice(places)
    holder = tree
    for key in way:
        holder = holder[key]
    what = random.choice(["set", "set", "set", "remove", "rename", "add", "repeat", "move"])
    value = random.choice(VALUES)
    if what == "remove":
        del holder[last]
    elif what == "rename" and isinstance(holder, dict):
        value = random.choice(NAMES)
        holder[value] = holder.pop(last)
    elif what == "add" and isinstance(holder, dict):
        holder[random.choice([*NAMES, "knownColumns", "times", "spans", "owners", "actions", "table", "version"])] = value
    elif what == "repeat" and isinstance(holder, list):
        holder.append(holder[last])
    elif what == "move" and type(holder[last]) is int:
        holder[last] += random.choice([1, -1, 100, -100, 1 << 62])
        value = holder[last]
    else:
        what = "set"
        holder[last] = value
    return f"{what} {[*way, last]} {str(value)[:40]!r}"


def _statement(path: Path, random: Random, at: int) -> str:
    actions, did = _read(path, at), "nothing"
    for action in actions:
        info = action.get("commitInfo", {})
        if "userMetadata" not in info:
            continue
        body = json.loads(info["userMetadata"])
        did = "; ".join(_anywhere(body, random) for _ in range(random.choice([1, 1, 1, 2])))
        text = json.dumps(body, separators=(",", ":")).replace(f'"{DEEP}"', "[" * 2000 + "]" * 2000)
        other = random.random()
        if other < 0.04:
            text = text[: random.randrange(len(text))]
        elif other < 0.08:
            text = text.replace('"seq":', f'"seq":{"9" * random.choice([19, 4301, 100_000])},"seq":', 1)
        elif other < 0.12:
            text = text.replace(
                '"version":1', '"version":' + random.choice(["3", "9" * 20, "1.0", "true", "0", '"1"', "1" * 5000])
            )
        info["userMetadata"] = text
    _write(path, at, actions)
    return did


def _state(path: Path, random: Random, at: int) -> str:
    """Change what a producer stated last as its state, and every later commit's copy of that."""
    stated = _stated(path)
    if not stated:
        return "nothing"
    name, did = random.choice(sorted(stated)), []

    def changed(state: Any) -> Any:
        if random.random() < 0.05:
            did.append(repr(NO_STATE))
            return NO_STATE
        did.append(_anywhere(state, random))
        return state

    restate(path, name, changed)
    return f"{name} {did[0]}"


def _stated(path: Path) -> dict[str, int]:
    """The version of the newest statement of each producer that has a state."""
    return {
        name: version
        for version in versions(path)
        for body in _bodies(_read(path, version))
        for name, of in body.get("statements", {}).items()
        if of.get("state") is not None
    }


def restate(path: Path, name: str, change: Callable[[Any], Any]) -> None:
    """Change the state that a producer stated last, in that commit and in every later copy, as somebody may who can write."""
    first, states = _stated(path)[name], []
    for version in versions(path):
        if version < first:
            continue
        actions = _read(path, version)
        for action in actions:
            text = action.get("commitInfo", {}).get("userMetadata")
            if text is None:
                continue
            body = json.loads(text)
            for part in ("statements", "known"):
                of = body["strandline"].get(part, {}).get(name)
                if of is not None:
                    states = states or [change(of["state"])]
                    of["state"] = states[0]
            text = json.dumps(body, separators=(",", ":")).replace(f'"{DEEP}"', "[" * 500 + "]" * 500)
            action["commitInfo"]["userMetadata"] = text
        _write(path, version, actions)


def _bodies(actions: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for action in actions:
        if text := action.get("commitInfo", {}).get("userMetadata"):
            yield json.loads(text)["strandline"]


def _bytes(path: Path, random: Random, at: int) -> str:
    file = path / commit_name(at)
    data = file.read_bytes()
    flipped = bytearray(data)
    for _ in range(random.choice([1, 1, 3, 10])):
        flipped[random.randrange(len(data))] = random.randrange(256)
    cut = random.randrange(len(data))
    lines = data.split(b"\n")
    odd = [
        b"1",
        b"[]",
        b"null",
        b'"a"',
        b"{}",
        b'{"add":1}',
        b'{"txn":{"appId":1,"version":"x"}}',
        b'{"protocol":{}}',
        b'{"metaData":{}}',
    ]
    forms: dict[str, bytes] = {
        "cut": data[:cut],
        "empty": b"",
        "flipped": bytes(flipped),
        "inserted": data[:cut] + random.randbytes(8) + data[cut:],
        "not UTF-8": data.replace(b"Strandline", b"Str\xff\xfe\xc3"),
        "line ends": data.replace(b"\n", b"\r\n"),
        "byte order mark": b"\xef\xbb\xbf" + data,
        "zeros after it": data + b"\0" * 100,
        "zeros": b"\0" * len(data),
        "lines joined": data.replace(b"}\n{", b"}{"),
        "a long line of spaces": data + b" " * (20 << 20) + b"\n",
        "a deep line": data + b'{"x":' * 100_000 + b"1" + b"}" * 100_000 + b"\n",
        "a long line": data + b'{"unknown":{"a":"' + b"a" * (30 << 20) + b'"}}\n',
        "an odd line": data + random.choice(odd) + b"\n",
        "backwards": b"\n".join(reversed(lines)),
        "a line twice": b"\n".join([*lines, random.choice(lines)]),
        "a line less": b"\n".join(line for i, line in enumerate(lines) if i != random.randrange(len(lines))),
    }
    form = random.choice([*forms, "a folder", "a dangling link", "a pipe"])
    if form in forms:
        file.write_bytes(forms[form])
        return form
    file.unlink()
    if form == "a folder":
        file.mkdir()
    elif form == "a pipe":
        os.mkfifo(file)
    else:
        file.symlink_to("/nonexistent/commit")
    return form


def _add(path: Path, random: Random, at: int) -> str:
    actions = _read(path, at)
    for action in list(actions):
        add = action.get("add")
        if add is None:
            continue
        what = random.choice(
            ["path", "path", "size", "stats", "twice", "removed", "unknown", "tree", "dv", "partition", "many", "change"]
        )
        if what == "path":
            add["path"] = random.choice(
                [*PATHS, f"./{add['path']}", f"x/../{add['path']}", f"{add['path']}?q", f"//{add['path']}"]
            )
        elif what == "size":
            add["size"] = random.choice([0, -1, 1, 1 << 40, 1 << 63, 10**30, 1.5, "9", None, True])
        elif what == "stats":
            add["stats"] = random.choice(STATS)
        elif what == "twice":
            actions.append(action)
        elif what == "removed":
            actions.append(
                {"remove": {"path": add["path"], "dataChange": random.choice([True, False, None]), "deletionTimestamp": 1}}
            )
        elif what == "unknown":
            actions.append({"remove": {"path": random.choice(["no.parquet", None, 5, "../x"]), "dataChange": True}})
        elif what == "tree":
            what += " " + _anywhere(action, random)
        elif what == "dv":
            add["deletionVector"] = random.choice([{}, {"storageType": "u"}, 1, "x"])
        elif what == "partition":
            add["partitionValues"] = random.choice([None, {"a": "b"}, 1])
        elif what == "many":
            actions += [{"add": {**add, "path": f"z{n}.parquet"}} for n in range(70)]
        else:
            add["dataChange"] = random.choice([False, None, 0, "x"])
        _write(path, at, actions)
        return f"{what} {str(add.get('path'))[:40]!r} {str(add.get('size'))[:30]} {str(add.get('stats'))[:40]!r}"
    return "nothing"


def _parquet(path: Path, random: Random, at: int) -> str:
    file = random.choice(sorted(path.glob("*.parquet")))
    data = file.read_bytes()
    flipped = bytearray(data)
    for _ in range(random.choice([1, 1, 4])):
        flipped[random.randrange(random.choice([0, len(data) // 2]), len(data))] = random.randrange(256)
    table = pq.read_table(file)
    forms: dict[str, Callable[[], Any]] = {
        "cut": lambda: file.write_bytes(data[: random.randrange(len(data))]),
        "flipped": lambda: file.write_bytes(bytes(flipped)),
        "empty": lambda: file.write_bytes(b""),
        "ends alone": lambda: file.write_bytes(b"PAR1PAR1"),
        "text": lambda: file.write_text("hello world" * 100),
        "huge footer": lambda: file.write_bytes(data[:-8] + ((1 << 31) - 1).to_bytes(4, "little") + b"PAR1"),
        "gone": file.unlink,
        "a folder": lambda: (file.unlink(), file.mkdir()),
        "a pipe": lambda: (file.unlink(), os.mkfifo(file)),
        "other columns": lambda: pq.write_table(pa.table({"zzz": [1, 2]}), file),
        "no time": lambda: pq.write_table(table.drop_columns(["time"]), file),
        "null times": lambda: pq.write_table(
            table.set_column(0, table.field(0), pa.nulls(len(table), table.field(0).type)), file
        ),
        "times as text": lambda: pq.write_table(table.set_column(0, "time", pa.array(["x"] * len(table))), file),
        "a column more": lambda: pq.write_table(table.append_column("more", pa.array(["x"] * len(table))), file),
        "a column twice": lambda: pq.write_table(table.append_column("n", table["n"]), file),
        "more rows": lambda: pq.write_table(pa.concat_tables([table] * 500), file),
    }
    form = random.choice(list(forms))
    forms[form]()
    return f"{form}: {file.name[:24]}"


def _log(path: Path, random: Random, at: int) -> str:
    log, newest = path / LOG_DIR, versions(path)[-1]
    hints = [
        *(
            '{"version":9999}',
            '{"version":-1}',
            '{"version":"x"}',
            '{"version":1e9}',
            '{"version":true}',
            "",
            "{",
            "[]",
            "null",
            "\0",
        ),
        *("[" * 100_000, f'{{"version":{newest}}}', f'{{"version":{newest + 1}}}', '{"version":' + "9" * 25 + "}"),
        '{"version":' + "9" * 5000 + "}",
    ]
    hint = random.choice(hints)
    hint_file = log / "_last_checkpoint"
    checkpoint = log / f"{random.choice([at, newest, newest + 5]):020d}.checkpoint.parquet"
    odd = random.choice(
        ["x.json", "0.json", f"{5:020d}.json.bak", ".json", f"{0:019d}a.json", f"{0:023d}.json", "9" * 20 + ".json"]
    )
    forms: dict[str, Callable[[], Any]] = {
        f"hint {hint[:30]}": lambda: hint_file.write_text(hint),
        "hint a folder": lambda: (hint_file.unlink(missing_ok=True), hint_file.mkdir()),
        "commit gone": (path / commit_name(at)).unlink,
        "a gap of one": lambda: shutil.copy(path / commit_name(newest), path / commit_name(newest + 2)),
        "a gap": lambda: shutil.copy(path / commit_name(newest), path / commit_name(newest + random.choice([3, 100, 10**6]))),
        "checkpoint": lambda: (checkpoint.write_bytes(random.choice([b"", b"PAR1PAR1", b"x" * 100])), hint_file.write_text(hint)),
        "no log": lambda: shutil.rmtree(log),
        "empty log": lambda: (shutil.rmtree(log), log.mkdir()),
        "an older commit as next": lambda: shutil.copy(path / commit_name(at), path / commit_name(newest + 1)),
        f"a file {odd}": lambda: (log / odd).write_text("x"),
    }
    form = random.choice(list(forms))
    forms[form]()
    return form


def _table(path: Path, random: Random, at: int) -> str:
    founding = versions(path)[0]
    actions = _read(path, founding)
    changed = [action for action in actions if "metaData" in action or "protocol" in action]
    if not changed:
        return "nothing"
    action = random.choice(changed)
    if "protocol" in action:
        features = {"minReaderVersion": 3, "minWriterVersion": 7}
        action["protocol"] |= random.choice(
            [
                {"minReaderVersion": 99},
                {"minWriterVersion": "x"},
                {"minReaderVersion": -1},
                {**features, "readerFeatures": ["zz"], "writerFeatures": ["zz"]},
                {**features, "readerFeatures": [], "writerFeatures": ["rowTracking"]},
                {**features, "readerFeatures": [], "writerFeatures": 5},
            ]
        )
        did = str(action["protocol"])
    else:
        data = action["metaData"]
        what = random.choice(["schema", "schema", "text", "configuration", "id", "partition", "tree"])
        if what == "schema":
            schema = json.loads(data["schemaString"])
            did = _anywhere(schema, random)
            data["schemaString"] = json.dumps(schema).replace(f'"{DEEP}"', "[" * 500 + "]" * 500)
        elif what == "text":
            other = random.choice(["int65", "product(" * 5000, "timestamp", "product(a int64)", "", "\0", "int64 " * 100])
            data["schemaString"] = random.choice(
                ["", "{", "null", 5, None, "[" * 100_000, data["schemaString"].replace("int64", other)]
            )
            did = str(data["schemaString"])[-60:]
        elif what == "tree":
            did = _anywhere(data, random)
        else:
            key = {"configuration": "configuration", "id": "id", "partition": "partitionColumns"}[what]
            data[key] = random.choice([None, 5, "", "\0", ["time"], ["zzz"], {"a": 1}, {"delta.columnMapping.mode": "name"}])
            did = str(data[key])
        did = f"{what} {did}"
    if random.random() < 0.4:
        _write(path, founding, actions)
        return f"first commit {did[:80]}"
    _write(path, versions(path)[-1] + 1, [action])
    return f"next commit {did[:80]}"
