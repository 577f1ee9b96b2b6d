"""Routes beside a plain loop over tokens, and what experts cost."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import cycle, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import route_by_loads
from lib.values.dims import RunSet
from lib.values.kinds.experts import Choices, Route
from lib.values.layers import Layer, Shape
from tests.support.profiles import examples


def plainly(
    choices: Choices, experts: int, tokens: int, capacity: int | None, groups: Sequence[int]
) -> set[tuple[int, int]]:
    """Who is where, by the rule: in each group first choices, tokens in their order, then second ones."""
    found, sizes, left = set[tuple[int, int]](), cycle(groups), list(range(tokens))
    while left:
        size = next(sizes)
        group, left, room = left[:size], left[size:], [tokens if capacity is None else capacity] * experts
        for choice in range(max(map(len, choices))):
            for token in group:
                expert = dict(enumerate(choices[token % len(choices)])).get(choice)
                if expert is not None and room[expert]:
                    room[expert] -= 1
                    found.add((token, expert))
    return found


Described = tuple[Choices, int, int | None, list[int]]


@st.composite
def routes(draw: st.DrawFn) -> Described:
    experts = draw(st.integers(1, 4))
    chosen = st.lists(st.integers(0, experts - 1), min_size=1, unique=True)
    choices = tuple(map(tuple, draw(st.lists(chosen, min_size=1, max_size=8))))
    groups = draw(st.lists(st.integers(1, 9), min_size=1, max_size=3))
    return choices, experts, draw(st.one_of(st.none(), st.integers(1, 4))), groups


@given(routes(), st.integers(1, 8), st.integers(1, 4), st.data())
@examples(300)
def test_an_expert_takes_the_tokens_that_a_loop_over_all_gives_it(
    route: Described, rows: int, batches: int, data: st.DataObject
) -> None:
    choices, experts, capacity, groups = route
    made = Route(choices, experts, rows, batches, capacity, groups)
    true = plainly(choices, experts, rows * batches, capacity, groups)
    some: list[set[int]] = [data.draw(st.sets(st.integers(0, end - 1))) for end in (batches, rows, experts)]
    here = {
        (token, one) for token, one in true if token // rows in some[0] and token % rows in some[1] and one in some[2]
    }
    parts = [RunSet.of(one) for one in some]
    assert made.count(*parts) == len(here)
    for batch in some[0]:
        for one in some[2]:
            mine = sorted(token % rows for token, at in here if at == one and token // rows == batch)
            assert made.rows_of(one, batch, parts[1]) == mine


@given(st.lists(st.integers(0, 20), min_size=2, max_size=6), st.integers(1, 3))
@examples(100)
def test_a_route_by_loads_has_these_loads(loads: list[int], top: int) -> None:
    if not any(loads) or max(loads) * top > sum(loads):
        return
    route = route_by_loads(loads, top)
    assert all(len(set(chosen)) == top for chosen in route)
    each = [sum(expert in chosen for chosen in route) for expert in range(len(loads))]
    assert [Fraction(one, sum(each)) for one in each] == [Fraction(one, sum(loads)) for one in loads]


def test_a_million_rows_on_a_short_route_are_counted_by_their_ends() -> None:
    """Both ways: closed forms, and no list of tokens, so that neither is slow."""
    layers = [
        Layer("dispatch", rows=10**6, experts=4, route=route_by_loads([7, 3, 3, 3], 2), capacity=3 * 10**5),
        Layer("combine", rows=10**6),
    ]
    shape = Shape(2, 4, layers)
    assert shape.activations[1].size == 4 * (3 * 10**5 + 3 * 375_000 - 3 * 75_000) * 512


def random(seed: int, *shape: int) -> np.ndarray:
    """Numbers from -1 to 1 without a library, as an independent model of these experts draws them."""
    x, found = (seed * 2654435761 + 12345) % 2**32, []
    for _ in range(int(np.prod(shape))):
        x = (1664525 * x + 1013904223) % 2**32
        found.append(x / 2**31 - 1)
    return np.array(found).reshape(shape)


@pytest.mark.parametrize(
    ("tokens", "experts", "dim", "capacity", "seed", "sent"),
    [
        ((8, 8, 8, 8), 4, 6, 5, 61, [[3, 4, 4, 5], [2, 4, 4, 5], [4, 3, 5, 3], [5, 1, 3, 5]]),
        ((7, 5), 2, 3, 3, 63, [[3, 3], [3, 3]]),
        ((8, 8, 8, 8), 4, 6, 100, 64, [[3, 4, 4, 5], [4, 4, 4, 4], [3, 5, 2, 6], [3, 5, 2, 6]]),
        ((12,), 2, 3, 6, 65, [[6, 6]]),
    ],
)
def test_what_a_router_sends_is_what_another_model_says(
    tokens: tuple[int, ...], experts: int, dim: int, capacity: int, seed: int, sent: list[list[int]]
) -> None:
    """A router's two best experts of each token; a rank's tokens are a group, with a capacity of its own."""
    rows = sum(tokens)
    logits = random(seed, rows, dim) @ random(seed + 1, dim, experts)
    choices = tuple(tuple(int(one) for one in np.argsort(-row, kind="stable")[:2]) for row in logits)
    route = Route(choices, experts, rows, 1, capacity, tokens)
    ends = np.cumsum([0, *tokens])
    parts = [RunSet.span(int(first), int(after)) for first, after in pairwise(ends)]
    ones = [frozenset([expert]) for expert in range(experts)]
    assert [[route.count(frozenset([0]), part, one) for one in ones] for part in parts] == sent
