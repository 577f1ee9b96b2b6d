"""The assignment for a class, from a TOML file, from options, or from both: which puzzles, what counts as passed, which
sizes besides the puzzle's own, and which limits. TEACHING.md has an example with every key.

A size may have a mesh (`mesh = { data = 2, stage = 3 }`, or with other arguments of `Mesh`) and costs
(`costs = { model = "links", latency = 0.1 }`). Without `hidden` and `seed`, the hidden sizes are those of the puzzles'
records, which everybody can read. A plain function has no size: `hidden` is its number of sets of random inputs.
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
from typing import Any, Final, NamedTuple, NoReturn, cast

from lib.cluster.costs import costs_from
from lib.cluster.mesh import Mesh
from lib.puzzles.puzzle import LARGEST, AtSize, Puzzle
from lib.puzzles.records import PUZZLES, mesh_from_table
from lib.suite.grade.gradebook import ATTEMPTS, BY_HAND, TERMS, Late, Rules
from lib.suite.grade.judging import MOST, Required, Unfit, draw_sizes, figures_at, record_at
from lib.suite.isolation.messages import Limits

NEEDS: Final = ("first", "best", "correct")  # besides a goal's name: a puzzle's first goal, its last one, or none
LIMITS: Final = Limits(seconds=10.0, memory=1024 * 2**20)  # of one run, by default


class AssignmentError(ValueError):
    """An assignment that makes no sense. Says where, what is expected, and what to write."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """What is required of a class, with limits and rules. `tell_sizes`: students learn which hidden sizes fail."""

    required: tuple[Required, ...]
    title: str = ""
    limits: Limits = LIMITS
    tell_sizes: bool = False
    rules: Rules = field(default_factory=Rules)


class PartOfConfig(NamedTuple):
    """The settings of one puzzle. `hidden` is how many sizes to draw, or the sizes."""

    need: str | None = None
    hidden: int | tuple[AtSize, ...] | None = None
    seed: int | str | None = None

    def over(self, other: PartOfConfig) -> PartOfConfig:
        """Return these settings, with those of `other` for what is unset here."""
        return other._replace(**{name: value for name, value in self._asdict().items() if value is not None})


UNSAID: Final = PartOfConfig()


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of an assignment, from a file or from options; None means unset."""

    title: str = ""
    puzzles: tuple[str, ...] | None = None
    every: PartOfConfig = UNSAID
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
        """Return the same with options applied, which win even over a file's settings for single puzzles."""
        chosen = tuple(puzzles)
        if unknown := [puzzle for puzzle in chosen if puzzle not in PUZZLES]:
            raise AssignmentError(f"there is no puzzle {unknown[0]!r}; {_did_you_mean(unknown[0], PUZZLES)}")
        if hidden is not None and not 0 <= hidden <= MOST:
            raise AssignmentError(f"there are 0 to {MOST} hidden sizes for each puzzle; got {hidden}")
        worth: dict[str, float] = {}
        for word in re.split(r"[\s,;]+", (points or "").strip()) if points is not None else ():
            name, _, number = word.partition("=")
            if name not in WORTH or not re.fullmatch(r"\d{1,3}(\.\d+)?", number):
                like = f'such as "correct=4 hidden=2", of {", ".join(WORTH)}'
                raise AssignmentError(f"--points {points!r}: {word!r} is not understood\n  expected: {like}")
            worth[name] = float(number)
        given = PartOfConfig(need, hidden, seed)
        return replace(
            self,
            puzzles=chosen or self.puzzles,
            every=given.over(self.every),
            parts={puzzle: given.over(part) for puzzle, part in self.parts.items()},
            limits=self.limits if seconds is None else replace(self.limits, seconds=seconds),
            rules=self.rules if points is None else replace(self.rules, points={"": worth}),
        )

    def assignment(self, worked_on: Iterable[str] = ()) -> Assignment:
        """Return what is required; if no puzzles are named, those that were `worked_on`.

        AssignmentError for a goal that a puzzle does not have, or a size at which our own solution is not correct.
        """
        names = set(worked_on) if self.puzzles is None else set(self.puzzles)
        parts = {puzzle: self.parts.get(puzzle, UNSAID).over(self.every) for puzzle in PUZZLES}
        required = tuple(_required(record, parts[puzzle]) for puzzle, record in PUZZLES.items() if puzzle in names)
        return Assignment(required, self.title, self.limits, self.tell_sizes, self.rules)


def _required(record: Puzzle, part: PartOfConfig) -> Required:
    need, seed = _need(record, part.need or "first"), 0 if part.seed is None else part.seed
    drawn = 2 if part.hidden is None and part.seed is not None else part.hidden
    if record.is_function:
        numbers = range(1, (drawn if isinstance(drawn, int) else 0) + 1)
        required = Required(record, None, seeds=tuple(f"{seed}:{record.id}:{number}" for number in numbers))
    else:
        sizes = record.hidden if drawn is None else drawn
        sizes = draw_sizes(record.id, sizes, seed) if isinstance(sizes, int) else sizes
        try:
            every = (AtSize(*record.size, record.mesh), *sizes)
            events = tuple(figures_at(record.id, size)[0].events for size in every)
            required = Required(record, need, tuple(record_at(record.id, size) for size in sizes), events)
        except Unfit as error:
            raise AssignmentError(f"{error}\n  fix: take that size out of puzzle.{record.id}.hidden") from None
    return replace(required, key=hashlib.sha256(repr(required).encode()).hexdigest()[:16])


def _need(record: Puzzle, need: str) -> str | None:
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

KEYS: Final = (
    *("title", "puzzles", "need", "hidden", "seed", "seconds", "memory", "tell_sizes"),
    *("deadline", "attempts", "points", "late", "extension", "puzzle"),
)
WORTH: Final = (*(term.name for term in TERMS), BY_HAND)  # what earns points
WHOLE: Final = "whole number"
OF_BEING_LATE: Final = {"percent": 100, "grace": 100_000, "days": 1000}  # and the most each may be
OF_A_SIZE: Final = {"ranks": None, "layers": None, "batches": None, "mesh": mesh_from_table, "costs": costs_from}


def read_config(path: str | Path) -> Config:
    """Read the settings in a TOML file. AssignmentError for an unknown key, a value of the wrong kind, or an impossible
    size; it says where. OSError if there is no file."""
    path = Path(path)
    try:
        text = path.read_text("utf-8")
        data = tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise AssignmentError(f"{path.name} is not text in UTF-8: {error.reason} at byte {error.start}") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise AssignmentError(f"{path.name} is not TOML: {error}\n  fix:      see https://toml.io") from None
    reader = _Reader(path.name, text.splitlines())
    table = reader.table(data, "", KEYS)
    names = table.get("puzzles")
    if names is not None:
        if not isinstance(names, list) or not names:
            reader.wrong("puzzles", 'a list of puzzles, such as ["ddp", "fsdp"]', table["puzzles"])
        names = tuple(reader.puzzle(name, f"puzzles[{number}]") for number, name in enumerate(table["puzzles"]))
    parts: dict[str, PartOfConfig] = {}
    points = {"": reader.points(table["points"], "points")} if "points" in table else dict(Rules().points)
    of_puzzles = table.get("puzzle", {})
    for name, part in reader.table(of_puzzles, "puzzle", of_puzzles).items():
        record = PUZZLES[reader.puzzle(name, key := f"puzzle.{name}")]
        parts[name] = reader.part(reader.table(part, key, ("need", "hidden", "seed", "points")), f"{key}.", record)
        if "points" in part:
            points[name] = reader.points(part["points"], f"{key}.points")
    seconds = float(reader.number(table.get("seconds", LIMITS.seconds), "seconds", 0.1, 3600))
    memory = reader.number(table.get("memory", LIMITS.memory // 2**20), "memory", 64, 2**20, WHOLE) * 2**20
    return Config(
        title=reader.value(table.get("title", ""), "title", str, 'a text, such as "best"'),
        puzzles=names,
        every=reader.part(table, "", None),
        limits=replace(LIMITS, seconds=seconds, memory=memory),
        parts=parts,
        tell_sizes=reader.value(table.get("tell_sizes", False), "tell_sizes", bool, "true or false"),
        rules=reader.rules(table, points),
    )


class _Reader(NamedTuple):
    """A reader of a file's values that says where one is wrong. TOML may hold anything."""

    file: str
    lines: list[str]

    def wrong(self, key: str, expected: str, got: object, fix: str = "") -> NoReturn:
        """Say what is wrong with a key, and on which line it is, if only one line has it."""
        name = re.escape(re.sub(r"\[\d+\]$", "", key).rpartition(".")[2])
        at = [number for number, line in enumerate(self.lines, 1) if re.search(rf"(^|[\s{{,\[.]){name}\b", line)]
        place = f"{self.file}, line {at[0]}" if len(at) == 1 else self.file
        shown = got if isinstance(got, _Key) else repr(got)
        shown = shown if len(shown) <= 80 else shown[:77] + "..."
        text = f"{place}: {key}\n  expected: {expected}\n  got:      {shown}"
        raise AssignmentError(text + (f"\n  fix:      {fix}" if fix else ""))

    def table(self, value: Any, key: str, allowed: Iterable[str]) -> dict[str, Any]:
        if not isinstance(value, dict):
            self.wrong(key, "a table", value)
        table = cast("dict[str, Any]", value)
        for name in table:
            if name not in allowed:
                where, expected = f"{key}.{name}".lstrip("."), f"one of {', '.join(allowed)}"
                self.wrong(where, expected, _Key(name), _did_you_mean(name, allowed))
        return table

    def value(self, value: Any, key: str, kind: type, expected: str) -> Any:
        if not isinstance(value, kind):
            self.wrong(key, expected, value)
        return value

    def number(self, value: Any, key: str, least: float, most: float, kind: str = "number") -> Any:
        whole = isinstance(value, int) or (isinstance(value, float) and kind == "number")
        if isinstance(value, bool) or not whole or not least <= value <= most:  # a bool is not a number
            self.wrong(key, f"a {kind} from {least:g} to {most:,}", value)
        return value

    def puzzle(self, name: Any, key: str) -> str:
        if not isinstance(name, str) or name not in PUZZLES:
            self.wrong(key, "the id of a puzzle", name, _did_you_mean(str(name), PUZZLES))
        return name

    def points(self, value: Any, key: str) -> dict[str, float]:
        """Return points by term."""
        table = self.table(value, key, WORTH)
        return {name: float(self.number(number, f"{key}.{name}", 0, 1000)) for name, number in table.items()}

    def moment(self, value: Any, key: str) -> datetime:
        """Return a local time; a date alone means the end of that day."""
        if not isinstance(value, date):  # a datetime is one, too
            self.wrong(key, "a time without quotation marks, such as 2026-11-01T23:59:00", value)
        end = datetime.combine(value, time(23, 59, 59))
        return value.replace(tzinfo=None) if isinstance(value, datetime) else end

    def rules(self, table: dict[str, Any], points: Mapping[str, Mapping[str, float]]) -> Rules:
        """Return the rules for points."""
        attempts = table.get("attempts", ATTEMPTS[0])
        if attempts not in ATTEMPTS:
            self.wrong("attempts", " or ".join(f'"{one}"' for one in ATTEMPTS), attempts)
        late = self.table(table.get("late", {}), "late", OF_BEING_LATE)
        costs = {name: float(self.number(late[name], f"late.{name}", 0, OF_BEING_LATE[name])) for name in late}
        extensions = self.table(people := table.get("extension", {}), "extension", people)
        deadline = self.moment(table["deadline"], "deadline") if "deadline" in table else None
        until = {name: self.moment(until, f"extension.{name}") for name, until in extensions.items()}
        return Rules(points, attempts, deadline, until, Late(**costs))

    def part(self, table: dict[str, Any], key: str, puzzle: Puzzle | None) -> PartOfConfig:
        """Return the settings of a puzzle, or (None) of all of them."""
        need, hidden, seed = (table.get(name) for name in ("need", "hidden", "seed"))
        if need is not None:
            self.value(need, f"{key}need", str, 'a text, such as "best"')
            goals = [goal.name for goal in puzzle.goals] if puzzle is not None else []
            if goals and need not in (*NEEDS, *goals):
                self.wrong(f"{key}need", ", ".join((*NEEDS, *(f'"{goal}"' for goal in goals))), need)
        if seed is not None and (not isinstance(seed, int | str) or isinstance(seed, bool)):
            self.wrong(f"{key}seed", "a whole number or a text", seed)
        sized = None if puzzle is None or puzzle.is_function else puzzle
        if sized is not None and isinstance(hidden, list):
            items = enumerate(cast("list[Any]", hidden))
            hidden = tuple(self.size(item, f"{key}hidden[{number}]", sized) for number, item in items)
        elif hidden is not None and (type(hidden) is not int or not 0 <= hidden <= MOST):
            fix = "sizes are said for a puzzle: [puzzle.fsdp] and there hidden = [{...}]" if puzzle is None else ""
            sizes = ", or a list of sizes" if sized is not None else ""
            self.wrong(f"{key}hidden", f"how many to draw, 0 to {MOST}{sizes}", table["hidden"], fix)
        return PartOfConfig(need, hidden, seed)

    def size(self, value: Any, key: str, puzzle: Puzzle) -> AtSize:
        table = self.table(value, key, OF_A_SIZE)
        made: dict[str, Any] = {}
        for name, maker in OF_A_SIZE.items():
            if maker is not None and name in table:
                of = self.table(table[name], f"{key}.{name}", table[name])
                try:
                    made[name] = maker(of)
                except (ValueError, TypeError) as error:
                    self.wrong(f"{key}.{name}", f"what {name} of a puzzle's record may be", of, str(error))
        mesh: Mesh | None = made.get("mesh")
        for name in ("layers", "batches", *(("ranks",) if mesh is None else ())):
            if name not in table:
                self.wrong(key, f"{name} too", table, f"add {name} = {getattr(puzzle, name)}")
            self.number(table[name], f"{key}.{name}", 1, LARGEST, WHOLE)
        ranks = table.get("ranks", 0 if mesh is None else len(mesh))
        if mesh is not None and ranks != len(mesh):
            self.wrong(f"{key}.ranks", f"{len(mesh)}, as many as the mesh has", ranks, "leave it out: the mesh says it")
        if ranks * table["layers"] * table["batches"] > LARGEST:
            self.wrong(key, f"ranks times layers times batches up to {LARGEST:,}", table, "take a smaller size")
        if mesh is None and ranks == puzzle.ranks:
            mesh = puzzle.mesh
        return AtSize(ranks, table["layers"], table["batches"], mesh, made.get("costs"))


class _Key(str):
    """The name of a key, shown as it is in the file."""


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, [*known], 1)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
