"""Traces and orders as recordings, and recordings as orders.

A Trace of a pipeline is recorded as its actions: which events of each rank are together the forward of a microbatch
through a stage. (Which layers are a stage, and which batches a microbatch, says `order_of`.) What each is made of, and
the values in it, stay behind. An order is recorded with the times that the timer of orders gives it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from lib.analysis.recording import COMPUTE, PER_UNIT, Message, Recording, Span
from lib.cluster.costs import TICKS
from lib.errors.wording import ranges
from lib.schedules.formats.trace import PASSES, pipeline_of
from lib.schedules.pipelines.action import KINDS, Action, Order, parse
from lib.schedules.pipelines.timing import time_order
from lib.trace.event import Event, Program
from lib.trace.trace import Trace, kept
from lib.values.collectives import COLLECTIVES
from lib.values.operations import COMMUNICATION, MESSAGES, OPERATIONS, TIMED
from lib.values.values import Activation, ActivationGrad

__all__ = [
    "PREFIX",
    "Done",
    "Part",
    "action_of",
    "actions_of",
    "as_recording",
    "bounds",
    "costs_of",
    "described",
    "label_of",
    "messages_between",
    "order_of_recording",
    "parts",
    "recording_of",
    "recording_of_order",
    "span_of",
    "stream_of",
    "where",
]

Batches = frozenset[int]
PREFIX: Final = "PP:"
"""What stands before the words of actions in the names of ranges, as in torch's pipeline executor."""


def action_of(word: str) -> Action | None:
    """Return the action that a word stands for; None where it is no such word."""
    try:
        return parse([word])[0]
    except ValueError:
        return None


def label_of(action: Action) -> str:
    """Return what is written on the box of an action: its microbatch."""
    return "+".join(str(part.microbatch) for part in action.parts or (action,) if part.microbatch >= 0)


class Done(NamedTuple):
    """An action, and the first and the last of the events that it is."""

    action: Action
    first: int
    last: int


@kept
def actions_of(trace: Trace) -> tuple[tuple[Done, ...], ...] | None:
    """Return what each rank did, as actions: its passes, and messages that bring one activation or the gradient of one.
    None where the run is no pipeline (see `order_of`), or an action of it is broken off. Where several pipelines lie
    beside each other their stages and microbatches have the same numbers."""
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
    """Return the passes of a rank: so many layers one after the other, with the loss before them and the sums after
    them. What is computed again is no new pass. None where one is broken off."""
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
    """Return an action with what belongs to it: the loss before it, and the sums after it."""
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


COSTS: Final = {
    "forward": KINDS["F"].operation,
    "backward": KINDS["B"].operation,
    "input_half": KINDS["I"].operation,
    "weight_half": KINDS["W"].operation,
}
"""What `time_order` calls the costs of operations."""


class Part(NamedTuple):
    """An event of a rank, or those that are an action together: the first and the last."""

    first: int
    last: int
    action: Action | None = None


def described(trace: Trace, rank: int, number: int, action: Action | None = None) -> Span:
    """Return the span of an event, or of the action that begins with it, but for its times and its stream."""
    event = trace.programs[rank].events[number]
    if action is not None:
        span = span_of(action, rank, 0, 0, str(action))
    else:
        name = event.op if event.layer is None else f"{event.op} {event.layer}"
        label = ranges(event.batches) if event.op not in COLLECTIVES and event.batches else ""
        span = Span(rank, 0, 0, event.op, name, "", event.layer, label)
    place = trace.place(event)
    return span if place is None else span._replace(place=str(place))


def parts(trace: Trace, rank: int) -> Iterator[Part]:
    """Yield what a rank did, one after the other. What has not begun, or takes no time and is no operation, is left
    out."""
    actions = actions_of(trace)
    program = trace.programs[rank]
    begins = {} if actions is None else {done.first: done for done in actions[rank]}
    index = 0
    while index < len(program.events):
        event, done = program.events[index], begins.get(index)
        last = index if done is None else done.last
        if done is not None and event.start is not None and program.events[last].end is not None:
            yield Part(index, last, done.action)
        elif event.start is not None and (event.op in TIMED or event.length):
            yield Part(index, last)
        index = last + 1


def bounds(trace: Trace, rank: int, part: Part) -> tuple[int, int]:
    """From when to when, in ticks."""
    events = trace.programs[rank].events
    return events[part.first].start or 0, events[part.last].end or 0


def where(op: str, stream: str, awaited: bool) -> str:
    """Return the stream of a span: what a rank awaits at once is on its own."""
    return stream if op in COMMUNICATION and not awaited else COMPUTE


def recording_of(trace: Trace, name: str = "simulated", unit: float = PER_UNIT) -> Recording:
    """Return a Trace as a recording: its actions where it is a pipeline, and what else its ranks did. `unit`:
    nanoseconds of a time unit."""
    spans: list[Span] = []
    for rank, program in enumerate(trace.programs):
        for part in parts(trace, rank):
            first = program.events[part.first]
            start, end = (round(tick * unit / TICKS) for tick in bounds(trace, rank, part))
            stream = where(first.op, stream_of(first), first.blocking)
            span = described(trace, rank, part.first, part.action)
            spans.append(span._replace(start=start, end=end, stream=stream))
    return as_recording(name, spans, trace.ranks, unit)


def as_recording(name: str, spans: list[Span], ranks: int, unit: float | None) -> Recording:
    """Spans in any order, as a recording."""
    spans.sort(key=lambda span: (span.rank, span.start, -span.end))
    return Recording(name, tuple(spans), ranks, unit, messages_between(spans))


def stream_of(event: Event) -> str:
    """Return where an event is drawn: the rank's own clock, or the stream of its group or of its peer."""
    if event.op in COLLECTIVES:
        return f"group {', '.join(map(str, sorted(event.group)))}"  # in whatever order it is named: it is one stream
    if event.op in MESSAGES:
        return f"network: {'to' if event.op == 'pass_to' else 'from'} rank {event.peer}"
    return COMPUTE


def messages_between(spans: Iterable[Span]) -> tuple[Message, ...]:
    """Return what passes from rank to rank: from the end of each pass to the beginning of the one that uses what it
    made."""
    passes: dict[tuple[str, int, int], Span] = {}
    for span in spans:
        action = action_of(span.word) if span.word else None
        for part in () if action is None else action.parts or (action,):
            if KINDS[part.kind].computes and KINDS[part.kind].needs:
                passes[KINDS[part.kind].needs[-1], part.stage, part.microbatch] = span
    found: list[Message] = []
    for (way, stage, microbatch), span in passes.items():
        after = passes.get((way, stage + KINDS[f"SEND_{way}"].towards, microbatch))
        if after is not None and after.rank != span.rank:
            found.append(Message(span.rank, span.end, after.rank, after.start))
    return tuple(sorted(found))


def order_of_recording(recording: Recording) -> Order:
    """Return the order of what the ranks compute, as a recording has it. ValueError where it has none."""
    if not recording.has_order:
        raise ValueError(
            f"{recording.name} does not say which microbatch passes which stage, so it has no order: its ranges are "
            "not named as torch's pipeline executor names them (PP:3F1), which it does with an order loaded from a file"
        )
    return tuple(
        parse(span.word for span in spans if span.word and span.op not in COMMUNICATION) for spans in recording.by_rank
    )


def recording_of_order(order: Order, name: str = "schedule", **costs: Any) -> Recording:
    """Return an order as a recording, with the costs that `time_order` takes."""
    timed = time_order(order, **costs)
    spans: list[Span] = []
    for rank, actions in enumerate(order):
        for action, start, end in zip(actions, timed.starts[rank], timed.ends[rank], strict=True):
            if action.parts or KINDS[action.kind].computes:
                moments = round(start * PER_UNIT), round(end * PER_UNIT)
                spans.append(span_of(action, rank, *moments, str(action)))
    return as_recording(name, spans, len(order), PER_UNIT)


def costs_of(recording: Recording) -> dict[str, float]:
    """Return what `time_order` is told of the median passes of a recording: in its own time units, or in median
    forwards."""
    unit = recording.unit or recording.forward
    medians = {name: recording.median_of(op) for name, op in COSTS.items()}
    return {name: round(time / unit, 4) for name, time in medians.items() if unit and time is not None}


def span_of(action: Action, rank: int, start: int, end: int, name: str) -> Span:
    """Return the span of an action."""
    return Span(rank, start, end, KINDS[action.kind].operation, name, str(action), action.stage, label_of(action))
