"""A run back to the order that it is: what a student wrote as a program goes wherever orders go."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from lib.errors.wording import numbers, these
from lib.schedules.pipelines.action import KINDS, Action, Order
from lib.trace.event import Program
from lib.trace.trace import Trace
from lib.values.operations import MESSAGES, UPDATES

__all__ = ["PASSES", "Pipeline", "order_of", "pipeline_of"]

PASSES: Final = {row.operation: kind for kind, row in reversed([*KINDS.items()]) if row.computes}
"""The kind of action that an operation is a part of, of several the first."""


class Pipeline(NamedTuple):
    """An order, the layers of each stage, and the batches of each microbatch: `program_of` takes them all."""

    order: Order
    layers_of: tuple[range, ...]
    microbatches: tuple[tuple[int, ...], ...]


class _Pass(NamedTuple):
    """One layer, in one direction, on some batches."""

    kind: str
    layer: int
    batches: frozenset[int]

    def goes_on(self, before: _Pass) -> bool:
        """Tell whether it is the next layer of the same action."""
        step = 1 if self.kind == "F" else -1
        return self == (before.kind, before.layer + step, before.batches)


def order_of(trace: Trace) -> Order:
    """Return what each rank of a pipeline does and in which order, without its messages: a run of layers is one action.
    ValueError says why a run is no pipeline.

    Stages are as long as they can be: two that a rank always does one right after the other are one, unless all others
    are half as long and all other ranks have one more. A layer that is computed anew for its backward counts once. Of
    pipelines beside each other, which do the same with other data, it is the order of one.
    """
    return pipeline_of(trace).order


def pipeline_of(trace: Trace) -> Pipeline:
    """Return the same with the layers of its stages and the batches of its microbatches. A pipeline numbers its own
    batches: those beside it have others."""
    passes = [[*_passes(program)] for program in trace.programs]
    _once(passes)
    together = _together(trace)
    found = [_pipeline(trace, ranks, passes) for ranks in together]
    for ranks, other in zip(together, found, strict=True):
        if other != found[0]:
            raise ValueError(f"these are several pipelines, and that of {these('rank', ranks)} is not like the first")
    return found[0]


def _passes(program: Program) -> Iterator[_Pass]:
    """Yield what a rank computes, and its updates. A forward that it does a second time is a part of the backward."""
    done: set[_Pass] = set()
    for event in program.events:
        if event.op in UPDATES and event.layer is not None:
            yield _Pass("UPDATE", event.layer, frozenset())
        elif (kind := PASSES.get(event.op)) is not None and event.layer is not None:
            found = _Pass(kind, event.layer, event.batches)
            if found not in done:
                done.add(found)
                yield found


def _once(passes: Sequence[Sequence[_Pass]]) -> None:
    """Refuse a run in which two ranks compute the same, as when they have parts of a layer."""
    where: dict[tuple[str, int, int], int] = {}
    for rank, found in enumerate(passes):
        for one in found:
            for batch in sorted(one.batches):
                other = where.setdefault((one.kind, one.layer, batch), rank)
                if other != rank:
                    raise ValueError(
                        f"this run is no pipeline: ranks {other} and {rank} both compute layer {one.layer} of batch "
                        f"{batch}, and in a pipeline each layer of a batch is on one rank"
                    )


def _together(trace: Trace) -> list[list[int]]:
    """Return the ranks of each pipeline: those that pass messages to each other."""
    root = list(range(trace.ranks))

    def find(rank: int) -> int:
        while root[rank] != rank:
            root[rank] = rank = root[root[rank]]
        return rank

    for rank, event in trace.events():
        if event.op in MESSAGES and event.peer is not None:
            one, other = sorted((find(rank), find(event.peer)))
            root[other] = one
    groups: defaultdict[int, list[int]] = defaultdict(list)
    for rank in range(trace.ranks):
        groups[find(rank)].append(rank)
    if trace.ranks > 1 and len(groups) == trace.ranks:
        every = {event.layer for event in trace.programs[0].events if event.op in PASSES}
        alike = ": each computes all layers, on other batches" if len(every) == trace.layers else ""
        raise ValueError(f"this run is no pipeline: no rank passes anything to another{alike}")
    return list(groups.values())


def _pipeline(trace: Trace, ranks: Sequence[int], passes: Sequence[Sequence[_Pass]]) -> Pipeline:
    """Return the pipeline of some ranks."""
    microbatches = sorted({one.batches for rank in ranks for one in passes[rank] if one.batches}, key=sorted)
    for one, other in pairwise(microbatches):
        if one & other:
            raise ValueError(
                f"this run is no pipeline of microbatches: batches {numbers(one)} are taken together in one place, and "
                f"{numbers(other)} in another"
            )
    for rank in ranks:
        if not passes[rank]:
            raise ValueError(f"this run is no pipeline: rank {rank} computes nothing")
    layers = {rank: {one.layer for one in passes[rank]} for rank in ranks}
    for layer in range(trace.layers):
        holders = [rank for rank in ranks if layer in layers[rank]]
        if len(holders) != 1:
            raise ValueError(
                f"this run is no pipeline: layer {layer} is computed by "
                + (f"{these('rank', holders)}, each on some batches" if holders else f"none of {these('rank', ranks)}")
            )
    stages = _stages(trace.layers, ranks, passes, layers)
    place = {layer: stage for stage, found in enumerate(stages) for layer in found}
    number = {batches: k for k, batches in enumerate(microbatches)}
    order = tuple(tuple(_actions(trace.programs[rank], stages, place, number)) for rank in ranks)
    own = {batch: k for k, batch in enumerate(sorted(frozenset[int]().union(*microbatches)))}
    return Pipeline(order, tuple(stages), tuple(tuple(own[batch] for batch in sorted(one)) for one in microbatches))


def _stages(
    count: int, ranks: Sequence[int], passes: Sequence[Sequence[_Pass]], layers: dict[int, set[int]]
) -> list[range]:
    """Return the layers of each stage: they are cut where anything comes between two layers, or where they lie
    apart."""
    cuts = {0, count}
    for rank in ranks:
        for layer in layers[rank]:
            cuts.update({layer} - {other + 1 for other in layers[rank]}, {layer + 1} - layers[rank])
        before: _Pass | None = None
        for one in (*passes[rank], None):
            if before is not None and (one is None or not one.goes_on(before)):
                cuts.add(before.layer + 1 if before.kind == "F" else before.layer)
            if one is not None and one.batches and (before is None or not one.goes_on(before)):
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


def _actions(
    program: Program, stages: Sequence[range], place: dict[int, int], number: dict[frozenset[int], int]
) -> Iterator[Action]:
    """Yield what a rank does. An update is said where passes come after it."""
    done: set[Action] = set()
    left = {stage: len(layers) for stage, layers in enumerate(stages)}
    last = max((k for k, event in enumerate(program.events) if event.op in PASSES), default=-1)
    for k, event in enumerate(program.events):
        if event.layer is None:
            continue
        if event.op in UPDATES:
            stage = place[event.layer]
            left[stage] -= 1
            if not left[stage] and k < last:
                yield Action(stage, "UPDATE")
        elif event.op in PASSES:
            found = Action(place[event.layer], PASSES[event.op], number[event.batches])
            if found not in done:
                done.add(found)
                yield found
