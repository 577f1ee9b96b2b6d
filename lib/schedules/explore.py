"""Explore: every schedule at every setting of a grid, timed, and those that nothing beats.

A batch of `examples` goes through a pipeline as microbatches: with more of them each is smaller, so that all settings
do the same work and can be compared. Nothing is simulated; the order timer says when a schedule ends and what it holds.
One setting costs milliseconds, thousands of them are shared out to processes (or to a cluster) by joblib, and what is
done is in a file at once: who is stopped goes on where it was.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from fractions import Fraction
from itertools import product
from math import inf
from pathlib import Path
from typing import Final

from lib.cluster.costs import as_written
from lib.errors.exceptions import PuzzleError
from lib.files import ready, write_whole
from lib.processes import shared_out
from lib.schedules.pipelines.action import SENDS, Messages, Order
from lib.schedules.pipelines.catalogue import SCHEDULES
from lib.schedules.pipelines.lowering import with_messages
from lib.schedules.pipelines.program import MESSAGES_ARE, program_of
from lib.schedules.pipelines.timing import EVEN, Passes, time_order
from lib.simulator.model import Model
from lib.simulator.simulator import simulate

__all__ = [
    "AIMS",
    "Explored",
    "Grid",
    "Point",
    "Setting",
    "called",
    "cell",
    "explore",
    "front",
    "measure",
    "order_of",
    "run_of",
    "settings",
    "world",
]

FIGURES: Final = ("time", "memory", "sent", "makespan_bubble", "span_bubble")
AIMS: Final = ("time", "memory", "sent")
"""What less is better of."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One schedule at one size, and what its passes and messages cost.

    `forward`, `input_half` and `weight_half` are times of an example over all stages of a rank, and `overhead` what
    each pass costs besides, however small it is. `message` is the time of a message of one example, `latency` that of
    an empty one. `limit` is how many microbatches of activations a rank may hold, None: what the schedule likes.
    """

    schedule: str
    ranks: int = 4
    batches: int = 8
    chunks: int = 1
    limit: float | None = None
    messages: Messages = "posted"
    examples: int = 64
    forward: float = 1.0
    input_half: float = 1.0
    weight_half: float = 1.0
    overhead: float = 0.0
    message: float = 0.0
    latency: float = 0.0

    @property
    def key(self) -> str:
        """Return what no other setting has."""
        return json.dumps(asdict(self), sort_keys=True)


@dataclass(frozen=True, slots=True)
class Grid:
    """A grid to sweep: all combinations of these. Anything that a setting cannot have, such as two stages a rank in
    1F1B, is left out."""

    schedules: Sequence[str] = tuple(SCHEDULES)
    ranks: Sequence[int] = (4,)
    batches: Sequence[int] = (4, 8, 16, 32)
    chunks: Sequence[int] = (1, 2, 4)
    limit: Sequence[float | None] = (None,)
    messages: Sequence[Messages] = ("posted",)
    examples: Sequence[int] = (64,)
    forward: Sequence[float] = (1.0,)
    input_half: Sequence[float] = (1.0,)
    weight_half: Sequence[float] = (1.0,)
    overhead: Sequence[float] = (0.0,)
    message: Sequence[float] = (0.0,)
    latency: Sequence[float] = (0.0,)


@dataclass(frozen=True, slots=True)
class Point:
    """The figures of a setting: when the last rank ends, the activations that the rank with the highest peak holds,
    and what the rank that sends most sends, both in examples; bubbles in both conventions. Where there is no such
    schedule `why` says why not, and the rest is 0."""

    setting: Setting
    time: float = 0.0
    memory: float = 0.0
    sent: float = 0.0
    makespan_bubble: float = 0.0
    span_bubble: float = 0.0
    why: str = ""


@dataclass(frozen=True, slots=True)
class Explored:
    """All points, in the order of the grid."""

    points: tuple[Point, ...]

    def worlds(self) -> dict[str, tuple[Point, ...]]:
        """Return the points by what passes and messages cost, in words: only those of one world can be compared."""
        found: dict[str, list[Point]] = {}
        for point in self.points:
            found.setdefault(world(point.setting), []).append(point)
        return {words: tuple(points) for words, points in found.items()}


def _sizes(grid: Grid) -> None:
    """ValueError for a grid that has nothing in it, or something that there is not."""
    for field in fields(Grid):
        if not getattr(grid, field.name):
            raise ValueError(f"a grid has at least one of each; {field.name} has none")
    if unknown := [name for name in grid.schedules if name not in SCHEDULES]:
        raise ValueError(f"there is no schedule {unknown[0]!r}; there are {', '.join(SCHEDULES)}")
    if unknown := [how for how in grid.messages if how not in MESSAGES_ARE]:
        raise ValueError(f"messages are {' or '.join(MESSAGES_ARE)}; got {unknown[0]!r}")
    for name, least in (("ranks", 2), ("batches", 1), ("chunks", 1), ("examples", 1)):
        if wrong := [number for number in getattr(grid, name) if number < least]:
            raise ValueError(f"{name} are at least {least}; got {wrong[0]}")
    for name in ("forward", "input_half", "weight_half", "overhead", "message", "latency"):
        if wrong := [number for number in getattr(grid, name) if not 0 <= number < float("inf")]:
            raise ValueError(f"{name} is a time, so at least 0; got {wrong[0]}")
    if wrong := [number for number in grid.limit if number is not None and not number > 0]:
        raise ValueError(f"a limit is in microbatches of activations, so more than 0; got {wrong[0]}")


def settings(grid: Grid) -> Iterator[Setting]:
    """Yield all settings of a grid, in order."""
    _sizes(grid)
    names = [field.name for field in fields(Grid)]
    for name, *rest in product(*(getattr(grid, field) for field in names)):
        setting = Setting(name, **dict(zip(names[1:], rest, strict=True)))
        row = SCHEDULES[name]
        fits = setting.chunks > 1 if "chunks" in row.takes else setting.chunks == row.chunks
        if fits:
            yield setting


def world(setting: Setting) -> str:
    """Return what is the same for all that can be compared: the ranks, the examples, and what passes and messages
    cost."""
    passes = f"{setting.forward:g}, {setting.input_half:g} and {setting.weight_half:g}"
    text = f"{setting.ranks} ranks, {setting.examples} examples, passes {passes} an example"
    if setting.overhead:
        text += f" and {setting.overhead:g} each"
    if not setting.message and not setting.latency:
        return f"{text}, messages for nothing ({setting.messages})"
    return f"{text}, messages {setting.message:g} an example and {setting.latency:g} each ({setting.messages})"


def called(point: Point) -> str:
    """Return a point in a few words: the schedule, its microbatches, and what else was chosen."""
    setting = point.setting
    more = [f"{setting.chunks} stages a rank"] if "chunks" in SCHEDULES[setting.schedule].takes else []
    more += [f"limit {setting.limit:g}"] if setting.limit is not None else []
    return ", ".join((f"{SCHEDULES[setting.schedule].title}, {setting.batches} microbatches", *more))


def order_of(setting: Setting) -> Order:
    """Return the order of a setting. ValueError where the schedule has none, such as one in so little memory."""
    limit, chunks = setting.limit, setting.chunks
    costs = _costs(setting, stages=1)
    return SCHEDULES[setting.schedule].order(setting.ranks, setting.batches, chunks=chunks, limit=limit, costs=costs)


def _costs(setting: Setting, stages: int) -> Passes:
    """Return what passes of a microbatch cost, over one of so many equal shares of a rank's stages, and its message."""
    each, chunks = Fraction(setting.examples, setting.batches), Fraction(setting.chunks, stages)
    times = (setting.forward, setting.input_half, setting.weight_half)
    forward, *halves = (each / stages * as_written(time) + chunks * as_written(setting.overhead) for time in times)
    return Passes(forward, halves[0], halves[1], each * as_written(setting.message) + as_written(setting.latency))


def measure(setting: Setting) -> Point:
    """Time one setting."""
    try:
        order = order_of(setting)
        timed = time_order(order, **_costs(setting, stages=setting.chunks)._asdict(), messages=setting.messages)
    except (ValueError, PuzzleError) as error:
        return Point(setting, why=str(error).splitlines()[0])
    each = Fraction(setting.examples, setting.batches)
    sends = [sum(action.kind in SENDS for action in actions) for actions in with_messages(order)]
    return Point(
        setting,
        time=timed.end,
        memory=float(as_written(max(timed.peaks)) * each),
        sent=float(max(sends) * each),
        makespan_bubble=timed.bubble.makespan,
        span_bubble=timed.bubble.span,
    )


def front(points: Iterable[Point]) -> tuple[Point, ...]:
    """Return the points that no other beats: none is at least as good in time, memory and what is sent, and better in
    one. Quickest first; of points that are equal in all three the first."""
    best: list[Point] = []
    figures: list[tuple[float, ...]] = []
    legal = [point for point in points if not point.why]
    for point in sorted(legal, key=lambda point: (point.time, point.memory, point.sent)):
        mine = tuple(getattr(point, aim) for aim in AIMS)
        if not any(all(a <= b for a, b in zip(one, mine, strict=True)) for one in figures):
            best.append(point)
            figures.append(mine)
    return tuple(best)


def explore(
    grid: Grid,
    *,
    jobs: int | None = None,
    file: str | Path | None = None,
    done: Callable[[int, int], None] | None = None,
) -> Explored:
    """Measure all settings of a grid, in `jobs` processes (None: in this one).

    With a `file` (JSON lines) each point is there as soon as it is known, and those that it has already are not
    measured again; a line that was cut off is. `done(so_far, all)` is called now and then. Which processes these are is
    for joblib to say: `joblib.parallel_config(backend="dask")` around the call takes a cluster.
    """
    wanted = {setting.key: setting for setting in settings(grid)}
    known = _read(Path(file)) if file is not None else {}
    found = {key: known[key] for key in wanted if key in known}
    missing = [setting for key, setting in wanted.items() if key not in found]
    if done is not None:
        done(len(found), len(wanted))
    log = None if file is None else ready(file).open("a", encoding="utf-8", newline="\n")
    batches = [missing[start : start + AT_ONCE] for start in range(0, len(missing), AT_ONCE)]
    try:
        for points in shared_out(_several, batches, jobs, "exploring"):
            for point in points:
                found[point.setting.key] = point
            if log is not None:
                log.writelines(_line(point) for point in points)
                log.flush()
            if done is not None:
                done(len(found), len(wanted))
    finally:
        if log is not None:
            log.close()
    points = tuple(found[key] for key in wanted)
    if file is not None:  # in the order of the grid, so that the file is the same whoever was first
        known |= _read(Path(file))  # once more: another sweep may have written there meanwhile
        others = [point for key, point in known.items() if key not in wanted]
        write_whole(file, "".join(map(_line, [*points, *others])))
    return Explored(points)


AT_ONCE: Final = 16
"""Settings that are sent to a process together: each takes milliseconds."""


def _several(batch: Sequence[Setting]) -> list[Point]:
    return [measure(setting) for setting in batch]


def _line(point: Point) -> str:
    return json.dumps(asdict(point)) + "\n"


def _read(file: Path) -> dict[str, Point]:
    """Return the points of a file, by their settings. A line that is none, as one that was cut off, is left out."""
    if not file.exists():
        return {}
    found: dict[str, Point] = {}
    for line in file.read_text("utf-8", errors="replace").splitlines():
        try:
            data = json.loads(line)
            point = Point(Setting(**data.pop("setting")), **data)
            why, *figures = [getattr(point, name) for name in ("why", *FIGURES)]
            if not isinstance(why, str) or not all(0 <= figure < inf for figure in figures):
                continue
        except (ValueError, TypeError, AttributeError, KeyError):
            continue
        found[point.setting.key] = point
    return found


def run_of(point: Point) -> list[Model]:
    """Return the point simulated, as `cell` does: a layer for each stage, an example for each microbatch."""
    setting = point.setting
    program = program_of(order_of(setting), messages=setting.messages)
    return simulate(program, ranks=setting.ranks, layers=setting.ranks * setting.chunks, batches=setting.batches)


def cell(point: Point) -> str:
    """Return the code of a notebook's cell that runs and draws this point: one example for each microbatch."""
    setting = point.setting
    row, costs = SCHEDULES[setting.schedule], _costs(setting, stages=1)
    told = [f"chunks={setting.chunks}"] if "chunks" in row.takes else []
    told += [f"limit={setting.limit:g}"] if setting.limit is not None else []
    if "costs" in row.takes and costs != EVEN:
        numbers = [repr(cost.numerator if cost.denominator == 1 else cost) for cost in map(as_written, costs)]
        told.append(f"costs=Passes({', '.join(numbers)})")
    more, layers = "".join(f", {one}" for one in told), setting.ranks * setting.chunks
    lines = [
        *(["from fractions import Fraction"] if "Fraction" in more else []),
        "from drawing import draw",
        "from lib import simulate",
        "from lib.schedules.pipelines.catalogue import SCHEDULES",
        "from lib.schedules.pipelines.program import program_of",
        *(["from lib.schedules.pipelines.timing import Passes"] if "Passes" in more else []),
        "",
        f'order = SCHEDULES["{setting.schedule}"].order({setting.ranks}, {setting.batches}{more})',
        f'program = program_of(order, messages="{setting.messages}")',
        f"draw(simulate(program, ranks={setting.ranks}, layers={layers}, batches={setting.batches}))",
    ]
    return "\n".join(lines)
