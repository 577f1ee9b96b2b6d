"""The records of the puzzles: sizes, goals, hints, and what comes before what.

Their only home are the files beside this module: chapters.toml says which chapters there are, and <chapter>.toml has a
record for each puzzle, in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import Any, NamedTuple, Protocol

from lib.cluster.costs import UNIT, Costs, costs_from
from lib.cluster.mesh import Mesh, mesh_from
from lib.errors.wording import counted
from lib.files import packaged
from lib.values.kinds.kind import USUAL, Layer
from lib.values.table import Lazy


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
        """The size of a run, or of what a run is to be."""
        return cls(run.ranks, run.layers, run.batches)

    def words(self) -> str:
        """The size in words: "4 ranks, 6 layers, 8 batches"."""
        counts = zip(self, ("rank", "layer", "batch"), strict=True)
        return ", ".join(counted(count, noun, ",") for count, noun in counts)

    def too_large(self) -> str | None:
        """Why no command makes anything of this size, where it is too large."""
        amount = self.ranks * self.layers * self.batches
        what = f"{self.words()} are too many: ranks times layers times batches are at most {LARGEST:,}, and here"
        return f"{what} {amount:,}" if amount > LARGEST else None


class Hidden(NamedTuple):
    """Another size at which a solution must be correct, and the mesh there, where there is one."""

    ranks: int
    layers: int
    batches: int
    mesh: Mesh | None = None


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


class Chapter(NamedTuple):
    """A chapter: its title, and in a sentence or two what it is about."""

    title: str
    about: str


class Term(NamedTuple):
    """A word of the field: what it is, the puzzle that teaches it, and our word for it, where that is another."""

    says: str
    puzzle: str
    ours: str = ""


class Row(NamedTuple):
    """One line of a table: what a function is given, and what it has to answer; or which error it has to raise, and
    why."""

    given: tuple[Any, ...]
    answer: Any = None
    raises: str = ""
    why: str = ""


ERRORS = ("ValueError", "TypeError", "KeyError", "IndexError")  # which a row of a table may ask for
HINTS = ("a question", "an idea", "nearly the code")  # the kinds of hints of a puzzle, in order
KINDS = {
    "schedule": (
        {"ranks", "layers", "batches", "goals", "hidden"},
        {"mesh", "costs", "last", "sent", "asks", "bound", "messages", "domain"},
    ),
    "function": ({"table", "draws"}, {"fix"}),
    "plan": ({"runs", "goals"}, {"fix"}),
}
"""The kinds of answers to a puzzle: a function of a Model that each rank runs, a plain one, or one that gives the plan
of a whole run (`lib.plan`); each with the fields that a record has for it, and those that it may have."""


@dataclass(frozen=True, slots=True)
class Puzzle:
    """One puzzle. `id` is also the name of the function that a student writes.

    `number` counts from 1 through all chapters, in the order in which the records stand, and `label` is the number
    that a student sees: chapter 6's third puzzle is 6.3. `needs` are the ids of the
    puzzles to solve first, `teaches` says what it is about in half a sentence, and the three `hints` (Markdown) are a
    question, an idea and nearly the code. `minutes` is how long it takes a student who knows Python and
    backpropagation, as `lib.suite.notebooks.shared_cells` estimates it; `discuss` (Markdown) is an open question for a
    class, and what to listen for. A puzzle that `deepens` another may be skipped; those that deepen none are the core
    path. One that is `part_of` another has its gap in that one's notebook.

    A schedule has a size, goals, and hidden sizes at which it must be correct too. Its layers are the usual ones, but
    for the `last` ones where these are described. `sent` is how many elements may be sent per rank, where that is what
    the puzzle is about: no goal is reached by a run that sends more. `asks` are what a student is to find: where one of
    them corrects a mistake, the message names the idea, and `fix()` shows the line.
    `bound` is what its lower bound speaks of, where one is known. `messages` says, where the answer is an order, how
    its messages travel: that is not for the order to say. `domain`: ranks share each batch, and no goal is for a run in
    which one of them works on all of it.

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
    mesh: Mesh | None = None
    costs: Costs = UNIT
    sent: float | None = None
    asks: tuple[str, ...] = ()
    bound: Premise | None = None
    messages: str | None = None
    domain: bool = False
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
        """The descriptions of so many layers: one for all that are alike, or one for each where the last ones are
        others."""
        found = USUAL * (layers - len(self.last)) + self.last if self.last else USUAL
        return found[:1] if len(set(found)) == 1 and not found[0].of else found  # as a run has them

    def fits(self, run: Sized) -> bool:
        """Tell whether a run has the puzzle's size."""
        return Size.of(run) == self.size


PUZZLES: Mapping[str, Puzzle] = Lazy(
    lambda: _records(),  # looked up when it is asked
    lambda key, records: f"there is no puzzle {key!r}; there are {', '.join(records)}",
)
"""The records by id, in order."""


def puzzle_of_file(stem: str) -> Puzzle | None:
    """The puzzle that a file is called after, <number>_<id>. The number may be one that the puzzle had before."""
    number, _, name = stem.partition("_")
    return PUZZLES[name] if number.isdigit() and name in PUZZLES else None


def core_of(puzzle: Puzzle) -> Puzzle:
    """Return the puzzle of the core path that a puzzle deepens, by way of others perhaps, or itself."""
    return core_of(PUZZLES[puzzle.deepens]) if puzzle.deepens else puzzle


INTRODUCTION = 45
"""Minutes that the introduction takes."""


def minutes_of_core() -> int:
    """Return how many minutes the core path takes: the introduction, and each puzzle that deepens no other."""
    return INTRODUCTION + sum(puzzle.minutes for puzzle in PUZZLES.values() if not puzzle.deepens)


def notebooks_before(puzzle: Puzzle) -> list[str]:
    """Return the puzzles whose notebooks are to be solved before the one of a puzzle, in order."""
    needs = {PUZZLES[need].notebook for part in of_one_notebook(puzzle) for need in part.needs}
    return [one.id for one in PUZZLES.values() if one.id in needs - {puzzle.notebook}]


def minutes_of(puzzle: Puzzle) -> int:
    """Return how many minutes the notebook of a puzzle takes: its own, and those of its parts that are not skipped."""
    parts = (one for one in of_one_notebook(puzzle) if one is puzzle or one.deepens in ("", puzzle.deepens))
    return sum(part.minutes for part in parts)


def of_one_notebook(puzzle: Puzzle) -> list[Puzzle]:
    """Return the puzzles of the notebook of a puzzle, the one that it is called after first."""
    found = [one for one in PUZZLES.values() if one.notebook == puzzle.notebook]
    return sorted(found, key=lambda one: one.id != puzzle.notebook)


def schedule_record(puzzle: str) -> Puzzle:
    """The record of a puzzle whose answer is a schedule. ValueError where it is a plain function."""
    record = PUZZLES[puzzle]
    if record.is_function:
        call = f'check_function({puzzle}, puzzle="{puzzle}")'
        raise ValueError(f"the answer to {puzzle} is a plain function, which no rank runs: {call} checks it")
    return record


def chapters() -> dict[str, Chapter]:
    """The chapters by name, in order, also those that have no puzzles yet."""
    every = _read("chapters")
    for name, data in every.items():
        if data.keys() != set(Chapter._fields):
            raise ValueError(f"chapters.toml: {name} has {' and '.join(Chapter._fields)}; got {', '.join(data)}")
    return {name: Chapter(data["title"], data["about"].strip()) for name, data in every.items()}


def glossary() -> dict[str, Term]:
    """Return the words of the field in alphabetical order. TypeError for an entry with a field that there is not."""
    words = sorted(_read("glossary").items(), key=lambda entry: entry[0].lower())
    return {word: Term(**data) for word, data in words}


def by_chapter(*, parts: bool = False) -> list[tuple[Chapter, list[Puzzle]]]:
    """The chapters that have puzzles, each with its puzzles, in order: one for each notebook, or with those that are
    `parts` of others too."""
    shown = (puzzle for puzzle in PUZZLES.values() if parts or not puzzle.part_of)
    every = groupby(shown, key=lambda puzzle: puzzle.chapter)
    return [(chapters()[name], list(puzzles)) for name, puzzles in every]


def _read(name: str) -> dict[str, dict[str, Any]]:
    import tomllib  # here and not above: `import lib` should be quick

    return tomllib.loads(packaged("lib.puzzles", f"{name}.toml"))


@cache
def _records() -> dict[str, Puzzle]:
    records: dict[str, Puzzle] = {}
    for at, chapter in enumerate(chapters(), 1):
        found = _read(chapter)
        places = {key: place for place, key in enumerate((key for key in found if "part_of" not in found[key]), 1)}
        for key, data in found.items():
            if key in records:
                raise ValueError(f"two records are called {key}: in {records[key].chapter}.toml and in {chapter}.toml")
            if (whole := data.get("part_of", key)) not in places:
                raise ValueError(f"{key}: it is part of {whole!r}, and {chapter}.toml has no such notebook")
            records[key] = _record(key, len(records) + 1, f"{at}.{places[whole]}", chapter, data)
    return records


def _record(key: str, number: int, label: str, chapter: str, data: dict[str, Any]) -> Puzzle:
    """A Puzzle from its TOML. ValueError for a field that there is not, or one of another kind of puzzle."""
    kind = data.get("kind", "schedule")
    if kind not in KINDS:
        raise ValueError(f"{key}: its kind is one of {', '.join(KINDS)}; got {kind!r}")
    of_kind, more = KINDS[kind]
    needed = {"title", "needs", "teaches", "minutes", "discuss", "hints", *of_kind}
    free = {"kind", "deepens", "part_of", *more}
    if wrong := (needed - data.keys()) | (data.keys() - needed - free):
        raise ValueError(
            f"{key}: a {kind} has {', '.join(sorted(needed))} and may have {', '.join(sorted(free))}; "
            f"see to {', '.join(sorted(wrong))}"
        )
    made: dict[str, Any] = {"kind": kind, **data}
    made |= {name: tuple(data.get(name, ())) for name in ("needs", "asks", "runs")}
    made["hints"] = tuple(hint.strip() for hint in data["hints"])
    made["discuss"] = data["discuss"].strip()
    made["goals"] = tuple(Goal(**goal) for goal in data.get("goals", ()))
    made["last"] = tuple(Layer(**layer) for layer in data.get("last", ()))
    made["table"] = _rows(key, data.get("table", ""))
    mesh = made["mesh"] = mesh_from_table(data["mesh"]) if "mesh" in data else None
    if mesh is not None and len(mesh) != data["ranks"]:
        raise ValueError(f"{key}: it has {data['ranks']} ranks, and {mesh} has {len(mesh)}")
    made["hidden"] = tuple(_hidden(size, mesh, data["ranks"]) for size in data.get("hidden", ()))
    if "costs" in data:
        made["costs"] = costs_from(data["costs"])
    if "bound" in data:
        together = data["bound"].get("together")
        made["bound"] = Premise(**data["bound"] | {"together": together and tuple(together)})
    return Puzzle(key, number, label, chapter, **made)


def _hidden(size: dict[str, Any], mesh: Mesh | None, ranks: int) -> Hidden:
    """A hidden size. Of as many ranks as the puzzle it has the puzzle's mesh, if none of its own."""
    if "mesh" in size:
        own = mesh_from_table(size["mesh"])
        return Hidden(size.get("ranks", len(own)), size["layers"], size["batches"], own)
    return Hidden(**size, mesh=mesh if size.get("ranks") == ranks else None)


def mesh_from_table(data: dict[str, Any]) -> Mesh:
    """A mesh from its axes alone, `{ replica = 2, shard = 4 }`, or with more: `{ axes = { ... }, host_size = 4 }`."""
    return mesh_from(data if isinstance(data.get("axes"), dict) else {"axes": data})


def _rows(key: str, text: str) -> tuple[Row, ...]:
    """A table from its text: on each line what is given and what is to come out, `[2, 1], [2, 4] -> 9`, in Python; or
    which error is to be raised, and why: `[2], [0] -> raises ValueError: an axis has a size of 1 or more`."""
    from ast import literal_eval  # here and not above: only few puzzles have tables

    rows: list[Row] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        try:
            given, arrow, answer = line.partition("->")
            if not arrow:
                raise ValueError("no ->")
            arguments, (how, _, asked) = literal_eval(f"({given},)"), answer.strip().partition(" ")
            if how == "raises":
                name, _, why = asked.partition(":")
                if name not in ERRORS:
                    raise ValueError(f"it raises one of {', '.join(ERRORS)}")
                rows.append(Row(arguments, raises=name, why=why.strip()))
            else:
                rows.append(Row(arguments, literal_eval(answer.strip())))
        except (SyntaxError, ValueError) as error:
            raise ValueError(f"{key}: this is no row of a table ({error}): {line}") from None
    return tuple(rows)


@dataclass(frozen=True, slots=True, repr=False)
class Task:
    """The task of a puzzle. In words here; notebooks show it as a picture, in time with a schedule that reaches it."""

    record: Puzzle

    def __repr__(self) -> str:
        return self.text()

    def size(self) -> str:
        """The size of a run, and its mesh: "16 ranks, 4 layers, 16 batches; mesh of data 4 x stage 4"."""
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


def goal(puzzle: str) -> Task:
    """Return the task of a puzzle: its size, and its goals.

    >>> print(goal("basic").text().splitlines()[0])
    One device: 1 rank, 2 layers, 4 batches
    """
    return Task(PUZZLES[puzzle])
