"""What happens to values: two laws, and the inverse of the first.

- **gather** (`combine`): the union along the dim that is *split* (shards, batches, features), all else equal;
- **reduce** (`+`): the *disjoint* union over what is *summed* (batches of a gradient, terms of a partial sum);
- **cut** (`shard`): a shard of a complete value, a part of the batches of an activation, or of any other dim.

Values that are put together differ along one dim, or fill a grid of several, such as batches and rows.

They are what all-gather and all-reduce do to tensors, concatenation and sum, without the numbers: that a batch counts
twice shows in a set, but in floats only by luck. There is no rounding, so sums are associative. The laws read and
change only the places of values. They refuse with a fact.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from operator import attrgetter
from typing import TYPE_CHECKING, NoReturn, TypeVar

from lib.errors.exceptions import RuleError, forgotten_await
from lib.errors.wording import is_awaitable
from lib.values import facts
from lib.values.dims import AVERAGED, DIMS, REST, Pieces, RunSet, united
from lib.values.placement import MOST, SMALL_SET, Elements, Part, Place, alike, keep, simplest

if TYPE_CHECKING:
    from lib.values.values import Value

    V = TypeVar("V", bound=Value)
MOST_LOOKED_UP = 256
"""The most values whose union is looked up, by all their places; that of more is worked out."""
FIELDS = {kind.role: kind.field for kind in DIMS.values() if kind.field is not None}
"""The students' name for the pieces of a dim; without an entry, the role."""
_place_of = attrgetter("place")
ASKED = ("layer", "total", "step", "shards", "batches", *REST)
"""The fields in which two values may differ, in the order in which they are reported."""


def gather(*values: V) -> V:
    """Return the union along the one dim in which they differ, all else equal: the first law. The parts must not
    overlap.

    It joins shards of a weight, its gradient or its optimizer state, and batches or features of activations and their
    gradients.
    """
    first = values[0]
    kind, layer, step = type(first), first.layer, first.updates
    for other in values[1:]:
        if type(other) is not kind or other.layer != layer or other.updates != step:
            last = values[-1]
            _refuse("join", first, other, first.place.along(last.place) if type(last) is kind else 0)
    return first.at(_together("join", values))


def reduce(*values: V) -> V:
    """Return the disjoint union over the summed set, all else equal: the second law.

    It adds weight gradients, over their batches, and activations that are partial sums.
    """
    first = values[0]
    place: Place | None = getattr(first, "place", None)
    if place is None or not (place.open or place.schema.adds):
        raise RuleError(facts.NoSum(first))
    kind, layer = type(first), first.layer
    for other in values:
        if type(other) is not kind or other.layer != layer:
            _refuse("sum", first, other, place.schema.ndim)
    return first.at(_together("sum", values))


def average(*values: V) -> V:
    """Return the mean of means, each over equally many points, which is then the mean of all points."""
    first = values[0]
    if not (first.place.open and first.place.schema.running and first.place.part(AVERAGED["rows"])):
        raise RuleError(facts.NoMean(first))
    # Means over unequal numbers would have to be weighted; DTensor's once were not (pytorch/pytorch#162692).
    total = reduce(*values)
    for other in values[1:]:
        for mine, theirs in zip(first.place.sums, other.place.sums, strict=True):
            if len(mine.pieces) != len(theirs.pieces):
                raise RuleError(facts.MeanOfMeans(first, other, mine.dim.name))
    return total


def _together(verb: str, values: Sequence[Value]) -> Place:
    """Return the place of several values together. For few it is looked up: a run puts the same ones together in each
    layer, and on each rank."""
    # Keys are hashed by identity, which is enough: a step has one object for each place.
    places = tuple(map(_place_of, values))
    if len(places) > MOST_LOOKED_UP:
        return _united(verb, values)
    known = places[0].schema.unions
    return known.get((verb, places)) or keep(known, (verb, places), _united(verb, values))


def _united(verb: str, values: Sequence[Value]) -> Place:
    """Return the union along one dim or sum, all else equal, or of a grid along several."""
    first, place, schema = values[0], values[0].place, values[0].place.schema
    # The dim is guessed from the first and the last value. The loop below finds out whether all differ there and
    # nowhere else; that, and not each pair by itself, keeps a gather over 10^5 ranks linear.
    at = place.along(values[-1].place, sums=verb == "sum")
    parts, mine, ndim = place.parts, place.parts[at], schema.ndim
    for other in values[1:] if verb == "sum" else ():
        theirs = other.place.parts
        if theirs[:ndim] != parts[:ndim] and not alike(parts[:ndim], theirs[:ndim], ndim):
            _refuse("sum", first, other, ndim)
    # Shard 1 of 2 and shard 1 of 4 have numbers that mean different things. Counted dims have one grid: their elements.
    grid = 0 if mine.dim.counted else mine.grid
    head, tail = parts[:at], parts[at + 1 :]
    for other in values[1:]:
        theirs = other.place.parts
        other_grid = grid != 0 and theirs[at].grid != grid
        # Slices of tuples compare by identity first, which mostly decides; `alike` is for values of two steps.
        if not other_grid and ((theirs[at + 1 :] == tail and theirs[:at] == head) or alike(parts, theirs, at)):
            continue
        adding = values if verb != "sum" else [value for value in values if not value.place.zero]
        if len(adding) < len(values):  # zeros add nothing
            return reduce(*adding).place if adding else place
        found = _grid_of(verb, values)
        if found is not None:
            return found
        _refuse(verb, first, other, None if other_grid else at)
        raise RuleError(facts.Different(verb, FIELDS.get(schema.roles[at], schema.roles[at]), first, other))
    each = [value.place.parts[at].pieces for value in values]
    # They are disjoint if the union loses none: one comparison for any number of values.
    pieces = united(each)
    if len(pieces) != sum(map(len, each)):
        _refuse_twice(verb, values, at)
    # Only sets that are larger than the code that spelled them out count against the limit of the run.
    if len(pieces) > SMALL_SET * len(values):
        mine.dim.may_make(pieces, len(values))
    return schema.place(*head, mine.dim.piece(mine.grid, pieces), *tail)


def _grid_of(verb: str, values: Sequence[Value]) -> Place | None:
    """Return the union of boxes that fill a grid, with each cell once; None if they do not."""
    place = values[0].place
    parts, cells = list(place.parts), 1
    ndim = place.schema.ndim
    where = range(ndim, len(parts)) if verb == "sum" else range(ndim)
    differ: list[int] = []
    for at, first in enumerate(place.parts):
        column = [first, *{part for value in values if not (part := value.place.parts[at]).same(first)}]
        pieces = united([part.pieces for part in column])
        if len(column) == 1:
            continue
        if at not in where or any(part.grid != first.grid for part in column):
            return None
        if len(pieces) != sum([len(part.pieces) for part in column]):
            return None
        first.dim.may_make(pieces, len(column))
        parts[at] = first.dim.piece(first.grid, pieces)
        cells *= len(column)
        differ.append(at)
    # Different boxes of a grid cannot overlap. If they are as many as its cells, each cell is there once.
    boxes = {tuple([value.place.parts[at] for at in differ]) for value in values}
    if len(boxes) < len(values):
        _refuse_twice(verb, values, differ[-1])
    return place.schema.place(*parts) if cells == len(values) else None


def cut(value: V, shard: int, total: int, role: str | None = None) -> V:
    """Return shard `shard` of `total` of a value: of its part of a weight, its batches, or another dim, in order."""
    if not (isinstance(shard, int) and isinstance(total, int) and 0 <= shard < total):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise RuleError(facts.NoShard(shard, total, loads=False))
    place = value.place
    part = place.first if role is None else _dim_of(value, role)
    dim, words = part.dim, DIMS[part.dim.name]
    if words.counted:
        pieces = part.pieces
        if not pieces or len(pieces) % total:
            raise RuleError(facts.Undivided(value, words.plural, len(pieces), total))
        dim.may_make(pieces)
        # Sets have no order: shard i of the batches has the i-th ones by number.
        low, high = (number * len(pieces) // total for number in (shard, shard + 1))
        mine = pieces.nth(low, high) if isinstance(pieces, RunSet) else frozenset(sorted(pieces)[low:high])
        return value.at(place.having(dim.name, dim.piece(part.grid, mine)))
    mine = part.cut(shard, total)
    if mine is None:
        raise RuleError(facts.NotAdjacent(value))
    if mine.grid > MOST:
        raise RuleError(facts.TooManyShards(shard, mine.grid))
    # Shards of a weight's first dim may end within a row, as FSDP's flat shards do; nothing else can be cut like that.
    if part is not place.first and dim.size % mine.grid:
        raise RuleError(facts.Undivided(value, words.plural, dim.size, mine.grid))
    dim.may_make(part.pieces)
    return value.at(place.having(dim.name, mine))


def piece(value: V, role: str, low: int, high: int) -> V:
    """Return the elements from `low` up to `high` of a dim of a value. RuleError if it does not have them."""
    part = _dim_of(value, role)
    wanted = RunSet.span(low, high) if 0 <= low <= high <= part.dim.size else None
    if wanted is None or not DIMS[role].counted or not wanted <= part.pieces:
        raise RuleError(facts.NotCut(value, role, (low, high)))
    part.dim.may_make(wanted)
    return value.at(value.place.having(role, part.dim.piece(part.dim.size, wanted)))


def _dim_of(value: Value, role: str) -> Part:
    found = value.place.named.get(role) if isinstance(role, str) else None  # pyright: ignore[reportUnnecessaryIsInstance]
    if found is None:
        raise RuleError(facts.NotCut(value, role, None))
    return found


def total_elements(values: Iterable[Value]) -> Elements:
    """Return the elements of all values together."""
    # A Fraction finds a common divisor in every sum, which is slow; here that is done once for each denominator.
    parts: dict[int, int] = {}
    whole = 0
    for value in values:
        size = value.place.elements
        if type(size) is int:
            whole += size
        else:
            parts[size.denominator] = parts.get(size.denominator, 0) + size.numerator
    if not parts:
        return whole
    return simplest(whole + sum(Fraction(count, denominator) for denominator, count in parts.items()))


def _refuse(verb: str, first: Value, other: Value, at: int | None) -> None:
    """Raise if two values differ in anything but the dim being joined. Returns where they do not: the caller refuses
    them for another reason, or several values together."""
    if type(first) is not type(other):
        if is_awaitable(other):
            raise forgotten_await(f"cannot {verb} a call that was not awaited", f"another {first.kind}", other)
        raise RuleError(facts.OtherKind(verb, first, other))
    role = None if at is None else first.place.schema.roles[at]
    for field in ASKED:
        if field not in (role, FIELDS.get(role or ""), "step" if verb == "sum" else "") and (
            _has(first, field) != _has(other, field)
        ):
            raise RuleError(facts.Different(verb, field, first, other))


def _has(value: Value, field: str) -> object:
    """Return a value's field, or its part of a dim, in a form that can be compared."""
    part = value.place.part(field) if field in REST else None
    return getattr(value, field, None) if part is None else part.whole or (part.grid, part.pieces)


def _refuse_twice(verb: str, values: Sequence[Value], at: int) -> NoReturn:
    """Raise with the pieces that are in two of the values."""
    seen: Pieces | None = None
    for value in values:
        pieces = value.place.parts[at].pieces
        twice = pieces & seen if seen else None
        if twice:
            both = tuple(v for v in values if v.place.parts[at].pieces & twice)
            role = value.place.schema.roles[at]
            raise RuleError(facts.Twice(verb, FIELDS.get(role, role), frozenset(twice), both))
        seen = pieces if seen is None else united([pieces, seen])
    raise AssertionError("sets with repeated items were found disjoint")
