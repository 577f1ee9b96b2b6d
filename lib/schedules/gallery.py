"""Every schedule that has a name, side by side: on one time axis in a gallery, and explored at each setting of a grid.

**The gallery** has everything besides that four sliders of one loop can make. They are the arguments of `in_turn`:
stages a rank has (chunks), microbatches that take one stage in a row (group), forwards ahead for each rank that follows
(ahead), and passes that the weight halves lag behind for each rank before (late). What waits in a circle is in it too,
and says so.

**Explored** is what nothing beats. A batch of `examples` goes through a pipeline as microbatches: with more of them
each is smaller, so that all settings do the same work and can be compared. A setting costs milliseconds, thousands of
them are shared out to processes (or to a cluster) by joblib, and what is done is in a file at once: who is stopped goes
on where it was.

All is timed by the order timer, and nothing simulated.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, fields
from fractions import Fraction
from itertools import product, starmap
from math import inf
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

from lib.analysis.bounds.optima import best_orders
from lib.cluster.costs import as_written
from lib.errors.exceptions import PuzzleError
from lib.errors.wording import counted
from lib.files import ready, write_whole
from lib.processes import shared_out
from lib.schedules.pipelines.action import SENDS, Messages, Order, parts_of, places
from lib.schedules.pipelines.catalogue import SCHEDULES, Shape
from lib.schedules.pipelines.generators import in_turn
from lib.schedules.pipelines.legality import require_legal
from lib.schedules.pipelines.lowering import with_messages
from lib.schedules.pipelines.program import MESSAGES_ARE, program_of
from lib.schedules.pipelines.timing import EVEN, Passes, Timed, time_order
from lib.simulator.model import Model
from lib.simulator.simulator import simulate

# -- the gallery ------------------------------------------------------------------------------------------------------


class Sliders(NamedTuple):
    """The places of the four sliders. `ahead` None: everything. `late` None: the backward is not split."""

    chunks: int
    group: int
    ahead: int | None
    late: int | None


@dataclass(frozen=True, slots=True)
class Piece:
    """One schedule of the gallery: `sliders` are all places that make it, none for one that the loop cannot make, and
    `name` is its row of the catalogue, if it has one, with the `title` that people say and the `paper` that it is from.
    Where ranks wait in a circle `timed` is None, and `why` says who waits for what."""

    order: Order
    timed: Timed | None
    chunks: int
    sliders: tuple[Sliders, ...] = ()
    name: str | None = None
    title: str = ""
    paper: str = ""
    why: str = ""

    @property
    def halves(self) -> bool:
        """Tell whether the backward is split."""
        return any(action.kind == "I" for actions in self.order for action in parts_of(actions))

    @property
    def shape(self) -> Shape:
        """Return where the second stage of a rank lies."""
        place, last = places(self.order), self.chunks * len(self.order) - 1
        turns = self.chunks == 2 and all(place.get(stage) == place.get(last - stage) for stage in place)
        return "vee" if turns else "loop"

    def to_json(self) -> dict[str, Any]:
        """Return it as data. A rank is a text: `F0,2` is the forward of microbatch 2 on its first stage, and `1.5F0,2`
        the same after a wait of 1.5; a pair is `F0,2 &B1,0`, and starts when the inputs of both are there."""
        found: dict[str, Any] = {"chunks": self.chunks, "name": self.name, "halves": self.halves, "shape": self.shape}
        if self.timed is None:
            return found | {"why": self.why}
        rows: list[str] = []
        for actions, starts, ends in zip(self.order, self.timed.starts, self.timed.ends, strict=True):
            own = sorted({part.stage for part in parts_of(actions)})
            row: list[str] = []
            for action, start, over in zip(actions, starts, [0.0, *ends], strict=False):
                wait = round(start - over, 6)
                words = [f"{part.kind}{own.index(part.stage)},{part.microbatch}" for part in action.parts or (action,)]
                words[0] = f"{wait:g}{words[0]}" if wait > 0 else words[0]
                words[1:] = [f"&{word}" for word in words[1:]]
                row += words
            rows.append(" ".join(row))
        figures = {"end": round(self.timed.end, 6), "bubble": list(self.timed.bubble), "peaks": self.timed.peaks}
        return found | {"rows": rows, **figures}


@dataclass(frozen=True, slots=True)
class Gallery:
    """All pieces for one size. Costs are those of a whole rank's share, whatever the number of its stages."""

    ranks: int
    batches: int
    costs: Passes
    messages: Messages
    positions: dict[str, list[int | None]]
    """What each slider can be set to."""
    pieces: tuple[Piece, ...]

    @property
    def work(self) -> float:
        """Return what each rank computes."""
        return float(self.batches * sum(self.costs[:3]))

    def world(self) -> str:
        """Return how messages travel here, in words."""
        if not self.costs.message:
            return f"messages are {self.messages} and take no time"
        how = "both sides stand still meanwhile" if self.messages == "awaited" else "ranks compute meanwhile"
        return f"messages are {self.messages} and take {float(self.costs.message):g}: {how}"

    def named(self) -> dict[str, Piece]:
        """Return those that have a name, by what they are called: the rows of the catalogue, then the others."""
        order = [*SCHEDULES, *(piece.name for piece in self.pieces)]
        found = sorted((piece for piece in self.pieces if piece.name), key=lambda piece: order.index(piece.name))
        return {piece.title + (f" × {piece.chunks}" if piece.chunks > 2 else ""): piece for piece in found}

    def limits(self) -> list[dict[str, Any]]:
        """Return what is proved for this size, where passes take equally long and messages nothing: with so many stages
        a rank, of that shape, the backward split or not, and no rank above `peak`, no order ends before `end`."""
        found: dict[tuple[Any, ...], float] = {}
        for best in best_orders() if self.costs == EVEN else ():
            if (best.ranks, best.batches) == (self.ranks, self.batches):
                row = SCHEDULES[best.schedule]
                key = row.chunks, row.shape, row.halves, best.peak
                found[key] = max(best.bound, found.get(key, 0))
        names = "chunks", "shape", "halves", "peak", "end"
        return [dict(zip(names, (*key, end), strict=True)) for key, end in found.items()]

    def to_json(self) -> dict[str, Any]:
        """Return everything as data, for a page: what each rank does, as words, and when each action starts."""
        return {
            "ranks": self.ranks,
            "batches": self.batches,
            "costs": {kind: float(cost) for kind, cost in zip("FIW", self.costs, strict=False)},
            "message": float(self.costs.message),
            "messages": self.messages,
            "work": self.work,
            "world": self.world(),
            "limits": self.limits(),
            "positions": self.positions,
            "names": {piece.name: {"title": piece.title, "paper": piece.paper} for piece in self.named().values()},
            "places": [[*sliders, number] for number, piece in enumerate(self.pieces) for sliders in piece.sliders],
            "pieces": [piece.to_json() for piece in self.pieces],
        }


MOST = 1024
"""Ranks times microbatches of a gallery, at most: some two hundred orders are made and timed."""


def gallery(
    ranks: int = 4,
    batches: int = 8,
    *,
    chunks: Sequence[int] = (1, 2, 4),
    forward: float = 1.0,
    input_half: float = 1.0,
    weight_half: float = 1.0,
    message: float = 0.0,
    messages: Messages = "posted",
    own: Mapping[str, Order] | None = None,
) -> Gallery:
    """Make and time all of them, and `own` orders beside them, each under its name.

    ValueError where a size is less than 1, or below 2 ranks: that is no pipeline; or for what is no cost. IllegalOrder
    for one of `own` that no pipeline of this size can do.
    """
    for name, size, least in (("rank", ranks, 2), ("microbatch", batches, 1)):
        if not isinstance(size, int) or size < least:  # pyright: ignore[reportUnnecessaryIsInstance]
            argument = "ranks" if name == "rank" else "batches"
            raise ValueError(f"a pipeline has at least {counted(least, name)}; got {argument}={size!r}")
    if ranks * batches > MOST:
        raise ValueError(
            f"a gallery has at most {MOST:,} ranks times microbatches, so that it takes seconds to make and can be "
            f"looked at; got ranks={ranks} and batches={batches}"
        )
    if not chunks or not all(isinstance(each, int) and each >= 1 for each in chunks):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"chunks= are numbers of stages a rank, such as (1, 2); got {chunks!r}")
    if messages not in MESSAGES_ARE:
        raise ValueError(f"messages are {' or '.join(MESSAGES_ARE)}; got {messages!r}")
    costs = Passes(forward, input_half, weight_half, message)
    for name, time in costs._asdict().items():
        if not (isinstance(time, int | float | Fraction) and 0 <= time < inf):
            raise ValueError(f"{name}= is a time, so at least 0; got {time!r}")
    positions: dict[str, list[int | None]] = {
        "chunks": [*chunks],
        "group": [*sorted({max(1, ranks // 2), min(ranks, batches), batches})],
        "ahead": [0, 1, 2, 3, None],
        "late": [None, 0, 1, 2],
    }

    def piece(order: Order, chunks: int, name: str | None, sliders: Sequence[Sliders] = ()) -> Piece:
        forward, input_half, weight_half = (Fraction(cost) / chunks for cost in costs[:3])  # a stage has its share
        times = Passes(forward, input_half, weight_half, costs.message)
        row = SCHEDULES.get(name or "")
        title, paper = (name or "", "") if row is None else (row.title, row.paper)
        try:
            timed, why = time_order(order, **times._asdict(), messages=messages), ""
        except PuzzleError as error:
            timed, why = None, str(error).splitlines()[0]
        return Piece(order, timed, chunks, tuple(sliders), name, title, paper, why)

    names: dict[Order, str] = {}
    for row in SCHEDULES.values():
        for each in [one for one in chunks if one > 1] if "chunks" in row.takes else [row.chunks]:
            names.setdefault(row.order(ranks, batches, chunks=each, costs=costs), row.name)
    at: dict[Order, list[Sliders]] = {}
    for each, group, ahead, late in product(*positions.values()):
        sliders = Sliders(each or 1, group or batches, ahead, late)
        at.setdefault(in_turn(ranks, batches, **sliders._asdict()), []).append(sliders)
    pieces = [piece(order, found[0].chunks, names.get(order), found) for order, found in at.items()]
    pieces += [piece(order, SCHEDULES[name].chunks, name) for order, name in names.items() if order not in at]
    for title, mine in (own or {}).items():
        if not isinstance(mine, tuple):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"{title} is no order; of a schedule of yours it is yours.order({ranks}, {batches})")
        if title in SCHEDULES:
            raise ValueError(f"{title} is the name of a schedule that everybody knows: give yours another one")
        if len(mine) != ranks:
            raise ValueError(f"{title} is an order for {counted(len(mine), 'rank')}; the gallery has {ranks}")
        require_legal(mine, batches=batches)
        pieces.append(piece(mine, max(1, len(places(mine)) // ranks), title))
    return Gallery(ranks, batches, costs, messages, positions, tuple(pieces))


# -- explored ---------------------------------------------------------------------------------------------------------

FIGURES: Final = ("time", "memory", "sent", "makespan_bubble", "span_bubble")
AIMS: Final = FIGURES[:3]
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


def settings(grid: Grid) -> Iterator[Setting]:
    """Yield all settings of a grid, in order. ValueError for a grid that has nothing in it, or something that there is
    not."""
    values = {field.name: getattr(grid, field.name) for field in fields(Grid)}
    for name, several in values.items():
        if not several:
            raise ValueError(f"a grid has at least one of each; {name} has none")
    if unknown := [name for name in grid.schedules if name not in SCHEDULES]:
        raise ValueError(f"there is no schedule {unknown[0]!r}; there are {', '.join(SCHEDULES)}")
    if unknown := [how for how in grid.messages if how not in MESSAGES_ARE]:
        raise ValueError(f"messages are {' or '.join(MESSAGES_ARE)}; got {unknown[0]!r}")
    for name, least in (("ranks", 2), ("batches", 1), ("chunks", 1), ("examples", 1)):
        if wrong := [number for number in values[name] if number < least]:
            raise ValueError(f"{name} are at least {least}; got {wrong[0]}")
    for name in ("forward", "input_half", "weight_half", "overhead", "message", "latency"):
        if wrong := [number for number in values[name] if not 0 <= number < inf]:
            raise ValueError(f"{name} is a time, so at least 0; got {wrong[0]}")
    if wrong := [number for number in grid.limit if number is not None and not number > 0]:
        raise ValueError(f"a limit is in microbatches of activations, so more than 0; got {wrong[0]}")
    for setting in starmap(Setting, product(*values.values())):
        row = SCHEDULES[setting.schedule]
        if setting.chunks > 1 if "chunks" in row.takes else setting.chunks == row.chunks:
            yield setting


def worlds(points: Iterable[Point]) -> dict[str, tuple[Point, ...]]:
    """Return points by what they have to have in common to be compared, in words: the ranks, the examples, and what
    passes and messages cost."""
    found: dict[str, tuple[Point, ...]] = {}
    for point in points:
        setting = point.setting
        passes = f"{setting.forward:g}, {setting.input_half:g} and {setting.weight_half:g}"
        each = f" and {setting.overhead:g} each" if setting.overhead else ""
        costs = f"{setting.message:g} an example and {setting.latency:g} each"
        costs = costs if setting.message or setting.latency else "for nothing"
        text = f"{setting.ranks} ranks, {setting.examples} examples, passes {passes} an example{each}"
        text += f", messages {costs} ({setting.messages})"
        found[text] = (*found.get(text, ()), point)
    return found


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
    sends = max(sum(action.kind in SENDS for action in actions) for actions in with_messages(order))
    return Point(setting, timed.end, float(as_written(max(timed.peaks)) * each), float(sends * each), *timed.bubble)


def front(points: Iterable[Point]) -> tuple[Point, ...]:
    """Return the points that no other beats: none is at least as good in time, memory and what is sent, and better in
    one. Quickest first; of points that are equal in all three the first."""
    best: dict[tuple[float, ...], Point] = {}
    legal = [((point.time, point.memory, point.sent), point) for point in points if not point.why]
    for mine, point in sorted(legal, key=itemgetter(0)):
        if not any(all(a <= b for a, b in zip(one, mine, strict=True)) for one in best):
            best[mine] = point
    return tuple(best.values())


AT_ONCE: Final = 16
"""Settings that are sent to a process together: each takes milliseconds."""


def explore(
    grid: Grid,
    *,
    jobs: int | None = None,
    file: str | Path | None = None,
    done: Callable[[int, int], None] | None = None,
) -> tuple[Point, ...]:
    """Measure all settings of a grid, in its order, in `jobs` processes (None: in this one).

    With a `file` (JSON lines) each point is there as soon as it is known, and those that it has already are not
    measured again; a line that was cut off is. `done(so_far, all)` is called now and then.
    """
    wanted = {setting.key: setting for setting in settings(grid)}
    known = _read(Path(file)) if file is not None else {}
    found = {key: known[key] for key in wanted if key in known}
    missing = [setting for key, setting in wanted.items() if key not in found]
    if done is not None:
        done(len(found), len(wanted))
    batches = [missing[start : start + AT_ONCE] for start in range(0, len(missing), AT_ONCE)]
    with nullcontext() if file is None else ready(file).open("a", encoding="utf-8", newline="\n") as log:
        for points in shared_out(_several, batches, jobs, "exploring"):
            found |= {point.setting.key: point for point in points}
            if log is not None:
                log.writelines(map(_line, points))
                log.flush()
            if done is not None:
                done(len(found), len(wanted))
    points = tuple(found[key] for key in wanted)
    if file is not None:  # in the order of the grid, so that the file is the same, whichever process was first
        known |= _read(Path(file))  # once more: another sweep may have written there meanwhile
        others = [point for key, point in known.items() if key not in wanted]
        write_whole(file, "".join(map(_line, [*points, *others])))
    return points


def _several(batch: Sequence[Setting]) -> list[Point]:
    return [measure(setting) for setting in batch]


def _line(point: Point) -> str:
    return json.dumps(asdict(point)) + "\n"


def _read(file: Path) -> dict[str, Point]:
    """Return the points of a file, by their settings. A line that is none, as one that was cut off, is left out."""
    found: dict[str, Point] = {}
    for line in file.read_text("utf-8", errors="replace").splitlines() if file.exists() else ():
        try:
            data = json.loads(line)
            point = Point(Setting(**data.pop("setting")), **data)
            if isinstance(point.why, str) and all(0 <= getattr(point, name) < inf for name in FIGURES):  # pyright: ignore[reportUnnecessaryIsInstance]
                found[point.setting.key] = point
        except (ValueError, TypeError, AttributeError, KeyError):
            continue
    return found


def run_of(point: Point) -> list[Model]:
    """Return the point simulated, as `cell` does: a layer for each stage, an example for each microbatch."""
    setting = point.setting
    program = program_of(order_of(setting), messages=setting.messages)
    return simulate(program, ranks=setting.ranks, layers=setting.ranks * setting.chunks, batches=setting.batches)


CELL: Final = """\
from drawing import draw
from lib import simulate
from lib.schedules.pipelines.catalogue import SCHEDULES
from lib.schedules.pipelines.program import program_of
{imports}
order = SCHEDULES["{schedule}"].order({ranks}, {batches}{told})
program = program_of(order, messages="{messages}")
draw(simulate(program, ranks={ranks}, layers={layers}, batches={batches}))"""


def cell(point: Point) -> str:
    """Return the code of a notebook's cell that runs and draws this point: one example for each microbatch."""
    setting = point.setting
    row, costs = SCHEDULES[setting.schedule], _costs(setting, stages=1)
    told = f", chunks={setting.chunks}" if "chunks" in row.takes else ""
    told += f", limit={setting.limit:g}" if setting.limit is not None else ""
    imports = ""
    if "costs" in row.takes and costs != EVEN:
        numbers = [repr(cost.numerator if cost.denominator == 1 else cost) for cost in map(as_written, costs)]
        told += f", costs=Passes({', '.join(numbers)})"
        imports = "from lib.schedules.pipelines.timing import Passes\n"
    text = CELL.format(**asdict(setting), imports=imports, told=told, layers=setting.ranks * setting.chunks)
    return "from fractions import Fraction\n" * ("Fraction" in told) + text
