"""what_if: what is timed anew is what a run under such costs would have given."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import Costs, Mesh, Model, Trace, Uneven, simulate, what_if
from lib.analysis.waiting.what_if import Change, WhatIf
from lib.values.operations import COMPUTE
from tests.analysis.waiting.test_critical_path import pair
from tests.analysis.waiting.test_gaps import down
from tests.drawing.runs import trace
from tests.support.random_programs import Schedule, run, schedules
from tests.support.said import Said
from tests.support.schedules import EVERYTHING, Case, star

FIELDS = {
    "forward": "forward",
    "backward": "backward",
    "update": "update",
    "collective": "collectives",
    "p2p": "messages",
}
NAMED = [case for case in EVERYTHING if case.function is not star and not case.costs.read and not case.costs.shared]


def times(run_: Trace) -> list[tuple[int, int | None, int]]:
    return [(event.issued, event.start, event.length) for _, event in run_.events()]


def then(run_: Trace, op: str, faster: float | None) -> Trace:
    """The run as it is timed anew; where nothing in it is like that, as it is."""
    touched = any(event.length and Change(op=op).touches(run_, rank, event) for rank, event in run_.events())
    return asked(run_, op=op, faster=faster).after if touched else run_


@given(st.sampled_from(NAMED), st.sampled_from(sorted(FIELDS)), st.sampled_from([2, 4, 0.5, 0.1, None]))
def test_it_holds_to_the_simulator(case: Case, field: str, faster: float | None) -> None:
    """A kind of operation that is faster is the same function simulated with that cost."""
    factor = 0 if faster is None else 1 / Fraction(str(faster))
    costs = replace(case.costs, **{field: float(Fraction(str(getattr(case.costs, field))) * factor)})
    there = Trace.of(case.run(simulate, costs=costs))
    before = Trace.of(case.run(simulate))
    assert times(then(before, op=FIELDS[field], faster=faster)) == times(there)


@given(schedules(), st.sampled_from([2, 0.5]))
def test_so_it_does_for_any_schedule(schedule: Schedule, faster: float) -> None:
    """Of one without choices: no bare receive(), and no readers."""
    if schedule.bare or schedule.costs.read:
        return
    costs = replace(schedule.costs, forward=schedule.costs.forward / faster)
    there = Trace.of(run(schedule, costs=costs))
    assert times(then(Trace.of(run(schedule)), op="forward", faster=faster)) == times(there)


def test_a_layer_is_that_of_uneven_costs() -> None:
    case = next(case for case in NAMED if case.layers >= 4 and case.ranks > 1)
    weights = (1, 1, 3) + (1,) * (case.layers - 3)
    there = Trace.of(case.run(simulate, costs=Uneven(backward=0, layers=weights)))
    here = Trace.of(case.run(simulate, costs=Costs(backward=0)))
    assert times(asked(here, op="forward", layer=2, faster=Fraction(1, 3)).after) == times(there)


@given(st.sampled_from(NAMED), st.integers(0, 7), st.sampled_from([1.25, 1.2, 2]))
def test_a_slow_rank_is_that_of_uneven_costs(case: Case, rank: int, slow: float) -> None:
    rank %= case.ranks
    there = Trace.of(case.run(simulate, costs=Uneven(ranks=(1,) * rank + (slow,))))
    here = Trace.of(case.run(simulate, costs=Costs()))
    if any(event.length and event.op in COMPUTE for event in here.programs[rank].events):
        assert times(asked(here, rank=rank, faster=1 / slow).after) == times(there)


def asked(run_: Any, **what: Any) -> WhatIf:
    found = what_if(run_, **what)
    assert found is not None
    return found


def test_a_group_is_a_row_of_the_mesh_or_some_ranks() -> None:
    async def both(model: Model) -> None:
        await model.allreduce(model.fake_grad(0, []), 0, "shard")
        await model.allreduce(model.fake_grad(0, []), 0, "replica")

    mesh = Mesh({"replica": 2, "shard": 2})
    run_ = trace(both, ranks=4, mesh=mesh)
    assert asked(run_, group="shard").gain == 3 * 10**8
    assert asked(run_, group=(0, 1)).words == "If collectives of ranks 0 and 1 took no time"
    assert asked(run_, group=(0, 1)).gain == 0
    assert asked(run_, op="collectives").gain == 6 * 10**8
    alone = asked(run_, op="allreduce", rank=3, faster=3)
    lengths = [[event.length // 10**8 for event in p.events if event.length] for p in alone.after.programs]
    assert lengths == [[3, 3], [3, 1], [1, 3], [1, 1]]


def test_a_rank_and_a_link_both_have_to_apply() -> None:
    async def once(model: Model) -> None:
        if model.rank == 0:
            await model.pass_to(1, "go")
        elif model.rank == 1:
            await model.receive(0)

    run_ = trace(once, ranks=3)
    assert asked(run_, rank=1, link=(0, 1)).gain == asked(run_, link=(0, 1)).gain > 0
    with pytest.raises(ValueError, match="there is nothing in this run"):
        asked(run_, rank=2, link=(0, 1))


SAID = Said(__file__, "what_if")


@pytest.mark.parametrize("call", SAID.texts)
def test_what_is_said(call: str) -> None:
    names = {"models": simulate(down, ranks=2, batches=2), "pairs": simulate(pair, ranks=2, batches=2)}
    SAID.check(call, globals() | names)


def test_without_a_run_there_is_no_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert what_if([], rank=0) is None
    assert capsys.readouterr().out == "No run: simulate(...) has not come to its end.\n"
