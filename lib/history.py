"""What the programs of a run tell about a value: on which rank it is, what made it, and what else was like it."""

from __future__ import annotations

from typing import Any

from .program import Event, Program, place_of
from .values import Value

__all__ = ["alike", "home", "is_held", "line_of", "maker", "sent_in"]


def home(value: object) -> Program | None:
    """The program of the rank that a value is on."""
    return value.mark[0] if isinstance(value, Value) and value.mark is not None else None


def maker(value: object) -> Event | None:
    """The event that made a value, or brought it to its rank."""
    program = home(value)
    if program is None or not isinstance(value, Value) or value.mark is None:
        return None
    return next((event for event in reversed(program.events) if value.mark[1] in event.outputs), None)


def line_of(event: Event | None) -> str:
    """ " in line 12", or nothing where that is not known."""
    found = place_of(event)
    return "" if found is None else f" in line {found.line}"


def is_held(program: Program, number: int) -> bool:
    """Whether a store holds a value now."""
    return sum(change for _, _, value, change in program.moves if value == number) > 0


def alike(program: Program, value: Value) -> list[tuple[int, Any]]:
    """The values of a rank that are of the kind and layer of another one, with their ids, the last one first."""
    mine = reversed(list(enumerate(program.values)))
    return [
        (n, other)
        for n, other in mine
        if other is not None and type(other) is type(value) and other.layer == value.layer
    ]


def sent_in(program: Program, received: Event) -> str:
    """ " in line 12": where the other rank passed what this one received."""
    models: dict[int, Any] = getattr(program.world, "models", {})
    before = [e for e in program.events if e.op == "receive" and e.peer == received.peer and e.start is not None]
    number = next((i for i, event in enumerate(before) if event is received), None)
    if received.peer not in models or number is None:
        return ""
    sent = [e for e in models[received.peer].program.events if e.op == "pass_to" and e.peer == program.rank]
    return line_of(sent[number]) if number < len(sent) else ""
