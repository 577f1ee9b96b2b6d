"""What the bars of a run are made of: its end, its peak, and what it sends, in the colours of its timeline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from drawing.canvas.axes import compact
from drawing.canvas.palette import KINDS, LOOKS, MINE, NONE, Colour, mix
from drawing.figures.bars import Part
from lib.analysis.shares import TIMES, Share
from lib.errors.wording import amount, exact
from lib.values.collectives import COLLECTIVES

__all__ = ["TIME_LOOKS", "memory_parts", "sent_parts", "time_parts"]

_COLLECTIVE, _MESSAGE, _WAIT = LOOKS["collective"], LOOKS["pass_to"], LOOKS["wait"]
TIME_LOOKS: Final[dict[str, tuple[Colour, Colour]]] = dict(
    zip(TIMES, ((MINE, NONE), _COLLECTIVE.pair, _MESSAGE.pair, LOOKS["read"].pair, _WAIT.pair), strict=True)
)
SHADE: Final = 0.14
"""How much stronger than the collective before it in the table each is, so that they can be told apart in a bar."""


def time_parts(shares: Sequence[Share]) -> list[Part]:
    """Computing, collectives, messages, reading and waiting on the critical path."""
    parts: list[Part] = []
    for share in shares:
        said = exact(share.amount)
        labels = (f"{share.what} {said}", said)
        parts.append(Part(share.amount, *TIME_LOOKS[share.what], labels, f"{share.what}: {said}"))
    return parts


def memory_parts(shares: Iterable[Share]) -> list[Part]:
    """What is alive at the peak, by kind, in the order in which memory is stacked."""
    amounts = {share.what: share.amount for share in shares}
    return [
        Part(
            amounts[kind], colour, NONE, (f"{kind} {compact(amounts[kind])}", kind), f"{kind}: {amount(amounts[kind])}"
        )
        for kind, colour in KINDS.items()
        if kind in amounts
    ]


def sent_parts(shares: Sequence[Share], first: Iterable[str] = ()) -> list[Part]:
    """What is sent, by collective, and in messages. Those named `first` come first."""
    order = list(first)
    parts: list[Part] = []
    for share in sorted(shares, key=lambda share: order.index(share.what) if share.what in order else len(order)):
        row = COLLECTIVES.get(share.what)
        title, word = (row.title, row.word) if row is not None else ("messages", "messages")
        fill, border = _MESSAGE.pair if row is None else _shade(row.name)
        said = compact(share.amount)
        labels = (f"{title} {said}", f"{word} {said}", word)
        parts.append(Part(share.amount, fill, border, labels, f"{title}: {amount(share.amount)} elements"))
    return parts


def _shade(collective: str) -> tuple[Colour, Colour]:
    strength = min(0.7, SHADE * list(COLLECTIVES).index(collective))
    return mix(_COLLECTIVE.fill, _COLLECTIVE.border, strength), _COLLECTIVE.border
