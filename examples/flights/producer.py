"""One airport as a process of its own: it replays its events into the channel, and states which hours may still have a departure.

Started as ``python -m flights.producer``. After a kill at any moment it continues after its last commit. A commit has a
model hour's rows and the capabilities after it, or it does not exist. So the channel shows where the airport was.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flights.data import HOUR
from flights.manifest import Manifest, time_array
from flights.trace import SCHEMA, Clock, read_events, read_schedule
from strandline.channel import Channel, Producer

__all__ = ["Replay", "main"]

_MICROSECONDS = 60_000_000
_POLL_SECONDS = 0.01


class Replay:
    """An airport's events by model hour, and its manifest after the last hour that was sent."""

    def __init__(self, folder: Path, airport: str) -> None:
        self.airport = airport
        self.manifest = Manifest(airport, read_schedule(folder, airport))
        self._events = read_events(folder, airport)
        steps = self._events["step"].to_numpy()
        self._steps, self._starts = np.unique(steps, return_index=True)
        self._ends = np.append(self._starts[1:], len(steps))
        self._at = 0

    def resume(self, producer: Producer) -> int:
        """State the schedule, or skip the events that the channel already has. Return the number of skipped model hours.

        The rows of a producer are a prefix of its events, so their number shows how far it was. Between hours without rows, its
        capabilities show this. Raises ``ValueError`` when the channel's rows are not such a prefix.
        """
        airports = producer.channel.read(columns=["airport"])["airport"]
        sent = pc.sum(pc.equal(airports, self.airport)).as_py() or 0
        stated = producer.stated
        if not sent and stated.less_equal(producer.domain.minimum):
            # The schedule is not stated yet. Until then this airport could write the other airports' hours too.
            producer.delay(list(self.manifest.holds()))
            producer.commit()
            return 0
        rows = 0
        for at in range(len(self._steps) + 1):
            if rows == sent and self.manifest.holds() == stated:
                self._at = at
                return at
            if at < len(self._steps):
                rows += self._settle_hour(at).num_rows
        raise ValueError(
            f"the channel has {sent} rows of {self.airport}, which holds {stated.format()}, but this trace has no such state"
        )

    def __iter__(self) -> Iterator[int]:
        """The model hours that are not sent yet."""
        return iter(self._steps[self._at :].tolist())

    def next_rows(self) -> pa.Table:
        """Return the rows of the next model hour, and advance the manifest."""
        rows = self._rows(self._settle_hour(self._at))
        self._at += 1
        return rows

    def _settle_hour(self, at: int) -> pa.Table:
        arrivals = self._events.slice(self._starts[at], self._ends[at] - self._starts[at])
        self.manifest.settle(arrivals["hour"].to_pylist(), now=(int(self._steps[at]) + 1) * HOUR - 1)
        return arrivals.filter(pc.invert(arrivals["cancelled"]))

    def _rows(self, left: pa.Table) -> pa.Table:
        def minutes(name: str) -> pa.Array:
            return pa.array(left[name].to_numpy().astype(np.int64) * _MICROSECONDS).cast(pa.timestamp("us", tz="UTC"))

        columns = {
            "time": time_array(left["hour"].to_numpy(), self.airport),
            "airport": pa.array([self.airport] * left.num_rows, pa.string()),
            "scheduled": minutes("scheduled"),
            "departed": minutes("departed"),
            "delay": left["delay"].cast(pa.int32()),
        }
        return pa.table(
            [columns.get(f.name, left[f.name] if f.name in left.column_names else None) for f in SCHEMA], schema=SCHEMA
        )


def replay(channel: Channel, airport: str, folder: Path, clock: Clock) -> None:
    """Send all remaining events of ``airport``, a commit for each model hour, never ahead of ``clock``."""
    with channel.producer(airport) as producer:
        events = Replay(folder, airport)
        events.resume(producer)
        parent = os.getppid()
        for step in events:
            while clock.get() < step:
                time.sleep(_POLL_SECONDS)
                if os.getppid() != parent:
                    return  # the process that advances the clock has ended
            rows = events.next_rows()
            if rows.num_rows:
                producer.send(rows)
            producer.delay(list(events.manifest.holds()))
            producer.commit()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m flights.producer", description=__doc__.splitlines()[0])
    parser.add_argument("--airport", required=True)
    parser.add_argument("--channel", required=True)
    parser.add_argument("--trace", required=True, type=Path)
    parser.add_argument("--clock", required=True, type=Path)
    args = parser.parse_args()
    replay(Channel.open(args.channel), args.airport, args.trace, Clock(args.clock))
    # Everything is committed. Tearing down the native libraries' threads aborts a process once in some hundred times.
    os._exit(0)


if __name__ == "__main__":
    main()
