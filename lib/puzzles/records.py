"""The records of the puzzles: sizes, targets, hints, and what comes before what. puzzles.toml is their only home."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, Protocol

from lib.cluster.costs import UNIT, Costs, costs_from
from lib.cluster.mesh import Mesh
from lib.errors.wording import counted

__all__ = ["PUZZLES", "Puzzle", "Size", "Sized", "Tier", "goal"]


class Tier(NamedTuple):
    """A target: at most `time` steps to the true end, at most `memory` elements on the fullest rank.

    `reached` is for the tiers of a verdict: whether the run is within it, and counts.
    """

    name: str
    time: float
    memory: float
    reached: bool = False

    def allows(self, time: float, memory: float) -> bool:
        """Whether these figures are within the tier."""
        return time <= self.time and memory <= self.memory


class Sized(Protocol):
    """What has the size of a run: a Trace, a record, a family of schedules."""

    @property
    def ranks(self) -> int: ...
    @property
    def layers(self) -> int: ...
    @property
    def batches(self) -> int: ...


class Size(NamedTuple):
    """How many ranks run how many layers on how many batches."""

    ranks: int
    layers: int
    batches: int

    @classmethod
    def of(cls, run: Sized) -> Size:
        """The size of a run, or of what a run is to be."""
        return cls(run.ranks, run.layers, run.batches)


@dataclass(frozen=True, slots=True)
class Puzzle:
    """One puzzle. `id` is also the name of the function that a student writes.

    `needs` are the ids of the puzzles to solve first, `teaches` says what it is about in half a sentence, and the
    three `hints` (Markdown) are a question, an idea and nearly the code. `sent` is how many elements a rank may send at
    most, where that is what the puzzle is about: no tier is reached by a run that sends more.
    """

    id: str
    number: int
    title: str
    needs: tuple[str, ...]
    teaches: str
    hints: tuple[str, ...]
    ranks: int
    layers: int
    batches: int
    tiers: tuple[Tier, ...]
    hidden: tuple[Size, ...]
    mesh: Mesh | None
    costs: Costs
    sent: float | None = None

    @property
    def stem(self) -> str:
        """The name of its notebook, without the ending. The introduction is number 00."""
        return f"{self.number + 1:02d}_{self.id}"

    @property
    def size(self) -> Size:
        """The size at which its tiers apply."""
        return Size.of(self)

    def fits(self, run: Sized) -> bool:
        """Whether a run has the puzzle's size."""
        return Size.of(run) == self.size


class _Puzzles(Mapping[str, Puzzle]):
    """The records by id, in order; read when first asked for, so that `import lib` need not."""

    def __getitem__(self, key: str) -> Puzzle:
        records = _records()
        if not isinstance(key, str) or key not in records:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"there is no puzzle {key!r}; there are {', '.join(records)}")
        return records[key]

    def __iter__(self) -> Iterator[str]:
        return iter(_records())

    def __len__(self) -> int:
        return len(_records())

    def __contains__(self, key: object) -> bool:
        return key in _records()


PUZZLES: Mapping[str, Puzzle] = _Puzzles()


@cache
def _records() -> dict[str, Puzzle]:
    import tomllib  # here and not above: `import lib` should be quick
    from importlib.resources import files

    data = tomllib.loads((files("lib.puzzles") / "puzzles.toml").read_text("utf-8"))
    return {key: _record(key, record) for key, record in sorted(data.items(), key=lambda item: item[1]["number"])}


def _record(key: str, record: dict[str, Any]) -> Puzzle:
    mesh = record.get("mesh")
    return Puzzle(
        id=key,
        number=record["number"],
        title=record["title"],
        needs=tuple(record["needs"]),
        teaches=record["teaches"],
        hints=tuple(hint.strip() for hint in record["hints"]),
        ranks=record["ranks"],
        layers=record["layers"],
        batches=record["batches"],
        tiers=tuple(Tier(**tier) for tier in record["tiers"]),
        hidden=tuple(Size(**size) for size in record["hidden"]),
        mesh=None if mesh is None else Mesh(mesh),
        costs=costs_from(record["costs"]) if "costs" in record else UNIT,
        sent=record.get("sent"),
    )


def goal(puzzle: str) -> None:
    """Prints what a puzzle asks for: its size, and every tier of its target."""
    record = PUZZLES[puzzle]
    print(f"{record.title}: {counted(record.ranks, 'rank')}, {record.layers} layers, {record.batches} batches", end="")
    if record.mesh is not None:
        print(f"; mesh of {' x '.join(f'{axis} {size}' for axis, size in record.mesh.axes.items())}", end="")
    print()
    for tier in record.tiers:
        print(f"  {tier.name + ':':<25} at most {tier.time:g} time steps and {tier.memory:,} elements on any rank")
    if record.sent is not None:
        print(f"  {'for each of them:':<25} no rank sends more than {record.sent:,} elements")
