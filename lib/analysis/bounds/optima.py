"""Proved optima of small pipelines: how they are stored, and the schedule that reaches each of them.

The puzzles' pipelines are small enough to be solved exactly. `lib.schedules.solver` did so when this was written, with
CP-SAT of OR-tools, and stored what it found in optima.json: 2 to 4 stages of 1 or 2 layers and 1 to 4 batches, both
ways of awaiting. Nothing here needs that package. Every optimum comes with a witness: for each rank its operations in
order, from which `schedule` makes the function that a student would have written. So that an optimum is *reached* can
be seen by running it; that nothing is below it is what the solver proved; where it ran out of time, the record says so.

The family: rank s has stage s, the s-th of equally long runs of layers, with their weights and optimizer states. It
takes each batch on its own forward and backward through them, once; messages carry one activation or its gradient from
a stage to its neighbour. Costs are the classic unit costs, and memory is what `lib.trace.lifetimes` says, messages in
flight included. Without `overlap` every message is awaited where it is sent and received; with it a rank may compute
while its messages travel, and may issue a receive long before it needs what comes.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from lib.values.layers import LINEAR

if TYPE_CHECKING:
    from lib.simulator.model import Model
    from lib.simulator.work import Work

__all__ = ["AIMS", "Aim", "Op", "Optimum", "Size", "find", "front", "optima", "parse", "schedule", "stored"]

Aim = Literal["fastest", "between", "leanest"]
AIMS: tuple[Aim, ...] = ("fastest", "between", "leanest")
"""fastest: the least end, then the least peak at it. leanest: the least peak, then the least end at it. between:
what lies between the two, and is beaten by nothing in both."""


class Size(NamedTuple):
    """A pipeline: `layers` on `stages` ranks, `batches` on their own; `overlap`: messages may be awaited later."""

    stages: int
    layers: int
    batches: int
    overlap: bool

    @property
    def each(self) -> int:
        """Layers of a stage."""
        return self.layers // self.stages


class Op(NamedTuple):
    """One operation of a witness. `layer` is -1 for messages, `batch` is -1 for updates.

    `what`: F and B are forward and backward, U is update. Messages are two letters: s, w, i or r (send; wait until the
    send is over; issue a receive; await it, or both at once), then a (activation) or g (its gradient).
    """

    what: str
    layer: int
    batch: int

    def __str__(self) -> str:
        if self.what == "U":
            return f"U{self.layer}"
        return f"{self.what}{self.batch}" if self.layer < 0 else f"{self.what}{self.layer}.{self.batch}"


@dataclass(frozen=True, slots=True)
class Optimum:
    """A schedule that is best in some sense, and what is proved of it.

    `end` in steps and `peak` in elements are what the witness reaches. No schedule of the family whose peak is at most
    `peak` ends before `end_bound`, and none that ends at `end` or before has a peak below `peak_bound`. For the
    fastest, `end_bound` holds whatever the peak; for the leanest, `peak_bound` holds whatever the end.
    """

    size: Size
    aim: Aim
    end: float
    end_bound: float
    peak: int
    peak_bound: int
    proof: str
    orders: tuple[tuple[Op, ...], ...]

    @property
    def optimal(self) -> bool:
        """Whether both figures are proved to be the least."""
        return self.end == self.end_bound and self.peak == self.peak_bound

    @property
    def status(self) -> str:
        """ "optimal", or what is open, in words."""
        if self.optimal:
            return "optimal"
        gaps: list[str] = []
        if self.end > self.end_bound:
            gaps.append(f"end {self.end:g}, bound {self.end_bound:g}")
        if self.peak > self.peak_bound:
            gaps.append(f"peak {self.peak:,}, bound {self.peak_bound:,}")
        return f"feasible: {'; '.join(gaps)}"


def parse(text: str) -> tuple[Op, ...]:
    """The operations that `str` of each printed, separated by blanks."""
    found: list[Op] = []
    for word in text.split():
        if word[0] in "FB":
            layer, batch = word[1:].split(".")
            found.append(Op(word[0], int(layer), int(batch)))
        elif word[0] == "U":
            found.append(Op("U", int(word[1:]), -1))
        else:
            found.append(Op(word[:2], -1, int(word[2:])))
    return tuple(found)


@cache
def optima() -> tuple[Optimum, ...]:
    """All that are stored, by size, the fastest of a size first. The file is read when first asked for."""
    import json
    from importlib.resources import files

    records = json.loads((files("lib.analysis.bounds") / "optima.json").read_text("utf-8"))["optima"]
    return tuple(sorted(map(from_record, records), key=lambda optimum: (optimum.size, optimum.end)))


def front(size: Size) -> tuple[Optimum, ...]:
    """What is stored of a size, the fastest first and the leanest last; nothing where it was never solved."""
    return tuple(optimum for optimum in optima() if optimum.size == size)


def stored(size: Size, aim: Aim) -> Optimum | None:
    """The stored optimum of a size, or None. Of those between it is the fastest."""
    return next((optimum for optimum in front(size) if optimum.aim == aim), None)


def find(size: Size, aim: Aim) -> Optimum:
    """The stored optimum of a size. ValueError where there is none."""
    found = stored(size, aim)
    if found is None:
        raise ValueError(f"no {aim} schedule is stored for {size}; python -m lib.schedules.solver can find it")
    return found


def from_record(record: dict[str, Any]) -> Optimum:
    """An Optimum from its form in optima.json: peaks there are in activations of one batch."""
    size = Size(record["stages"], record["layers"], record["batches"], record["overlap"])
    return Optimum(
        size,
        record["aim"],
        record["end"],
        record["end_bound"],
        record["peak"] * LINEAR.batch,
        record["peak_bound"] * LINEAR.batch,
        record["proof"],
        tuple(parse(order) for order in record["orders"]),
    )


def to_record(optimum: Optimum) -> dict[str, Any]:
    """The form of an Optimum in optima.json."""
    return {
        **optimum.size._asdict(),
        "aim": optimum.aim,
        "end": optimum.end,
        "end_bound": optimum.end_bound,
        "peak": optimum.peak // LINEAR.batch,
        "peak_bound": optimum.peak_bound // LINEAR.batch,
        "proof": optimum.proof,
        "orders": [" ".join(map(str, order)) for order in optimum.orders],
    }


# -- the witness, run -----------------------------------------------------------------------------------------------


class _Stage:
    """One rank that does the operations of an order, and frees every value after its last use."""

    def __init__(self, model: Model, size: Size, orders: tuple[tuple[Op, ...], ...]) -> None:
        self.model = model
        self.layers = range(model.rank * size.each, (model.rank + 1) * size.each)
        self.after, self.before = model.rank + 1, model.rank - 1
        self.sends: dict[Op, Work[None]] = {}
        self.receives: dict[Op, Work[Any]] = {}
        self.seen: set[int] = set()
        for layer in self.layers:
            model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    async def do(self, op: Op, overlap: bool) -> None:
        """One operation. Activations have keys (layer, batch); a gradient has the key of the activation it is of."""
        batch = op.batch
        if op.what == "F":
            self.forward(op.layer, batch)
        elif op.what == "B":
            self.backward(op.layer, batch)
        elif op.what == "U":
            self.update(op.layer)
        elif op.what[0] == "i":
            self.receives[op._replace(what="r" + op.what[1])] = self.model.receive(self.source(op))
        elif op.what[0] == "r":
            work = self.receives.pop(op, None) or self.model.receive(self.source(op))
            store = self.model.activations if op.what == "ra" else self.model.grad_activations
            store[self.layers[0] if op.what == "ra" else self.layers[-1] + 1, batch] = await work
        elif op.what[0] == "s":
            forth = op.what == "sa"
            store = self.model.activations if forth else self.model.grad_activations
            value = store.pop((self.layers[-1] + 1 if forth else self.layers[0], batch))
            work = self.model.pass_to(self.after if forth else self.before, value)
            if overlap:
                self.sends[op] = work
            else:
                await work
        else:
            await self.sends.pop(Op("s" + op.what[1], -1, batch))

    def source(self, op: Op) -> int:
        """Who sends what a rank receives."""
        return self.before if op.what[1] == "a" else self.after

    def forward(self, layer: int, batch: int) -> None:
        model, acts = self.model, self.model.activations
        if layer == 0:
            acts[0, batch] = model.get_activation([batch])
        acts[layer + 1, batch] = model.forward(layer, acts[layer, batch], model.weights[layer])

    def backward(self, layer: int, batch: int) -> None:
        model = self.model
        if layer == model.LAYERS - 1:
            model.grad_activations[layer + 1, batch] = model.loss(model.activations.pop((layer + 1, batch)))
        act, grad = model.activations.pop((layer, batch)), model.grad_activations.pop((layer + 1, batch))
        made, before = model.backward(layer, act, grad, model.weights[layer])
        if layer > 0:
            model.grad_activations[layer, batch] = before
        model.grad_weights[layer] = model.grad_weights[layer] + made if layer in self.seen else made
        self.seen.add(layer)

    def update(self, layer: int) -> None:
        model = self.model
        made = model.update(layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer])
        model.weights[layer], model.opt_states[layer] = made
        model.set_final_weight(layer, made[0])


def schedule(optimum: Optimum) -> Callable[[Model], Coroutine[Any, Any, None]]:
    """The witness as an async function of a model, to be simulated on as many ranks as it has stages."""

    async def witness(model: Model) -> None:
        stage = _Stage(model, optimum.size, optimum.orders)
        for op in optimum.orders[model.rank]:
            await stage.do(op, optimum.size.overlap)

    return witness
