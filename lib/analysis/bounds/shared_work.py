"""The least time of ranks that share the work of all layers, however they cut it.

The puzzles inside the layer cut columns, rows, heads, words and tokens, and each can be solved with the cuts of
another, or with none. So the argument speaks of what there is to compute, and not of where.

**Work.** A weight is updated with the sum of its gradient over all batches and rows, and there is no gradient of a row
without the loss of it. So each pair of a row and an element of a weight is multiplied at least once forward and, as
backwards are whole, at least once in each half of backward; and so is each pair of a query and a key that it may see,
and each token at each of its experts. An operation on parts costs as much of its layer as its parts are of these pairs,
so all ranks together compute for at least what all layers cost on all batches. Computing twice is more.

**Updates.** The update of a part of a weight takes as long as that of a whole one of the usual size. Of a layer whose
weight is s times that, parts that are all of it together cost s or more, or as many updates as there are ranks, if each
has one. No operation runs beside another on a rank: of n ranks the last one is done no earlier than the average, and
slower ranks take so much less of it. The first and the last exchange do not count, as nothing says how small what is
sent then may be. (Prices are rounded to billionths of a time unit, so a run of many pieces may be as little below.)

Of memory and of what is sent nothing is said. A rank that computes everything again, row by row, needs little more than
its part of the weights, and one that has all weights and all batches sends nothing: both are correct, and nobody would
learn from a limit that counts on them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from lib.analysis.bounds.limits import Limit, Part
from lib.cluster.costs import Costs, as_written
from lib.errors.wording import counted
from lib.puzzles.records import Puzzle
from lib.trace.trace import Trace
from lib.values.kinds.kind import USUAL, Layer
from lib.values.layers import Shape
from lib.values.operations import BY_INPUT, OPERATIONS, UPDATES
from lib.values.placement import Elements

__all__ = ["SharedWork"]


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
        """Those of a puzzle, at the size of its record."""
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
        """The time of the docstring above."""
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
