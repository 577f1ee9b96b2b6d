"""One puzzle: what a run has to achieve (its size and the hidden ones, its goals, and the premise of its lower bound),
the fields of its record, and its task in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple, Protocol

from lib.cluster.costs import UNIT, Costs
from lib.cluster.mesh import Mesh
from lib.errors.wording import counted
from lib.values.kinds.kind import USUAL, Layer

HINTS = ("a question", "an idea", "nearly the code")  # the kinds of hints of a puzzle, in order


class Goal(NamedTuple):
    """A goal: the true end no later than `time`, and at most `memory` elements on the rank with the highest peak.
    `sent`: how many elements each rank may send, if that is limited. `reached` is for the goals of a verdict: whether
    the run is within the goal, and counts."""

    name: str
    time: float
    memory: float
    reached: bool = False
    sent: float | None = None

    def allows(self, time: float, memory: float) -> bool:
        """Tell whether these figures are within the goal."""
        return time <= self.time and memory <= self.memory


LARGEST = 10_000
"""The most ranks times layers times batches of a run that a command makes, and of a class's hidden size: running,
checking and comparing fsdp takes three seconds there. Your own functions may be simulated at any size."""


class Sized(Protocol):
    """Anything with the size of a run: a Trace, a record, a family of schedules."""

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
        """Return the size of a run, or of a description of runs."""
        return cls(run.ranks, run.layers, run.batches)

    def words(self) -> str:
        """Return the size in words: "4 ranks, 6 layers, 8 batches"."""
        counts = zip(self, ("rank", "layer", "batch"), strict=True)
        return ", ".join(counted(count, noun, ",") for count, noun in counts)

    def too_large(self) -> str | None:
        """Say why no command makes anything of this size, if it is too large; else None."""
        amount = self.ranks * self.layers * self.batches
        what = f"{self.words()} are too many: ranks times layers times batches are at most {LARGEST:,}, and here"
        return f"{what} {amount:,}" if amount > LARGEST else None


class AtSize(NamedTuple):
    """A size other than a puzzle's own, with its mesh and costs if they are not the usual ones. At a hidden size of a
    record, runs that end later than `time` do not reach the last goal, which is not for functions that fit only one
    size."""

    ranks: int
    layers: int
    batches: int
    mesh: Mesh | None = None
    costs: Costs | None = None
    time: float = inf

    def given(self) -> dict[str, Any]:
        """Return the arguments for simulate at this size."""
        return dict(zip(self._fields[: 5 if self.costs else 4], self, strict=False))


class Variant(NamedTuple):
    """Arguments that a function may get besides the model, by name: a solution must be correct with them, or, if
    `refused`, every rank must refuse them. `sizes` are the rows of each rank; `batches`: how many each rank takes."""

    arguments: dict[str, Any]
    refused: bool = False
    batches: int | None = None

    def size(self, ranks: int, layers: int, batches: int, mesh: Mesh | None) -> AtSize:
        """Return the size of the run, for a puzzle of the given size; if `sizes` are given, it has one batch."""
        sizes = self.arguments.get("sizes")
        return AtSize(ranks, layers, batches, mesh) if sizes is None else AtSize(len(sizes), layers, 1)


class Premise(NamedTuple):
    """The family of schedules that a puzzle's lower bound is about (see `lib.analysis.bounds.family`): the fields of a
    record's `bound`."""

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


class Row(NamedTuple):
    """One line of a table: the arguments of a function, and its expected answer; or the error it has to raise, and
    why."""

    given: tuple[Any, ...]
    answer: Any = None
    raises: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Puzzle:
    """One puzzle: its record, whose fields are described at the top of basics.toml, and its place among the others.

    `id` is also the name of the function that a student writes. `number` counts from 1 through all chapters, and
    `label` is the number that a student sees: chapter 6's third puzzle is 6.3. The size of a plain function is 0.
    """

    id: str
    number: int
    label: str
    chapter: str
    kind: str
    title: str
    needs: tuple[str, ...]
    teaches: str
    hints: tuple[str, ...]
    minutes: int
    discuss: str
    deepens: str = ""
    part_of: str = ""
    ranks: int = 0
    layers: int = 0
    batches: int = 0
    last: tuple[Layer, ...] = ()
    goals: tuple[Goal, ...] = ()
    hidden: tuple[AtSize, ...] = ()
    variants: tuple[Variant, ...] = ()
    mesh: Mesh | None = None
    costs: Costs = UNIT
    sent: float | None = None
    asks: tuple[str, ...] = ()
    bound: Premise | None = None
    messages: str | None = None
    domain: bool = False
    predicts: tuple[tuple[str, float], ...] = ()
    table: tuple[Row, ...] = ()
    draws: int = 0
    fix: str = ""
    runs: tuple[Mapping[str, Any], ...] = ()

    @property
    def stem(self) -> str:
        """The name of its notebook, without folder and extension: its number within the chapter, and its id."""
        return f"{int(self.label.partition('.')[2]):02d}_{self.notebook}"

    @property
    def notebook(self) -> str:
        """The puzzle that its notebook is named after: its own id, unless it is part of another."""
        return self.part_of or self.id

    @property
    def path(self) -> str:
        """The path of its notebook below puzzles/ or solutions/, without extension: `pipelines/03_interleaved`."""
        return f"{self.chapter}/{self.stem}"

    @property
    def heading(self) -> str:
        """Its number and its title."""
        return f"{self.label} {self.title}"

    @property
    def is_function(self) -> bool:
        """Tell whether the answer is a plain function (as for a plan), not a schedule."""
        return self.kind != "schedule"

    @property
    def size(self) -> Size:
        """The size at which its goals apply."""
        return Size.of(self)

    @property
    def has_its_own_layers(self) -> bool:
        """Tell whether each of its layers is described, so that no run of it can have more or fewer."""
        return 0 < self.layers == len(self.last)

    def described(self, layers: int) -> tuple[Layer, ...]:
        """Return the descriptions of a number of layers: one if all are alike, or one for each if the last ones
        differ."""
        found = USUAL * (layers - len(self.last)) + self.last if self.last else USUAL
        return found[:1] if len(set(found)) == 1 and not found[0].of else found  # as a run has them

    def fits(self, run: Sized) -> bool:
        """Tell whether a run has the puzzle's size."""
        return Size.of(run) == self.size


@dataclass(frozen=True, slots=True, repr=False)
class Task:
    """The task of a puzzle: here in words; in notebooks a picture, with the timing of a schedule that reaches it."""

    record: Puzzle

    def __repr__(self) -> str:
        return self.text()

    def size(self) -> str:
        """Return the size of a run, and its mesh: "16 ranks, 4 layers, 16 batches; mesh of data 4 x stage 4"."""
        mesh = self.record.mesh
        axes = "" if mesh is None else " x ".join(f"{axis} {size}" for axis, size in mesh.axes.items())
        return self.record.size.words() + (f"; mesh of {axes}" if axes else "")

    def text(self) -> str:
        """Return its size and its goals."""
        record = self.record
        size = self.size()
        if record.kind == "plan":
            run = record.runs[0]
            size = f"{run['model']} on {run['gpus']:,} {run['gpu']}, a batch of {run['batch']:,}"
        elif record.is_function:
            size = f"a function that is right on {len(record.table)} given inputs and {record.draws:,} others"
        limits = dict[str, str]()
        for goal in record.goals:
            limits[goal.name] = f"time {goal.time:g} and memory {goal.memory:,} elements on any rank"
            if record.kind == "plan":
                limits[goal.name] = f"{goal.time:g} s a step, and {goal.memory:g} GiB"
            elif goal.sent is not None:
                limits[goal.name] += f", and {goal.sent:,} elements sent per rank"
        if record.sent is not None:
            limits["for each of them"] = f"{record.sent:,} elements sent per rank"
        return "\n".join(
            [f"{record.title}: {size}", *(f"  {name + ':':<25} at most {limit}" for name, limit in limits.items())]
        )
