"""What very many resumes of one query cost: a producer's state names all queries that have gone on with it.

    python benchmarks/resumes.py [--resumes 1000] [--commits 100] [--rounds 15]

Every commit of the query repeats the state. The benchmark writes two channels by the sink's own class, without Spark: the query
of one was resumed so often, that of the other never. It measures the bytes of a commit, the time of a batch's commit, and that of
opening the channel. The goals are those by which the form of the state would matter: 64 kB more for a commit, 20 ms more for
opening the channel.
"""

from __future__ import annotations

import argparse
import tempfile
import uuid
from pathlib import Path

import pyarrow as pa

from _alternating import Measure, alternately, seconds, summary
from pyspark_strandline.write.channel.channel_output import ChannelOutput
from pyspark_strandline.write.channel.written_files import WrittenFiles
from strandline.channel import Channel
from strandline.channel.statements.inputs import Input
from strandline.time.antichain import Antichain
from strandline.time.arrow import time_field
from strandline.time.domain import int64


def build(path: Path, resumes: int, commits: int) -> float:
    """Write a channel whose query was resumed so often. Returns the seconds that a batch's commit takes."""
    schema, query = pa.schema([time_field("time", int64)]), str(uuid.uuid4())
    output = ChannelOutput(str(path), schema, "time", int64)

    def batch(number: int) -> None:
        reads = [Input("in", number + 1, 0)]
        output.commit(output.batch((query, number), WrittenFiles(), reads), Antichain(int64, [number]))

    batch(0)
    channel = Channel.open(path)
    [name] = channel.producers
    known = channel.producers[name]
    state = {**known.state, "continuedBy": [*(str(uuid.uuid4()) for _ in range(resumes - 1)), query]} if resumes else known.state
    channel.append([], statements={name: list(known.holds)}, states={name: state}, owner=known.owner)
    return seconds(lambda: [batch(number) for number in range(1, commits + 1)]) / commits


def main() -> None:
    """Build both, measure, report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--resumes", type=int, default=1000)
    parser.add_argument("--commits", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        paths = {"resumed": Path(folder, "resumed"), "never": Path(folder, "never")}
        commit = {name: build(path, arguments.resumes * (name == "resumed"), arguments.commits) for name, path in paths.items()}
        logs = {name: sorted((path / "_delta_log").glob("*.json")) for name, path in paths.items()}
        bytes_ = {name: each[-1].stat().st_size for name, each in logs.items()}

        def opens(path: Path) -> float:
            return seconds(lambda: Channel.open(path).producers)

        took = alternately({name: lambda _, path=path: opens(path) for name, path in paths.items()}, arguments.rounds)
        opened = {name: min(each) for name, each in took.items()}
        print(f"{arguments.resumes} resumes, {arguments.commits} commits; in brackets: never resumed")
        print(f"a commit: {bytes_['resumed']} bytes ({bytes_['never']} bytes)")
        for what, each in (("a batch's commit", commit), ("opening", opened)):
            print(f"{what}: {1000 * each['resumed']:.1f} ms ({1000 * each['never']:.1f} ms)")
        summary(
            "resumes",
            [
                Measure.alone("more for a commit", (bytes_["resumed"] - bytes_["never"]) / 1000, "kB", at_most=64),
                Measure.alone("more for opening", 1000 * (opened["resumed"] - opened["never"]), "ms", at_most=20),
            ],
        )


if __name__ == "__main__":
    main()
