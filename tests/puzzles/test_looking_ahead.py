"""fsdp_prefetch: how far ahead is far enough, in the figures that its notebook states."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from drawing import draw_trade_off
from lib import PUZZLES, UNIT, Model, Trace, check, simulate
from lib.analysis.waiting.gaps import gaps
from lib.checker.verdict import Verdict
from lib.cluster.costs import TICKS
from lib.schedules.data_parallel import fetching
from lib.schedules.steps import backward, forward, load, loss, mine, step
from tests.support.puzzles import way
from tests.support.said import Said

PUZZLE = "fsdp_prefetch"
RECORD = PUZZLES[PUZZLE]
COSTS = RECORD.costs


def judged(function: Any, **changed: Any) -> Verdict:
    sizes: dict[str, Any] = {"layers": RECORD.layers, "batches": RECORD.batches, "ranks": RECORD.ranks, "costs": COSTS}
    verdict = check(Trace.of(simulate(function, **(sizes | changed))))
    assert verdict.correct
    return verdict


def came_to(function: Any, **changed: Any) -> str:
    verdict = judged(function, **changed)
    return f"time {verdict.time:g}, memory {verdict.memory:,.0f}"


test_how_far_ahead_is_far_enough = Said(__file__, "ahead").test(lambda: globals())


@pytest.mark.parametrize(("name", "goal"), [("", "passes"), ("one_ahead", "fetches ahead")])
def test_the_solution_of_puzzle_fsdp_is_a_start(name: str, goal: str) -> None:
    run = simulate(way("fsdp", name), layers=6, batches=4, ranks=4, costs=COSTS)
    assert check(Trace.of(run), PUZZLE).best == goal


@pytest.mark.parametrize("collective", [0.1, 0.3, 0.6, 0.9])
def test_the_formula_of_what_nothing_hides(collective: float) -> None:
    """The first formula of the notebook: every collective is waited for."""
    costs = replace(COSTS, collective=collective)
    compute = (costs.forward + costs.backward) * float(sum(map(costs.factor, range(6)), Fraction(0)))

    async def waiting(model: Model) -> None:
        await within_a_direction(model, ahead=False)

    assert judged(waiting, costs=costs).time == pytest.approx(compute + 3 + 18 * collective)


async def within_a_direction(model: Model, *, ahead: bool = True) -> None:
    """FSDP that fetches one weight ahead in forward, deletes them all, and begins anew in backward."""
    load(model, shard=model.rank, total=model.RANKS)
    weights, layers = model.weights, range(model.LAYERS)
    model.activations[0] = model.get_activation(mine(model))
    for order in (layers, layers[::-1]):
        coming = None
        for place, layer in enumerate(order):
            weights["whole"] = await (coming or model.allgather(weights[layer], layer))
            following = order[place + 1 : place + 2] if ahead else ()
            coming = next((model.allgather(weights[after], after) for after in following), None)
            if order is layers:
                forward(model, layer, weight=weights["whole"])
                del weights["whole"]
            else:
                gradient = backward(model, layer, weights["whole"])
                del weights["whole"]
                model.grad_weights[layer] = await model.scatterreduce(gradient, layer)
                del gradient
        if order is layers:
            loss(model)
    for layer in layers:
        step(model, layer)


def test_the_classic_costs_leave_one_exposed_gather_a_direction() -> None:
    trace = Trace.of(simulate(within_a_direction, layers=6, batches=4, ranks=4))
    assert check(trace).faults == ()
    waits = [gap for gap in gaps(trace) if gap.rank == 0 and gap.before is not None]
    gathers = [gap.before.event.layer for gap in waits if gap.before and gap.before.event.op == "allgather"]
    assert gathers == [0, 5]
    assert all(gap.length == 3 * TICKS // 10 for gap in waits)
    assert judged(within_a_direction, costs=UNIT).time == 12 + 2 * 0.3 + 6 * 0.3 + 3


def test_the_picture_of_time_against_memory() -> None:
    sizes: dict[str, Any] = {"layers": 6, "batches": 4, "ranks": 4, "costs": COSTS}
    runs = {f"{depth} ahead": simulate(fetching(depth), **sizes) for depth in (0, 1)}
    picture = draw_trade_off(runs, puzzle=PUZZLE)
    svg = picture.svg()
    for words in ("0 ahead", "1 ahead", "Time against memory", "fetches ahead"):
        assert words in svg
    assert "0 ahead: time " in picture.words
    assert draw_trade_off({"mine": []}).words == "nothing to draw yet: mine is not solved"
    with pytest.raises(ValueError, match="draw_trade_off takes runs by name"):
        draw_trade_off({})
