"""Gaps: with what a rank computes they fill the whole run, and each says truly why it is there."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given

import lib
from lib import LINKS, Mesh, Model, Trace
from lib.analysis.dependencies import At, slowed
from lib.analysis.figures import computing
from lib.analysis.waiting.critical_path import critical_path
from lib.analysis.waiting.gaps import KINDS, Gap, Group, gaps
from lib.trace.event import Event
from lib.values.collectives import COLLECTIVES
from lib.values.operations import COMPUTE
from tests.drawing.runs import trace
from tests.support.random_programs import RUNS, Schedule, traced
from tests.support.said import Said
from tests.support.schedules import Case


def end(run_: Trace) -> int:
    return max((event.end or 0 for _, event in run_.events()), default=0)


def check_gaps(trace: Trace) -> None:
    """Each moment of each rank is in one computation or in one gap."""
    found = gaps(trace)
    for program in trace.programs:
        mine = [gap for gap in found if gap.rank == program.rank]
        busy = [e for e in program.events if e.op in COMPUTE and e.start is not None and e.length]
        pieces = sorted([(gap.start, gap.end) for gap in mine] + [(e.start or 0, e.end or 0) for e in busy])
        assert all(start < stop for start, stop in pieces)
        assert all(one[1] == other[0] for one, other in pairwise(pieces))
        assert sum(stop - start for start, stop in pieces) == end(trace)
        assert computing(trace)[program.rank] + sum(gap.length for gap in mine) == end(trace)
    for gap in found:
        check_reason(trace, gap)
        assert gap.text().startswith(f"rank {gap.rank} ")


def check_reason(trace: Trace, gap: Gap) -> None:
    """The cause that a gap names was over, or the communication began, exactly when the gap ended."""
    event = None if gap.before is None else gap.before.event
    if gap.kind == "drain":
        assert event is None
        assert gap.cause is None or gap.cause.event.end == gap.end == end(trace)
        return
    assert event is not None
    assert event.start is not None
    if gap.kind == "communication":
        assert gap.end <= (event.end or 0)
    elif gap.kind == "shared":
        assert gap.cause is not None
        assert (gap.cause.event.start or 0) < (event.end or 0)
        assert (gap.cause.event.end or 0) > event.start
    elif gap.kind == "room":
        assert event.op == "pass_to"
        assert gap.late == event.peer
        assert gap.end == event.end
    elif gap.kind == "collective":
        assert event.op in COLLECTIVES
        assert gap.late in event.group
        assert gap.late != gap.rank
        assert gap.cause is not None
        assert gap.cause.event.end == gap.end <= event.start
    elif gap.kind == "reader":
        assert event.op == "read"
        assert gap.end == event.start
        assert gap.cause is not None
        assert gap.cause.event.op == "read"
        assert (gap.cause.event.start or 0) <= gap.end <= (gap.cause.event.end or 0)
    elif gap.kind in ("message", "fill"):
        assert event.op == "receive"
        assert gap.late == event.peer
        assert gap.end <= event.start
        assert gap.cause is None or (gap.cause.event.end or 0) > gap.start
    else:
        assert gap.kind == "stream"
        assert gap.cause is not None
        assert (gap.cause.event.end or 0) == gap.end


@given(RUNS)
def test_compute_and_gaps_fill_the_run(one: Case | Schedule) -> None:
    check_gaps(traced(one))


def texts(function: Callable[[Model], Any], rank: int | None = None, **sizes: Any) -> str:
    """What is said of all gaps, or of one rank's, a line each."""
    return "\n".join(gap.text() for gap in gaps(trace(function, **sizes)) if rank in (None, gap.rank))


def compute(model: Model, batches: int) -> None:
    model.forward(0, model.get_activation(range(batches)), model.load_weights(0)[0])


async def down(model: Model) -> None:
    """Rank 0 computes two batches and passes something on; rank 1 needs it."""
    if model.rank == 0:
        compute(model, 2)
        await model.pass_to(1, "go")
        compute(model, 1)
    else:
        await model.receive(0)
        compute(model, 1)
        await model.pass_to(0, "thanks")


async def uneven(model: Model) -> None:
    """Rank r computes r + 1 batches before an all-gather."""
    compute(model, model.rank + 1)
    await model.allgather(model.load_weights(1, model.rank, 3)[0], 1)


async def overlapped(model: Model) -> None:
    """Two all-reduces of one group at once; the second waits for the first. What is hidden is no gap."""
    works = [model.allreduce(model.fake_grad(layer, []), layer) for layer in (1, 0)]
    await works[1]
    compute(model, 1)
    await works[0]


async def hidden(model: Model) -> None:
    work = model.allreduce(model.fake_grad(0, []), 0)
    compute(model, 1)
    await work


HOSTS = Mesh({"replica": 2, "shard": 4}, host_size=4)


async def across(model: Model) -> None:
    """A gather inside the host and one across hosts at the same time: the ring across needs a tenth of a link."""
    shard, _ = model.load_weights(1, model.coord["shard"], 4)
    whole = model.allgather(model.load_weights(0, model.rank, 8)[0], 0)
    await model.allgather(shard, 1, "shard")
    await whole


def test_a_communication_that_others_slow() -> None:
    slow = trace(across, ranks=8, mesh=HOSTS, costs=LINKS)
    assert slowed(slow, 5, 3) == "0.3 time units alone: it shares a link with all-gather of layer 0"
    assert slowed(slow, 5, 0) == slowed(trace(across, ranks=8, mesh=HOSTS), 5, 3) == ""


async def ahead(model: Model) -> None:
    """Rank 0 sends two messages, and rank 1 takes the first one only when it has computed."""
    if model.rank == 0:
        for batch in range(2):
            await model.pass_to(1, model.get_activation([batch]))
        compute(model, 1)
    else:
        compute(model, 1)
        for _ in range(2):
            await model.receive(0)


def test_a_message_without_room_waits_where_links_are_shared() -> None:
    full = trace(ahead, ranks=2, batches=2, costs=LINKS)
    send = next(i for i, event in enumerate(full.programs[0].events) if event.op == "pass_to" and event.start)
    assert slowed(full, 0, send) == ("0.2 time units alone: it had no room before rank 1 took the message before it")
    assert [(step.rank, step.event.op) for step in critical_path(full).steps] == [(1, "forward"), (0, "forward")]
    at_once = trace(ahead, ranks=2, batches=2)
    assert not [gap for gap in gaps(at_once) if gap.kind == "room"]


async def on_its_way(model: Model) -> None:
    """Rank 1 asks when the message is half sent: that is communication, nobody was late."""
    if model.rank == 0:
        await model.pass_to(1, model.get_activation([0]))
    else:
        await model.allreduce(model.fake_grad(0, []), 0, [1])
        await model.receive(0)


async def stuck(model: Model) -> None:
    if model.rank == 0:
        await model.receive(1)
    elif model.rank == 1:
        compute(model, 1)
        await model.allreduce(model.fake_grad(0, []), 0)
    else:
        model.allreduce(model.fake_grad(0, []), 0)
        compute(model, 2)
        await model.receive(0)


async def raises(model: Model) -> None:
    if model.rank == 1:
        raise RuntimeError("no")
    compute(model, 1)


async def lazy(model: Model) -> None:
    if model.rank:
        compute(model, 1)


test_what_is_said_of_gaps = Said(__file__, "gaps").test(lambda: vars(lib) | globals() | {"nothing": lambda model: None})


def test_time_that_nothing_accounts_for_in_a_measured_run() -> None:
    measured = trace(lambda model: compute(model, 1), ranks=1)
    event = measured.programs[0].events[-1]
    event.issued = event.start = 5 * 10**8
    assert [gap.text() for gap in gaps(measured)] == ["rank 0 waits 0.5 time units (0 to 0.5) between two operations"]


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_says_why_and_what_its_gaps_have_in_common(kind: str) -> None:
    here = At(1, 0, Event("allreduce", 3, frozenset(), (), (), 0, 0, 1, None))
    for gap in (Gap(0, 0, 10**9, kind), Gap(0, 0, 10**9, kind, here, 1, here)):
        words = gap.text(), Group((gap,)).reason()
        assert words[0].startswith(
            ("rank 0 waits 1 time unit (0 to 1)", "rank 0 spends 1 time unit", "rank 0 is done 1 time unit")
        )
        assert not any("{" in text or "None" in text.replace("rank None", "") for text in words)
