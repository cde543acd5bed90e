"""``strandline log``: the commits of a channel with their statements, newest first."""

from __future__ import annotations

from typing import Any

from strandline.channel import Channel, Commit
from strandline.cli.arguments import AsJson, ChannelPath, Most, StorageOptions, storage_of
from strandline.cli.output import print_json, print_table
from strandline.report.ailments import moment
from strandline.report.history import newest_commits
from strandline.time.domain import TimeDomain

__all__ = ["log"]

_MOST_STATEMENTS = 5


def log(path: ChannelPath, most: Most = 20, storage: StorageOptions = None, as_json: AsJson = False) -> None:
    """Show what each commit states, newest first."""
    channel = Channel.open(path, storage_of(storage))
    entries = [_entry(commit, channel.domain) for commit in newest_commits(channel, most)]
    if as_json:
        print_json({"channel": channel.path, "commits": entries})
        return
    rows = [
        (entry["version"], entry["time"], entry["operation"], entry["rows"], entry["files"], _statements(entry))
        for entry in entries
    ]
    print_table(("version", "time", "operation", "rows", "files", "statements"), rows)


def _entry(commit: Commit, domain: TimeDomain) -> dict[str, Any]:
    statement = commit.statement
    said = {} if statement is None else statement.statements
    return {
        "version": commit.version,
        "time": moment(commit.timestamp_ms),
        "operation": commit.operation,
        "rows": 0 if statement is None else statement.rows,
        "files": len(commit.files),
        "statements": {
            name: {"seq": each.seq, "holds": [domain.format(domain.time(time)) for time in each.holds], "state": each.state}
            for name, each in said.items()
        },
        "times": [] if statement is None else [[domain.format(domain.time(time)), rows] for time, rows in statement.times],
        "spans": []
        if statement is None
        else [[domain.format(domain.time(s.low)), domain.format(domain.time(s.high)), s.rows] for s in statement.spans],
        "transactions": commit.transactions,
        "reads": [] if statement is None else [each.to_json() for each in statement.reads],
    }


def _statements(entry: dict[str, Any]) -> str:
    said = entry["statements"]
    shown = [f"{name} holds {', '.join(each['holds']) or 'nothing'}" for name, each in list(said.items())[:_MOST_STATEMENTS]]
    more = len(said) - len(shown)
    return "; ".join([*shown, *([f"and {more} more"] if more else [])]) or "none"
