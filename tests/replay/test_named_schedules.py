"""Every schedule with a name through our own interpreter with real tensors: numbers, memory and bytes are right, and
torch's own pipelines do the same beside it.
"""

from typing import Any

import pytest

from lib import Trace, simulate
from lib.replay import replay
from lib.schedules.pipelines.action import places
from lib.schedules.pipelines.catalogue import SCHEDULES
from lib.schedules.pipelines.program import Messages, program_of
from tests.replay.test_conformance import correct
from tests.support.profiles import sample

pytest.importorskip("torch", reason="a replay needs torch: pip install torch")
pytestmark = pytest.mark.usefixtures("cache_of_torch")

SMALL: dict[str, Any] = {"hidden": 16, "length": 4, "timeout": 120}


ALIKE: dict[str, str] = dict.fromkeys(("zb_h1", "zb_1p"), "ScheduleInterleavedZeroBubble")
"""Schedules that are torch's interleaved zero bubble with one chunk: at this size the search finds ZB-H1, too."""


def run(name: str, messages: Messages, batches: int) -> Trace:
    """A schedule on four ranks, with a layer for each stage."""
    order = SCHEDULES[name].make(4, batches)
    return Trace.of(simulate(program_of(order, messages=messages), ranks=4, layers=len(places(order)), batches=batches))


@pytest.mark.parametrize("name", sample([*ALIKE, *(name for name in SCHEDULES if name not in ALIKE)]))
def test_on_gloo_beside_torch(name: str) -> None:
    """On the class that torch has of it, else on torch's executor."""
    schedule = run(name, "posted", 8)
    result = replay(schedule, against=("torch-pipelining",), **SMALL)
    correct(result, schedule)
    (theirs,) = result.libraries
    assert theirs.by == (SCHEDULES[name].torch or ALIKE.get(name, "torch's executor with this order"))
    assert theirs.counts == theirs.replay_counts
    assert all(error.relative <= 1e-12 for error in theirs.errors)


@pytest.mark.parametrize("name", SCHEDULES)
def test_in_one_process_with_messages_that_are_awaited(name: str) -> None:
    schedule = run(name, "awaited", 5)
    correct(replay(schedule, transport="local", **SMALL), schedule)
