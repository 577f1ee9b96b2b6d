"""Provenance of a value, from the programs of a run: on which rank it is, what made it, and what else was like it."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator
from types import CodeType
from typing import Any

from lib.diagnosis.running import Running
from lib.errors.source_lines import function_of
from lib.trace.event import Event, place_of
from lib.values.operations import COMPUTE
from lib.values.values import Activation, Value

__all__ = [
    "Written",
    "alike",
    "batches_of",
    "calls",
    "came_of",
    "had_by_all",
    "home",
    "in_turn",
    "is_held",
    "layers_of",
    "line_of",
    "made_by",
    "maker",
    "same_loop",
    "sent_in",
    "store_of",
]


def home(value: object) -> Running | None:
    """The program of the rank that a value is on."""
    return value.mark[0] if isinstance(value, Value) and value.mark is not None else None


def maker(value: object) -> Event | None:
    """The event that made a value, or brought it to its rank."""
    program = home(value)
    if program is None or not isinstance(value, Value) or value.mark is None:
        return None
    return next((event for event in reversed(program.events) if value.mark[1] in event.outputs), None)


def came_of(gradient: Value, op: str) -> tuple[Event, Activation] | None:
    """The last collective of a kind on the way to a gradient, and the activation that it gave."""
    program, made = home(gradient), maker(gradient)
    while program is not None and made is not None and made.inputs and made.op in {*COMPUTE, "add"}:
        value = program.values[made.inputs[0]]
        made = maker(value)
        if made is not None and made.op == op and isinstance(value, Activation):
            return made, value
    return None


def had_by_all(gradient: Value) -> str | None:
    """Why each rank of a group has all of a gradient: an all-reduce gave all of them the activation that it comes
    from."""
    if (found := came_of(gradient, "allreduce")) is None:
        return None
    return (
        f"the all-reduce{line_of(found[0])} gave all ranks the same activation {found[1].layer}, so each of them has "
        "worked out\nall of this gradient: leave this sum out"
    )


def line_of(event: Event | None) -> str:
    """ " in line 12", or nothing where that is not known."""
    found = place_of(event)
    return "" if found is None else f" {found.within}"


def made_by(value: Value) -> str:
    """Tell what made a value, as the end of a sentence: "forward gave in line 12"."""
    made = maker(value)
    return "it has" if made is None else f"{made.op} gave{line_of(made)}"


def batches_of(program: Running, ops: Container[str], layer: int) -> frozenset[int]:
    """All batches with which a rank has done one of some operations on a layer."""
    done = [event.batches for event in program.events if event.op in ops and event.layer == layer]
    return frozenset[int]().union(*done)


def layers_of(program: Running) -> set[int]:
    """The layers of which a rank has loaded weights."""
    return {event.layer for event in program.events if event.op == "load_weights" and event.layer is not None}


def store_of(program: Running, number: int) -> dict[Any, Value]:
    """One of the five stores of a rank, by its number."""
    return program.world.models[program.rank].storage()[number]


def is_held(program: Running, number: int) -> bool:
    """Tell whether a store holds a value now."""
    return sum(change for _, _, value, change in program.moves if value == number) > 0


def alike(program: Running, value: Value) -> list[tuple[int, Any]]:
    """The values of a rank that are of the kind and layer of another one, with their ids, the last one first."""
    mine = reversed(list(enumerate(program.values)))
    return [
        (n, other)
        for n, other in mine
        if other is not None and type(other) is type(value) and other.layer == value.layer
    ]


def sent_in(program: Running, received: Event) -> str:
    """ " in line 12": where the other rank passed what this one received."""
    models = program.world.models
    before = [e for e in program.events if e.op == "receive" and e.peer == received.peer and e.start is not None]
    number = next((i for i, event in enumerate(before) if event is received), None)
    if received.peer is None or received.peer not in models or number is None:
        return ""
    sent = [e for e in models[received.peer].program.events if e.op == "pass_to" and e.peer == program.rank]
    return line_of(sent[number]) if number < len(sent) else ""


def in_turn(program: Running, store: int, number: int) -> list[Value]:
    """The values that one key of a store held one after the other without a `del` between them, the given one last."""
    found: list[Value] = []
    wanted: int | None = number
    moves = program.moves
    for index in range(len(moves) - 1, -1, -1):
        position, where, value, change = moves[index]
        if (where, value, change) != (store, wanted, 1):
            continue
        if (held := program.values[value]) is not None:
            found.append(held)
        before = moves[index - 1] if index else None
        wanted = before[2] if before is not None and before[:2] == (position, store) and before[3] == -1 else None
        if wanted is None:
            break
    return found[::-1]


# -- what the student wrote ---------------------------------------------------------------------------------------


class Written:
    """A call in the student's function: its line, the loops around it, and whether it depends on an `if`."""

    __slots__ = ("line", "loops", "name", "optional")

    def __init__(self, name: str, line: int, around: tuple[ast.AST, ...]) -> None:
        self.name = name
        self.line = line
        self.loops = [node for node in around if isinstance(node, ast.For | ast.AsyncFor | ast.While)]
        self.optional = any(isinstance(node, ast.If | ast.IfExp) for node in around)


def calls(code: CodeType) -> list[Written]:
    """The calls of methods, such as model.update(...), in the function of this code; none where its text is unknown."""
    node = function_of(code)
    return [] if node is None else list(_written(node, ()))


def _written(node: ast.AST, around: tuple[ast.AST, ...]) -> Iterator[Written]:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        yield Written(node.func.attr, node.lineno, around)
    for child in ast.iter_child_nodes(node):
        yield from _written(child, (*around, node))


def same_loop(found: list[Written], first: int, other: int) -> bool:
    """Tell whether the calls of two lines stand in one loop."""
    here, there = ([call for call in found if call.line == line] for line in (first, other))
    return any(loop in call.loops for mine in here for loop in mine.loops for call in there)
