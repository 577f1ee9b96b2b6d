"""Every schedule that has a name, side by side: on one time axis in a gallery, and explored at each setting of a grid.

**The gallery** has everything besides that four sliders of one loop can make. They are the arguments of `in_turn`:
stages a rank has (chunks), microbatches that take one stage in a row (group), forwards ahead for each rank that follows
(ahead), and passes that the weight halves lag behind for each rank before (late). What waits in a circle is in it too,
and says so.

**Explored** is what nothing beats. A batch of `examples` goes through a pipeline as microbatches: with more of them
each is smaller, so that all settings do the same work and can be compared.

All is timed by the order timer, milliseconds a setting, and nothing simulated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import inf
from operator import itemgetter
from typing import Any, Final

from lib.analysis.bounds.optima import best_orders
from lib.cluster.costs import as_written
from lib.errors.exceptions import PuzzleError
from lib.errors.wording import counted
from lib.schedules.pipelines.action import SENDS, Messages, Order, parts_of, places
from lib.schedules.pipelines.catalogue import SCHEDULES, Shape
from lib.schedules.pipelines.generators import in_turn
from lib.schedules.pipelines.legality import require_legal
from lib.schedules.pipelines.lowering import with_messages
from lib.schedules.pipelines.program import MESSAGES_ARE
from lib.schedules.pipelines.timing import Timed, time_order

# -- the gallery ------------------------------------------------------------------------------------------------------


Sliders = tuple[int, int, int | None, int | None]
"""The places of the four sliders. `ahead` None: everything. `late` None: the backward is not split."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One schedule of the gallery: `sliders` are all places that make it, none for one that the loop cannot make, and
    `name` is its row of the catalogue, or that of an order of one's own. Where ranks wait in a circle `timed` is None,
    and `why` says who waits for what."""

    order: Order
    timed: Timed | None
    chunks: int
    sliders: tuple[Sliders, ...] = ()
    name: str | None = None
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
                row += [f"{wait:g}{words[0]}" if wait > 0 else words[0], *(f"&{word}" for word in words[1:])]
            rows.append(" ".join(row))
        figures = {"end": round(self.timed.end, 6), "bubble": list(self.timed.bubble), "peaks": self.timed.peaks}
        return found | {"rows": rows, **figures}


@dataclass(frozen=True, slots=True)
class Gallery:
    """All pieces for one size. A forward of a whole rank's share takes 1, and so does each half of the backward,
    whatever the number of its stages."""

    ranks: int
    batches: int
    message: float
    messages: Messages
    positions: dict[str, list[Any]]
    """What each slider can be set to."""
    pieces: tuple[Piece, ...]

    def world(self) -> str:
        """Return how messages travel here, in words."""
        if not self.message:
            return f"messages are {self.messages} and take no time"
        how = "both sides stand still meanwhile" if self.messages == "awaited" else "ranks compute meanwhile"
        return f"messages are {self.messages} and take {float(self.message):g}: {how}"

    def named(self) -> dict[str, Piece]:
        """Return those that have a name, by what they are called: the rows of the catalogue, then the others."""
        order = [*SCHEDULES, *(piece.name for piece in self.pieces)]
        found = sorted((piece for piece in self.pieces if piece.name), key=lambda piece: order.index(piece.name))
        return {_title(piece.name) + (f" × {piece.chunks}" if piece.chunks > 2 else ""): piece for piece in found}

    def limits(self) -> list[dict[str, Any]]:
        """Return what is proved for this size, where passes take equally long and messages nothing: with so many stages
        a rank, of that shape, the backward split or not, and no rank above `peak`, no order ends before `end`."""
        found: dict[tuple[Any, ...], float] = {}
        for best in best_orders() if not self.message else ():
            if (best.ranks, best.batches) == (self.ranks, self.batches):
                row = SCHEDULES[best.schedule]
                key = row.chunks, row.shape, row.halves, best.peak
                found[key] = max(best.bound, found.get(key, 0))
        names = "chunks", "shape", "halves", "peak", "end"
        return [dict(zip(names, (*key, end), strict=True)) for key, end in found.items()]

    def to_json(self) -> dict[str, Any]:
        """Return everything as data, for a page: what each rank does, as words, and when each action starts."""
        papers = {name: row.paper for name, row in SCHEDULES.items()}
        names = [piece.name for piece in self.named().values() if piece.name]
        return {
            "ranks": self.ranks,
            "batches": self.batches,
            "costs": dict.fromkeys("FIW", 1.0),
            "message": float(self.message),
            "messages": self.messages,
            "work": 3.0 * self.batches,
            "world": self.world(),
            "limits": self.limits(),
            "positions": self.positions,
            "names": {name: {"title": _title(name), "paper": papers.get(name, "")} for name in names},
            "places": [[*sliders, number] for number, piece in enumerate(self.pieces) for sliders in piece.sliders],
            "pieces": [piece.to_json() for piece in self.pieces],
        }


def _title(name: str | None) -> str:
    row = SCHEDULES.get(name or "")
    return row.title if row is not None else name or ""


TIMES: Final = ("forward", "input_half", "weight_half", "overhead", "message", "latency")
"""The costs of a setting: of its passes, and others."""
AHEAD: Final = (0, 1, 2, 3, None)
LATE: Final = (None, 0, 1, 2)
MOST: Final = 1024
"""Ranks times microbatches of a gallery, at most: some two hundred orders are made and timed."""


def gallery(
    ranks: int = 4,
    batches: int = 8,
    *,
    chunks: Sequence[int] = (1, 2, 4),
    message: float = 0.0,
    messages: Messages = "posted",
    own: Mapping[str, Order] | None = None,
) -> Gallery:
    """Make and time all of them, and `own` orders beside them, each under its name.

    ValueError where a size is less than 1, or below 2 ranks, which is not a pipeline; or for what is not a cost.
    IllegalOrder for one of `own` that no pipeline of this size can do.
    """
    for argument, noun, size, least in (("ranks", "rank", ranks, 2), ("batches", "microbatch", batches, 1)):
        if not isinstance(size, int) or size < least:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"a pipeline has at least {counted(least, noun)}; got {argument}={size!r}")
    if ranks * batches > MOST:
        why = f"a gallery has at most {MOST:,} ranks times microbatches, so that it takes seconds to make"
        raise ValueError(f"{why} and can be looked at; got ranks={ranks} and batches={batches}")
    if not chunks or not all(isinstance(each, int) and each >= 1 for each in chunks):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"chunks= are numbers of stages a rank, such as (1, 2); got {chunks!r}")
    _require(messages, {"message": message})
    groups = sorted({max(1, ranks // 2), min(ranks, batches), batches})
    positions: dict[str, list[Any]] = {"chunks": [*chunks], "group": groups, "ahead": [*AHEAD], "late": [*LATE]}

    def piece(order: Order, chunks: int, name: str | None, sliders: Sequence[Sliders] = ()) -> Piece:
        each: dict[str, Any] = dict.fromkeys(TIMES[:3], Fraction(1, chunks))
        try:
            timed, why = time_order(order, **each, message=message, messages=messages), ""
        except PuzzleError as error:
            timed, why = None, str(error).splitlines()[0]
        return Piece(order, timed, chunks, tuple(sliders), name, why)

    names: dict[Order, str] = {}
    for row in SCHEDULES.values():
        for each in [one for one in chunks if one > 1] if "chunks" in row.takes else [row.chunks]:
            names.setdefault(row.order(ranks, batches, chunks=each), row.name)
    at: dict[Order, list[Sliders]] = {}
    for sliders in product(chunks, groups, AHEAD, LATE):
        each, group, ahead, late = sliders
        at.setdefault(in_turn(ranks, batches, chunks=each, group=group, ahead=ahead, late=late), []).append(sliders)
    pieces = [piece(order, found[0][0], names.get(order), found) for order, found in at.items()]
    pieces += [piece(order, SCHEDULES[name].chunks, name) for order, name in names.items() if order not in at]
    for title, mine in (own or {}).items():
        if not isinstance(mine, tuple):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"{title} is not an order; of a schedule of yours it is yours.order({ranks}, {batches})")
        if title in SCHEDULES:
            raise ValueError(f"{title} is the name of a schedule that everybody knows: give yours another one")
        if len(mine) != ranks:
            raise ValueError(f"{title} is an order for {counted(len(mine), 'rank')}; the gallery has {ranks}")
        require_legal(mine, batches=batches)
        pieces.append(piece(mine, max(1, len(places(mine)) // ranks), title))
    return Gallery(ranks, batches, message, messages, positions, tuple(pieces))


def _require(messages: str, times: Mapping[str, Any]) -> None:
    if messages not in MESSAGES_ARE:
        raise ValueError(f"messages are {' or '.join(MESSAGES_ARE)}; got {messages!r}")
    for name, time in times.items():
        if not (isinstance(time, int | float | Fraction) and 0 <= time < inf):
            raise ValueError(f"{name}= is a time, so at least 0; got {time!r}")


# -- explored ---------------------------------------------------------------------------------------------------------


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

    def __str__(self) -> str:
        row = SCHEDULES[self.schedule]
        more = [f"{self.chunks} stages a rank"] if "chunks" in row.takes else []
        more += [f"limit {self.limit:g}"] if self.limit is not None else []
        return ", ".join((f"{row.title}, {self.batches} microbatches", *more))


@dataclass(frozen=True, slots=True)
class Point:
    """The figures of a setting: when the last rank ends, the activations that the rank with the highest peak holds,
    and what the rank that sends most sends, both in examples. Where there is no such schedule `why` says why not, and
    the rest is 0."""

    setting: Setting
    time: float = 0.0
    memory: float = 0.0
    sent: float = 0.0
    why: str = ""


def measure(setting: Setting) -> Point:
    """Time one setting. ValueError where it names what there is not; where its schedule has no such order, such as one
    in so little memory, the point says why."""
    _require(setting.messages, {name: getattr(setting, name) for name in TIMES})
    if (row := SCHEDULES.get(setting.schedule)) is None:
        raise ValueError(f"there is no schedule {setting.schedule!r}; there are {', '.join(SCHEDULES)}")
    try:
        order = row.order(setting.ranks, setting.batches, chunks=setting.chunks, limit=setting.limit)
        each = Fraction(setting.examples, setting.batches)
        share, more = each / setting.chunks, as_written(setting.overhead)
        times: dict[str, Any] = {name: share * as_written(getattr(setting, name)) + more for name in TIMES[:3]}
        message = each * as_written(setting.message) + as_written(setting.latency)
        timed = time_order(order, **times, message=message, messages=setting.messages)
    except (ValueError, PuzzleError) as error:
        return Point(setting, why=str(error).splitlines()[0])
    sends = max(sum(action.kind in SENDS for action in actions) for actions in with_messages(order))
    return Point(setting, timed.end, float(as_written(max(timed.peaks)) * each), float(sends * each))


def explore(**several: Sequence[Any]) -> tuple[Point, ...]:
    """Measure all combinations of some values of the fields of a `Setting`, in order. Nothing is left out but what a
    schedule cannot have, such as two stages a rank in 1F1B.

    >>> points = explore(schedule=["gpipe", "one_f_one_b"], batches=(4, 8))
    >>> [(str(point.setting), point.time, point.memory) for point in front(points)]
    [('1F1B, 8 microbatches', 264.0, 32.0)]
    """
    values = {"schedule": [*SCHEDULES], "batches": (4, 8, 16, 32), "chunks": (1, 2, 4)} | several
    found: list[Point] = []
    for combination in product(*values.values()):
        setting = Setting(**dict(zip(values, combination, strict=True)))
        row = SCHEDULES.get(setting.schedule)
        if row is None or (setting.chunks > 1 if "chunks" in row.takes else setting.chunks == row.chunks):
            found.append(measure(setting))
    return tuple(found)


def front(points: Iterable[Point]) -> tuple[Point, ...]:
    """Return the points that no other beats: none is at least as good in time, memory and what is sent, and better in
    one. Quickest first; of points that are equal in all three the first."""
    best: dict[tuple[float, ...], Point] = {}
    legal = [((point.time, point.memory, point.sent), point) for point in points if not point.why]
    for mine, point in sorted(legal, key=itemgetter(0)):
        if not any(all(a <= b for a, b in zip(one, mine, strict=True)) for one in best):
            best[mine] = point
    return tuple(best.values())
