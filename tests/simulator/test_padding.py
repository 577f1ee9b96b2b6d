"""Padding: batches that take time and memory like others, and of which no gradient has to know."""

import pytest

from drawing import draw
from lib import HIDDEN, LENGTH, Model, RuleError, Trace, TraceError, check, retime, simulate
from lib.analysis import figures
from lib.replay import replay
from lib.trace.json_format import encode
from lib.trace.validation import decode


async def padded(model: Model, *, left_out: frozenset[int] = frozenset()) -> Model:
    """Data parallel, with as many batches on each rank as on the others."""
    items = model.BATCHES + model.PADDING
    each = -(-items // model.RANKS)
    mine = [b for b in range(model.rank * each, min(items, (model.rank + 1) * each)) if b not in left_out]
    weight, state = model.load_weights(0)
    out = model.forward(0, data := model.get_activation(mine), weight)
    gradient, _ = model.backward(0, data, model.loss(out), weight)
    gradient = await model.allreduce(gradient, 0)
    model.weights[0], model.opt_states[0] = model.update(0, gradient, weight, state)
    model.set_final_weight(0, model.weights[0])
    return model


def run(**more: object) -> list[Model]:
    return simulate(padded, **({"ranks": 2, "layers": 1, "batches": 6, "padding": 2} | more))  # type: ignore[arg-type]


def test_a_gradient_is_whole_with_every_real_batch() -> None:
    models = run()
    assert (models[0].BATCHES, models[0].PADDING) == (6, 2)
    assert check(models).correct
    assert figures.end(models[0].trace) == 8 + 0.3 + 0.5  # the last two take as long as the first ones
    assert [event.batches for event in models[1].program.events if event.op == "forward"] == [{4, 5, 6, 7}]


@pytest.mark.parametrize("left_out", [{6}, {7}, {6, 7}])
def test_with_or_without_padding(left_out: set[int]) -> None:
    async def some(model: Model) -> Model:
        return await padded(model, left_out=frozenset(left_out))

    assert check(simulate(some, ranks=2, layers=1, batches=6, padding=2)).correct


def test_padding_stands_for_no_real_batch() -> None:
    async def lacks(model: Model) -> Model:
        return await padded(model, left_out=frozenset([5]))

    with pytest.raises(RuleError) as raised:
        simulate(lacks, ranks=2, layers=1, batches=6, padding=2)
    assert "all 6 batches: 0-5" in str(raised.value)
    assert "batch 5 is missing" in str(raised.value)


def test_it_is_saved_and_printed_and_timed_anew() -> None:
    trace = run()[0].trace
    assert encode(trace)["padding"] == 2
    again = decode(encode(trace))
    assert encode(again) == encode(trace)
    assert check(again).correct
    text = trace.text()
    assert "padding 2" in text.splitlines()
    assert Trace.parse(text).text() == text
    assert retime(trace, trace.costs).padding == 2
    assert "padding" not in encode(run(padding=0)[0].trace)
    for wrong in (-1, "2", 10**9):
        with pytest.raises(TraceError, match="padding"):
            decode(encode(trace) | {"padding": wrong})


def test_a_puzzle_has_none() -> None:
    trace = run(ranks=1, batches=4)[0].trace
    assert any("the puzzle basic has no padding" in fault for fault in check(trace, "basic").faults)


def test_it_is_hatched_and_said() -> None:
    svg = draw(run()).svg()
    assert ">padding<" in svg
    assert "batches 4-7, 2 of them padding" in svg
    assert ">padding<" not in draw(run(padding=0)).svg()


def test_a_replay_of_it_is_ordinary_training_on_the_real_batches() -> None:
    pytest.importorskip("torch", reason="a replay needs torch: pip install torch")
    result = replay(run()[0].trace, transport="local", hidden=24, length=8, timeout=30)
    assert result.ok, result.text()


def test_memory_is_that_of_any_batch() -> None:
    top = figures.peak(run()[0].trace)
    assert sum(alive.value.elements() for alive in top.alive if alive.value.kind == "activation") >= 4 * LENGTH * HIDDEN
