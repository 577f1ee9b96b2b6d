"""What happens to values: two laws, and what undoes the first.

- **gather** (`combine`): the union along the dim that is *split* (shards, batches, features), all else equal;
- **reduce** (`+`): the *disjoint* union over what is *summed* (batches of a gradient, terms of a partial sum);
- **cut** (`shard`): a shard of a complete value, or a part of the batches of an activation.

They ask the places of the values, and a place is all that changes. What they refuse they say as a fact.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NoReturn, TypeVar, cast

from lib.errors.arguments import is_awaitable
from lib.errors.exceptions import RuleError
from lib.errors.forgotten_await import forgotten_await
from lib.values.facts import Different, Gaps, NoShard, NoSum, OtherKind, TooManyShards, Twice, Undivided
from lib.values.placement import MOST, NO_PIECES, REST, SMALL_SET, Elements, Part, Place, alike, total_size

if TYPE_CHECKING:
    from lib.values.values import Value

__all__ = ["cut", "gather", "reduce", "renew", "same_kind", "total_elements"]

V = TypeVar("V", bound="Value")
FIELDS = {"in": "shards", "batch": "batches"}
"""What students call the pieces of an axis; those of others have the name of its role."""
ASKED = ("layer", "total", "step", "shards", "batches", *REST)
"""In what two values may differ, in the order in which it is told."""


def gather(*values: V) -> V:
    """The first law: the union along the one dim in which they differ, all else equal. The parts must not overlap.

    Split are the shards of a weight, of its gradient and of its optimizer state, the batches of activations, and the
    features of both.
    """
    first, last = values[0], values[-1]
    kind, layer, place, step = type(first), first.layer, first.place, first.updates
    at = place.along(last.place) if type(last) is kind else 0
    grid = place.parts[at].grid if place.sharded or at else None
    head, tail = place.parts[:at], place.parts[at + 1 :]
    for other in values[1:]:
        if type(other) is not kind or other.layer != layer or other.updates != step:
            _refuse("gather", first, other, at)
        parts = other.place.parts
        if grid is not None and parts[at].grid != grid:
            _refuse("gather", first, other, None)
        if (parts[at + 1 :] != tail or parts[:at] != head) and not alike(place.parts, parts, at):
            _refuse("gather", first, other, at)
    return first.at(place.schema.place(*head, _union("gather", values, at), *tail))


def reduce(*values: V) -> V:
    """The second law: the disjoint union over the summed set, all else equal.

    Summed are weight gradients, over their batches, and activations that are partial sums.
    """
    first = values[0]
    place: Place | None = getattr(first, "place", None)
    if place is None or not place.sums or not (place.open or place.sharded):
        raise RuleError(NoSum(first))
    kind, layer, schema = type(first), first.layer, place.schema
    at, dims = schema.dims, place.dims
    for other in values:
        if type(other) is not kind or other.layer != layer:
            _refuse("sum", first, other, at)
    for other in values[1:]:
        if other.place.parts[:at] != dims and not alike(dims, other.place.dims, at):
            _refuse("sum", first, other, at)
        if not place.sharded and other.place.parts[at].grid != place.parts[at].grid:
            _refuse("sum", first, other, None)
    return first.at(schema.place(*dims, _union("sum", values, at), *place.parts[at + 1 :]))


def cut(value: V, shard: int, total: int) -> V:
    """Shard `shard` of `total` of a value: of the part of a weight, or of the batches, that are here, in order."""
    if not (isinstance(shard, int) and isinstance(total, int) and 0 <= shard < total):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise RuleError(NoShard(shard, total, loads=False))
    place = value.place
    if not place.sharded:
        batches, axis = sorted(place.batches), place.first.axis
        if not batches or len(batches) % total:
            raise RuleError(Undivided(value, "batches", len(batches), total))
        axis.may_make(len(batches) - SMALL_SET)
        size = len(batches) // total
        mine = frozenset(batches[shard * size : (shard + 1) * size])
        return value.at(place.having("batch", axis.named(place.total_batches, mine)))
    if place.first.whole:
        grid = total
    elif (grid := place.first.finer(total)) is None:
        raise RuleError(Gaps(value))
    if grid > MOST:
        raise RuleError(TooManyShards(shard, grid))
    if place.first.whole:
        return value.at(place.shard(shard, total))
    place.first.axis.may_make(len(place.first.pieces) - SMALL_SET)
    return value.at(place.schema.place(place.first.cut(shard, total), *place.parts[1:]))


def renew(value: V) -> V:
    """An equal value without a home: what another rank gets when this one is sent."""
    return value.at(value.place)


def total_elements(values: Iterable[Value]) -> Elements:
    """Elements of all values together."""
    return total_size([value.place.elements for value in values])


def same_kind(verb: str, first: Value, other: object) -> None:
    """Whether the other is a value of the same kind: the first thing that both laws ask."""
    if type(first) is type(other):
        return
    if is_awaitable(other):
        raise forgotten_await(f"cannot {verb} a call that was not awaited", f"another {first.kind}", other)
    raise RuleError(OtherKind(verb, first, other))


def _refuse(verb: str, first: Value, other: Value, at: int | None) -> None:
    """Says in what two values differ, if they do, other than that along which they are put together."""
    same_kind(verb, first, other)
    role = None if at is None else first.place.schema.roles[at]
    for field in ASKED:
        if field not in (role, FIELDS.get(role or ""), "step" if verb == "sum" else "") and (
            _has(first, field) != _has(other, field)
        ):
            raise RuleError(Different(verb, field, first, other))


def _has(value: Value, field: str) -> object:
    """What a value has in a field, or which part of an axis it is."""
    part = value.place.part(field) if field in REST else None
    return getattr(value, field, None) if part is None else part.whole or (part.grid, part.pieces)


def _union(verb: str, values: Sequence[Value], at: int) -> Part:
    """The union of one part of all values, which must be disjoint: that is what both laws ask for."""
    parts = tuple([value.place.parts[at] for value in values])
    axis, grid = parts[0].axis, cast(int, parts[0].grid)
    if (known := axis.known(parts)) is not None:
        return known
    union = NO_PIECES.union(*[part.pieces for part in parts])
    if len(union) != sum([len(part.pieces) for part in parts]):
        _refuse_twice(verb, values, at)
    axis.may_make(len(union) - SMALL_SET * len(parts))
    # What students see stays cut as it was: `shards`, `total`, `batches`.
    whole = axis.name in REST and len(union) == grid
    return axis.remember(parts, axis.whole if whole else axis.named(grid, union))


def _refuse_twice(verb: str, values: Sequence[Value], at: int) -> NoReturn:
    """Names the pieces that are in two of the values."""
    seen: set[int] = set()
    for value in values:
        pieces = value.place.parts[at].pieces
        twice = seen & pieces
        if twice:
            both = tuple(v for v in values if v.place.parts[at].pieces & twice)
            role = value.place.schema.roles[at]
            raise RuleError(Twice(verb, FIELDS.get(role, role), frozenset(twice), both))
        seen |= pieces
    raise AssertionError("sets with repeated items were found disjoint")
