"""Model: a student's desk, with the names and the behaviour that readers of the original know."""

import asyncio
from typing import Any

import pytest

from lib import HIDDEN, LENGTH, Dist, Model, RuleError, WeightGrad, simulate
from lib.schedules.steps import load
from lib.simulator.model import LogEvent
from tests.support.said import Said
from tests.support.schedules import ddp

WEIGHT, BATCH = HIDDEN * HIDDEN, HIDDEN * LENGTH


def test_a_sandbox_needs_no_arguments_and_may_have_any_rank_and_size() -> None:
    model = Model()
    assert (model.rank, model.RANKS, model.LAYERS, model.BATCHES) == (0, 1, 2, 1)
    assert (model.time, model.memory(), model.log, model.final_weights) == (0.0, 0.0, [], {})
    model = Model(rank=3, layers=5, batches=7)
    assert (model.rank, model.RANKS, model.LAYERS, model.BATCHES) == (3, 4, 5, 7)


def test_update_takes_a_shard_as_the_original_does_and_fake_grad_has_no_batches_unless_told() -> None:
    model = Model(layers=3, batches=4)
    weight, state = model.load_weights(0)
    assert model.update(0, model.fake_grad(0, range(4)), weight, state, shard=3)[0].step == 1
    assert model.update(0, model.fake_grad(0, range(4)), weight, state, 3)[0].step == 1
    assert model.fake_grad(2) == model.fake_grad(2, []) == WeightGrad(2, 3, [], 4)
    assert model.fake_grad(2, [1, 3]) == WeightGrad(2, 3, [1, 3], 4)


async def test_values_made_by_hand_may_be_reduced() -> None:
    """As the original's lesson on all-reduce does, with plain sets and a model of one batch."""
    dist = Dist(4)
    models = [Model(layers=1, batches=1, rank=i, dist=dist) for i in range(4)]
    grads = [WeightGrad(0, 1, {rank}, 4) for rank in range(4)]  # type: ignore[arg-type]
    got = await asyncio.gather(*[model.allreduce(grad, 0) for model, grad in zip(models, grads, strict=True)])
    assert got == [WeightGrad(0, 1, {0, 1, 2, 3}, 4)] * 4  # type: ignore[arg-type]


def test_status_prints_every_key_and_value(capsys: pytest.CaptureFixture[str]) -> None:
    model = Model(layers=2, batches=2)
    model.status()
    assert capsys.readouterr().out == "all stores are empty\n"
    model.weights[0], model.opt_states[0] = model.load_weights(0)
    model.weights[1, "shard"], _ = model.load_weights(1, 1, 2)
    model.grad_weights["g"] = model.fake_grad(0)
    model.status()
    assert capsys.readouterr().out == (
        "weights[0]: weight of layer 0\n"
        "weights[1, 'shard']: weight of layer 1, shard 1 of 2\n"
        "opt_states[0]: optimizer state of layer 0\n"
        "grad_weights['g']: weight gradient of layer 0, no batches\n"
    )


def test_the_log_is_the_originals() -> None:
    """Type, layer, rank, time, length, memory when it started, batches. Rank 1 helps with nothing of its own."""

    async def step(model: Model) -> None:
        if model.rank:
            await model.allreduce(model.fake_grad(0, []), 0)
            await model.receive(0)
            return
        load(model, [0])
        model.activations[0] = model.get_activation([0, 1])
        model.activations[1] = model.forward(0, model.activations[0], model.weights[0])
        model.grad_activations[0] = model.loss(model.activations[1])
        del model.activations[1]
        made = model.backward(0, model.activations[0], model.grad_activations[0], model.weights[0])
        model.grad_weights[0] = await model.allreduce(made[0], 0)
        model.update(0, model.grad_weights[0], model.weights[0], model.opt_states[0])
        await model.pass_to(1, made[1])

    models = simulate(step, ranks=2, layers=1, batches=2)
    none = frozenset[int]()
    both = frozenset([0, 1])
    two = 2.0 * WEIGHT
    assert models[0].log == [
        LogEvent("forward", 0, 0, 0.0, 2.0, two + 2 * BATCH, both),
        LogEvent("loss", 1, 0, 2.0, 0.0, two + 4 * BATCH, none),
        LogEvent("backward", 0, 0, 2.0, 2.0, two + 4 * BATCH, both),
        LogEvent("allreduce", 0, 0, 4.0, 0.3, two + 4 * BATCH, none),
        LogEvent("update", None, 0, 4.3, 0.5, two + 4 * BATCH + WEIGHT, none),
        LogEvent("pass", None, 0, 4.8, 0.2, two + 4 * BATCH + WEIGHT, none),
    ]
    assert models[1].log == [
        LogEvent("allreduce", 0, 1, 4.0, 0.3, 0.0, none),
        LogEvent("pass", None, 1, 5.0, 0.2, 0.0, none),
    ]


def test_check_prints_correct_first_and_returns_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    verdict = Model.check(simulate(ddp, puzzle="ddp"), puzzle="ddp")
    out = capsys.readouterr().out
    assert verdict is not None
    assert out == verdict.text() + "\n"
    assert out.startswith("Correct! Also right at 2 other sizes.\nNote: for ")
    assert '\nNote: for "as good as our reference" memory is 262,144 elements too high\n' in out
    assert out.partition("\nTime ")[2].startswith(
        "5.6, memory 1,835,008 elements (rank 0).\n"
        "  passes - reached\n"
        "    time   [######################..]         5.6 of 6\n"
        "    memory [######################..]   1,835,008 of 2,000,000\n"
        "  as good as the classic - reached\n"
        "    time   [########################]         5.6 of 5.6\n"
        "    memory [########################]   1,835,008 of 1,835,008\n"
    )


def test_the_trace_of_one_rank_is_that_of_all() -> None:
    models = simulate(ddp, ranks=4, layers=2, batches=4)
    assert models[3].trace.ranks == 4
    assert models[3].trace.text() == models[0].trace.text()
    assert repr(models[0].trace) == "<Trace of 4 ranks, 2 layers, 4 batches>"


class Many:
    """Compares with everything as numpy's arrays do: the answer is no yes and no no."""

    def __eq__(self, other: object) -> Any:
        return Many()

    def __bool__(self) -> bool:
        raise ValueError("the truth value of many is ambiguous")

    def __repr__(self) -> str:
        return "Many()"


SAID = Said(__file__, "strange")


@pytest.mark.parametrize("call", SAID.texts)
def test_what_cannot_be_compared_or_written_is_refused_in_words(call: str) -> None:
    model = Model(rank=0, dist=Dist(2), layers=2, batches=1)
    weight, _ = model.load_weights(0, 0, 2)
    with pytest.raises(RuleError):
        eval(call, {"model": model, "weight": weight, "Many": Many})
    SAID.check(call, {"model": model, "weight": weight, "Many": Many})
