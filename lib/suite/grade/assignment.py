"""What a class is asked, from a TOML file, from options, or from both.

That is: which puzzles, what counts as passed, at which sizes besides the puzzle's own, within which limits.

    title = "Exercise 3"
    puzzles = ["ddp", "fsdp"]       # else: those that somebody has worked on
    need = "best"                   # "first" (if nothing is said), "best", "correct", or the name of a goal
    hidden = 2                      # so many hidden sizes are drawn for each puzzle; 0: none
    seed = 7                        # from this seed: whoever does not know it does not know them
    seconds = 10                    # by the clock on the wall, for one run
    memory = 1024                   # MiB for one run
    tell_sizes = false              # true: students read in their feedback at which hidden sizes they failed
    points = { passed = 1 }         # for each puzzle, one number for each of TERMS and BY_HAND, added up
    deadline = 2026-11-01T23:59:00  # by the clock on the wall
    attempts = "best"               # or "latest", if nothing is said

    [puzzle.fsdp]                   # the same for one puzzle, or sizes that are said
    need = "keeps only shards"
    hidden = [{ ranks = 2, layers = 3, batches = 6 }]

    [late]
    percent = 10                    # of what the puzzle scored, for each day that is begun
    grace = 15                      # minutes that cost nothing
    days = 5                        # later than that, nothing counts

    [extension]                     # by id, or by name
    "410003" = 2026-11-08T23:59:00

A size may have a mesh (`mesh = { data = 2, stage = 3 }`, or with more as `Mesh` takes it) and costs
(`costs = { model = "links", latency = 0.1 }`). Where neither `hidden` nor `seed` is said, the hidden sizes are those of
the puzzles' records, which everybody can read. A plain function has no size: it is asked so many sets of random inputs.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar, cast

from lib.cluster.costs import costs_from
from lib.errors.wording import counted
from lib.puzzles.records import LARGEST, PUZZLES, Puzzle, Task, mesh_from_table
from lib.suite.grade.gradebook import ATTEMPTS, BY_HAND, TERMS, Late, Rules
from lib.suite.grade.sizes import MOST, Unfit, draw_sizes, figures_at, record_at
from lib.suite.isolation.messages import AtSize, Limits

__all__ = ["INPUTS", "KEYS", "NEEDS", "Assignment", "AssignmentError", "Config", "Required", "read_config"]

NEEDS: Final = ("first", "best", "correct")
"""What may be needed besides a goal's name: a puzzle's first goal, its last one, or none."""
INPUTS: Final = 200
"""Random inputs in a hidden set of a plain function, at most."""
DRAWN: Final = 2
"""Hidden sizes where only a seed is said."""
LIMITS: Final = Limits(seconds=10.0, memory=1024 * 2**20)
"""Of one run, where nothing is said."""


OF_A_RUN: Final = ("seconds", "memory")
"""The fields of `Limits` that a file may set; memory in MiB."""
OF_RULES: Final = ("deadline", "attempts", "points", "late", "extension")
KEYS: Final = ("title", "puzzles", "need", "hidden", "seed", *OF_A_RUN, "tell_sizes", *OF_RULES, "puzzle")
OF_A_PUZZLE: Final = ("need", "hidden", "seed", "points")
WORTH: Final = (*(term.name for term in TERMS), BY_HAND)
"""What points are given for."""
MOST_POINTS: Final = 1000
OF_BEING_LATE: Final = {"percent": 100.0, "grace": 100_000.0, "days": 1000.0}
"""The keys of `late`, and how much each may be."""
OF_A_SIZE: Final = ("ranks", "layers", "batches", "mesh", "costs")
T = TypeVar("T")


class AssignmentError(ValueError):
    """An assignment that makes no sense. Says where, what would, and what to write."""


@dataclass(frozen=True, slots=True)
class Required:
    """The requirements of one puzzle: the goal `need` (None: correct is enough), and besides its own size its
    records at others; of a plain function so many sets of random inputs, each from a seed of its own. `events` is
    how many our own solution records, at the puzzle's size and at the others, and `key` what no other requirement
    has."""

    record: Puzzle
    need: str | None
    hidden: tuple[Puzzle, ...] = ()
    events: tuple[int, ...] = ()
    seeds: tuple[str, ...] = ()
    key: str = ""

    @property
    def sizes(self) -> tuple[str, ...]:
        """The hidden sizes in words."""
        if self.record.is_function:
            draws = min(self.record.draws, INPUTS)
            return tuple(f"{counted(draws, 'random input', ',')} (set {n})" for n in range(1, len(self.seeds) + 1))
        others = ["" if record.costs == self.record.costs else "; other costs" for record in self.hidden]
        return tuple(Task(record).size() + other for record, other in zip(self.hidden, others, strict=True))


@dataclass(frozen=True, slots=True)
class Assignment:
    """The questions to a class, in the order of the puzzles; the limits of each run, and whether students are told
    at which hidden sizes they failed."""

    required: tuple[Required, ...]
    title: str = ""
    limits: Limits = LIMITS
    tell_sizes: bool = False
    rules: Rules = field(default_factory=Rules)


@dataclass(frozen=True, slots=True)
class PartOfConfig:
    """The settings of one puzzle. `hidden` are how many sizes to draw, or the sizes."""

    need: str | None = None
    hidden: int | tuple[AtSize, ...] | None = None
    seed: int | str | None = None


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of an assignment, by a file or by options; None where nothing is."""

    title: str = ""
    puzzles: tuple[str, ...] | None = None
    every: PartOfConfig = PartOfConfig()
    limits: Limits = LIMITS
    parts: Mapping[str, PartOfConfig] = field(default_factory=dict[str, PartOfConfig])
    tell_sizes: bool = False
    rules: Rules = field(default_factory=Rules)

    def with_options(
        self,
        *,
        puzzles: Iterable[str] = (),
        need: str | None = None,
        hidden: int | None = None,
        seed: int | str | None = None,
        seconds: float | None = None,
        points: str | None = None,
    ) -> Config:
        """The same with what options say, which win: over what a file says of single puzzles, too."""
        chosen = tuple(puzzles)
        if unknown := [puzzle for puzzle in chosen if puzzle not in PUZZLES]:
            raise AssignmentError(f"there is no puzzle {unknown[0]!r}; {_did_you_mean(unknown[0], PUZZLES)}")
        if hidden is not None and not 0 <= hidden <= MOST:
            raise AssignmentError(f"there are 0 to {MOST} hidden sizes for each puzzle; got {hidden}")
        given = PartOfConfig(need, hidden, seed)
        return replace(
            self,
            puzzles=chosen or self.puzzles,
            every=_over(given, self.every),
            parts={puzzle: _over(given, part) for puzzle, part in self.parts.items()},
            limits=self.limits if seconds is None else replace(self.limits, seconds=seconds),
            rules=self.rules if points is None else replace(self.rules, points={"": _said_points(points)}),
        )

    def assignment(self, worked_on: Iterable[str] = ()) -> Assignment:
        """Return what is asked; where no puzzles are named, those that somebody has `worked_on`.

        AssignmentError for a goal that a puzzle does not have, or a size at which our own solution is not correct.
        """
        names = set(worked_on) if self.puzzles is None else set(self.puzzles)
        required: list[Required] = []
        for puzzle, record in PUZZLES.items():
            if puzzle in names:
                part = _over(self.parts.get(puzzle, PartOfConfig()), self.every)
                required.append(_required(record, part))
        return Assignment(tuple(required), self.title, self.limits, self.tell_sizes, self.rules)


def _over(first: PartOfConfig, second: PartOfConfig) -> PartOfConfig:
    """Return what the first says, and where it says nothing the second."""
    return PartOfConfig(
        second.need if first.need is None else first.need,
        second.hidden if first.hidden is None else first.hidden,
        second.seed if first.seed is None else first.seed,
    )


def _said_points(text: str) -> dict[str, float]:
    """Points as an option says them: "correct=4 hidden=2"."""
    found: dict[str, float] = {}
    for word in re.split(r"[\s,;]+", text.strip()):
        name, _, number = word.partition("=")
        if name not in WORTH or not re.fullmatch(r"\d{1,3}(\.\d+)?", number):
            raise AssignmentError(
                f'--points {text!r}: {word!r} is not understood\n  expected: such as "correct=4 hidden=2", of '
                f"{', '.join(WORTH)}"
            )
        found[name] = float(number)
    return found


def _required(record: Puzzle, part: PartOfConfig) -> Required:
    need, drawn = _need(record, part.need or "first"), part.hidden
    if drawn is None and part.seed is not None:
        drawn = DRAWN
    seed = 0 if part.seed is None else part.seed
    if record.is_function:
        count = drawn if isinstance(drawn, int) else 0
        seeds = tuple(f"{seed}:{record.id}:{number}" for number in range(1, count + 1))
        return _with_key(Required(record, None, seeds=seeds))
    if drawn is None:
        sizes = [AtSize(*size) for size in record.hidden]
    else:
        sizes = drawn if isinstance(drawn, tuple) else draw_sizes(record.id, drawn, seed)
    try:
        events = [figures_at(record.id, size)[0].events for size in (AtSize(*record.size, record.mesh), *sizes)]
        return _with_key(Required(record, need, tuple(record_at(record.id, size) for size in sizes), tuple(events)))
    except Unfit as error:
        raise AssignmentError(f"{error}\n  fix: take that size out of puzzle.{record.id}.hidden, or mend it") from None


def _with_key(required: Required) -> Required:
    return replace(required, key=hashlib.sha256(repr(required).encode()).hexdigest()[:16])


def _need(record: Puzzle, need: str) -> str | None:
    """The name of the goal that is needed."""
    if record.is_function or need == "correct":
        return None
    names = [goal.name for goal in record.goals]
    chosen = {"first": names[0], "best": names[-1]}.get(need, need)
    if chosen not in names:
        have = ", ".join(f'"{name}"' for name in names)
        raise AssignmentError(
            f"{record.id} has no goal {need!r}\n"
            f"  expected: one of {', '.join(NEEDS)}, or one of its goals: {have}\n"
            "  fix:      say it for the puzzles that have it: [puzzle.<id>] with need = ... in a file, or --puzzle"
        )
    return chosen


# -- a file ---------------------------------------------------------------------------------------------------------


class _Reader:
    """Reads the tables of a file, and says where one is wrong."""

    def __init__(self, path: Path, text: str) -> None:
        self._path = path
        self._lines = text.splitlines()

    def wrong(self, key: str, expected: str, got: object, fix: str = "") -> NoReturn:
        """Say what is wrong with a key, and in which line it stands, if it stands in one alone."""
        name = re.escape(re.sub(r"\[\d+\]$", "", key).rpartition(".")[2])
        lines = [number for number, line in enumerate(self._lines, 1) if re.search(rf"(^|[\s{{,\[.]){name}\b", line)]
        place = f"{self._path.name}, line {lines[0]}" if len(lines) == 1 else self._path.name
        text = f"{place}: {key}\n  expected: {expected}\n  got:      {got}"
        raise AssignmentError(text + (f"\n  fix:      {fix}" if fix else ""))

    def table(self, value: object, key: str, allowed: Iterable[str]) -> dict[str, Any]:
        if not isinstance(value, dict):
            self.wrong(key, "a table", _shown(value))
        found = cast("dict[str, Any]", value)
        for name in found:
            if name not in allowed:
                where = f"{key}.{name}".lstrip(".")
                self.wrong(where, f"one of {', '.join(allowed)}", name, _did_you_mean(name, allowed))
        return found

    def value(self, value: object, key: str, kind: type[T], expected: str) -> T:
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):  # a truth is no number
            self.wrong(key, expected, _shown(value))
        return value

    def whole(self, value: object, key: str, least: int, most: int) -> int:
        expected = f"a whole number from {least} to {most:,}"
        if not least <= self.value(value, key, int, expected) <= most:
            self.wrong(key, expected, value)
        return cast("int", value)

    def number(self, value: object, key: str, most: float, least: float = 0) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool) or not least <= value <= most:
            self.wrong(key, f"a number from {least:g} to {most:,g}", _shown(value))
        return float(value)

    def puzzle(self, name: object, key: str) -> str:
        if not isinstance(name, str) or name not in PUZZLES:
            self.wrong(key, "the id of a puzzle", _shown(name), _did_you_mean(str(name), PUZZLES))
        return name

    def points(self, value: object, key: str) -> dict[str, float]:
        """Points by what they are given for."""
        table = self.table(value, key, WORTH)
        return {name: self.number(number, f"{key}.{name}", MOST_POINTS) for name, number in table.items()}

    def moment(self, value: object, key: str) -> datetime:
        """A time by the clock on the wall; a day alone is meant to its end."""
        if not isinstance(value, datetime) and isinstance(value, date):
            return datetime.combine(value, time(23, 59, 59))
        if not isinstance(value, datetime):
            self.wrong(key, "a time without quotation marks, such as 2026-11-01T23:59:00", _shown(value))
        return value.replace(tzinfo=None)

    def rules(self, table: dict[str, Any]) -> Rules:
        """Return how points follow from results."""
        points = {"": self.points(table["points"], "points")} if "points" in table else dict(Rules().points)
        for name, part in table.get("puzzle", {}).items():
            if "points" in part:
                points[name] = self.points(part["points"], f"puzzle.{name}.points")
        attempts = table.get("attempts", ATTEMPTS[0])
        if attempts not in ATTEMPTS:
            self.wrong("attempts", " or ".join(f'"{one}"' for one in ATTEMPTS), _shown(attempts))
        late = self.table(table.get("late", {}), "late", OF_BEING_LATE)
        costs = {name: self.number(late[name], f"late.{name}", OF_BEING_LATE[name]) for name in late}
        people = table.get("extension", {})
        extensions = self.table(people, "extension", people)
        return Rules(
            points,
            attempts,
            self.moment(table["deadline"], "deadline") if "deadline" in table else None,
            {name: self.moment(until, f"extension.{name}") for name, until in extensions.items()},
            Late(**costs),
        )

    def part(self, table: dict[str, Any], key: str, puzzle: Puzzle | None) -> PartOfConfig:
        """Return what is said of a puzzle, or (None) of all of them."""
        need, hidden, seed = (table.get(name) for name in ("need", "hidden", "seed"))
        if need is not None:
            need = self.value(need, f"{key}need", str, 'a text, such as "best"')
            if puzzle is not None:
                try:
                    _need(puzzle, need)
                except AssignmentError:
                    goals = ", ".join(f'"{goal.name}"' for goal in puzzle.goals)
                    self.wrong(f"{key}need", f"{', '.join(NEEDS)}, {goals}", repr(need))
        if seed is not None and (not isinstance(seed, int | str) or isinstance(seed, bool)):
            self.wrong(f"{key}seed", "a whole number or a text", _shown(seed))
        if isinstance(hidden, list) and puzzle is not None and not puzzle.is_function:
            items = cast("list[Any]", hidden)
            sizes = tuple(self.size(item, f"{key}hidden[{number}]", puzzle) for number, item in enumerate(items))
            return PartOfConfig(need, sizes, seed)
        if hidden is not None and (not isinstance(hidden, int) or isinstance(hidden, bool) or not 0 <= hidden <= MOST):
            sizes_too = "" if puzzle is None or puzzle.is_function else ", or a list of sizes"
            fix = "sizes are said for a puzzle: [puzzle.fsdp] and there hidden = [{...}]" if puzzle is None else ""
            self.wrong(f"{key}hidden", f"how many to draw, 0 to {MOST}{sizes_too}", _shown(cast("object", hidden)), fix)
        return PartOfConfig(need, hidden, seed)

    def size(self, value: object, key: str, puzzle: Puzzle) -> AtSize:
        table = self.table(value, key, OF_A_SIZE)
        mesh, costs = None, None
        for name in ("mesh", "costs"):
            if name in table:
                found = self.table(table[name], f"{key}.{name}", cast("dict[str, Any]", table[name]))
                try:
                    if name == "mesh":
                        mesh = mesh_from_table(found)
                    else:
                        costs = costs_from(found)
                except (ValueError, TypeError) as error:
                    self.wrong(f"{key}.{name}", f"what {name} of a puzzle's record may be", _shown(found), str(error))
        for name in ("layers", "batches", *(("ranks",) if mesh is None else ())):
            if name not in table:
                self.wrong(key, f"{name} too", _shown(table), f"add {name} = {getattr(puzzle, name)}")
            self.whole(table[name], f"{key}.{name}", 1, LARGEST)
        ranks = table.get("ranks", 0 if mesh is None else len(mesh))
        if mesh is not None and ranks != len(mesh):
            self.wrong(f"{key}.ranks", f"{len(mesh)}, as many as the mesh has", ranks, "leave it out: the mesh says it")
        if ranks * table["layers"] * table["batches"] > LARGEST:
            self.wrong(key, f"ranks times layers times batches up to {LARGEST:,}", _shown(table), "take a smaller size")
        if mesh is None and ranks == puzzle.ranks:
            mesh = puzzle.mesh
        return AtSize(ranks, table["layers"], table["batches"], mesh, costs)


def read_config(path: str | Path) -> Config:
    """The assignment of a TOML file. AssignmentError for a key that there is not, a value of the wrong kind, or a size
    that cannot be; it says where. OSError where there is no file."""
    path = Path(path)
    try:
        text = path.read_text("utf-8")
        data = tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise AssignmentError(f"{path.name} is not text in UTF-8: {error.reason} at byte {error.start}") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise AssignmentError(f"{path.name} is not TOML: {error}\n  fix:      see https://toml.io") from None
    reader = _Reader(path, text)
    table = reader.table(data, "", KEYS)
    puzzles = table.get("puzzles")
    if puzzles is not None:
        if not isinstance(puzzles, list) or not puzzles:
            reader.wrong("puzzles", 'a list of puzzles, such as ["ddp", "fsdp"]', _shown(cast("object", puzzles)))
        names = cast("list[Any]", puzzles)
        puzzles = tuple(reader.puzzle(name, f"puzzles[{number}]") for number, name in enumerate(names))
    parts: dict[str, PartOfConfig] = {}
    of_puzzles = table.get("puzzle", {})
    for name, part in reader.table(of_puzzles, "puzzle", of_puzzles).items():
        record = PUZZLES[reader.puzzle(name, f"puzzle.{name}")]
        parts[name] = reader.part(reader.table(part, f"puzzle.{name}", OF_A_PUZZLE), f"puzzle.{name}.", record)
    limits = LIMITS
    if "seconds" in table:
        limits = replace(limits, seconds=reader.number(table["seconds"], "seconds", 3600, 0.1))
    if "memory" in table:
        limits = replace(limits, memory=reader.whole(table["memory"], "memory", 64, 2**20) * 2**20)
    return Config(
        title=reader.value(table.get("title", ""), "title", str, 'a text, such as "best"'),
        puzzles=puzzles,
        every=reader.part(table, "", None),
        limits=limits,
        parts=parts,
        tell_sizes=reader.value(table.get("tell_sizes", False), "tell_sizes", bool, "true or false"),
        rules=reader.rules(table),
    )


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    names = list(known)
    near = get_close_matches(name, names, 1)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"
