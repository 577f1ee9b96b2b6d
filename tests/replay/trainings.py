"""Random training steps that are correct: ordinary ones, with all sorts of communication going on beside them.

What goes on beside is drawn by `tests.lib.programs`: collectives on groups in any order and messages, awaited at once,
at the end, or never. None of it gets into a weight.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from lib import Model, Trace, WeightGrad, simulate
from tests.lib.programs import BATCHES, LAYERS, Schedule, Step, schedules

FORMS = ("replicated", "sharded")


@dataclass
class Training:
    """Data parallel training beside a schedule. `cuts` say after how many steps of the schedule each part is done."""

    beside: Schedule
    cuts: tuple[int, ...]
    form: str
    overlap: bool
    never: frozenset[int]
    """Steps whose receives and collectives nobody waits for."""

    async def __call__(self, model: Model) -> None:
        """Alternates between the two."""
        at, steps = 0, self.beside.steps
        pending: list[tuple[Step, Awaitable[Any]]] = []
        parts = self.train(model)
        for cut in (*self.cuts, len(steps)):
            for step in steps[at:cut]:
                await self.follow(model, step, pending)
            at = max(at, cut)
            await anext(parts, None)
        async for _ in parts:
            pass
        for step, work in pending:
            self.beside.store(model, step, await work)

    async def follow(self, model: Model, step: Step, pending: list[tuple[Step, Awaitable[Any]]]) -> None:
        """One step of the schedule, as `Schedule.follow` does it."""
        if model.rank not in step.ranks:
            return
        place = step.ranks.index(model.rank)
        work = self.beside.start(model, step, place)
        sends = step.what.startswith("message") and place == 0
        if work is None or (step.number in self.never and not sends):
            return
        if step.at_once[place] and not (sends and step.ranks[1] in self.beside.bare):
            self.beside.store(model, step, await work)
        else:
            pending.append((step, work))

    async def train(self, model: Model) -> Any:
        """One training step, in parts."""
        ranks, sharded = model.RANKS, self.form == "sharded"
        place = (model.rank, ranks) if sharded else (0, 1)
        held = [model.load_weights(layer, *place) for layer in range(LAYERS)]
        weights = [await model.allgather(weight, i) if sharded else weight for i, (weight, _) in enumerate(held)]
        yield
        batches = range(BATCHES)[model.rank :: ranks]
        activations = [model.get_activation(batches)] if batches else []
        for layer in range(LAYERS if batches else 0):
            activations.append(model.forward(layer, activations[-1], weights[layer]))
            yield
        grad: Any = model.loss(activations.pop()) if batches else None
        works: dict[int, Awaitable[WeightGrad]] = {}
        reduced: dict[int, WeightGrad] = {}
        for layer in reversed(range(LAYERS)):
            mine = model.fake_grad(layer)
            if batches:
                mine, grad = model.backward(layer, activations.pop(), grad, weights[layer])
            works[layer] = model.scatterreduce(mine, layer) if sharded else model.allreduce(mine, layer)
            del mine
            if not self.overlap:
                reduced[layer] = await works.pop(layer)
            yield
        del weights
        for layer in range(LAYERS):
            weight, state = held[layer]
            total = reduced.pop(layer) if layer in reduced else await works.pop(layer)
            held[layer] = model.update(layer, total, weight, state)
            del total
            model.set_final_weight(layer, held[layer][0])
            yield


@st.composite
def trainings(draw: st.DrawFn) -> Training:
    """A training step of one to four ranks."""
    beside = draw(schedules())
    numbers = st.integers(0, len(beside.steps))
    cuts = tuple(sorted(draw(st.lists(numbers, min_size=8, max_size=8))))
    never = draw(st.frozensets(numbers))
    return Training(beside, cuts, draw(st.sampled_from(FORMS)), draw(st.booleans()), never)


def traced(training: Training) -> Trace:
    """The Trace of a training step."""
    return Trace.of(simulate(training, **training.beside.sizes))
