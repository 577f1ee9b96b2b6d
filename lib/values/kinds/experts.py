"""A layer of experts, in three: tokens go to their experts, each expert works on its own, and tokens come back.

A dispatched activation has a further dim, the experts, and for each expert the rows that go to it: their number
determines time, memory and traffic. Combining the results of some experts gives a part of a sum. Backwards it is the
same: a token that was at two experts has a gradient from both. A weight has all experts; a rank may have some of them,
whole.

Groups and capacity are those of GShard (Lepikhin et al. 2020); without a capacity nothing is dropped, as in MegaBlocks
(Gale et al. 2022). Simplified: a route is data and no gate chooses it, so no gradient flows into the choice.

The tokens of a step are all its rows, batch by batch. A route has the experts of each token, in order of choice, and
repeats after its last one. Adjacent tokens form a group, and an expert takes as many of a group as its capacity: first
choices before second ones, and tokens in order. So a rank that has a group knows what is dropped without
communication.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import accumulate
from math import gcd
from typing import TYPE_CHECKING, Any, cast

from lib.errors.wording import counted
from lib.values.dims import DIMS, Pieces, Run, RunSet
from lib.values.kinds.kind import LayerKind, Sum, fraction
from lib.values.kinds.linear import Linear
from lib.values.placement import MOST, Dim, Place, keep

if TYPE_CHECKING:
    from lib.values.values import Value

Choices = tuple[tuple[int, ...], ...]
"""The experts of each token, in order of choice."""
MOST_TIMES = 10**6
"""The most times that the tokens of a group at an expert are counted, for all tokens of a step."""


class _Turn:
    """The tokens of a route with one expert as their first, or second, ... choice. The route repeats."""

    def __init__(self, tokens: list[int], period: int) -> None:
        self.tokens, self.period = tokens, period

    def before(self, token: int) -> int:
        """Return how many of them come before a token."""
        turns, rest = divmod(token, self.period)
        return turns * len(self.tokens) + bisect_left(self.tokens, rest)

    def between(self, first: int, after: int) -> int:
        """Return how many of them there are from one token to before another."""
        return self.before(after) - self.before(first)

    def nth(self, number: int) -> int:
        """Return the token with this number among them."""
        turns, at = divmod(number, len(self.tokens))
        return turns * self.period + self.tokens[at]


class Route:
    """A route of the tokens of a step: `rows` in each batch, to `experts`.

    `choices` are those of the route's tokens, and `groups` the sizes of the groups, which repeat as well. Without a
    `capacity` nothing is dropped. No list of all tokens is made: their number at an expert is worked out from the
    route's own tokens, so that a million rows on a short route cost no more than sixteen.
    """

    def __init__(
        self, choices: Choices, experts: int, rows: int, batches: int, capacity: int | None, groups: Sequence[int]
    ) -> None:
        if not experts:
            raise ValueError("tokens are dispatched to experts, so there are some: experts=4")
        if not choices:
            raise ValueError("a route says the experts of each token, such as [[0, 1], [1, 2]]; got none")
        for token, chosen in enumerate(choices):
            wrong = [expert for expert in chosen if not 0 <= expert < experts]
            if not chosen or wrong or len(set(chosen)) < len(chosen):
                what = f"expert {wrong[0]}" if wrong else "no expert" if not chosen else f"the same one twice, {chosen}"
                raise ValueError(
                    f"a token goes to one or several of {counted(experts, 'expert')}, 0 to {experts - 1}, each once; "
                    f"token {token} of the route goes to {what}"
                )
        if capacity is not None and capacity < 1:
            raise ValueError(
                f"an expert with a capacity of {capacity} takes no token: it is at least 1, or leave it out, so that "
                "none is dropped"
            )
        if min(groups, default=0) < 1:
            raise ValueError(f"a group has at least 1 token; got groups={tuple(groups)}")
        self.choices, self.rows, self.tokens, self.capacity = choices, rows, rows * batches, capacity or rows * batches
        turns: dict[int, dict[int, list[int]]] = {}
        for token, chosen in enumerate(choices):
            for rank, expert in enumerate(chosen):
                turns.setdefault(expert, {}).setdefault(rank, []).append(token)
        self._turns = {
            expert: [_Turn(tokens, len(choices)) for _, tokens in sorted(mine.items())]
            for expert, mine in turns.items()
        }
        self._groups = [0, *accumulate(groups)]
        self._known: dict[tuple[int, int, RunSet], int] = {}
        times = max(batches, self.tokens * len(groups) // self._groups[-1]) * sum(map(len, turns.values()))
        if times > MOST_TIMES:
            raise ValueError(
                f"{counted(batches, 'batch', ',')} of {counted(rows, 'token', ',')} in groups of {self._groups[1]:,} "
                f"are too many for {counted(experts, 'expert', ',')}: groups times experts are at most {MOST_TIMES:,}"
            )

    def count(self, batches: Pieces, rows: Pieces, experts: Pieces) -> int:
        """Return how often some rows of some batches are at some experts."""
        inside, few, many = RunSet.of(rows), *sorted((experts, self._turns), key=len)
        return sum([self._count(expert, batch, inside) for expert in few if expert in many for batch in batches])

    def _count(self, expert: int, batch: int, rows: RunSet) -> int:
        """Return the same for one batch and expert, looked up: parts of an exchange are put together one by one."""
        key = expert, batch, rows
        found = self._known.get(key)
        if found is None:
            taken = self._taken(expert, batch, rows)
            found = keep(self._known, key, sum([turn.between(first, end) for turn, first, end in taken]))
        return found

    def rows_of(self, expert: int, batch: int, rows: Pieces) -> list[int]:
        """Return the rows of a batch, among these, that an expert takes, in order."""
        taken = [
            turn.nth(number)
            for turn, first, end in self._taken(expert, batch, RunSet.of(rows))
            for number in range(turn.before(first), turn.before(end))
        ]
        return sorted([token % self.rows for token in taken])

    def _taken(self, expert: int, batch: int, rows: RunSet) -> Iterator[tuple[_Turn, int, int]]:
        """Yield, choice by choice, the ranges of tokens in which an expert takes all tokens that choose it."""
        for first, after in [(batch * self.rows + low, batch * self.rows + high) for low, high in rows.runs]:
            for low, high in self._groups_at(first, after):
                # First choices of the whole group before second ones, as GShard fills its experts.
                room = self.capacity
                for turn in self._turns.get(expert, ()):
                    wanted = turn.between(low, high)
                    # Tokens take their places in order, so the end of the range finds no room.
                    end = high if wanted <= room else turn.nth(turn.before(low) + room)
                    room -= min(wanted, room)
                    if first < end and low < after:
                        yield turn, max(first, low), max(min(after, end), max(first, low))

    def _groups_at(self, first: int, after: int) -> Iterator[Run]:
        """Yield the groups that have any of these tokens."""
        *starts, period = self._groups
        turn, rest = divmod(first, period)
        # The last group that begins no later than the token.
        at = bisect_left(starts, rest + 1) - 1
        while (low := turn * period + starts[at]) < after:
            yield low, min(turn * period + self._groups[at + 1], self.tokens)
            turn, at = (turn, at + 1) if at + 1 < len(starts) else (turn + 1, 0)


def route_by_loads(loads: Sequence[int], top: int = 1) -> Choices:
    """Return a route on which experts get these shares of all choices, as in route_by_loads([7, 3, 3, 3], top=2).

    It has the fewest tokens possible, here 8, and their first choices are the experts in order.

    >>> route_by_loads([7, 3, 3, 3], top=2)
    ((0, 1), (0, 1), (0, 2), (0, 2), (0, 2), (0, 3), (0, 3), (1, 3))
    """
    numbers = isinstance(loads, Sequence) and all(type(one) is int and 0 <= one <= MOST for one in (*loads, top))  # pyright: ignore[reportUnnecessaryIsInstance]
    if not numbers or top < 1 or not any(loads):
        raise ValueError(f"a route by loads takes a number for each expert, and top= from 1 up; got {loads}, top={top}")
    parts = [load // gcd(*loads) for load in loads]
    times = top // gcd(sum(parts), top)
    tokens = sum(parts) * times // top
    if max(parts) * times > tokens:
        raise ValueError(f"a token goes to {top} different experts, so none of them gets more than 1 in {top}; {loads}")
    # Dealt out like cards: places that are `tokens` apart go to one token, and an expert has at most `tokens` of them,
    # so no token gets it twice.
    line = [expert for expert, part in enumerate(parts) for _ in range(part * times)]
    return tuple(tuple(line[token::tokens]) for token in range(tokens))


class _Moved(LayerKind):
    """A layer that only moves tokens, and takes no time."""

    takes, keeps, square = "", False, True


class Dispatch(_Moved):
    """Each token once for each of its experts."""

    name, free = "dispatch", tuple(DIMS)
    options, optional = ("experts", "route"), ("capacity", "groups")

    def describe(self) -> None:
        layer, batch = self.layer, self.dims["batch"]
        route = Route(layer.route, layer.experts, layer.rows, batch.size, layer.capacity, layer.groups or (layer.rows,))
        experts = Dim("experts", layer.experts, route)
        self.gives = {"batch": batch, "experts": experts, **self.dims}
        self.owes = ((Sum(experts),),)
        self.work = 0

    def gradients_of(self, op: str, inp: Value, grad: Value, other: Any) -> tuple[Place | None, Place]:
        return None, self.back(0, grad.place.named)


class Combine(_Moved):
    """Each token again, as the sum of what its experts made of it, weighted by its gates."""

    name, routed, free = "combine", True, ("experts",)

    def describe(self) -> None:
        self.gives = {role: dim for role, dim in self.dims.items() if role != "experts"}
        self.opens = (Sum(self.dims["experts"]),)
        self.work = 0


class Experts(Linear):
    """A linear layer for each expert, on the tokens that go to it."""

    name, routed = "experts", True
    options = ("experts",)

    def describe(self) -> None:
        super().describe()
        number, here = self.layer.experts, self.dims["experts"]
        if here.size != number:
            raise ValueError(f"these are {number} experts, and tokens are dispatched to {here.size}")
        self.weight_dims = (self.dim("experts", number), *self.weight_dims)
        batch, rows = self.dims["batch"], self.dims["rows"]
        # On average over the step: the cost of a batch depends on where its tokens go.
        tokens = cast(Route, here.route).count(batch.whole.pieces, rows.whole.pieces, here.whole.pieces)
        self.tokens = Fraction(tokens, batch.size)
        self.work = self.tokens * self.layer.inputs * self.layer.outputs

    def fit(self, op: str, inp: Value, other: Any) -> None:
        if other is not None:
            self.alike(op, inp, other, "experts")

    def share_of_points(self, places: Sequence[Place]) -> Fraction:
        """Return the number of tokens at the experts that are here, as a fraction of a batch's average."""
        inp = places[0]
        here = Fraction(inp.elements) / (fraction(inp.dims[-1]) * self.layer.inputs * max(len(inp.batches), 1))
        return here / self.tokens
