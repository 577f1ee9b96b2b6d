"""The rows of a timeline: ranks that do the same at the same times share one, and each has a name.

Two ranks are alike where their programs agree in everything that a picture shows, up to the names of ranks, batches and
shards. Then their memory is the same at every moment too. A mistake must not disappear in a row: ranks that share a
batch where each should have its own, or that pass each other messages, keep rows of their own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from drawing.canvas.palette import INK, SOFT
from drawing.canvas.scene import SMALL, TEXT, Poly, Scene, Text, fit, text_width
from drawing.timeline.boxes import Fold, failed_rank, padded, waiting
from lib.cluster.mesh import Mesh
from lib.errors.wording import numbered, ranges
from lib.trace.event import Event
from lib.trace.order import messages
from lib.trace.trace import Trace, kept
from lib.values.operations import OPERATIONS, READS


class Shown(NamedTuple):
    """The rows of a picture; the ranks that did nothing at all, which have none; and how many more there are."""

    rows: list[Fold]
    idle: list[int]
    rest: int


def shown_rows(trace: Trace, folded: bool = True, most: int | None = None) -> Shown:
    """Return the rows to draw for a run, in the order of its mesh, at most `most`. `folded`: equal ranks share one."""
    every = fold(trace) if folded else [Fold((program.rank,)) for program in trace.programs]
    if trace.mesh is not None and len(trace.mesh) == trace.ranks:
        place = {rank: number for number, rank in enumerate(trace.mesh.ranks)}
        every = sorted(every, key=lambda row: min(place[rank] for rank in row.ranks))
    busy = [row for row in every if trace.programs[row.rank].events] or every[:most]  # a picture has at least one row
    idle = [program.rank for program in trace.programs if not program.events] if len(busy) < len(every) else []
    rows = busy[:most]
    return Shown(rows, idle, sum(len(row.ranks) for row in busy[len(rows) :]))


@kept
def fold(trace: Trace) -> list[Fold]:
    """Return all ranks of a run, equal ones together, in the order of their first ranks."""
    return [Fold(ranks, _own(trace, ranks)) for ranks in _alike(trace)]


def _alike(trace: Trace) -> list[tuple[int, ...]]:
    """Groups of ranks that are alike. Classes are split until the members of each agree in every key."""
    alone = failed_rank(trace)

    def glance(rank: int) -> Hashable:
        """A quick key: most ranks that differ do so in one of a few events."""
        program, events = trace.programs[rank], trace.programs[rank].events
        probes = [(event.op, event.start) for event in events[:: max(1, len(events) // 16)]]
        return rank == alone, len(events), len(program.values), len(program.moves), *probes

    classes = _split(range(trace.ranks), glance)
    if len(classes) == trace.ranks:
        return sorted(map(tuple, classes))
    keys = _Keys(trace)
    classes = _resplit(classes, keys.program)
    classes = [part for ranks in classes for part in _by_batches(trace, ranks)]
    while True:
        finer = _resplit(classes, keys.correspondents(classes))
        if len(finer) == len(classes):
            return sorted(map(tuple, classes))
        classes = finer


def _split(ranks: Iterable[int], key: Callable[[int], Hashable]) -> list[list[int]]:
    found: dict[Hashable, list[int]] = defaultdict(list)
    for rank in ranks:
        found[key(rank)].append(rank)
    return [*found.values()]


def _resplit(classes: Iterable[list[int]], key: Callable[[int], Hashable]) -> list[list[int]]:
    """Split classes of more than one rank; the others need no key."""
    return [part for ranks in classes for part in (_split(ranks, key) if len(ranks) > 1 else [ranks])]


class _Keys:
    """The keys in which ranks have to agree to be alike."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.peers: list[list[int]] = [[] for _ in trace.programs]
        self._received: dict[tuple[int, int], int | None] = {}
        for source, sent, target, received in messages(trace):
            self.peers[source].append(target)
            self.peers[target].append(source)
            taken = None if received is None else trace.programs[target].events[received].issued
            self._received[source, sent] = taken
        for rank, event in trace.events():
            if event.op == "receive" and event.start is None and event.peer is not None:
                self.peers[rank].append(event.peer)
        self._axes: dict[int, Hashable] = {}

    def program(self, rank: int) -> Hashable:
        """All that a rank does, and how much it holds. Batches and shards are numbered by first occurrence."""
        program = self.trace.programs[rank]
        batches = _Numbers()
        shards: dict[tuple[int, ...], _Numbers] = defaultdict(_Numbers)  # by how many there are
        events = [
            (
                event.op,
                event.layer,
                event.issued,
                event.start,
                event.length,
                batches[event.batches],
                padded(self.trace, event),
                len(event.arg)
                if event.group or event.op in READS
                else (event.arg[1:], shards[event.arg[1:]][event.arg[:1]]),
                self._group(event.group),
                event.blocking,
                event.inputs,
                event.outputs,
                self._received.get((rank, number), -1) if event.op == "pass_to" else -1,
                waiting(self.trace, rank, number) if event.start is None else None,
            )
            for number, event in enumerate(program.events)
        ]
        sizes = [value and (value.kind, value.layer, value.elements()) for value in program.values]
        return tuple(events), tuple(sizes), tuple(program.moves)

    def correspondents(self, classes: Iterable[list[int]]) -> Callable[[int], Hashable]:
        """For each rank, the classes of its partners in messages, in order; and the rank itself where its own class is
        among them: a row cannot show a message to itself."""
        home = {rank: number for number, ranks in enumerate(classes) for rank in ranks}

        def key(rank: int) -> Hashable:
            found = tuple([home[peer] for peer in self.peers[rank]])
            return found, rank if home[rank] in found else -1

        return key

    def _group(self, group: tuple[int, ...]) -> Hashable:
        """A group, whatever its ranks: its size, and the axes of the mesh along which it lies."""
        if id(group) not in self._axes:
            self._axes[id(group)] = len(group), _axes(self.trace.mesh, group)
        return self._axes[id(group)]


class _Numbers(dict[Hashable, Hashable]):
    """Numbers for sets by first occurrence, based on the first occurrence of their members."""

    def __init__(self) -> None:
        super().__init__()
        self._members: dict[int, int] = {}

    def __missing__(self, items: Iterable[int]) -> Hashable:
        named = tuple(sorted([self._members.setdefault(item, len(self._members)) for item in sorted(items)]))
        self[items] = named  # pyright: ignore[reportArgumentType]
        return named


def _axes(mesh: Mesh | None, group: Sequence[int]) -> tuple[str, ...]:
    if mesh is None or not group or max(group) >= len(mesh):
        return ()
    places = [mesh.coordinates(rank) for rank in group]
    return tuple(axis for axis in mesh.axes if len({place[axis] for place in places}) > 1)


def _by_batches(trace: Trace, ranks: list[int]) -> Iterator[list[int]]:
    """Parts of a class whose ranks work, in each event, on the same batches or on disjoint ones."""
    if len(ranks) < 2:
        yield ranks
        return
    found = [[event.batches for event in trace.programs[rank].events if _names_batches(event)] for rank in ranks]
    if all(map(_fit, dict.fromkeys(zip(*found, strict=True)))):
        yield ranks
        return
    same = _split(range(len(ranks)), lambda place: tuple(found[place]))
    apart = [part[0] for part in same if len(part) == 1]
    if all(map(_fit, zip(*[found[place] for place in apart], strict=True))):
        same = [part for part in same if len(part) > 1] + ([apart] if apart else [])
    yield from ([ranks[place] for place in part] for part in same)


def _names_batches(event: Event) -> bool:
    """Check if an event names batches: those in a sum for which ranks meet make no difference."""
    return event.op in OPERATIONS and OPERATIONS[event.op].has_batches


def _fit(sets: Sequence[frozenset[int]]) -> bool:
    """Check if all sets are equal, or all are disjoint."""
    return len({*sets}) == 1 or len(frozenset[int]().union(*sets)) == sum(map(len, sets))


def _own(trace: Trace, ranks: tuple[int, ...]) -> dict[int, str]:
    """Name the batches of the first of some ranks, in the events in which the others have different ones."""
    if len(ranks) < 2:
        return {}
    one, other = (trace.programs[rank].events for rank in ranks[:2])
    pairs = enumerate(zip(one, other, strict=True))
    mine = {number: a.batches for number, (a, b) in pairs if a.batches != b.batches and _names_batches(a)}
    number = {batch: place for place, batch in enumerate(sorted(frozenset[int]().union(*mine.values())))}
    if len(set(mine.values())) == 1:
        return dict.fromkeys(mine, "own")
    return {event: f"own {ranges(number[batch] for batch in batches)}" for event, batches in mine.items()}


WIDEST: Final = 150.0  # most pixels of a name
GAP: Final = 10  # pixels between the names and the time axis


class Name(NamedTuple):
    """The ranks of a row, their place in the mesh, and the group of rows along its first axis."""

    ranks: str
    place: str = ""
    group: str = ""

    def lines(self, height: float) -> list[str]:
        """Return the name on as many lines as fit into a row of this height, the place first."""
        if not self.place:
            return [self.ranks]
        return [self.place, self.ranks] if height >= 27 else [f"{self.place} · {self.ranks}"]


def names(trace: Trace, rows: Sequence[Fold]) -> list[Name]:
    """Return the names of rows."""
    mesh = trace.mesh
    words = [numbered("rank", row.ranks) for row in rows]
    if mesh is None or len(mesh) != trace.ranks:
        return [Name(text) for text in words]
    first, *others = mesh.axes
    stand = [[mesh.coordinates(rank) for rank in row.ranks] for row in rows]
    places = [{axis: sorted({one[axis] for one in some}) for axis in mesh.axes} for some in stand]
    alike = [place[first] for place in places]
    # A bracket marks several rows with one coordinate, beside others with another.
    grouped = others and all(len(found) == 1 for found in alike) and 1 < len({*map(tuple, alike)}) < len(rows)
    axes = others if grouped else [*mesh.axes]
    along = [f"{first} {ranges(place[first])}" if grouped else "" for place in places]
    said = [_said(mesh, place, axes) for place in places]
    return [Name(*name) for name in zip(words, said, along, strict=True)]


def _said(mesh: Mesh, place: dict[str, list[int]], axes: Sequence[str]) -> str:
    """ "data 1 · stage 2", without the axes along which a row has all ranks."""
    told = [axis for axis in axes if len(place[axis]) < mesh.axes[axis] or mesh.axes[axis] == 1]
    return " · ".join(f"{axis} {ranges(place[axis])}" for axis in told)


def groups(found: Sequence[Name]) -> list[tuple[str, int, int]]:
    """Return the groups of rows: each with its name, its first row, and the one after its last."""
    rows = groupby(range(len(found)), key=lambda row: found[row].group)
    spans = [(group, [*same]) for group, same in rows]
    return [(group, same[0], same[-1] + 1) for group, same in spans if group]


def margin(found: Sequence[Name], height: float) -> float:
    """Return the pixels that names take left of the time axis."""
    own = max((_width(name, height) for name in found), default=0.0)
    beside = max((text_width(name.group, TEXT) for name in found if name.group), default=0.0)
    return own + GAP + 8 + (beside + 14 if beside else 0)


def _width(name: Name, height: float) -> float:
    sizes = (TEXT, SMALL)
    return min(WIDEST, max(text_width(line, size) for line, size in zip(name.lines(height), sizes, strict=False)))


def write_names(scene: Scene, found: Sequence[Name], tops: Sequence[float], height: float, left: float) -> None:
    """Write names left of rows with these tops and this height, with a bracket beside each group."""
    every = 1 if height >= 11 else 2 if height >= 9 else 4  # where there is little room, not every row has its name
    for place, (name, top) in enumerate(zip(found, tops, strict=True)):
        if place % every == 0:
            _write(scene, name, top + height / 2, height, left - GAP)
    own = max((_width(name, height) for name in found), default=0.0)
    for group, first, after in groups(found):
        x, top, bottom = left - GAP - own - 6, tops[first], tops[after - 1] + height
        scene.add(Poly(((x, top + 1), (x - 4, top + 1), (x - 4, bottom - 1), (x, bottom - 1)), stroke=SOFT))
        scene.add(Text(x - 9, (top + bottom) / 2, group, TEXT, INK, "end"))


def _write(scene: Scene, name: Name, middle: float, height: float, right: float) -> None:
    first, *others = name.lines(height)
    size = TEXT if height >= 14 else SMALL
    scene.add(Text(right, middle - (7 if others else 0), fit(first, WIDEST, size), size, INK, "end"))
    for line in others:
        scene.add(Text(right, middle + 7, fit(line, WIDEST, SMALL), SMALL, SOFT, "end"))
