"""One puzzle: the fields of its record, and its task in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from lib.cluster.costs import UNIT, Costs
from lib.cluster.mesh import Mesh
from lib.puzzles.goals import Goal, Hidden, Premise, Size, Sized, Variant
from lib.values.kinds.kind import USUAL, Layer

HINTS = ("a question", "an idea", "nearly the code")  # the kinds of hints of a puzzle, in order


class Row(NamedTuple):
    """One line of a table: what a function is given, and what it has to answer; or which error it has to raise, and
    why."""

    given: tuple[Any, ...]
    answer: Any = None
    raises: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Puzzle:
    """One puzzle. `id` is also the name of the function that a student writes.

    `number` counts from 1 through all chapters, in the order in which the records stand, and `label` is the number
    that a student sees: chapter 6's third puzzle is 6.3. `needs` are the ids of the
    puzzles to solve first, `teaches` says what it is about in half a sentence, and the three `hints` (Markdown) are a
    question, an idea and nearly the code. `minutes` is how long it takes a student who knows Python and
    backpropagation, as `tools.notebooks.verify` estimates it; `discuss` (Markdown) is an open question for a
    class, and what to listen for. A puzzle that `deepens` another may be skipped; those that deepen none are the core
    path. One that is `part_of` another has its gap in that one's notebook.

    A schedule has a size, goals, and hidden sizes at which it must be correct too, or `variants` with which. Its layers
    are the usual ones, but for the `last` ones where these are described. `sent` is how many elements may be sent per
    rank, where that is what the puzzle is about: no goal is reached by a run that sends more. `asks` are what a student
    is to find: where one of them corrects a mistake, the message names the idea, and `fix()` shows the line.
    `bound` is what its lower bound speaks of, where one is known. `messages` says, where the answer is an order, how
    its messages travel: that is not for the order to say. `domain`: ranks share each batch, and no goal is for a run in
    which one of them works on all of it. `predicts`: figures of the run that its page asks to predict,
    where that is not the best one.

    A plain function has a `table` of answers instead, and `draws` random inputs, on which it must agree with the
    reference; `fix` says what is likely wrong where nothing better is known. Its size is 0.

    A plan has `runs`, the fields of a `lib.plan.judge.Task` each: the first is the puzzle's, and the plan has to do for
    the others too, within the seconds that each allows. Its goals are in seconds and GiB.
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
    hidden: tuple[Hidden, ...] = ()
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
        """The name of its notebook, without the folder and the ending: its number within the chapter, and its id."""
        return f"{int(self.label.partition('.')[2]):02d}_{self.notebook}"

    @property
    def notebook(self) -> str:
        """The puzzle that its notebook is called after: its own id, unless it is part of another."""
        return self.part_of or self.id

    @property
    def path(self) -> str:
        """Where its notebook lies below puzzles/ or solutions/, without the ending: `pipelines/03_interleaved`."""
        return f"{self.chapter}/{self.stem}"

    @property
    def heading(self) -> str:
        """Its number and its title."""
        return f"{self.label} {self.title}"

    @property
    def is_function(self) -> bool:
        """Tell whether the answer is a plain function, as that of a plan is, and not a schedule."""
        return self.kind != "schedule"

    @property
    def size(self) -> Size:
        """The size at which its goals apply."""
        return Size.of(self)

    @property
    def has_its_own_layers(self) -> bool:
        """Tell whether all of its layers are described, so that there is no run of it with more of them, or fewer."""
        return 0 < self.layers == len(self.last)

    def described(self, layers: int) -> tuple[Layer, ...]:
        """Return the descriptions of so many layers: one for all that are alike, or one for each where the last ones
        are others."""
        found = USUAL * (layers - len(self.last)) + self.last if self.last else USUAL
        return found[:1] if len(set(found)) == 1 and not found[0].of else found  # as a run has them

    def fits(self, run: Sized) -> bool:
        """Tell whether a run has the puzzle's size."""
        return Size.of(run) == self.size


@dataclass(frozen=True, slots=True, repr=False)
class Task:
    """The task of a puzzle. In words here; notebooks show it as a picture, in time with a schedule that reaches it."""

    record: Puzzle

    def __repr__(self) -> str:
        return self.text()

    def size(self) -> str:
        """Return the size of a run, and its mesh: "16 ranks, 4 layers, 16 batches; mesh of data 4 x stage 4"."""
        mesh = self.record.mesh
        axes = "" if mesh is None else " x ".join(f"{axis} {size}" for axis, size in mesh.axes.items())
        return self.record.size.words() + (f"; mesh of {axes}" if axes else "")

    def text(self) -> str:
        """Its size, and its goals."""
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
