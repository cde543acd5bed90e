"""Records a week of flights, counts the late ones live, and asks what another rule would have made of that week.

    python examples/replay/run.py [--days 7] [--out FOLDER]

It leaves ``whatif.html``, which shows where the rules part first. The exit status is 0 if the rule of production gives once more
what it gave, and the changed one differs in just the hours in which pandas says so, otherwise 1.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import pandas as pd
import pyarrow as pa
from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from flights.data import AIRPORTS, DAY, FIRST_DAY, load
from flights.session import session
from pyspark_strandline.replay import replay, start
from replay import changed_rule, rule
from strandline.channel import Channel
from strandline.page.comparison import comparison_html
from strandline.time.arrow import time_field
from strandline.time.domain import timestamp

__all__ = ["main", "run"]

_HERE = Path(__file__).resolve().parent
_MICROS = 60_000_000


def record(path: Path, days: int) -> pd.DataFrame:
    """Write the flights that left, a commit for each airport and day. Return them."""
    flights = load(days)
    flights = flights[flights["departed"].notna()]
    columns = [("airport", pa.string()), ("flight", pa.int32()), ("delay", pa.int32())]
    schema = pa.schema([time_field("hour", timestamp), *columns])
    channel = Channel.create(path, schema, producers=AIRPORTS, at=FIRST_DAY * _MICROS)
    for airport in AIRPORTS:
        with channel.producer(airport) as producer:
            for day in range(FIRST_DAY, FIRST_DAY + days * DAY, DAY):
                mine = flights[(flights["airport"] == airport) & flights["hour"].between(day, day + DAY, inclusive="left")]
                hour = pa.array(mine["hour"].to_numpy() * _MICROS).cast(pa.timestamp("us", "UTC"))
                rest = {name: pa.array(mine[name].to_numpy()).cast(kind) for name, kind in columns}
                producer.send(pa.table({"hour": hour, **rest}, schema=schema))
                producer.delay((day + DAY) * _MICROS)
                producer.commit()
    return flights


def hours_that_differ(flights: pd.DataFrame) -> int:
    """Return in how many hours the rules differ, by pandas."""
    one, other = rule.LATE_MINUTES, changed_rule.LATE_MINUTES
    between = flights[(flights["delay"] >= min(one, other)) & (flights["delay"] < max(one, other))]
    return int(between["hour"].nunique())


def run(spark: SparkSession, days: int, folder: Path) -> int:
    """Run everything in ``folder``. Return the exit status."""
    flights = record(folder / "flights", days)
    inputs = {"flights": folder / "flights"}
    live = start(
        spark, rule.pipeline, {"late": folder / "late"}, folder / "checkpoints", inputs=inputs, trigger={"availableNow": True}
    )
    live["late"].awaitTermination()
    same = replay(spark, _HERE / "rule.py", folder / "same", against=folder / "late", inputs=inputs)
    changed = replay(spark, _HERE / "changed_rule.py", folder / "whatif", against=folder / "late", inputs=inputs, key=["airport"])
    found = changed.comparisons["late"]
    print(f"the same rule: {'equal' if same.equal else 'not equal'}, {same.comparisons['late'].times} hours")
    print(f"the changed rule: {found.times_parted} of {found.times} hours differ")
    for each in found.differences[:1]:
        print(f"first at {timestamp.format(each.time)}:")
        for row in each.changed:
            print(f"  {row.key['airport']}: {row.a} -> {row.b}")
    (folder / "whatif.html").write_text(comparison_html(changed), encoding="utf-8")
    return 0 if same.equal and found.times_parted == hours_that_differ(flights) else 1


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python examples/replay/run.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--days", type=int, default=7)
    parser.add_argument("--out", type=Path, help="the folder for all results; new or empty (default: none are kept)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = (options.out or Path(scratch)).resolve()
        if folder.exists() and any(folder.iterdir()):
            parser.error(f"{folder} is not empty")
        folder.mkdir(parents=True, exist_ok=True)
        return run(session("replay"), options.days, folder)


if __name__ == "__main__":
    sys.exit(main())
