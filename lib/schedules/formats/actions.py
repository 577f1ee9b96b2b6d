"""The actions of a Trace: which events of each rank are together the forward of a microbatch through a stage.

A stage is a run of layers that a rank always passes one right after the other; where ranks have several stages each,
and the two in the middle of a V lie on one rank, all ranks have as many. Microbatches are numbered by their batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from lib.schedules.pipelines.action import KINDS, PAIR, Action, parse
from lib.trace.event import Event, Program
from lib.trace.trace import Trace
from lib.values.operations import MESSAGES, OPERATIONS
from lib.values.values import Activation, ActivationGrad

__all__ = ["OPERATION", "Done", "action_of", "actions_of", "label_of"]

OPERATION: Final = {
    "F": "forward",
    "B": "backward",
    "I": "backward_input",
    "W": "backward_weight",
    "UPDATE": "update",
    "UNSHARD": "allgather",
    "REDUCE_GRAD": "scatterreduce",
    **{kind: "pass_to" if kind.startswith("SEND") else "receive" for kind, row in KINDS.items() if row.towards},
    **{kind: "wait" for kind in KINDS if kind.startswith("WAIT") or kind == "RESHARD"},
    PAIR: "",
}
"""The operation that each kind of action is, by its name in our tables. A pair is two."""
PASSES: Final = {OPERATION[kind]: kind for kind, row in KINDS.items() if row.computes}
"""The kinds of the operations that pass a layer."""
Batches = frozenset[int]


def action_of(word: str) -> Action | None:
    """The action that a word stands for; None where it is no such word."""
    try:
        return parse([word])[0]
    except ValueError:
        return None


def label_of(action: Action) -> str:
    """What is written on the box of an action: its microbatch."""
    return "+".join(str(part.microbatch) for part in action.parts or (action,) if part.microbatch >= 0)


class Done(NamedTuple):
    """An action, and the first and the last of the events that it is."""

    action: Action
    first: int
    last: int


class _Pass(NamedTuple):
    number: int
    kind: str
    layer: int
    batches: Batches


def actions_of(trace: Trace) -> tuple[tuple[Done, ...], ...] | None:
    """What each rank did, as actions. None where the run is no pipeline: a layer is on several ranks, or microbatches
    are not the same ones everywhere, or layers are passed in another order."""
    return trace.once(actions_of, lambda: _actions_of(trace))


def _actions_of(trace: Trace) -> tuple[tuple[Done, ...], ...] | None:
    passes = [list(_passes(program)) for program in trace.programs]
    home = {(one.layer, rank) for rank, mine in enumerate(passes) for one in mine}
    microbatches = sorted({one.batches for mine in passes for one in mine}, key=sorted)
    if not home or len(home) != trace.layers or sum(map(len, microbatches)) != len(Batches().union(*microbatches)):
        return None
    number = {batches: place for place, batches in enumerate(microbatches)}
    runs = _even([_runs(mine) for mine in passes])
    stages = sorted((layers, rank) for rank, mine in enumerate(runs) for layers in mine)
    if [layer for layers, _ in stages for layer in layers] != list(range(trace.layers)):
        return None
    found: list[tuple[Done, ...]] = []
    for rank, program in enumerate(trace.programs):
        mine = {stage: layers for stage, (layers, home_) in enumerate(stages) if home_ == rank}
        done = _grouped(passes[rank], mine, number)
        if done is None:
            return None
        every = [_widened(program, one) for one in done]
        every += _messages(program, dict(enumerate(layers for layers, _ in stages)), number)
        found.append(tuple(sorted(every, key=lambda one: one.first)))
    return tuple(found)


def _passes(program: Program) -> Iterator[_Pass]:
    """The passes through layers of a rank. What is computed again is no new pass."""
    seen: set[tuple[str, int, Batches]] = set()
    for number, event in enumerate(program.events):
        if (
            event.op in PASSES
            and event.layer is not None
            and (key := (event.op, event.layer, event.batches)) not in seen
        ):
            seen.add(key)
            yield _Pass(number, PASSES[event.op], event.layer, event.batches)


def _runs(passes: Sequence[_Pass]) -> list[tuple[int, ...]]:
    """The layers of a rank in runs, within which each layer is always passed right after its neighbour."""
    layers = sorted({one.layer for one in passes})
    apart = {layer for layer in layers if layer - 1 not in layers}
    follows = {(a, b) for a, b in pairwise(_key(one) for one in passes)}
    for kind, layer, batches in map(_key, passes):
        before = layer - 1 if kind == "F" else layer + 1
        if before in layers and ((kind, before, batches), (kind, layer, batches)) not in follows:
            apart.add(max(layer, before))
    found: list[tuple[int, ...]] = []
    for layer in layers:
        if layer in apart or not found:
            found.append((layer,))
        else:
            found[-1] = (*found[-1], layer)
    return found


def _key(one: _Pass) -> tuple[str, int, Batches]:
    return one.kind, one.layer, one.batches


def _even(runs: list[list[tuple[int, ...]]]) -> list[list[tuple[int, ...]]]:
    """The same runs, but for a rank that has one where all others have two as long: the middle of a V."""
    counts = sorted(map(len, runs))
    if len(runs) > 1 and counts[:2] == [1, 2] and counts[-1] == 2:
        half = {len(layers) for mine in runs if len(mine) == 2 for layers in mine}
        whole = next(mine[0] for mine in runs if len(mine) == 1)
        if half == {len(whole) // 2}:
            cut = len(whole) // 2
            return [mine if len(mine) == 2 else [whole[:cut], whole[cut:]] for mine in runs]
    return runs


def _grouped(
    passes: Sequence[_Pass], stages: dict[int, tuple[int, ...]], number: dict[Batches, int]
) -> list[Done] | None:
    """Passes through the layers of a stage as one action each; None where one is broken off."""
    at = {layer: stage for stage, layers in stages.items() for layer in layers}
    found: list[Done] = []
    place = 0
    while place < len(passes):
        kind, layer, batches = _key(passes[place])
        stage = at[layer]
        layers = stages[stage] if kind == "F" else stages[stage][::-1]
        mine = passes[place : place + len(layers)]
        if [_key(one) for one in mine] != [(kind, one, batches) for one in layers]:
            return None
        found.append(Done(Action(stage, kind, number[batches]), mine[0].number, mine[-1].number))
        place += len(layers)
    return found


def _widened(program: Program, done: Done) -> Done:
    """An action with what belongs to it: the loss before it, and the sums after it."""
    events, first, last = program.events, done.first, done.last
    while first and events[first - 1].op == "loss":
        first -= 1
    while last + 1 < len(events) and events[last + 1].inputs and _sums(events[last + 1]):
        last += 1
    return Done(done.action, first, last)


def _sums(event: Event) -> bool:
    return event.op in OPERATIONS and OPERATIONS[event.op].kind == "local" and event.op == "add"


def _messages(program: Program, stages: dict[int, tuple[int, ...]], number: dict[Batches, int]) -> Iterator[Done]:
    """Messages that bring one activation, or the gradient of one, from stage to stage."""
    first = {layers[0]: stage for stage, layers in stages.items()}
    for index, event in enumerate(program.events):
        values = event.inputs if event.op == "pass_to" else event.outputs if event.op in MESSAGES else ()
        value = program.values[values[0]] if len(values) == 1 else None
        if isinstance(value, Activation) and value.layer in first and value.batches in number:
            after = first[value.layer]
            stage, kind = (after - 1, "SEND_F") if event.op == "pass_to" else (after, "RECV_F")
        elif isinstance(value, ActivationGrad) and value.layer + 1 in first and value.batches in number:
            after = first[value.layer + 1]
            stage, kind = (after, "SEND_B") if event.op == "pass_to" else (after - 1, "RECV_B")
        else:
            continue
        yield Done(Action(stage, kind, number[value.batches]), index, index)
