"""Lower bounds: what no schedule of a puzzle's family can be below, and what each bound is made of.

`limits` has the arguments, `family` what kind of schedule they are about, and `optima` what a solver proved besides.
SharedWork, below, is about all schedules that share the work of layers, whatever they cut, and WholeLayers about those
that cut nothing.

**Shared work.** The puzzles inside the layer cut columns, rows, heads, words and tokens, and each can be solved with
the cuts of another, or with none. So their argument speaks of what there is to compute, and not of where.

A weight is updated with the sum of its gradient over all batches and rows, and there is no gradient of a row
without the loss of it. So each pair of a row and an element of a weight is multiplied at least once forward and, as
backwards are whole, at least once in each half of backward; and so is each pair of a query and a key that it may see,
and each token at each of its experts. An operation on parts costs as much of its layer as its parts are of these pairs,
so all ranks together compute for at least what all layers cost on all batches. Computing twice is more.

The update of a part of a weight takes as long as that of a whole one of the usual size. Of a layer whose weight is s
times that, parts that are all of it together cost s or more, or as many updates as there are ranks, if each has one. No
operation runs beside another on a rank: of n ranks the last one is done no earlier than the average, and slower ranks
take so much less of it. The first and the last exchange do not count, as nothing says how small what is sent then may
be. (Prices are rounded to billionths of a time unit, so a run of many pieces may be as little below.)

Of memory and of what is sent nothing is said. A rank that computes everything again, row by row, needs little more than
its part of the weights, and one that has all weights and all batches sends nothing: both are correct, and nobody would
learn from a limit that counts on them.

**Whole layers.** Of n ranks that have k layers each, sort them by the lowest layer of each: the last one has none below
layer n - 1. Before its first operation a batch has gone forward through those n - 1 layers, which are on other ranks.
From then on it has its forwards, both halves of its backwards (something below it learns) and its updates to do, one
after the other. Where the layers lie otherwise, a V or a loop, and when messages come, only adds to it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from typing import ClassVar

from lib.analysis.bounds.family import Family, excuse
from lib.analysis.bounds.limits import Limit, Part, memory, sent, solved, time
from lib.analysis.bounds.optima import AIMS, Optimum
from lib.cluster.costs import UNIT, Costs, as_written
from lib.errors.wording import counted
from lib.puzzles.records import PUZZLES, Puzzle
from lib.trace.trace import Trace
from lib.values.kinds.kind import USUAL, Layer
from lib.values.layers import Shape
from lib.values.operations import BY_INPUT, COMPUTE, OPERATIONS, UPDATES
from lib.values.placement import Elements


@dataclass(frozen=True, slots=True)
class Bound:
    """The limits of a puzzle: the time of the true end, elements on the rank with the highest peak, elements sent by
    the rank that sends most. They speak of a family of schedules; `premise` says which, in a sentence for a student.

    A limit of 0 says nothing. Each holds on its own: the schedules that reach them need not be the same. `together`
    are time and memory of one that is near both, and of which we know none that is better in both.
    """

    puzzle: str
    premise: str
    time: Limit
    memory: Limit
    sent: Limit
    family: Family | SharedWork | WholeLayers
    together: tuple[float, float] | None = None
    costs: Costs = UNIT

    def excuse(self, trace: Trace) -> str | None:
        """Why this run is not of the family, and so may be below the limits; None where it is."""
        return excuse(trace, self.family)

    @property
    def frontier(self) -> tuple[Optimum, ...]:
        """Proved optima from the fastest to the one with the least memory, where the family was solved at its costs."""
        if self.costs != UNIT or not isinstance(self.family, Family):
            return ()
        return tuple(optimum for aim in AIMS if (optimum := solved(self.family, aim)) is not None)


def has_bound(puzzle: str) -> bool:
    """Tell whether a lower bound is known for a puzzle."""
    return puzzle in PUZZLES and PUZZLES[puzzle].bound is not None


@cache
def lower_bound(puzzle: str) -> Bound:
    """Return the lower bound of a puzzle at its own size. ValueError where none is known (see has_bound)."""
    record = PUZZLES[puzzle] if has_bound(puzzle) else None
    if record is None or record.bound is None:
        known = ", ".join(name for name in PUZZLES if has_bound(name))
        raise ValueError(f"no lower bound is known for {puzzle!r}; there are those of {known}")
    premise = record.bound
    if premise.work or premise.whole:
        family = SharedWork.of(record) if premise.work else WholeLayers(*record.size)
        nothing = Limit(0.0, (), "work", False, "Of this nothing is known.")
        least = family.time(record.costs, premise.reached)
        return Bound(puzzle, family.premise, least, nothing, nothing, family, costs=record.costs)
    copies = premise.copies, premise.state_copies
    family = Family(*record.size, premise.stages, premise.sharded, premise.grouping, *copies)
    return replace(bound_of(family, record.costs, puzzle, premise.words, reached=True), together=premise.together)


def bound_of(
    family: Family, costs: Costs = UNIT, puzzle: str = "", premise: str = "", *, reached: bool = False
) -> Bound:
    """Return the bound of a family of any size. `reached`: a schedule that reaches each limit is known."""
    return Bound(
        puzzle,
        premise,
        time(family, costs, reached),
        memory(family, reached, costs),
        sent(family, reached),
        family,
        costs=costs,
    )


@dataclass(frozen=True, slots=True)
class SharedWork:
    """Schedules in which every rank updates some of every weight itself, and every backward has both of its halves.

    `described`: the layers, as a record describes them. Besides that a schedule may cut, copy and repeat as it likes.
    """

    premise: ClassVar[str] = "Every rank updates each weight, or its own part of it, and no backward leaves out a half."
    ranks: int
    layers: int
    batches: int
    described: tuple[Layer, ...] = USUAL

    @classmethod
    def of(cls, record: Puzzle) -> SharedWork:
        """Return those of a puzzle, at the size of its record."""
        return cls(*record.size, record.described(record.layers))

    @property
    def shape(self) -> Shape:
        """The layers, with what they cost."""
        return Shape(self.layers, self.batches, self.described)

    def differences(self, run: Trace) -> Iterator[str]:
        """In what a run is none of these: ranks that leave updates to others, halves that are left out."""
        updated = {(rank, event.layer) for rank, event in run.events() if event.op in UPDATES}
        halves: dict[int, Elements] = defaultdict(int)
        for program in run.programs:
            for event in program.events:
                if event.op in BY_INPUT and event.layer is not None:
                    values = program.values_of(event.inputs)
                    halves[event.layer] += OPERATIONS[event.op].work(run.shape, event.layer, len(event.batches), values)
        for layer, kind in enumerate(self.shape.kinds):
            if kind.weight is None:
                continue
            for rank in range(self.ranks):
                if (rank, layer) not in updated:
                    yield f"rank {rank} updates nothing of layer {layer}"
            if halves[layer] < kind.cost * self.batches:
                yield f"the backward of layer {layer} leaves out input halves"

    def time(self, costs: Costs, reached: bool = False) -> Limit:
        """Return the time of the docstring above."""
        shape = self.shape
        back = min(as_written(costs.backward), as_written(costs.backward_input) + as_written(costs.backward_weight))
        update = as_written(costs.update)
        work = updates = Fraction(0)
        learns = [False]  # of each activation whether a weight has to do with it, so that it has a gradient
        for number, kind in enumerate(shape.kinds):
            learns.append(kind.weight is not None or any(learns[one] for one in shape.of(number)))
            once = as_written(costs.forward) + (back if learns[-1] else 0)
            work += kind.cost * once * costs.factor(number) * self.batches
            updates += update * (kind.step * self.ranks if kind.step <= 1 else max(self.ranks, kind.step))
        speed = sum(1 / costs.slowness(rank) for rank in range(self.ranks))
        weights = sum(kind.weight is not None for kind in shape.kinds)
        what = f"{counted(self.layers, 'layer')} x {counted(self.batches, 'batch')} forward and backward"
        parts = (
            Part(round(float(work / speed), 9), f"{what}, shared by {counted(self.ranks, 'rank')}"),
            Part(round(float(updates / speed), 9), f"the updates of {counted(weights, 'layer')} on each rank"),
        )
        return Limit(round(sum(part.amount for part in parts), 9), parts, "work", reached, _proof(reached))


def _proof(reached: bool) -> str:
    found = (
        "Every row of every batch has to go through all layers, forward and backward, on one rank or on several, and "
        "every rank has its updates to do. If the ranks share that evenly and never wait, they end at this time."
    )
    return found if reached else f"{found} Waiting for data, or for a rank that has more to do, comes on top."


@dataclass(frozen=True, slots=True)
class WholeLayers:
    """Schedules in which each layer is on one rank that trains it whole, and each rank has equally many. Which ones,
    how many batches go together, and whether backward is split, is free."""

    premise: ClassVar[str] = "Each layer is on one rank, whole, and each rank has equally many layers."
    ranks: int
    layers: int
    batches: int
    described: tuple[Layer, ...] = USUAL

    def differences(self, run: Trace) -> Iterator[str]:
        """In what a run is none of these: layers on several ranks, parts of layers, ranks with more layers."""
        homes: dict[int, int] = {}
        for rank, event in run.events():
            if event.op not in COMPUTE or event.layer is None or event.layer == self.layers:  # the loss
                continue
            operation, values = OPERATIONS[event.op], run.programs[rank].values_of(event.inputs)
            whole = len(event.batches) if operation.per_batch else 1
            if operation.work(run.shape, event.layer, len(event.batches), values) < whole:
                yield f"rank {rank} runs {event.op} of layer {event.layer} on a part of it"
            if homes.setdefault(event.layer, rank) != rank:
                yield f"layer {event.layer} is on several ranks"
        for rank in range(self.ranks):
            if (many := sum(home == rank for home in homes.values())) * self.ranks != self.layers:
                yield f"rank {rank} has {counted(many, 'layer')} of {self.layers}"

    def time(self, costs: Costs, reached: bool = False) -> Limit:
        """Return the time of the docstring above."""
        each, fastest = self.layers // self.ranks, min(map(costs.slowness, range(self.ranks)))
        back = min(as_written(costs.backward), as_written(costs.backward_input) + as_written(costs.backward_weight))
        below = sum(map(costs.factor, range(self.ranks - 1)))
        own = sum(sorted(map(costs.factor, range(self.ranks - 1, self.layers)))[:each])
        layers, batches = counted(each, "layer"), counted(self.batches, "batch")
        found = {
            "a batch forward through the layers below those of the last rank": as_written(costs.forward) * below,
            f"{layers} x {batches} forward and backward": (as_written(costs.forward) + back) * own * self.batches,
            f"update of {layers}": as_written(costs.update) * each,
        }
        parts = tuple(Part(round(float(amount * fastest), 9), what) for what, amount in found.items() if amount)
        proof = (
            f"Of {counted(self.ranks, 'rank')} with {layers} each, one has no layer below number {self.ranks - 1}. It "
            "begins when a batch has come up to there, and then has all of its own work to do."
        )
        return Limit(round(sum(part.amount for part in parts), 9), parts, "critical path", reached, proof)
