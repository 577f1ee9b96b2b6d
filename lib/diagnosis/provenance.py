"""What explanations ask about a run in progress, such as what made a value, and which rank it is on."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator, Sequence
from itertools import takewhile
from types import CodeType
from typing import Any, NamedTuple

from lib.diagnosis import Running, because
from lib.errors.source_lines import Place, function_of, lines_calling, student_frame
from lib.errors.wording import these
from lib.trace.event import Event, line_of, place_of
from lib.values.collectives import COLLECTIVES
from lib.values.operations import COMPUTE
from lib.values.values import Activation, Value

# -- a value and its event ----------------------------------------------------------------------------------------


def home(value: object) -> Running | None:
    """Return the program of the rank that has a value."""
    return value.mark[0] if isinstance(value, Value) and value.mark is not None else None


def maker(value: object) -> Event | None:
    """Return the event that made a value, or brought it to its rank."""
    if not isinstance(value, Value) or value.mark is None:
        return None
    program, number = value.mark
    return next((event for event in reversed(program.events) if number in event.outputs), None)


def through(value: Value, ops: Container[str]) -> tuple[Event | None, Value]:
    """Go back from a value along first inputs through some operations, and return the first event of any other
    operation, with the value that it gave."""
    program, made = home(value), maker(value)
    while program is not None and made is not None and made.inputs and made.op in ops:
        before = program.values[made.inputs[0]]
        if before is None:
            break
        value, made = before, maker(before)
    return made, value


def came_of(gradient: Value, op: str) -> tuple[Event, Activation] | None:
    """Return the last collective of a kind on the way to a gradient, and the activation that it gave."""
    made, value = through(gradient, {*COMPUTE, "add"})
    return (made, value) if made is not None and made.op == op and isinstance(value, Activation) else None


def scattered(gradient: Value) -> str | None:
    """Say why a gradient lacks batches: a reduce-scatter gave each rank a part of the activation it comes from."""
    if (found := came_of(gradient, "scatterreduce")) is None or found[1].place.batches != gradient.place.batches:
        return None
    return because("sum_was_scattered", scatter=titled(found[0]), batches=these("batch", gradient.place.batches))


def had_by_all(gradient: Value, other: int | None = None) -> str | None:
    """Say why each rank of a group has all of a gradient: an all-reduce gave all of them the activation that it comes
    from. `other` is a rank that has to be in the group."""
    found = came_of(gradient, "allreduce")
    if found is None or (other is not None and other not in found[0].group):
        return None
    return because("had_by_all", allreduce=titled(found[0]), layer=found[1].layer)


def summed_by(program: Running, number: int) -> str | None:
    """Say which sum over ranks took a value, if the value is used where the sum's result belongs."""
    sums = (event for event in program.events if event.op in ("allreduce", "scatterreduce"))
    if (took := next((event for event in sums if number in event.inputs), None)) is None:
        return None
    return f"{titled(took)} took it, and brings the sum: await that call, and store what it gives here"


def named(event: Event) -> str:
    """Name an operation and its line: "backward in line 12"."""
    return f"{event.op}{line_of(event)}"


def titled(event: Event) -> str:
    """Name a collective and its line, for use in a sentence: "the all-reduce in line 12"."""
    return f"the {COLLECTIVES[event.op].title}{line_of(event)}"


def made_by(value: Value) -> str:
    """Say what made a value, as the end of a sentence: "forward gave in line 12"."""
    made = maker(value)
    return "it has" if made is None else f"{made.op} gave{line_of(made)}"


def sent_in(program: Running, received: Event) -> str:
    """Return " in line 12", where the other rank passed what this one received."""
    models = program.world.models
    before = [e for e in program.events if e.op == "receive" and e.peer == received.peer and e.start is not None]
    number = next((i for i, event in enumerate(before) if event is received), None)
    if received.peer is None or received.peer not in models or number is None:
        return ""
    sent = [e for e in models[received.peer].program.events if e.op == "pass_to" and e.peer == program.rank]
    return line_of(sent[number]) if number < len(sent) else ""


def caller(program: Running, value: Value) -> Place | None:
    """Return the line of the rank's function whose call received what a value comes from, and what it calls."""
    came, inner = through(value, COMPUTE)[0], student_frame()
    there, outer = place_of(came), student_frame(inner and inner.f_back)
    if came is None or came.op != "receive" or there is None or inner is None or outer is None:
        return None
    found = lines_calling(outer.f_code, there.function)
    # If the failing line's function had run before, the two take turns, and the call is further below.
    turn = any(e.source and e.source[0] is inner.f_code for e in takewhile(lambda e: e is not came, program.events))
    return found[-turn]._replace(function=there.function) if found else None


# -- what a rank has and did --------------------------------------------------------------------------------------


def batches_of(program: Running, ops: Container[str], layer: int) -> frozenset[int]:
    """Return all batches on which a rank has done any of some operations of a layer."""
    done = [event.batches for event in program.events if event.op in ops and event.layer == layer]
    return frozenset[int]().union(*done)


def layers_of(program: Running) -> set[int]:
    """Return the layers of which a rank has loaded weights."""
    return {event.layer for event in program.events if event.op == "load_weights" and event.layer is not None}


def store_of(program: Running, number: int) -> Any:
    """Return one of a rank's five stores, by its number."""
    return program.world.models[program.rank].storage()[number]


def is_held(program: Running, number: int) -> bool:
    """Tell whether a store holds a value now."""
    return sum(change for _, _, value, change in program.moves if value == number) > 0


def alike(program: Running, value: Value) -> list[tuple[int, Any]]:
    """Return a rank's values of the same kind and layer as another one, with their ids, the last one first."""
    mine: list[tuple[int, Any]] = [*enumerate(program.values)]
    return [(n, one) for n, one in reversed(mine) if type(one) is type(value) and one.layer == value.layer]


def is_whole(value: Value, role: str) -> bool:
    """Tell whether a value has all of a dim."""
    part = value.place.part(role)
    return part is None or part.whole


def in_turn(program: Running, store: int, number: int) -> list[frozenset[int]]:
    """Return the batches of the values that one key of a store held with no `del` between, this one's last."""
    found: list[frozenset[int]] = []
    wanted: int | None = number
    moves = program.moves
    for index in range(len(moves) - 1, -1, -1):
        position, where, value, change = moves[index]
        if (where, value, change) != (store, wanted, 1):
            continue
        if (held := program.values[value]) is not None:
            found.append(held.place.batches)
        before = moves[index - 1] if index else None
        wanted = before[2] if before is not None and before[:2] == (position, store) and before[3] == -1 else None
        if wanted is None:
            break
    return found[::-1]


# -- what the student wrote ---------------------------------------------------------------------------------------


class Call(NamedTuple):
    """A call of a method in the student's function: its line, the loops around it, and whether it is in an `if`.
    `piece` calls the inner function that contains it, if that takes no arguments: "await unshard()"."""

    name: str
    line: int
    loops: Sequence[ast.AST]
    optional: bool
    piece: str


def calls(code: CodeType) -> list[Call]:
    """Return the method calls in a function's code, as in model.update(...); none without its source text."""

    def found(node: ast.AST, around: tuple[ast.AST, ...]) -> Iterator[Call]:
        if isinstance(node, ast.Call):
            loops = [one for one in around if isinstance(one, ast.For | ast.AsyncFor | ast.While)]
            optional = any(isinstance(one, ast.If | ast.IfExp) for one in around)
            inner = [one for one in around[1:] if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)][-1:]
            piece = [f"{'await ' * isinstance(f, ast.AsyncFunctionDef)}{f.name}()" for f in inner if not f.args.args]
            yield Call(getattr(node.func, "attr", ""), node.lineno, loops, optional, "".join(piece))
        for child in ast.iter_child_nodes(node):
            yield from found(child, (*around, node))

    function = function_of(code)
    return [] if function is None else [*found(function, ())]


def piece(program: Running, method: str) -> str | None:
    """Return the call of an inner function of the rank's, without arguments, that calls a method."""
    source = next((event.source for event in program.events if event.op == "load_weights"), None)
    found = () if source is None or isinstance(source, Place) else calls(source[0])
    return next((call.piece for call in found if call.name == method and call.piece), None)
