"""A run back to the order that it is, and runs and orders as recordings.

What a student wrote as a program goes wherever orders go: a run of layers in one direction is one action. As a
recording a Trace of a pipeline is its actions, and what else its ranks did; what each action is made of, and the values
in it, stay behind. An order is recorded with the times that the timer of orders gives it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final, NamedTuple

from lib.analysis.recording import COMPUTE, PER_UNIT, Held, Message, Recording, Span
from lib.cluster.costs import TICKS
from lib.errors.wording import numbers, ranges, these
from lib.schedules.pipelines.action import KINDS, Action, Order, parse, places, says_messages
from lib.schedules.pipelines.legality import Wrong
from lib.schedules.pipelines.timing import Timed, time_order, time_until
from lib.trace.event import Program
from lib.trace.trace import Trace, kept
from lib.values.collectives import COLLECTIVES
from lib.values.operations import COMMUNICATION, MESSAGES, TIMED, UPDATES

PASSES: Final = {row.operation: kind for kind, row in reversed([*KINDS.items()]) if row.computes}
"""The kind of action that an operation is a part of, of several the first."""
Batches = frozenset[int]


class Pipeline(NamedTuple):
    """An order, the layers of each stage, and the batches of each microbatch: `program_of` takes them all."""

    order: Order
    layers_of: tuple[range, ...]
    microbatches: tuple[tuple[int, ...], ...]


class _Pass(NamedTuple):
    """One layer, in one direction, on some batches."""

    kind: str
    layer: int
    batches: Batches

    def goes_on(self, before: _Pass | None) -> bool:
        """Tell whether it is the next layer of the same action."""
        step = 1 if self.kind == "F" else -1
        return before is not None and self == (before.kind, before.layer + step, before.batches)


def order_of(trace: Trace) -> Order:
    """Return what each rank of a pipeline does and in which order, without its messages: see `pipeline_of`."""
    return pipeline_of(trace).order


def pipeline_of(trace: Trace) -> Pipeline:
    """Return the order of a run, in which a run of layers is one action, with the layers of its stages and the batches
    of its microbatches. ValueError says why a run is not a pipeline.

    Stages are as long as they can be: two that a rank always does one right after the other are one, unless all others
    are half as long and all other ranks have one more. A layer that is computed anew for its backward counts once. Of
    pipelines beside each other, which do the same with other data, it is one: each numbers its own batches.
    """
    return _found(trace)[0]


class Done(NamedTuple):
    """An action, and the first and the last of the events that it is."""

    action: Action
    first: int
    last: int


@kept
def _found(trace: Trace) -> tuple[Pipeline, dict[int, list[Done]]]:
    """Return the pipeline of a run, and what each rank does in its own: stages and microbatches have the same numbers
    in all that lie beside each other."""
    passes = [dict(_passes(program)) for program in trace.programs]
    where: dict[tuple[str, int, int], int] = {}
    for rank, found in enumerate(passes):
        for one in found:
            for batch in sorted(one.batches):
                other = where.setdefault((one.kind, one.layer, batch), rank)
                if other != rank:
                    why = f"ranks {other} and {rank} both compute layer {one.layer} of batch {batch}"
                    why = f"this run is not a pipeline: {why}, and in a pipeline each layer of a batch is on one rank"
                    raise ValueError(why)
    together = _together(trace)
    done: dict[int, list[Done]] = {}
    pipelines = [_pipeline(trace, ranks, passes, done) for ranks in together]
    for ranks, other in zip(together, pipelines, strict=True):
        if other != pipelines[0]:
            raise ValueError(f"these are several pipelines, and that of {these('rank', ranks)} is not like the first")
    return pipelines[0], done


def _passes(program: Program) -> Iterator[tuple[_Pass, int]]:
    """Yield what a rank computes, and its updates, each with its event. A forward that it does a second time is a part
    of the backward."""
    done: set[_Pass] = set()
    for index, event in enumerate(program.events):
        if event.layer is not None and (event.op in PASSES or event.op in UPDATES):
            found = _Pass(PASSES.get(event.op, "UPDATE"), event.layer, event.batches)
            found = found if found.kind != "UPDATE" else found._replace(batches=Batches())
            if found not in done:
                done.add(found)
                yield found, index


def _together(trace: Trace) -> list[list[int]]:
    """Return the ranks of each pipeline: those that pass messages to each other."""
    group = {rank: {rank} for rank in range(trace.ranks)}
    for rank, event in trace.events():
        if event.op in MESSAGES and event.peer is not None and event.peer not in group[rank]:
            group[rank] |= group[event.peer]
            group.update(dict.fromkeys(group[event.peer], group[rank]))
    groups = [sorted(ranks) for rank, ranks in group.items() if rank == min(ranks)]
    if trace.ranks > 1 and len(groups) == trace.ranks:
        every = {event.layer for event in trace.programs[0].events if event.op in PASSES}
        alike = ": each computes all layers, on other batches" if len(every) == trace.layers else ""
        raise ValueError(f"this run is not a pipeline: no rank passes anything to another{alike}")
    return groups


def _pipeline(
    trace: Trace, ranks: Sequence[int], passes: Sequence[Mapping[_Pass, int]], done: dict[int, list[Done]]
) -> Pipeline:
    """Return the pipeline of some ranks, and put into `done` what each of them does."""
    microbatches = sorted({one.batches for rank in ranks for one in passes[rank] if one.batches}, key=sorted)
    for one, other in pairwise(microbatches):
        if one & other:
            why = f"this run is not a pipeline of microbatches: batches {numbers(one)} are taken together in one place"
            raise ValueError(f"{why}, and {numbers(other)} in another")
    layers: dict[int, set[int]] = {}
    for rank in ranks:
        layers[rank] = {one.layer for one in passes[rank]}
        if not layers[rank]:
            raise ValueError(f"this run is not a pipeline: rank {rank} computes nothing")
    for layer in range(trace.layers):
        holders = [rank for rank in ranks if layer in layers[rank]]
        if len(holders) != 1:
            who = f"{these('rank', holders)}, each on some batches" if holders else f"none of {these('rank', ranks)}"
            raise ValueError(f"this run is not a pipeline: layer {layer} is computed by {who}")
    stages = _stages(trace.layers, ranks, passes, layers)
    place = {layer: stage for stage, found in enumerate(stages) for layer in found}
    number = {batches: k for k, batches in enumerate(microbatches)}
    for rank in ranks:
        mine = done[rank] = list[Done]()
        left = {stage: len(layers) for stage, layers in enumerate(stages)}
        last = max((event for one, event in passes[rank].items() if one.kind != "UPDATE"), default=-1)
        for one, event in passes[rank].items():
            stage = place[one.layer]
            if one.kind == "UPDATE":
                left[stage] -= 1
                if not left[stage] and event < last:  # it is said where passes come after it
                    mine.append(Done(Action(stage, "UPDATE"), event, event))
                continue
            action = Action(stage, one.kind, number[one.batches])
            if mine and mine[-1].action == action:  # nothing comes between two layers of a stage
                mine[-1] = mine[-1]._replace(last=event)
            else:
                mine.append(Done(action, event, event))
    own = {batch: k for k, batch in enumerate(sorted(Batches().union(*microbatches)))}
    named = tuple(tuple(own[batch] for batch in sorted(one)) for one in microbatches)
    return Pipeline(tuple(tuple(one.action for one in done[rank]) for rank in ranks), tuple(stages), named)


def _stages(
    count: int, ranks: Sequence[int], passes: Sequence[Iterable[_Pass]], layers: Mapping[int, set[int]]
) -> list[range]:
    """Return the layers of each stage: they are cut where anything comes between two layers, or where they lie
    apart."""
    cuts = {0, count}
    for rank in ranks:
        for layer in layers[rank]:
            cuts.update({layer} - {other + 1 for other in layers[rank]}, {layer + 1} - layers[rank])
        before: _Pass | None = None
        for one in (*passes[rank], None):
            if one is None or not one.goes_on(before):
                if before is not None:
                    cuts.add(before.layer + 1 if before.kind == "F" else before.layer)
                if one is not None and one.batches:
                    cuts.add(one.layer if one.kind == "F" else one.layer + 1)
            before = one if one is not None and one.batches else None
    found = [range(*pair) for pair in pairwise(sorted(cuts))]
    long = [one for one in found if len(one) == 2 * min(map(len, found))]
    if len(long) == 1 and len(ranks) > 1 and len({*map(len, found)}) == 2:
        on = {rank: sum(one[0] in layers[rank] for one in found) for rank in ranks}
        whose = next(rank for rank in ranks if long[0][0] in layers[rank])
        if {on[whose] + 1} == {on[rank] for rank in ranks if rank != whose}:  # as in the corner of a V
            cuts.add(long[0][len(long[0]) // 2])
    return [range(*pair) for pair in pairwise(sorted(cuts))]


# -- the events of actions ----------------------------------------------------------------------------------------


@kept
def actions_of(trace: Trace) -> tuple[tuple[Done, ...], ...] | None:
    """Return the passes of each rank, as actions. None where the run is not a pipeline (see `order_of`). Where several
    pipelines lie beside each other their stages and microbatches have the same numbers."""
    try:
        done = _found(trace)[1]
    except ValueError:
        return None
    found: list[tuple[Done, ...]] = []
    for program in trace.programs:
        events, mine = program.events, list[Done]()
        for action, first, last in (one for one in done[program.rank] if one.action.kind != "UPDATE"):
            # A loss belongs to what comes after it, sums to what was before.
            while first and events[first - 1].op == "loss":
                first -= 1
            while last + 1 < len(events) and events[last + 1].inputs and events[last + 1].op == "add":
                last += 1
            mine.append(Done(action, first, last))
        found.append(tuple(mine))
    return tuple(found)


# -- as recordings ------------------------------------------------------------------------------------------------

PREFIX: Final = "PP:"
"""What stands before the words of actions in the names of ranges, as in torch's pipeline executor."""


class Part(NamedTuple):
    """An event of a rank, or those that are an action together: the first, the last, and as a span, in ticks. Its
    stream is that of its group or of its peer, where it communicates."""

    first: int
    last: int
    action: Action | None
    span: Span


def part_of(trace: Trace, rank: int, first: int, last: int, action: Action | None = None) -> Part:
    """Return some events of a rank, from the first to the last, as a part."""
    program = trace.programs[rank]
    event = program.events[first]
    ends = event.start or 0, program.events[last].end or 0
    if action is not None:
        span = span_of(action, rank, *ends, str(action))
    else:
        name = event.op if event.layer is None else f"{event.op} {event.layer}"
        label = ranges(event.batches) if event.op not in COLLECTIVES and event.batches else ""
        span = Span(rank, *ends, event.op, name, "", event.layer, label)
    stream = COMPUTE
    if event.op in COLLECTIVES:
        stream = f"group {', '.join(map(str, sorted(event.group)))}"  # in whatever order it is named: it is one stream
    elif event.op in MESSAGES:
        stream = f"network: {'to' if event.op == 'pass_to' else 'from'} rank {event.peer}"
    place = trace.place(event)
    return Part(first, last, action, span._replace(stream=stream, place="" if place is None else str(place)))


def parts(trace: Trace, rank: int) -> Iterator[Part]:
    """Yield what a rank did, one after the other. What has not begun, or takes no time and is not an operation, is left
    out."""
    actions, events = actions_of(trace), trace.programs[rank].events
    begins = {} if actions is None else {done.first: done for done in actions[rank]}
    last = -1
    while last + 1 < len(events):
        first = last + 1
        action, _, last = begins.get(first, (None, first, first))
        start, over = events[first].start, events[last].end is not None
        if start is not None and (events[first].op in TIMED or events[first].length or (action and over)):
            yield part_of(trace, rank, first, last, action if over else None)


def recording_of(trace: Trace, name: str = "simulated") -> Recording:
    """Return a Trace as a recording: its actions where it is a pipeline, and what else its ranks did."""
    spans: list[Span] = []
    for rank, program in enumerate(trace.programs):
        for part in parts(trace, rank):
            first, span = program.events[part.first], part.span
            start, end = (round(tick * PER_UNIT / TICKS) for tick in (span.start, span.end))
            beside = first.op in COMMUNICATION and not first.blocking  # what is awaited at once has no stream
            spans.append(span._replace(start=start, end=end, stream=span.stream if beside else COMPUTE))
    return as_recording(name, spans, trace.ranks, PER_UNIT)


def recording_of_order(order: Order, name: str = "schedule", **costs: Any) -> Recording:
    """Return an order as a recording, with the costs that `time_order` takes."""
    return _recorded(time_order(order, **costs), name)


def _recorded(timed: Timed, name: str) -> Recording:
    spans: list[Span] = []
    for rank, actions in enumerate(timed.order):
        for action, start, end in zip(actions, timed.starts[rank], timed.ends[rank], strict=True):
            if action.parts or KINDS[action.kind].computes:
                spans.append(span_of(action, rank, round(start * PER_UNIT), round(end * PER_UNIT), str(action)))
    return as_recording(name, spans, len(timed.order), PER_UNIT)


def recording_until(order: Order, wrong: Wrong) -> Recording | None:
    """Return what the ranks do of an order that is not legal: as far as they come, if the rank that has the mistake
    stops there, and what holds up each. None where that is nothing, and for an order that has its messages."""
    place, at = places(order), None if wrong.rule == "deadlock" else wrong.rank
    cut = tuple(actions[: wrong.position] if rank == at else actions for rank, actions in enumerate(order))
    if says_messages(order):
        return None
    timed, missing = time_until(cut, place)
    if not any(timed.order):
        return None
    stops = "the ranks wait for each other" if at is None else f"rank {at} cannot go on"
    done, held = _recorded(timed, f"What runs until {stops}"), list[Held]()
    for rank, spans in enumerate(done.by_rank):
        since = max((span.end for span in spans), default=0)
        if rank in missing:
            other = place.get(missing[rank].stage, rank)
            words = f"{order[rank][len(timed.order[rank])]} waits for {missing[rank]}"
            on = None if other == rank else other
            held.append(Held(rank, since, words if on is None else f"{words} of rank {on}", on))
        elif rank == at:
            held.append(Held(rank, since, wrong.text))
    return replace(done, held=tuple(held))


def as_recording(name: str, spans: list[Span], ranks: int, unit: float | None) -> Recording:
    """Return spans in any order as a recording. What passes from rank to rank does so from the end of each pass to the
    beginning of the one that uses what it made."""
    spans.sort(key=lambda span: (span.rank, span.start, -span.end))
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
    return Recording(name, tuple(spans), ranks, unit, tuple(sorted(found)))


def order_of_recording(recording: Recording) -> Order:
    """Return the order of what the ranks compute, as a recording has it."""
    return tuple(
        parse(span.word for span in spans if span.word and span.op not in COMMUNICATION) for spans in recording.by_rank
    )


def costs_of(recording: Recording) -> dict[str, float]:
    """Return what `time_order` is told of the median passes of a recording: in its own time units, or in median
    forwards."""
    unit = recording.unit or recording.forward
    costs = {"forward": "F", "backward": "B", "input_half": "I", "weight_half": "W"}
    medians = {name: recording.median_of(KINDS[kind].operation) for name, kind in costs.items()}
    return {name: round(time / unit, 4) for name, time in medians.items() if unit and time is not None}


def action_of(word: str) -> Action | None:
    """Return the action that a word stands for; None where it is no such word."""
    try:
        return parse([word])[0]
    except ValueError:
        return None


def span_of(action: Action, rank: int, start: int, end: int, name: str) -> Span:
    label = "+".join(str(part.microbatch) for part in action.parts or (action,) if part.microbatch >= 0)
    return Span(rank, start, end, KINDS[action.kind].operation, name, str(action), action.stage, label)
