"""What happens to values: two laws, and what undoes the first.

- **gather** (`combine`): the union along the dim that is *split* (shards, or batches of activations), all else equal;
- **reduce** (`+`): the *disjoint* union over what is *summed* (batches of a gradient), all else equal;
- **cut** (`shard`): a shard of a complete value.

They ask the places of the values, and a place is all that changes. What they refuse they say as a fact.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, NoReturn, TypeVar, cast

from lib.errors.arguments import is_awaitable
from lib.errors.exceptions import RuleError
from lib.errors.forgotten_await import forgotten_await
from lib.values.facts import CutTwice, Different, NoShard, NoShards, NoSum, OtherKind, TooManyShards, Twice
from lib.values.placement import MOST, NO_PIECES, Elements, Part

if TYPE_CHECKING:
    from lib.values.values import Value

__all__ = ["cut", "gather", "reduce", "renew", "same_kind", "total_elements"]

V = TypeVar("V", bound="Value")
MOST_LOOKED_UP = 16
"""Summands whose sum is looked up; of more it is worked out, which is one operation on sets."""
FIELDS = {"in": "shards", "batch": "batches"}
"""What students call the pieces of an axis."""


def gather(*values: V) -> V:
    """The first law: the union over the split set, all else equal. The sets must not overlap.

    Split are the shards of a weight, of its gradient and of its optimizer state, and the batches of activations.
    """
    first = values[0]
    kind, layer, place, step = type(first), first.layer, first.place, first.updates
    grid, rest = place.first.grid if place.sharded else None, place.parts[1:]
    for other in values[1:]:
        if type(other) is not kind or other.layer != layer or other.updates != step:
            _refuse("gather", first, other, ("layer", "total", "step"))
        if grid is not None and other.place.first.grid != grid:
            _refuse("gather", first, other, ("layer", "total", "step"))
        if other.place.parts[1:] != rest and not _alike(first, other, 1, None):
            _refuse("gather", first, other, ("batches",))
    return first.at(place.schema.place(_union("gather", values, 0), *rest))


def reduce(*values: V) -> V:
    """The second law: the disjoint union over the summed set, all else equal. Only weight gradients are summed."""
    first = values[0]
    place = getattr(first, "place", None)
    if place is None or not place.sums:
        raise RuleError(NoSum(first))
    kind, layer, schema = type(first), first.layer, place.schema
    for other in values:
        if type(other) is not kind or other.layer != layer:
            _refuse("sum", first, other, ("layer",))
    places = tuple([value.place for value in values])
    known = schema.summed(places) if len(places) <= MOST_LOOKED_UP else None
    if known is not None:
        return first.at(known)
    at, dims = schema.dims, place.dims
    for other in values[1:]:
        if other.place.parts[:at] != dims and not _alike(first, other, 0, at):
            _refuse("sum", first, other, ("total", "shards"))
    found = schema.place(*dims, _union("sum", values, at), *place.parts[at + 1 :])
    if len(places) <= MOST_LOOKED_UP:
        schema.keep_sum(places, found)
    return first.at(found)


def cut(value: V, shard: int, total: int) -> V:
    """Shard `shard` of `total` of a complete value."""
    if "in" not in value.place.schema.roles:
        raise RuleError(NoShards(value))
    if not (isinstance(shard, int) and isinstance(total, int) and 0 <= shard < total):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise RuleError(NoShard(shard, total, loads=False))
    if not value.place.complete:
        raise RuleError(CutTwice(value))
    if total > MOST:
        raise RuleError(TooManyShards(shard, total))
    return value.at(value.place.shard(shard, total))


def renew(value: V) -> V:
    """An equal value without a home: what another rank gets when this one is sent."""
    return value.at(value.place)


def total_elements(values: Iterable[Value]) -> Elements:
    """Elements of all values together. Sums fractions of one denominator as whole numbers: they are slow."""
    whole, parts = 0, dict[int, int]()
    for value in values:
        size = value.place.elements
        if type(size) is int:
            whole += size
        else:
            parts[size.denominator] = parts.get(size.denominator, 0) + size.numerator
    if not parts:
        return whole
    total = whole + sum(Fraction(count, denominator) for denominator, count in parts.items())
    return total.numerator if total.denominator == 1 else total


def _alike(first: Value, other: Value, low: int, high: int | None) -> bool:
    """Whether some of the parts of two values are the same."""
    pairs = zip(first.place.parts[low:high], other.place.parts[low:high], strict=True)
    return all(mine.same(theirs) for mine, theirs in pairs)


def same_kind(verb: str, first: Value, other: object) -> None:
    """Whether the other is a value of the same kind: the first thing that both laws ask."""
    if type(first) is type(other):
        return
    if is_awaitable(other):
        raise forgotten_await(f"cannot {verb} a call that was not awaited", f"another {first.kind}", other)
    raise RuleError(OtherKind(verb, first, other))


def _refuse(verb: str, first: Value, other: Value, fields: Sequence[str]) -> None:
    """Says in which of some fields two values differ, if they do."""
    same_kind(verb, first, other)
    for field in fields:
        if getattr(first, field, None) != getattr(other, field, None):
            raise RuleError(Different(verb, field, first, other))


def _union(verb: str, values: Sequence[Value], at: int) -> Part:
    """The union of one part of all values, which must be disjoint: that is what both laws ask for."""
    parts = [value.place.parts[at] for value in values]
    union = NO_PIECES.union(*[part.pieces for part in parts])
    if len(union) != sum([len(part.pieces) for part in parts]):
        _refuse_twice(verb, values, at)
    return parts[0].axis.named(cast(int, parts[0].grid), union)


def _refuse_twice(verb: str, values: Sequence[Value], at: int) -> NoReturn:
    """Names the pieces that are in two of the values."""
    seen: set[int] = set()
    for value in values:
        pieces = value.place.parts[at].pieces
        twice = seen & pieces
        if twice:
            both = tuple(v for v in values if v.place.parts[at].pieces & twice)
            raise RuleError(Twice(verb, FIELDS[value.place.schema.roles[at]], frozenset(twice), both))
        seen |= pieces
    raise AssertionError("sets with repeated items were found disjoint")
