"""order: every step after all that it needs, as far as a run goes."""

import pytest

from lib import Model, Trace, simulate
from lib.trace.order import order
from tests.support.changes import changed


def test_a_message_that_waits_for_room_has_it_when_the_one_before_it_was_received() -> None:
    """One message fits between two ranks: rank 0 is past its second send once rank 1 has received the first."""

    async def three(model: Model) -> None:
        for number in range(3):
            await (model.receive(0) if model.rank else model.pass_to(1, number))

    events, _, steps, *_ = order(Trace.of(simulate(three, ranks=2)))
    sends = [place for place, (kind, _, n, _) in enumerate(steps) if kind == "done" and events[n].op == "pass_to"]
    passes = [place for place, step in enumerate(steps) if step[0] == "pass"]
    assert passes[0] < sends[1]
    assert passes[1] < sends[2]


def test_a_sender_goes_on_when_there_is_room_and_not_only_when_it_was_heard() -> None:
    async def between(model: Model) -> None:
        if model.rank == 0:
            await model.pass_to(1, "first")
            await model.pass_to(1, "second")
            await model.allreduce(model.fake_grad(0, []), 0)
        else:
            await model.receive(0)
            await model.allreduce(model.fake_grad(0, []), 0)
            await model.receive(0)

    steps = order(Trace.of(simulate(between, ranks=2, layers=1, batches=1))).steps
    assert [kind for kind, *_ in steps if kind in ("meet", "pass")] == ["pass", "meet", "pass"]


def test_what_took_place_before_a_run_failed_takes_place() -> None:
    async def fails(model: Model) -> None:
        for layer in range(2):
            await model.allreduce(model.fake_grad(layer, []), layer)
        await model.allreduce(model.fake_grad(model.rank, []), model.rank)

    with pytest.raises(AssertionError) as raised:
        simulate(fails, ranks=2, layers=2)
    trace = raised.value.trace  # type: ignore[attr-defined]
    events, _, steps, *_ = order(trace)
    assert [events[number].layer for kind, _, number, _ in steps if kind == "meet"] == [0, 1]


@pytest.mark.parametrize(
    ("ranks", "words"),
    [(1, ""), (2, "; ranks [0, 1] are stuck"), (16, f"; ranks {list(range(16))} are stuck"), (17, "")],
)
def test_who_is_stuck_is_named_where_they_are_few(ranks: int, words: str) -> None:
    async def waits(model: Model) -> None:
        model.fake_grad(0, [])
        if model.rank < ranks:
            await model.pass_to(ranks, "in vain")
        else:
            for source in range(ranks):
                await model.receive(source)

    trace = Trace.of(simulate(waits, ranks=ranks + 1, layers=1, batches=1))
    trace = changed(trace, ranks, events=())
    for program in trace.programs[:ranks]:
        program.events[1].peer = None
    assert str(order(trace).stuck) == f"rank 0 cannot get past its event 1 (pass_to): nobody answers it{words}"
