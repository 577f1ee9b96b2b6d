"""The actions of a Trace: which events of each rank are together the forward of a microbatch through a stage.

Which layers are a stage, and which batches a microbatch, says `order_of`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from lib.schedules.formats.trace import PASSES, pipeline_of
from lib.schedules.pipelines.action import Action, parse
from lib.trace.event import Event, Program
from lib.trace.trace import Trace, kept
from lib.values.operations import MESSAGES, OPERATIONS
from lib.values.values import Activation, ActivationGrad

__all__ = ["Done", "action_of", "actions_of", "label_of"]

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


@kept
def actions_of(trace: Trace) -> tuple[tuple[Done, ...], ...] | None:
    """What each rank did, as actions: its passes, and messages that bring one activation or the gradient of one. None
    where the run is no pipeline (see `order_of`), or an action of it is broken off. Where several pipelines lie beside
    each other their stages and microbatches have the same numbers."""
    try:
        pipeline = pipeline_of(trace)
    except ValueError:
        return None
    stages = _Stages(pipeline.layers_of)
    found: list[tuple[Done, ...]] = []
    for program in trace.programs:
        microbatches = sorted({event.batches for event in program.events if event.op in PASSES}, key=sorted)
        number = {batches: place for place, batches in enumerate(microbatches)}
        passes = _passes(program, stages, number)
        if passes is None:
            return None
        done = [*passes, *_messages(program, stages, number)]
        found.append(tuple(sorted(done, key=lambda one: one.first)))
    return tuple(found)


class _Stages:
    """The stage of each layer, and which layers begin one."""

    def __init__(self, layers_of: Sequence[range]) -> None:
        self.layers_of = layers_of
        self.of = {layer: stage for stage, layers in enumerate(layers_of) for layer in layers}
        self.beginning = {layers[0]: stage for stage, layers in enumerate(layers_of) if layers}


def _passes(program: Program, stages: _Stages, number: dict[Batches, int]) -> list[Done] | None:
    """The passes of a rank: so many layers one after the other, with the loss before them and the sums after them.
    What is computed again is no new pass. None where one is broken off."""
    found: list[Done] = []
    layers: list[int] = []
    seen: set[tuple[str, int, Batches]] = set()
    for index, event in enumerate(program.events):
        if event.op not in PASSES or event.layer is None or (event.op, event.layer, event.batches) in seen:
            continue
        seen.add((event.op, event.layer, event.batches))
        stage = stages.of[event.layer]
        action = Action(stage, PASSES[event.op], number[event.batches])
        if layers and found[-1].action == action:
            layers.append(event.layer)
            found[-1] = Done(action, found[-1].first, index)
        elif layers and len(layers) != len(stages.layers_of[found[-1].action.stage]):
            return None
        else:
            layers = [event.layer]
            found.append(Done(action, index, index))
    return [_widened(program, one) for one in found]


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


def _messages(program: Program, stages: _Stages, number: dict[Batches, int]) -> Iterator[Done]:
    """Messages that bring one activation, or the gradient of one, from stage to stage."""
    for index, event in enumerate(program.events):
        values = event.inputs if event.op == "pass_to" else event.outputs if event.op in MESSAGES else ()
        value = program.values[values[0]] if len(values) == 1 else None
        if isinstance(value, Activation) and value.layer in stages.beginning and value.batches in number:
            after = stages.beginning[value.layer]
            stage, kind = (after - 1, "SEND_F") if event.op == "pass_to" else (after, "RECV_F")
        elif isinstance(value, ActivationGrad) and value.layer + 1 in stages.beginning and value.batches in number:
            after = stages.beginning[value.layer + 1]
            stage, kind = (after, "SEND_B") if event.op == "pass_to" else (after - 1, "RECV_B")
        else:
            continue
        yield Done(Action(stage, kind, number[value.batches]), index, index)
