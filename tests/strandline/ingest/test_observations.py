"""What a batch's tasks saw, combined as columns, beside the same combined one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from strandline.ingest.policies.policy import Observation, ObservationColumns
from strandline.ingest.task.observations import Observations
from strandline.ingest.task.task_report import TaskReport
from strandline.time.domain import int64

Seen = dict[str, tuple[int, int, int]]

times = st.integers(-(1 << 63), (1 << 63) - 1)
seen = st.tuples(st.integers(1, 1000), times, times).map(lambda one: (one[0], min(one[1:]), max(one[1:])))
tasks = st.lists(st.dictionaries(st.sampled_from("abcd"), seen, max_size=4), max_size=4)


def one_by_one(number: int, task: Seen) -> TaskReport:
    return TaskReport(number, seen=[Observation(name, *each) for name, each in task.items()])


def as_columns(number: int, task: Seen) -> TaskReport:
    rows, least, greatest = (np.array([each[i] for each in task.values()], dtype=np.int64) for i in range(3))
    return TaskReport(number, columns=ObservationColumns(list(task), rows, least, greatest))


@given(tasks, st.data())
def test_columns_combine_as_one_by_one(tasks: list[Seen], data: st.DataObject) -> None:
    """Whichever of the tasks report in columns, and however many tasks there are."""
    plain = Observations.of([one_by_one(*each) for each in enumerate(tasks)], int64)
    in_columns = data.draw(st.lists(st.booleans(), min_size=len(tasks), max_size=len(tasks)))
    reports = [(as_columns if which else one_by_one)(*each) for which, each in zip(in_columns, enumerate(tasks), strict=True)]
    mixed = Observations.of(reports, int64)
    assert dict(mixed) == dict(plain)
    assert len(mixed) == len(plain)
