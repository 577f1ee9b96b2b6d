"""Random training steps that are correct: ordinary ones, with all sorts of communication going on beside them.

What goes on beside is drawn by `tests.support.random_programs`: collectives on groups in any order and messages,
awaited at once, at the end, or never. None of it gets into a weight.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from lib import Model, Trace, WeightGrad, simulate
from tests.support.random_programs import BATCHES, LAYERS, Schedule, Step, schedules

FORMS = ("replicated", "sharded")


class Beside(Schedule):
    """A schedule that loads nothing, as the training has done that: each weight and batch is loaded once on a rank."""

    def start(self, model: Model, step: Step, place: int) -> Awaitable[Any] | None:
        layer, group = step.number % LAYERS, step.ranks
        zero = model.fake_grad(layer, [])
        match step.what:
            case "compute":
                made = zero + model.fake_grad(layer, [])
                if "data" in model.activations:
                    data, weight = model.activations["data"], model.weights["first"]
                    model.activations[step.number] = model.forward(0, data, weight)
                model.grad_weights[step.number] = made
                return None
            case "drop":
                for store in (model.activations, model.grad_weights):
                    if len(store) > 2 - step.keep and next(reversed(store)) != "data":
                        store.popitem()
                return None
            case "allgather":
                return model.allgather(zero.shard(place, len(group)), layer, group)
            case "broadcast":
                root = group[step.number % len(group)]
                return model.broadcast(zero.shard(step.number % 2, 2), layer, root, group)
            case "message" | "message of many" if place == 0:
                many = {"values": [zero, model.activations.get("data", zero)], "from": model.rank}
                return model.pass_to(group[1], zero if step.what == "message" else many)
            case _:
                return super().start(model, step, place)

    def store(self, model: Model, step: Step, result: Any) -> None:
        if isinstance(result, WeightGrad) and step.keep:
            model.grad_weights["beside", step.number] = result


@dataclass
class Training:
    """Data parallel training beside a schedule. `cuts` say after how many steps of the schedule each part is done."""

    beside: Beside
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
        await anext(parts)
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

    async def train(self, model: Model) -> AsyncIterator[None]:
        """One training step, in parts."""
        ranks, sharded = model.RANKS, self.form == "sharded"
        place = (model.rank, ranks) if sharded else (0, 1)
        held = [model.load_weights(layer, *place) for layer in range(LAYERS)]
        weights = [await model.allgather(weight, i) if sharded else weight for i, (weight, _) in enumerate(held)]
        model.weights["first"] = weights[0]
        batches = range(BATCHES)[model.rank :: ranks]
        activations = [model.get_activation(batches)] if batches else []
        if batches:
            model.activations["data"] = activations[0]
        yield
        for layer in range(LAYERS):
            if batches:
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
    drawn = draw(schedules())
    beside = Beside(drawn.ranks, drawn.steps, drawn.costs, drawn.bare, drawn.mesh)
    numbers = st.integers(0, len(beside.steps))
    cuts = tuple(sorted(draw(st.lists(numbers, min_size=8, max_size=8))))
    never = draw(st.frozensets(numbers))
    return Training(beside, cuts, draw(st.sampled_from(FORMS)), draw(st.booleans()), never)


def traced(training: Training) -> Trace:
    """The Trace of a training step."""
    return Trace.of(simulate(training, **training.beside.sizes))
