"""Small runs that the tests of `drawing` draw, and one picture of each kind."""

import io
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import cache
from typing import Any

from drawing import Picture, draw_group, picture_of
from drawing import compare as compare
from lib import (
    Activation,
    ActivationGrad,
    Model,
    OptState,
    PuzzleError,
    Trace,
    Weight,
    WeightGrad,
    check,
    critical_path,
    simulate,
    what_if,
    why,
)
from lib.checker.verdict import FunctionVerdict, Verdict
from lib.puzzles.puzzle import Goal
from tests.support.puzzles import way


def load(model: Model) -> None:
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
    model.activations[0] = model.get_activation([model.rank])
    for layer in range(model.LAYERS):
        model.activations[layer + 1] = model.forward(layer, model.activations[layer], model.weights[layer])
    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))


def step_back(model: Model, layer: int) -> WeightGrad:
    grads = model.grad_activations
    grad, grads[layer] = model.backward(layer, model.activations.pop(layer), grads.pop(layer + 1), model.weights[layer])
    model.grad_weights[layer] = grad
    return grad


def finish(model: Model, layer: int, grad: WeightGrad) -> None:
    weight, _ = model.update(layer, grad, model.weights[layer], model.opt_states[layer])
    model.set_final_weight(layer, weight)


async def ddp(model: Model) -> None:
    load(model)
    for layer in reversed(range(model.LAYERS)):
        finish(model, layer, await model.allreduce(step_back(model, layer), layer))


async def overlapped(model: Model) -> None:
    """Data parallel with all all-reduces beside the backward passes."""
    load(model)
    works = {layer: model.allreduce(step_back(model, layer), layer) for layer in reversed(range(model.LAYERS))}
    for layer, work in works.items():
        finish(model, layer, await work)


async def late(model: Model) -> None:
    """Rank r computes r + 1 batches before its all-reduce, and goes on computing beside it."""
    weight, _ = model.load_weights(0)
    out = model.forward(0, model.get_activation(range(model.rank + 1)), weight)
    work = model.allreduce(model.fake_grad(0, [model.rank]), 0)
    model.forward(1, out, model.load_weights(1)[0])
    await work


async def relay(model: Model) -> None:
    """Each rank has one layer; an activation goes down the line and its gradient comes back, batch after batch."""
    rank, last = model.rank, model.RANKS - 1
    weight, _ = model.load_weights(rank)
    for batch in range(model.BATCHES):
        inp = model.get_activation([batch]) if rank == 0 else await model.receive(rank - 1)
        out = model.forward(rank, inp, weight)
        if rank < last:
            await model.pass_to(rank + 1, out)
        grad = model.loss(out) if rank == last else await model.receive(rank + 1)
        _, grad = model.backward(rank, inp, grad, weight)
        if rank > 0:
            await model.pass_to(rank - 1, grad)


async def deadlock(model: Model) -> None:
    """Rank 1 waits for a message, the others for rank 1; rank 2 goes on computing meanwhile."""
    load(model)
    if model.rank == 1:
        await model.receive(0)
    work = model.allreduce(model.fake_grad(0, [model.rank]), 0)
    if model.rank == 2:
        model.forward(0, model.activations[0], model.weights[0])
    await work


async def chatter(model: Model) -> None:
    """Very many short operations on each rank: half of them computations, half collectives."""
    weight, _ = model.load_weights(0)
    inp = model.get_activation([model.rank])
    grad = model.fake_grad(0, [model.rank])
    for _ in range(model.LAYERS):
        model.forward(0, inp, weight)
        await model.allreduce(grad, 0)


def trace(function: Callable[[Model], Any], **sizes: Any) -> Trace:
    """The Trace of a run, of one that fails up to there."""
    try:
        return Trace.of(simulate(function, **sizes))
    except PuzzleError as error:
        if not isinstance(error.trace, Trace):
            raise
        return error.trace


@cache
def solved(puzzle: str) -> Trace:
    return Trace.of(simulate(way(puzzle), puzzle=puzzle))


def quietly(function: Callable[..., Picture], *args: Any) -> tuple[Picture, str]:
    """The picture, and what was printed on the way."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        picture = function(*args)
    return picture, printed.getvalue()


RUNS: dict[str, Trace] = {
    "ddp": trace(ddp, ranks=4, layers=2, batches=4),
    "overlapped": trace(overlapped, ranks=4, layers=5, batches=4),
    "relay": trace(relay, ranks=3, layers=3, batches=2),
    "late": trace(late, ranks=3, layers=2, batches=3),
    "deadlock": trace(deadlock, ranks=3, layers=2, batches=3),
    "alone": trace(load, ranks=1, layers=3, batches=1),
    "chatter": trace(chatter, ranks=16, layers=100, batches=16),
}

VALUES = {
    "weight": Weight(1, 3, 0, {1, 2}, 4),
    "optimizer state": OptState(1, 3, 1, {7}, 8),
    "activation": Activation(3, 3, {2, 3}, 4),
    "activation gradient": ActivationGrad(-1, 3, {0}, 4),
    "weight gradient": WeightGrad(2, 3, {0, 1, 3}, 4, {2}, 4),
    "zero gradient": WeightGrad(0, 1, (), 12),
    "deep": Weight(95, 96, 0),
}

VERDICT = Verdict(
    correct=True,
    time=5.6,
    printed=5.1,
    memory=1_835_008.0,
    rank=0,
    goals=(
        Goal("passes", 6.0, 2_000_000, True),
        Goal("as good as the classic", 5.6, 1_835_008, True),
        Goal("out of reach", 5.5, 1_000_000, False),
    ),
    puzzle="ddp",
)


def pictures() -> dict[str, Picture]:
    return {
        **{name: picture_of(run) for name, run in RUNS.items()},
        **{name: picture_of(value) for name, value in VALUES.items()},
        "group": draw_group(VALUES),
        "empty": draw_group({}),
        "verdict": picture_of(VERDICT),
        "failed verdict": picture_of(check(RUNS["deadlock"], "ddp")),
        "answers": picture_of(FunctionVerdict("rank_of", 63)),
        "wrong answers": picture_of(FunctionVerdict("rank_of", 63, ("rank_of([0], [1]) is not right",))),
        "compare": compare(ddp=RUNS["ddp"], overlapped=RUNS["overlapped"]),
        "why": picture_of(why(RUNS["relay"], 1, 2.7)),
        "busy": picture_of(why(RUNS["relay"], 0, 0.5)),
        "critical path": picture_of(critical_path(RUNS["relay"])),
        "what if": picture_of(what_if(RUNS["relay"], rank=1, faster=2)),
    }
