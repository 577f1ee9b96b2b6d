"""The records of the puzzles, by id, and the course that they form: chapters, notebooks and their order.

They live only in the files beside this module: chapters.toml lists the chapters, and <chapter>.toml has a record for
each puzzle, in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import groupby
from typing import Any, NamedTuple

from lib.cluster.costs import costs_from
from lib.cluster.mesh import Mesh, mesh_from
from lib.files import table
from lib.puzzles.puzzle import AtSize, Goal, Premise, Puzzle, Row, Task, Variant
from lib.record import Lazy
from lib.values.kinds.kind import Layer

ERRORS = ("ValueError", "TypeError", "KeyError", "IndexError")  # that a row of a table may ask for
KINDS = {
    "schedule": (
        {"ranks", "layers", "batches", "goals", "hidden"},
        {"mesh", "costs", "last", "sent", "asks", "bound", "messages", "domain", "predicts", "variants"},
    ),
    "function": ({"table", "draws"}, {"fix"}),
    "plan": ({"runs", "goals"}, {"fix"}),
}
"""The kinds of answers to a puzzle: a function of a Model that each rank runs, a plain function, or one that returns
the plan of a whole run (`lib.plan`); each with the fields that its record must have, and those that it may have."""


class Chapter(NamedTuple):
    """A chapter: its title, and a sentence or two about its content."""

    title: str
    about: str


PUZZLES: Mapping[str, Puzzle] = Lazy(
    lambda: _records(),  # looked up on use
    lambda key, records: f"there is no puzzle {key!r}; there are {', '.join(records)}",
)
"""The records by id, in order."""


def schedule_record(puzzle: str) -> Puzzle:
    """Return the record of a puzzle whose answer is a schedule. ValueError if it is a plain function."""
    record = PUZZLES[puzzle]
    if record.is_function:
        call = f'check_function({puzzle}, puzzle="{puzzle}")'
        raise ValueError(f"the answer to {puzzle} is a plain function, which no rank runs: {call} checks it")
    return record


def goal(puzzle: str) -> Task:
    """Return the task of a puzzle: its size, and its goals.

    >>> print(goal("basic").text().splitlines()[0])
    One device: 1 rank, 2 layers, 4 batches
    """
    return Task(PUZZLES[puzzle])


def chapters() -> dict[str, Chapter]:
    """Return all chapters by name, in order, even those without puzzles yet."""
    every = table("lib.puzzles", "chapters")
    for name, data in every.items():
        if data.keys() != set(Chapter._fields):
            raise ValueError(f"chapters.toml: {name} has {' and '.join(Chapter._fields)}; got {', '.join(data)}")
    return {name: Chapter(data["title"], data["about"].strip()) for name, data in every.items()}


def by_chapter(*, parts: bool = False) -> list[tuple[Chapter, list[Puzzle]]]:
    """Return the chapters that have puzzles, each with its puzzles, in order: one for each notebook, or also those that
    are `parts` of others."""
    shown = (puzzle for puzzle in PUZZLES.values() if parts or not puzzle.part_of)
    every = groupby(shown, key=lambda puzzle: puzzle.chapter)
    return [(chapters()[name], list(puzzles)) for name, puzzles in every]


def puzzle_of_file(stem: str) -> Puzzle | None:
    """Return the puzzle that a file is named after, <number>_<id>. The number may be one that the puzzle had
    before."""
    number, _, name = stem.partition("_")
    return PUZZLES[name] if number.isdigit() and name in PUZZLES else None


INTRODUCTION = 45  # minutes that the introduction takes


def minutes_of_core() -> int:
    """Return how many minutes the core path takes: the introduction, and every puzzle that does not deepen another."""
    return INTRODUCTION + sum(puzzle.minutes for puzzle in PUZZLES.values() if not puzzle.deepens)


def of_one_notebook(puzzle: Puzzle) -> list[Puzzle]:
    """Return the puzzles in a puzzle's notebook, first the one that it is named after."""
    found = [one for one in PUZZLES.values() if one.notebook == puzzle.notebook]
    return sorted(found, key=lambda one: one.id != puzzle.notebook)


@cache
def _records() -> dict[str, Puzzle]:
    records: dict[str, Puzzle] = {}
    for at, chapter in enumerate(chapters(), 1):
        found = table("lib.puzzles", chapter)
        places = {key: place for place, key in enumerate((key for key in found if "part_of" not in found[key]), 1)}
        for key, data in found.items():
            if key in records:
                raise ValueError(f"two records are called {key}: in {records[key].chapter}.toml and in {chapter}.toml")
            if (whole := data.get("part_of", key)) not in places:
                raise ValueError(f"{key}: it is part of {whole!r}, and {chapter}.toml has no such notebook")
            records[key] = _record(key, len(records) + 1, f"{at}.{places[whole]}", chapter, data)
    return records


def _record(key: str, number: int, label: str, chapter: str, data: dict[str, Any]) -> Puzzle:
    """Make a Puzzle from its TOML. ValueError for an unknown field, or one of another kind of puzzle."""
    kind = data.get("kind", "schedule")
    if kind not in KINDS:
        raise ValueError(f"{key}: its kind is one of {', '.join(KINDS)}; got {kind!r}")
    of_kind, more = KINDS[kind]
    needed = {"title", "needs", "teaches", "minutes", "discuss", "hints", *of_kind}
    free = {"kind", "deepens", "part_of", *more}
    if wrong := (needed - data.keys()) | (data.keys() - needed - free):
        has, may, see = (", ".join(sorted(names)) for names in (needed, free, wrong))
        raise ValueError(f"{key}: a {kind} has {has} and may have {may}; see to {see}")
    made: dict[str, Any] = {"kind": kind, **data}
    made |= {name: tuple(data.get(name, ())) for name in ("needs", "asks", "runs")}
    made["hints"] = tuple(hint.strip() for hint in data["hints"])
    made["discuss"] = data["discuss"].strip()
    made["goals"] = tuple(Goal(**goal) for goal in data.get("goals", ()))
    made["last"] = tuple(Layer(**layer) for layer in data.get("last", ()))
    made["predicts"] = tuple(data.get("predicts", {}).items())
    made["table"] = _rows(key, data.get("table", ""))
    mesh = made["mesh"] = mesh_from_table(data["mesh"]) if "mesh" in data else None
    if mesh is not None and len(mesh) != data["ranks"]:
        raise ValueError(f"{key}: it has {data['ranks']} ranks, and {mesh} has {len(mesh)}")
    made["hidden"] = tuple(_hidden(size, mesh, data["ranks"]) for size in data.get("hidden", ()))
    made["variants"] = tuple(Variant(**one) for one in data.get("variants", ()))
    if "costs" in data:
        made["costs"] = costs_from(data["costs"])
    if "bound" in data:
        together = data["bound"].get("together")
        made["bound"] = Premise(**data["bound"] | {"together": together and tuple(together)})
    return Puzzle(key, number, label, chapter, **made)


def _hidden(size: dict[str, Any], mesh: Mesh | None, ranks: int) -> AtSize:
    """Make a hidden size. With as many ranks as the puzzle it has the puzzle's mesh, unless it has its own."""
    size = size | ({"costs": costs_from(size["costs"])} if "costs" in size else {})
    if "mesh" not in size:
        return AtSize(**size, mesh=mesh if size.get("ranks") == ranks else None)
    own = mesh_from_table(size["mesh"])
    made: dict[str, Any] = {"ranks": len(own), **size, "mesh": own}
    return AtSize(**made)


def mesh_from_table(data: dict[str, Any]) -> Mesh:
    """Return a mesh from its axes, `{ replica = 2, shard = 4 }`, or from more: `{ axes = { ... }, host_size = 4 }`."""
    return mesh_from(data if isinstance(data.get("axes"), dict) else {"axes": data})


def _rows(key: str, text: str) -> tuple[Row, ...]:
    """Parse the text of a table: on each line, in Python, the arguments and the expected answer, `[2, 1], [2, 4] -> 9`,
    or the expected error, and why: `[2], [0] -> raises ValueError: an axis has a size of 1 or more`."""
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
            raise ValueError(f"{key}: this is not a row of a table ({error}): {line}") from None
    return tuple(rows)
