"""What is asked of a run: its size and the hidden ones, its goals, and what a lower bound speaks of."""

from __future__ import annotations

from math import inf
from typing import Any, NamedTuple, Protocol

from lib.cluster.costs import Costs
from lib.cluster.mesh import Mesh
from lib.errors.wording import counted


class Goal(NamedTuple):
    """A goal: the true end at most at `time`, and at most `memory` elements on the rank with the highest peak. `sent`:
    how many elements may be sent per rank, where that is part of it. `reached` is for the goals of a verdict: whether
    the run is within it, and counts."""

    name: str
    time: float
    memory: float
    reached: bool = False
    sent: float | None = None

    def allows(self, time: float, memory: float) -> bool:
        """Tell whether these figures are within the goal."""
        return time <= self.time and memory <= self.memory


LARGEST = 10_000
"""Ranks times layers times batches, at most, of a run that a command makes, and of a hidden size of a class: fsdp takes
three seconds there, to be run, checked and compared. A function of yours may be simulated at any size."""


class Sized(Protocol):
    """Anything that has the size of a run: a Trace, a record, a family of schedules."""

    @property
    def ranks(self) -> int: ...
    @property
    def layers(self) -> int: ...
    @property
    def batches(self) -> int: ...


class Size(NamedTuple):
    """The size of a run: how many ranks run how many layers on how many batches."""

    ranks: int
    layers: int
    batches: int

    @classmethod
    def of(cls, run: Sized) -> Size:
        """Return the size of a run, or of what a run is to be."""
        return cls(run.ranks, run.layers, run.batches)

    def words(self) -> str:
        """Return the size in words: "4 ranks, 6 layers, 8 batches"."""
        counts = zip(self, ("rank", "layer", "batch"), strict=True)
        return ", ".join(counted(count, noun, ",") for count, noun in counts)

    def too_large(self) -> str | None:
        """Say why no command makes anything of this size, where it is too large."""
        amount = self.ranks * self.layers * self.batches
        what = f"{self.words()} are too many: ranks times layers times batches are at most {LARGEST:,}, and here"
        return f"{what} {amount:,}" if amount > LARGEST else None


class Hidden(NamedTuple):
    """Another size at which a solution must be correct, and the mesh and the costs there, where they are not the usual
    ones. Who ends later than at `time` there does not reach the last goal: it is not for what only fits one size."""

    ranks: int
    layers: int
    batches: int
    mesh: Mesh | None = None
    costs: Costs | None = None
    time: float = inf

    def given(self) -> dict[str, Any]:
        """Return what simulate is given there."""
        return dict(zip(self._fields[: 5 if self.costs else 4], self, strict=False))


class Variant(NamedTuple):
    """What else a function may be given beside the model, by name: a solution must be correct with that, or every rank
    of it must refuse it. `sizes` are how many rows each rank has. `batches`: so many of them a rank is given then."""

    arguments: dict[str, Any]
    refused: bool = False
    batches: int | None = None

    def size(self, ranks: int, layers: int, batches: int, mesh: Mesh | None) -> Hidden:
        """Return the size of the run, of a puzzle with this one: of one batch where ranks have sizes of their own."""
        sizes = self.arguments.get("sizes")
        return Hidden(ranks, layers, batches, mesh) if sizes is None else Hidden(len(sizes), layers, 1)


class Premise(NamedTuple):
    """The family of schedules that a puzzle's lower bound speaks of (see `lib.analysis.bounds.family`).

    `words` say for a student what it asks of a schedule. `together` are time and memory of a schedule of the
    family that is near both limits, and of which we know none that is better in both. Each shard of a weight is on
    `copies` ranks, and that of a state on `state_copies`.

    `work`: it speaks of the time of all that share the work, whatever they cut (see `work_time`), and nothing else is
    to be said, but whether a schedule has `reached` it. `whole`: the same of all that leave layers whole.
    """

    words: str = ""
    stages: int = 1
    sharded: bool = False
    grouping: str = "any"
    together: tuple[float, float] | None = None
    copies: int = 1
    state_copies: int = 1
    work: bool = False
    whole: bool = False
    reached: bool = True
