"""Runs that the tests of the interactive view step through."""

from __future__ import annotations

from functools import cache

from drawing.pages.view import View, step_through
from lib import Layer, Model, Trace, simulate
from lib.errors.source_lines import Place
from lib.schedules.data_parallel import fsdp
from lib.schedules.pipelines.generators import one_f_one_b
from lib.schedules.pipelines.program import program_of
from lib.trace.trace import Event, Program
from lib.values.values import Weight
from tests.drawing.runs import RUNS, trace
from tests.values.halos import step

HOSTILE = (
    "</script><script>window.pwned=1</script><img src=x onerror='window.pwned=1'>&quot;'\"\u2028{{data}}\x00\ud800"
)
"""A string that tries to end the data, to become markup, to be filled in, and to break the encoding."""


async def prefetch(model: Model) -> None:
    """Gathers the next layer while it computes this one, so that buffers are under way beside computation."""
    shards = {layer: model.load_weights(layer, model.rank, model.RANKS)[0] for layer in range(model.LAYERS)}
    out = model.get_activation([model.rank])
    work = model.allgather(shards[0], 0)
    for layer in range(model.LAYERS):
        weight = await work
        if layer + 1 < model.LAYERS:
            work = model.allgather(shards[layer + 1], layer + 1)
        out = model.forward(layer, out, weight)
        model.weights["kept"], model.activations[layer] = weight, out


async def unread(model: Model) -> None:
    if model.rank == 0:
        for batch in range(2):
            await model.pass_to(1, model.get_activation([batch]))
    else:
        await model.receive(0)


async def mistaken(model: Model) -> None:
    """Rank 1 fails in a layer that does not exist, where rank 0 waits for it."""
    weight, _ = model.load_weights(0)
    model.forward(0, model.get_activation([model.rank]), weight)
    if model.rank == 1:
        model.load_weights(99)
    await model.allreduce(model.fake_grad(0, []), 0)


GRID = [Layer("convolution", 2048, 2048, 64, kernel=3, padding=1)] * 2
TRACES: dict[str, Trace] = {
    **RUNS,
    "failed": trace(mistaken, ranks=2, layers=2, batches=2),
    "fsdp": trace(fsdp, ranks=4, layers=3, batches=4),
    "1f1b": trace(program_of(one_f_one_b(4, 6)), ranks=4, layers=4, batches=6),
    "prefetch": trace(prefetch, ranks=3, layers=4, batches=3),
    "unread": trace(unread, ranks=2, layers=1, batches=2),
    **{way: trace(step([4, 8, 12, 40], way), ranks=4, batches=2, layers=GRID) for way in ("halo", "alltoall")},
}


def hostile() -> Trace:
    place = Place(HOSTILE, 1, HOSTILE, HOSTILE)
    nothing: frozenset[int] = frozenset()
    load = Event("load_weights", 0, nothing, (), (0,), 0, 0, 0, place)
    events = [load, Event(HOSTILE, 0, nothing, (0,), (), 0, 0, 10**9, place)]
    return Trace(1, 1, [Program(0, events, [Weight(0, 1, 0)])], puzzle=HOSTILE, error=HOSTILE)


def still() -> Trace:
    """A Trace in which no time passes, and a rank does nothing at all."""
    load = Event("load_weights", 0, frozenset(), (), (0,), 0, 0, 0, None)
    return Trace(1, 1, [Program(0, [load], [Weight(0, 1, 0)]), Program(1)])


@cache
def large() -> View:
    return step_through(simulate(program_of(one_f_one_b(16, 29)), ranks=16, layers=16, batches=29))
