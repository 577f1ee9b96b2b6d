"""Gaps: with what a rank computes they fill the whole run, and each says truly why it is there."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given

from lib import LINKS, Costs, Mesh, Model, Trace, simulate
from lib.analysis.dependencies import At, slowed
from lib.analysis.event_words import operation
from lib.analysis.waiting.critical_path import critical_path
from lib.analysis.waiting.gaps import KINDS, Gap, Group, computing, gaps
from lib.trace.event import Event
from lib.values.collectives import COLLECTIVES
from lib.values.operations import COMPUTE
from tests.drawing.runs import trace
from tests.support.profiles import sample
from tests.support.random_programs import Schedule, run, schedules
from tests.support.schedules import EVERYTHING, Case


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


@pytest.mark.parametrize("case", sample(EVERYTHING), ids=lambda case: case.name)
def test_compute_and_gaps_fill_the_run(case: Case) -> None:
    check_gaps(Trace.of(case.run(simulate)))


@given(schedules())
def test_they_do_for_any_schedule(schedule: Schedule) -> None:
    check_gaps(Trace.of(run(schedule)))


def texts(function: Callable[[Model], Any], **sizes: Any) -> list[str]:
    return [gap.text() for gap in gaps(trace(function, **sizes))]


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


def test_the_first_input_and_being_done_early() -> None:
    assert texts(down, ranks=2, batches=2) == [
        "rank 0 spends 0.2 time units (2 to 2.2) sending to rank 1",
        "rank 0 is done 0.4 time units (3.2 to 3.6) early; rank 1 ends last, with the message to rank 0",
        "rank 1 waits 2.2 time units (0 to 2.2) for its first input: a message from rank 0, which sends it after "
        "forward of "
        "layer 0 (batches 0, 1)",
        "rank 1 spends 0.2 time units (2.2 to 2.4) receiving from rank 0",
        "rank 1 spends 0.2 time units (3.4 to 3.6) sending to rank 0",
    ]


async def uneven(model: Model) -> None:
    """Rank r computes r + 1 batches before an all-gather."""
    compute(model, model.rank + 1)
    await model.allgather(model.load_weights(1, model.rank, 3)[0], 1)


def test_who_comes_last_in_a_collective_and_why() -> None:
    assert texts(uneven, ranks=3, batches=3) == [
        "rank 0 waits 2 time units (1 to 3) in all-gather of layer 1 for rank 2, which comes last after forward of "
        "layer 0 "
        "(batches 0-2)",
        "rank 0 spends 0.3 time units (3 to 3.3) in all-gather of layer 1",
        "rank 1 waits 1 time unit (2 to 3) in all-gather of layer 1 for rank 2, which comes last after forward of "
        "layer 0 "
        "(batches 0-2)",
        "rank 1 spends 0.3 time units (3 to 3.3) in all-gather of layer 1",
        "rank 2 spends 0.3 time units (3 to 3.3) in all-gather of layer 1",
    ]


async def overlapped(model: Model) -> None:
    """Two all-reduces of one group at once; the second waits for the first. What is hidden is no gap."""
    works = [model.allreduce(model.fake_grad(layer, []), layer) for layer in (1, 0)]
    await works[1]
    compute(model, 1)
    await works[0]


def test_an_earlier_communication_of_the_same_ranks() -> None:
    assert texts(overlapped, ranks=1) == [
        "rank 0 waits 0.3 time units (0 to 0.3) before all-reduce of layer 0, because all-reduce of layer 1 between "
        "the "
        "same ranks is still under way",
        "rank 0 spends 0.3 time units (0.3 to 0.6) in all-reduce of layer 0",
    ]


async def hidden(model: Model) -> None:
    work = model.allreduce(model.fake_grad(0, []), 0)
    compute(model, 1)
    await work


async def across(model: Model) -> None:
    """A gather inside the host and one across hosts at the same time: the ring across needs a tenth of a link."""
    shard, _ = model.load_weights(1, model.coord["shard"], 4)
    whole = model.allgather(model.load_weights(0, model.rank, 8)[0], 0)
    await model.allgather(shard, 1, "shard")
    await whole


def test_a_communication_that_others_slow() -> None:
    mesh = Mesh({"replica": 2, "shard": 4}, host_size=4)
    slow = trace(across, ranks=8, mesh=mesh, costs=LINKS)
    assert [gap.text() for gap in gaps(slow) if gap.rank == 5] == [
        "rank 5 spends 0.3 time units (0 to 0.3) in all-gather of layer 1",
        "rank 5 spends 0.03 time units (0.3 to 0.33) longer in all-gather of layer 1, "
        "which shares a link with all-gather of layer 0",
        "rank 5 spends 3.17 time units (0.33 to 3.5) in all-gather of layer 0",
        "rank 5 spends 0.03 time units (3.5 to 3.53) longer in all-gather of layer 0, "
        "which shares a link with all-gather of layer 1",
    ]
    assert slowed(slow, 5, 3) == "0.3 time units alone: it shares a link with all-gather of layer 0"
    assert slowed(slow, 5, 0) == slowed(trace(across, ranks=8, mesh=mesh), 5, 3) == ""


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
    assert [gap.text() for gap in gaps(full) if gap.kind == "room"] == [
        "rank 0 waits 0.6 time units (0.4 to 1) for room for its message: "
        "rank 1 takes the one before it after forward of layer 0 (batch 0)"
    ]
    send = next(i for i, event in enumerate(full.programs[0].events) if event.op == "pass_to" and event.start)
    assert slowed(full, 0, send) == ("0.2 time units alone: it had no room before rank 1 took the message before it")
    assert [(step.rank, step.event.op) for step in critical_path(full).steps] == [(1, "forward"), (0, "forward")]
    at_once = trace(ahead, ranks=2, batches=2)
    assert not [gap for gap in gaps(at_once) if gap.kind == "room"]


def test_communication_beside_computation_is_no_gap() -> None:
    assert texts(hidden, ranks=2) == []


async def on_its_way(model: Model) -> None:
    """Rank 1 asks when the message is half sent: that is communication, nobody was late."""
    if model.rank == 0:
        await model.pass_to(1, model.get_activation([0]))
    else:
        await model.allreduce(model.fake_grad(0, []), 0, [1])
        await model.receive(0)


def test_a_message_that_is_under_way_is_communication() -> None:
    assert texts(on_its_way, ranks=2, costs=Costs(collective=0.1)) == [
        "rank 0 spends 0.2 time units (0 to 0.2) sending to rank 1",
        "rank 0 is done 0.2 time units (0.2 to 0.4) early; rank 1 ends last, with the message from rank 0",
        "rank 1 spends 0.1 time units (0 to 0.1) in all-reduce of layer 0",
        "rank 1 spends 0.3 time units (0.1 to 0.4) receiving from rank 0",
    ]


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


def test_a_run_that_failed_says_what_never_happened() -> None:
    assert texts(stuck, ranks=3, batches=2) == [
        "rank 0 waits 2 time units (0 to 2) in the message from rank 1, which never happened",
        "rank 1 waits 1 time unit (1 to 2) in all-reduce of layer 0, which never happened",
    ]


async def raises(model: Model) -> None:
    if model.rank == 1:
        raise RuntimeError("no")
    compute(model, 1)


def test_a_rank_that_stopped_is_not_done() -> None:
    assert texts(raises, ranks=2) == ["rank 1 waits 1 time unit (0 to 1), because the run failed"]


def test_a_rank_that_does_nothing_and_a_run_of_nothing() -> None:
    async def lazy(model: Model) -> None:
        if model.rank:
            compute(model, 1)

    assert texts(lazy, ranks=2) == [
        "rank 0 is done 1 time unit (0 to 1) early; rank 1 ends last, with forward of layer 0 (batch 0)"
    ]
    assert texts(lambda model: None, ranks=3) == []


def test_time_that_nothing_accounts_for_in_a_measured_run() -> None:
    measured = trace(lambda model: compute(model, 1), ranks=1)
    event = measured.programs[0].events[-1]
    event.issued = event.start = 5 * 10**8
    assert [gap.text() for gap in gaps(measured)] == ["rank 0 waits 0.5 time units (0 to 0.5) between two operations"]


def test_operations_in_words() -> None:
    def event(op: str, **more: Any) -> Event:
        return Event(**({"op": op, "layer": 3, "batches": frozenset([0]), "inputs": (), "outputs": (), "issued": 0}
                        | {"start": 0, "length": 1, "source": None} | more))  # fmt: skip

    assert operation(event("backward", batches=frozenset([0, 1, 2, 5]))) == "backward of layer 3 (batches 0-2, 5)"
    assert operation(event("scatterreduce")) == "reduce-scatter of layer 3"
    assert operation(event("loss")) == "loss"
    assert operation(event("pass_to", peer=2)) == "the message to rank 2"
    assert operation(event("receive")) == "the message from any rank"


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_says_why_and_what_its_gaps_have_in_common(kind: str) -> None:
    here = At(1, 0, Event("allreduce", 3, frozenset(), (), (), 0, 0, 1, None))
    for gap in (Gap(0, 0, 10**9, kind), Gap(0, 0, 10**9, kind, here, 1, here)):
        words = gap.text(), Group((gap,)).reason()
        assert words[0].startswith(
            ("rank 0 waits 1 time unit (0 to 1)", "rank 0 spends 1 time unit", "rank 0 is done 1 time unit")
        )
        assert not any("{" in text or "None" in text.replace("rank None", "") for text in words)
