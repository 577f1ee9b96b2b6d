"""What one rank does in a step, numbered in the order in which it does it, and where in the network each deed belongs.

A deed is an event of its program; waiting is none. Where it belongs follows from the rows of the tables and from the
kinds of its values, so that an operation that is new has a place as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from lib.analysis.event_words import spoken
from lib.trace.event import Event, Program
from lib.values.operations import COMMUNICATION, OPERATIONS, Operation
from lib.values.values import Activation, ActivationGrad, OptState, Value, Weight, WeightGrad

__all__ = ["Deed", "Kept", "deeds", "kept"]

LANES: Final[dict[str, str]] = {
    Weight.kind: "weight",
    OptState.kind: "update",
    WeightGrad.kind: "gradient",
    Activation.kind: "activation",
    ActivationGrad.kind: "activation gradient",
}
"""Where what happens to a value of a kind belongs."""


class Deed(NamedTuple):
    """One thing that a rank does. `lane` says where it belongs, at which layer or, between layers, at which activation.

    `chip` is what it is called where it is no box of its own: "all-reduce", "from rank 1".
    """

    number: int
    event: Event
    lane: str
    place: int
    chip: str = ""


class Kept(NamedTuple):
    """An activation that is kept from one deed, which made it, to another, which works out gradients with it."""

    place: int
    made: int
    used: int


def deeds(program: Program) -> list[Deed]:
    """What a rank does, in the order of its program."""
    found: list[Deed] = []
    for event in program.events:
        where = _where(program, event)
        if where is not None:
            lane, place, chip = where
            found.append(Deed(len(found) + 1, event, lane, place, chip))
    return found


def kept(program: Program, done: list[Deed]) -> Iterator[Kept]:
    """The activations that backward takes, each with the deed that made it."""
    maker = {number: deed for deed in done for number in deed.event.outputs}
    for deed in done:
        if deed.lane == "backward":
            for number in deed.event.inputs:
                value = program.values[number]
                if isinstance(value, Activation) and number in maker:
                    yield Kept(value.layer, maker[number].number, deed.number)


def _where(program: Program, event: Event) -> tuple[str, int, str] | None:
    """The lane of an event, the place in it, and what it is called where it is no box of its own."""
    row = OPERATIONS.get(event.op)
    if row is not None and row.kind == "wait":
        return None
    box = None if row is None or event.op in COMMUNICATION else _box(row)
    values = program.values_of(event.outputs) or program.values_of(event.inputs)
    if box in ("forward", "backward", "update", "weight") and event.layer is not None:
        return box, event.layer, ""
    if box == "loss":
        return box, 0, ""
    if not values:
        return None
    first = values[0]
    chip = "" if box == "activation" else "final weight" if row is not None and row.hands_in else _called(event)
    lane = "update" if row is not None and row.hands_in else LANES[first.kind]
    return lane, _place(first), chip


def _box(row: Operation) -> str | None:
    """The box that an operation is, by the kinds that it takes and gives."""
    if row.loads:
        return "weight" if Weight in row.gives else "activation"
    if OptState in row.takes:
        return "update"
    if ActivationGrad in row.takes:
        return "backward"
    if Activation in row.takes:
        return "forward" if Weight in row.takes else "loss"
    return None


def _called(event: Event) -> str:
    """What a communication, or a change of a value, is called on its chip."""
    if event.peer is not None:
        return f"{'to' if event.op == 'pass_to' else 'from'} {event.peer}"
    return "added up" if event.op == "add" else spoken(event.op)


def _place(value: Value) -> int:
    """Gradients by the output of layer k lie where activation k + 1 does."""
    return value.layer + 1 if isinstance(value, ActivationGrad) else value.layer
