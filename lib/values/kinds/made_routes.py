"""Routes that are made up: by the loads of the experts, or drawn by chance."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import gcd
from random import Random

from lib.values.kinds.routes import Choices
from lib.values.placement import MOST

__all__ = ["drawn_route", "route_by_loads"]

MOST_SKEW = 100


def route_by_loads(loads: Sequence[int], top: int = 1) -> Choices:
    """A route on which experts get these shares of all choices, as in route_by_loads([7, 3, 3, 3], top=2).

    It has as few tokens as that takes, here 8, and their first choices are the experts in order.

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
    line = [expert for expert, part in enumerate(parts) for _ in range(part * times)]
    return tuple(tuple(line[token::tokens]) for token in range(tokens))


def drawn_route(seed: int, tokens: int, experts: int, top: int = 1, skew: float = 0.0) -> Choices:
    """A route of so many tokens drawn by chance, the same one for each seed. With `skew` 0 all experts are as likely;
    the larger it is, the more those with low numbers are.

    >>> drawn_route(0, tokens=3, experts=4, top=2) == drawn_route(0, tokens=3, experts=4, top=2)
    True
    """
    numbers = {"seed": seed, "tokens": tokens, "experts": experts, "top": top}
    for name, number in numbers.items():
        if type(number) is not int or not (name != "seed") <= number <= MOST:
            raise ValueError(f"{name} is a whole number up to {MOST}; got {number!r}")
    if top > experts or tokens * top > MOST:
        raise ValueError(f"a token goes to 1 to {experts} experts, and there are {MOST} choices at most; got top={top}")
    if type(skew) not in (int, float) or not 0 <= skew <= MOST_SKEW:
        raise ValueError(f"skew is a number from 0, where all experts are as likely, to {MOST_SKEW}; got {skew!r}")
    chance = Random(seed)
    route: list[tuple[int, ...]] = []
    for _ in range(tokens):
        left = {expert: (expert + 1.0) ** -skew for expert in range(experts)}
        chosen: list[int] = []
        for _ in range(top):
            at = chance.random() * sum(left.values())
            before = accumulate([0.0, *left.values()])
            *_, expert = (one for one, start in zip(left, before, strict=False) if start <= at)
            chosen.append(expert)
            del left[expert]
        route.append(tuple(chosen))
    return tuple(route)
