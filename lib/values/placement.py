"""Which part of which tensor a value is, and which part of a sum is in it: dims, their parts, and places.

A `Dim` is a named index space, a `Part` a subset of it. A `Schema` is a kind of tensor, with the dims along which it
extends and those over which it may be a partial sum (its sums), and a `Place` has a Part of each. With P the box of its
dims and S that of its sums, a value is, for each element in P, the sum of the contributions in S.

Torch's DTensor has Shard, Replicate or Partial for each axis of a mesh. Here a value is what one rank has, whatever the
others have: a student's mistake is a state that no DTensor can have, and has to be named.

Part 1 of 4 of a dim of 6 is the range from 3/2 to 3: ends are exact fractions, so that a flat shard need not be whole
rows. Runs of pieces are one range: the work grows with the runs, never with the number of pieces.

Tables of parts and places live with their dims and schemas, and those with one training step (see `layers.Shape`), so
that equal ones are one object where speed matters, and nothing outlives the step. A check builds its own step, which
changes to objects of the run cannot reach. Across steps `same` compares contents.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Hashable, Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import islice, pairwise, product
from math import prod
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from lib.errors.exceptions import RuleError
from lib.errors.wording import described, numbered, plain, ranges, run_words, runs, these
from lib.record import record
from lib.values.dims import DIMS, NO_PIECES, Pieces, Relation, RunSet, common, gaps, joined, listed_numbers, united

if TYPE_CHECKING:
    from lib.values.kinds.experts import Route

Elements = int | Fraction
Range = tuple[Elements, Elements]
Rest = Iterable[tuple[str, Iterable[int], int]]
"""Parts of further dims: (role, pieces, of how many)."""
T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
ROUTED = ("batch", "rows", "experts")
"""The dims that a route is about."""
MOST = 10**6
"""The largest number of shards of a weight, and of ranks, layers or batches: a Trace file holds no more."""
SMALL_SET = 16
"""Numbers of each value that do not count against the limit: a line or an event stands for each value."""
MOST_RUNS = 20
"""Runs that a message lists."""
MOST_NUMBERS = 2 * 10**7
"""The most numbers in all larger sets that the laws make of one dim: a few lines of code, or a short file, could make
any number of unions of 10^6."""
MOST_KEPT = 2**15
"""Entries of a table before it is cleared: it only saves time, and correctness never depends on it."""
ONE_PIECE = frozenset([0])
_set = object.__setattr__


def keep(table: dict[K, T], key: K, item: T) -> T:
    """Put an item into a table, which is cleared if it is too long, and return the item."""
    if len(table) >= MOST_KEPT:
        table.clear()
    table[key] = item
    return item


def numbers_in(items: Iterable[int]) -> frozenset[int]:
    """Return named shards or batches as a set of plain numbers. TypeError or ValueError if that is impossible."""
    try:
        # One more than there may be: an endless generator has to be noticed too.
        found = frozenset(map(plain, islice(items, MOST + 1)))
    except TypeError:
        wanted = "shards and batches are numbers in a list, a set or a range, such as [0, 1]"
        raise TypeError(f"{wanted}; got {described(items, repr)}") from None
    if len(found) > MOST:
        raise ValueError(f"a value has at most {MOST} shards or batches; got more")
    return found


def give(thing: object, **fields: object) -> None:
    """Set the fields of a frozen object that is being made."""
    for name, item in fields.items():
        _set(thing, name, item)


@record(eq=False)
class Dim:
    """A named index space of `size` elements, with its parts: one object for each that consists of equal pieces.

    A tensor with a `route` along it has only some elements: an expert has the rows that go to it.
    """

    name: str
    size: int
    route: Route | None
    counted: bool
    joins: bool
    """All pieces together are the whole, in whatever grid."""
    spans: bool
    """Pieces are sets of runs; for batches, which students see, plain sets."""
    _whole: Part | None
    _left: int
    _pieces: dict[tuple[int, Pieces], Part]
    _shards: dict[tuple[int, int], Part]

    def __init__(self, name: str, size: int, route: Route | None = None) -> None:
        kind = DIMS.get(name)
        counted, unnamed = kind is not None and kind.counted and size <= MOST, kind is not None and not kind.field
        give(self, name=name, size=size, route=route)
        give(self, counted=counted, joins=counted or unnamed, spans=counted and unnamed)
        give(self, _whole=None, _left=MOST_NUMBERS, _pieces={}, _shards={})

    @property
    def whole(self) -> Part:
        """All of it. Made on demand: for a counted dim it is a set of all elements."""
        found = self._whole
        if found is None:
            grid = self.size if self.counted else 1
            found = Part(self, grid, self._span(0, grid), True)
            _set(self, "_whole", found)
        return found

    def piece(self, grid: int, pieces: Pieces) -> Part:
        """Return some of `grid` equal pieces, given as numbers below that. All of them are the whole; but all 4 shards,
        which students see, stay 4 of 4."""
        # By far the most common case: looking up a pair of ints is faster than hashing a set.
        if len(pieces) == 1:
            (number,) = pieces
            return self.shard(number, grid)
        if self.spans is not isinstance(pieces, RunSet):
            pieces = RunSet.of(pieces) if self.spans else frozenset(pieces)
        found = self._pieces.get((grid, pieces))
        if found is None and self.joins and len(pieces) == grid:
            return self._whole or self.whole
        return found or keep(self._pieces, (grid, pieces), Part(self, grid, pieces, len(pieces) == grid))

    def shard(self, number: int, grid: int) -> Part:
        """Return one of `grid` equal pieces: the same as `piece`, without a set to look it up by."""
        if grid == 1:
            return self._whole or self.whole
        found = self._shards.get((number, grid))
        return found or keep(self._shards, (number, grid), Part(self, grid, self._span(number, number + 1), False))

    def _span(self, first: int, after: int) -> Pieces:
        return RunSet.span(first, after) if self.spans else frozenset(range(first, after))

    def like(self, part: Part | None) -> Part:
        """Return the same pieces of this dim as a part of another, or all of it for None: a layer's features are a
        weight's columns."""
        if part is None or (part.whole and part.dim is not self):
            return self._whole or self.whole
        return part if part.dim is self else self.piece(part.grid, part.pieces)

    def part(self, *ranges: Range) -> Part:
        """Return any part, given as ranges in any order, which may overlap."""
        found = joined(ranges)
        return Part(self, 0, NO_PIECES, found == ((0, self.size),), found)

    def may_make(self, pieces: Pieces, sets: int = 1) -> None:
        """Count the numbers of a set that is made of `sets` others. RuleError if there were too many in all, after
        which the count starts over, for the next run."""
        # Objects fill a machine, so a run counts as one number.
        _set(self, "_left", self._left - max(0, listed_numbers(pieces) - SMALL_SET * sets))
        if self._left < 0:
            _set(self, "_left", MOST_NUMBERS)
            raise RuleError(
                f"the batches and shards taken, put together and cut here are more than {MOST_NUMBERS} numbers in all",
                expected="a step of a size that can be simulated",
                fix="take fewer batches or shards; or put many together at once, as a collective does",
            )

    def same(self, other: Dim) -> bool:
        return self is other or (self.name == other.name and self.size == other.size)


@record(eq=False)
class Part:
    """A part of a dim: some `pieces` of a `grid` of equal ones; or any ranges, where the grid is 0."""

    dim: Dim
    grid: int
    pieces: Pieces
    whole: bool
    _ranges: tuple[Range, ...] | None = None

    @property
    def size(self) -> Elements:
        """Its exact size in elements: an int if the pieces divide the dim evenly."""
        if self.grid:
            return _size(self.dim.size, len(self.pieces), self.grid)
        return simplest(sum((Fraction(high - low) for low, high in self.ranges), Fraction(0)))

    @property
    def ranges(self) -> tuple[Range, ...]:
        """Its elements as ascending ranges, which neither overlap nor touch."""
        if self._ranges is None:
            each = Fraction(self.dim.size, self.grid)
            found = [(simplest(low * each), simplest(high * each)) for low, high in runs(self.pieces)]
            _set(self, "_ranges", ((0, self.dim.size),) if self.whole else tuple(found))
        return cast("tuple[Range, ...]", self._ranges)

    def __repr__(self) -> str:
        inside = ",".join(f"{low}:{high}" for low, high in self.ranges)
        return f"{self.dim.name} {'all' if self.whole else inside or 'none'}"

    def same(self, other: Part) -> bool:
        """Tell whether both are the same pieces of one grid; of parts without a grid, the same ranges."""
        if self is other:
            return True
        if self.grid and other.grid:
            return self.grid == other.grid and self.pieces == other.pieces and self.dim.same(other.dim)
        return self.dim.same(other.dim) and self.ranges == other.ranges

    def alike(self, other: Part) -> bool:
        """Tell whether both are the same pieces, perhaps of two dims."""
        return (self.whole and other.whole) or (self.grid == other.grid and self.pieces == other.pieces)

    def cut(self, number: int, total: int) -> Part | None:
        """Return one of `total` equal pieces of this part, of a finer grid if necessary; None if it has gaps."""
        if self.whole:
            return self.dim.shard(number, total)
        grid, count, low = self.grid, len(self.pieces), min(self.pieces, default=0)
        if not count or max(self.pieces) - low + 1 != count:
            return None
        # Not enough whole pieces: use a finer grid, so that 3 of 4 are 6 of 8.
        if count % total:
            grid, count, low = grid * total, count * total, low * total
        low, each = low + number * count // total, count // total
        return self.dim.piece(grid, frozenset(range(low, low + each)))

    def minus(self, other: Part) -> Part:
        """Return the part of this one that is not in the other."""
        return self.dim.part(*common(self.ranges, gaps(other.ranges, self.dim.size)))

    def covers(self, other: Part) -> bool:
        """Tell whether all of the other part lies in this one, in whatever grids."""
        if self is other or self.whole:
            return True
        if self.grid and self.grid == other.grid:
            return other.pieces <= self.pieces
        # Numbers of two grids cannot be compared: 1 of 2 covers 2 and 3 of 4. Ends in elements can.
        return common(self.ranges, other.ranges) == other.ranges

    def meets(self, other: Part) -> bool:
        """Tell whether the two have an element in common."""
        if self.grid and self.grid == other.grid:
            return not self.pieces.isdisjoint(other.pieces)
        return bool(common(self.ranges, other.ranges))

    def shards(self, total: int) -> list[tuple[int, int]] | None:
        """Return it as runs of shards [first, after the last) of `total`; None if it does not consist of shards."""
        if total < 1:
            return None
        # It consists of whole shards if each of its ends is the end of a shard.
        ends = [Fraction(end) * total / self.dim.size for ends in self.ranges for end in ends]
        if any(end.denominator > 1 for end in ends):
            return None
        return [(first.numerator, after.numerator) for first, after in zip(ends[::2], ends[1::2], strict=True)]

    def words(self, total: int, noun: str = "shard") -> str:
        """Return it in words, as shards of `total` if possible: "shard 3 of 4", else "from 1/6 to 1/4"."""
        found = self.shards(total)
        if found is None:
            size = self.dim.size
            parts = [f"from {Fraction(low) / size} to {Fraction(high) / size}" for low, high in self.ranges[:MOST_RUNS]]
            return " and ".join(parts) + (" and more" if len(self.ranges) > MOST_RUNS else "")
        if sum(after - first for first, after in found) <= 2:
            return f"{these(noun, [number for run in found for number in range(*run)])} of {total}"
        return f"{noun}s {listed(found)} of {total}"


def listed(found: Sequence[tuple[int, int]]) -> str:
    """Return runs of numbers in the words of `wording.ranges`, only the first if they are many: "0, 4-7"."""
    return ", ".join(run_words(found[:MOST_RUNS])) + (", ..." if len(found) > MOST_RUNS else "")


def simplest(fraction: Fraction | int) -> Elements:
    """Return a number as an int if it is whole."""
    return fraction.numerator if fraction.denominator == 1 else fraction


def _size(size: int, pieces: int, grid: int) -> Elements:
    return size * pieces // grid if size * pieces % grid == 0 else Fraction(size * pieces, grid)


def union(parts: Iterable[Part]) -> Part:
    """Return the union of at least one part of a dim; they may overlap, and have different grids."""
    # Pieces of one grid are united as whole numbers first: ten thousand fractions are slow.
    by_grid: dict[int, list[Part]] = {}
    for part in parts:
        if part.whole:
            return part.dim.whole
        by_grid.setdefault(part.grid, []).append(part)
    dim = next(iter(by_grid.values()))[0].dim
    all_ranges: list[Range] = []
    for grid, group in by_grid.items():
        if grid and len(group) > 1:
            together = united([part.pieces for part in group])
            group = [Part(dim, grid, together, len(together) == grid)]
        all_ranges += [one for part in group for one in part.ranges]
    return dim.part(*all_ranges)


@record(eq=False)
class Schema:
    """A kind of tensor: its dims, and the dims over which it may be a partial sum. The name of each is its role.

    `related` has the elements of a sum that those of a dim need, as (sum, dim, relation): a sum that has all that its
    dims need is done, and never has anything else. `running`: how many further numbers a partial sum has for each
    element, such as the maximum and the sum of a softmax. `adds`: values that are not partial sums are added up too, as
    are gradients of a weight over batches, a sum that nothing waits for. `unions`: the results of the laws.
    """

    roles: tuple[str, ...]
    spaces: tuple[Dim, ...]
    ndim: int
    size: int
    split: int | None
    batch: int | None
    related: tuple[tuple[int, int, Relation], ...]
    running: Fraction | int
    route: Route | None
    adds: bool
    unions: dict[tuple[str, tuple[Place, ...]], Place]
    _places: dict[tuple[Part, ...], Place]

    def __init__(
        self,
        dims: Sequence[Dim],
        sums: Sequence[Dim] = (),
        related: Iterable[tuple[str, str, Relation]] = (),
        running: Fraction | int = 0,
    ) -> None:
        spaces = *dims, *sums
        roles = tuple([dim.name for dim in spaces])
        # Students know `shards` and `batches` from the original; each is a view of one dim.
        split, batch = None if roles[0] == "batch" else 0, roles.index("batch") if "batch" in roles else None
        relations = tuple((roles.index(of), roles.index(dim), relation) for of, dim, relation in related)
        adds = bool(sums) and (split is not None or bool(relations))
        route = next((dim.route for dim in dims if dim.route is not None), None)
        give(self, roles=roles, spaces=spaces, ndim=len(dims), route=route)
        give(self, split=split, batch=batch, related=relations, running=running, adds=adds)
        give(self, unions={}, _places={})
        give(self, size=prod(dim.size for dim in dims) if route is None else self.there(self.whole.parts))

    def place(self, *parts: Part) -> Place:
        """Return the place with these parts, first of the dims, then of the sums."""
        found = self._places.get(parts)
        if found is None:
            found = keep(self._places, parts, self._canonical(parts) if self.related else Place(self, parts))
        return found

    def at(self, parts: Mapping[str, Part]) -> Place:
        """Return the place with parts given by role, each with the same pieces here; all others are whole."""
        return self.place(*[dim.like(parts.get(dim.name)) for dim in self.spaces])

    def _canonical(self, parts: tuple[Part, ...]) -> Place:
        """Return the place with these parts, or its canonical form: a sum in which nothing is missing is done."""
        # Places are compared by identity where speed matters, so equivalent ones have to become one here.
        found, unneeded = list(parts), False
        for at, dim, relation in self.related:
            needed = relation(parts[dim].pieces)
            inside = parts[at].pieces & needed
            found[at] = self.spaces[at].whole if inside == needed else self.spaces[at].piece(parts[at].grid, inside)
            unneeded = unneeded or bool(parts[dim].pieces and not needed)
        if any(not part.pieces for part in found[self.ndim :]):  # all empty sums share one canonical place
            none = [dim.whole if unneeded else dim.piece(dim.whole.grid, NO_PIECES) for dim in self.spaces]
            found[self.ndim :] = none[self.ndim :]
        return Place(self, parts) if tuple(found) == parts else self.place(*found)

    def there(self, parts: Sequence[Part]) -> Elements:
        """Return how many elements there are in a part of a routed tensor."""
        assert self.route is not None, "of any other tensor there is everything"
        here = dict(zip(self.roles, parts[: self.ndim], strict=False))
        others = prod([Fraction(part.size) for role, part in here.items() if role not in ROUTED], start=Fraction(1))
        # A route is uneven: the tokens of an expert are counted, and are no fixed share.
        return simplest(self.route.count(*[here[role].pieces for role in ROUTED]) * others)

    @property
    def whole(self) -> Place:
        """All of it."""
        return self.place(*[dim.whole for dim in self.spaces])

    def held(self, batches: frozenset[int] | None, shards: frozenset[int] | None = None, total: int = 1) -> Place:
        """Return the place of some batches, a dim or a sum, or of some of `total` shards, or both."""
        parts: dict[str, Part] = {}
        if shards is not None:
            parts[self.roles[0]] = self.spaces[0].piece(total, shards)
        if batches is not None:
            batch = self.spaces[cast(int, self.batch)]
            parts["batch"] = batch.piece(batch.size, batches)
        return self.at(parts)


@record(eq=False)
class Place:
    """The place of a value: which part of a tensor it is, and which part of a sum is in it.

    A dim whose part is not whole is *split*; a sum whose part is not whole is *open*. `complete`: all dims are whole;
    `open`: a sum is open; `zero`: a sum is empty; `plain`: only the first dim may be cut. `sharded`: its tensor is that
    of a weight; `shards` of `total` are the pieces of its first dim. `batches` of `total_batches` are those of the
    batch dim, or of the sum over batches. A place without such a dim is one shard of one, and has no batches.
    """

    schema: Schema
    parts: tuple[Part, ...]
    elements: Elements
    complete: bool
    open: bool
    plain: bool
    zero: bool
    batches: frozenset[int]

    def __init__(self, schema: Schema, parts: tuple[Part, ...]) -> None:
        # Whole numbers, divided once at the end, as fractions would be reduced at each dim.
        pieces = grid = 1
        complete = plain = True
        is_open = zero = False
        for at, part in enumerate(parts):
            if part.whole:
                continue
            plain = plain and at == 0
            if at < schema.ndim:
                complete = False
                pieces *= len(part.pieces)
                grid *= part.grid
            else:
                is_open = True
                zero = zero or not part.pieces
        if schema.route is not None:
            elements = schema.there(parts)
        else:
            elements = schema.size if complete else _size(schema.size, pieces, grid)
        if schema.running and is_open:
            elements = simplest(elements * (1 + Fraction(schema.running)))
        batches = NO_PIECES if schema.batch is None else parts[schema.batch].pieces
        # A step has many places: this is the fastest way to set slots, in their order.
        for put, item in zip(_PUT, (schema, parts, elements, complete, is_open, plain, zero, batches), strict=True):
            put(self, item)

    @property
    def sharded(self) -> bool:
        return self.schema.split is not None

    @property
    def noun(self) -> str:
        """Return the word for its shards."""
        return DIMS[self.first.dim.name].noun if self.first.dim.counted else "shard"

    @property
    def shards(self) -> frozenset[int]:
        if self.schema.split is None:
            return ONE_PIECE
        pieces = self.parts[self.schema.split].pieces
        # Students see a plain set, in whatever form it is kept.
        return frozenset(pieces) if isinstance(pieces, RunSet) else pieces

    @property
    def total(self) -> int:
        return 1 if self.schema.split is None else self.parts[self.schema.split].grid

    @property
    def total_batches(self) -> int:
        return 0 if self.schema.batch is None else self.parts[self.schema.batch].grid

    @property
    def rest(self) -> tuple[tuple[str, Pieces, int], ...]:
        """The parts that are not whole, except shards and batches, as (role, pieces, of how many)."""
        pairs = enumerate(zip(self.schema.roles, self.parts, strict=True))
        others = [pair for at, pair in pairs if at not in (self.schema.split, self.schema.batch)]
        return tuple([(role, part.pieces, part.grid) for role, part in others if not part.whole])

    def part(self, role: str) -> Part | None:
        """Return the part of a dim or sum; None if the tensor has no such dim."""
        roles = self.schema.roles
        return self.parts[roles.index(role)] if role in roles else None

    @property
    def first(self) -> Part:
        """The part of the first dim, along which a gather joins shards of a weight or batches of activations."""
        return self.parts[0]

    @property
    def dims(self) -> tuple[Part, ...]:
        return self.parts[: self.schema.ndim]

    @property
    def sums(self) -> tuple[Part, ...]:
        return self.parts[self.schema.ndim :]

    @property
    def named(self) -> dict[str, Part]:
        """The parts of its dims by their roles."""
        return dict(zip(self.schema.roles, self.dims, strict=False))

    def having(self, role: str, part: Part) -> Place:
        """Return this place with another part of one dim."""
        at = self.schema.roles.index(role)
        return self.schema.place(*self.parts[:at], part, *self.parts[at + 1 :])

    def same(self, other: Place) -> bool:
        """Tell whether both have the same parts, perhaps in two steps."""
        if self is other:
            return True
        # Two steps have different schema objects, even if these are alike.
        if self.schema.roles != other.schema.roles or self.schema.ndim != other.schema.ndim:
            return False
        return all(mine.same(theirs) for mine, theirs in zip(self.parts, other.parts, strict=True))

    def along(self, other: Place, *, sums: bool = False) -> int:
        """Return the dim (or sum) along which two places are put together: the first in which they differ, else the
        first that is cut."""
        # One tuple has dims and then sums; a law is about the one or the other.
        low, high = (self.schema.ndim, None) if sums else (0, self.schema.ndim)
        for at, (mine, theirs) in enumerate(zip(self.parts[low:high], other.parts[low:high], strict=False), low):
            if not mine.same(theirs):
                return at
        # For two equal places a message names what is cut, as in "shard 3 twice".
        return next((at for at, part in enumerate(self.parts[low:high], low) if not part.whole), low)

    def covers(self, other: Place) -> bool:
        """Tell whether every element of the other lies in this one, in whatever grids. Both have the same dims."""
        if self.complete:
            return True
        mine, theirs = self.dims, other.dims
        return mine == theirs or all(one.covers(another) for one, another in zip(mine, theirs, strict=True))

    def words(self) -> list[str]:
        """Return it in words: "batches 0-2", "shard 3 of 4", "columns 1 of 2", "part 0 of 2 of a sum"."""
        found: list[str] = []
        if self.schema.batch is not None:
            found.append(numbered("batch", self.batches) if self.batches else "no batches")
        if self.total > 1 and not (self.first.whole and self.first.dim.counted):
            found.append(f"{numbered(self.noun, self.shards) if self.shards else f'no {self.noun}s'} of {self.total}")
        return found + self.cut_words()

    def cut_words(self) -> list[str]:
        """Return the words for parts in `rest`: "columns 1 of 2", "no rows", "part 0 of 2 of a sum"."""
        found: list[str] = []
        for role, pieces, grid in self.rest:
            kind, inside = DIMS[role], ranges(pieces)
            some = f"{kind.plural} {inside or 'none'} of {grid}{' of a sum' if kind.partial else ''}"
            found.append(some if inside or kind.partial else f"no {kind.plural}")
        return found

    def __repr__(self) -> str:
        dims, sums = ("; ".join(map(repr, parts)) for parts in (self.dims, self.sums))
        return f"<{dims}{' | ' + sums if sums else ''}>"


_PUT: list[Any] = [Place.__dict__[name].__set__ for name in Place.__match_args__]


def alike(parts: Sequence[Part], others: Sequence[Part], but: int) -> bool:
    """Tell whether the parts of two places are the same, except perhaps one."""
    pairs = enumerate(zip(parts, others, strict=True))
    return all(mine.same(theirs) for at, (mine, theirs) in pairs if at != but)


def held_together(places: Sequence[Place], rest: Sequence[Part]) -> Part:
    """Return the part of the first dim that at least one place of a tensor, or several together, hold with all of
    `rest`, which has parts of the other dims. Places with all rows of half the columns hold no row of all columns."""
    # The other dims are cut into strips, within which no place begins or ends, and these into cells.
    strips: list[list[Part]] = []
    for at, part in enumerate(rest, 1):
        cuts = [place.parts[at] for place in places]
        # Between neighbouring ends no place begins or ends, so a place has all of a strip or nothing.
        ends = sorted({end for cut in (part, *cuts) for both in cut.ranges for end in both})
        inside = (strip for both in pairwise(ends) if part.meets(strip := part.dim.part(both)))
        strips.append([part] if all(cut.whole for cut in cuts) else [*inside])
    dim = places[0].first.dim
    found: tuple[Range, ...] = ((0, dim.size),)
    for cell in product(*strips):
        there = [place for place in places if all(map(Part.covers, place.parts[1:], cell))]
        found = common(found, union(place.first for place in there).ranges if there else ())
    return dim.part(*found)


class Owners(Generic[T]):
    """The first owner of each part of a whole: disjoint ranges in order, each with its owner.

    Adding one to n others takes log n steps.
    """

    def __init__(self) -> None:
        # (low, high, number of the owner, owner), in order of `low`, which are distinct.
        self._ranges: list[tuple[Elements, Elements, int, T]] = []
        self._count = 0

    def add(self, ranges: Iterable[Range], owner: T) -> T | None:
        """Give an owner those ranges that have none. Return the first owner that has some of them, or None."""
        self._count += 1
        met: list[tuple[Elements, Elements, int, T]] = []
        for low, high in ranges:
            # The range before may reach into this one.
            begin = bisect_right(self._ranges, low, key=itemgetter(0))
            begin -= begin > 0 and self._ranges[begin - 1][1] > low
            # A copy: what is inserted below lies in the gaps between these.
            inside = self._ranges[begin : bisect_left(self._ranges, high, key=itemgetter(0))]
            met += inside
            for held in inside:
                if low < held[0]:
                    insort(self._ranges, (low, held[0], self._count, owner), key=itemgetter(0))
                low = held[1]
            if low < high:
                insort(self._ranges, (low, high, self._count, owner), key=itemgetter(0))
        # The owner that came first, in whatever order ranges are given.
        return min(met, key=lambda held: held[2])[3] if met else None
