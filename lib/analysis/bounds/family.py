"""Families of schedules that lower bounds apply to, and why a run is not of a family.

The check accepts many ways to train: a pipeline puzzle may be solved with FSDP. A lower bound needs to know what kind
of schedule it is about. All families here are made of the same choices, see `Family`; `excuse` finds the first thing
that a run does differently. It reads operations only: values are rebuilt (see rebuild), nothing stated is trusted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from lib.errors.exceptions import PuzzleError, TraceError
from lib.errors.wording import counted, these
from lib.puzzles.puzzle import Size
from lib.trace.event import Event, Program
from lib.trace.lifetimes import Lifetimes, stays
from lib.trace.trace import Trace
from lib.values.collectives import COLLECTIVES
from lib.values.kinds.kind import USUAL, Layer
from lib.values.laws import total_elements
from lib.values.layers import Shape
from lib.values.operations import BY_INPUT, BY_WEIGHT, COMPUTE, LOADS, OPERATIONS, TIMED, UPDATES
from lib.values.placement import Elements, union
from lib.values.values import Activation, ActivationGrad, OptState, Value, Weight, WeightGrad, definite, describe

PRICED = frozenset(["allreduce", "allreduce_bucket", "allgather", "scatterreduce"])
"""Collectives for which `figures.traffic` counts what really moves, whatever the members bring."""


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of schedule: `stages` of layers of equal length, each on `ranks / stages` ranks that share the batches.

    `sharded`: a rank holds one part of each weight of its stage, cut into as many as the stage has ranks; else all of
    it. `copies` is how many ranks of a stage have the same part, and `state_copies` the same for states. `grouping` is
    how many batches go through a layer at once: "all" that the rank has, "one", or "any". docs/bounds.md says what else
    such a schedule does, and what it is free to do.
    """

    ranks: int
    layers: int
    batches: int
    stages: int = 1
    sharded: bool = False
    grouping: str = "any"
    copies: int = 1
    state_copies: int = 1
    layer: Layer = USUAL[0]

    @property
    def each(self) -> int:
        """Layers per stage."""
        return self.layers // self.stages

    @property
    def replicas(self) -> int:
        """Ranks per stage."""
        return self.ranks // self.stages

    @property
    def mine(self) -> int:
        """Batches per rank."""
        return self.batches // self.replicas

    @property
    def share(self) -> Fraction:
        """The part of each weight that a rank holds."""
        return Fraction(self.copies, self.replicas) if self.sharded else Fraction(1)

    @property
    def state_share(self) -> Fraction:
        """The part of each optimizer state that a rank holds, and updates."""
        return Fraction(self.state_copies, self.replicas) if self.sharded else Fraction(1)

    @property
    def lends(self) -> bool:
        """Tell whether a rank holds more of the weights than it updates."""
        return self.state_share < self.share

    @property
    def described(self) -> tuple[Layer, ...]:
        """The layers, which are all alike."""
        return (self.layer,)

    def stage(self, layer: int) -> int:
        """Return the stage of a layer."""
        return layer // self.each

    def differences(self, run: Trace) -> Iterator[str]:
        """Yield how a run, with its values rebuilt, differs from the schedules of this family."""
        return _Otherwise(run, self).differences()


@dataclass(frozen=True, slots=True)
class SharedWork:
    """Schedules in which every rank updates a part of every weight itself, and every backward has both halves.

    `described`: the layers, as a record describes them. Otherwise a schedule may cut, copy and repeat as it likes.
    """

    premise: ClassVar[str] = "Every rank updates each weight, or its own part of it, and no backward leaves out a half."
    ranks: int
    layers: int
    batches: int
    described: tuple[Layer, ...] = USUAL

    @property
    def shape(self) -> Shape:
        """The layers, with what they cost."""
        return Shape(self.layers, self.batches, self.described)

    def differences(self, run: Trace) -> Iterator[str]:
        """Yield why a run is not one of these: ranks that leave updates to others, halves that are left out."""
        updated = {(rank, event.layer) for rank, event in run.events() if event.op in UPDATES}
        halves: dict[int, Elements] = defaultdict(int)
        for program in run.programs:
            for event in program.events:
                if event.op in BY_INPUT and event.layer is not None:
                    values = program.values_of(event.inputs)
                    halves[event.layer] += OPERATIONS[event.op].work(run.shape, event.layer, len(event.batches), values)
        for layer, kind in enumerate(self.shape.kinds):
            if kind.weight is None:
                continue
            for rank in range(self.ranks):
                if (rank, layer) not in updated:
                    yield f"rank {rank} updates nothing of layer {layer}"
            if halves[layer] < kind.cost * self.batches:
                yield f"the backward of layer {layer} leaves out input halves"


@dataclass(frozen=True, slots=True)
class WholeLayers:
    """Schedules in which each layer is on one rank that trains it whole, and all ranks have equally many layers.

    They may choose which layers a rank has, how many batches go together, and whether backward is split.
    """

    premise: ClassVar[str] = "Each layer is on one rank, whole, and each rank has equally many layers."
    ranks: int
    layers: int
    batches: int
    described: tuple[Layer, ...] = USUAL

    @property
    def each(self) -> int:
        """Layers per rank."""
        return self.layers // self.ranks

    def differences(self, run: Trace) -> Iterator[str]:
        """Yield why a run is not one of these: layers on several ranks, parts of layers, ranks with more layers."""
        homes: dict[int, int] = {}
        for rank, event in run.events():
            if event.op not in COMPUTE or event.layer is None or event.layer == self.layers:  # the loss
                continue
            operation, values = OPERATIONS[event.op], run.programs[rank].values_of(event.inputs)
            whole = len(event.batches) if operation.per_batch else 1
            if operation.work(run.shape, event.layer, len(event.batches), values) < whole:
                yield f"rank {rank} runs {event.op} of layer {event.layer} on a part of it"
            if homes.setdefault(event.layer, rank) != rank:
                yield f"layer {event.layer} is on several ranks"
        for rank in range(self.ranks):
            if (many := sum(home == rank for home in homes.values())) * self.ranks != self.layers:
                yield f"rank {rank} has {counted(many, 'layer')} of {self.layers}"
        # Nothing needs the input half of layer 0, and the bound counts it only for a single rank.
        went_back = sum(len(event.batches) for _, event in run.events() if event.op in BY_INPUT and event.layer == 0)
        if self.ranks == 1 and went_back < self.batches:
            yield "the backward of layer 0 leaves out input halves"


def excuse(run: Trace, family: Family | SharedWork | WholeLayers) -> str | None:
    """Return the first reason why a run is not of a family, as a sentence about the run; None if it is of it."""
    if Size.of(run) != Size.of(family):
        return "it has {} ranks, {} layers and {} batches".format(*Size.of(run))
    if run.error is not None:
        return "it did not end"
    if run.descriptions != family.described:
        return "its layers are of other sizes"
    try:
        rebuilt = run.normalised()
    except (PuzzleError, TraceError):
        return "it is not one correct training step"
    return next(family.differences(rebuilt), None)


class _Otherwise:
    """What a run, with its values rebuilt, does differently from a family."""

    def __init__(self, run: Trace, family: Family) -> None:
        self.run, self.family = run, family
        self.owners: dict[tuple[int, int], int] = {}
        """The rank that computes each layer on each batch."""
        self.place: dict[int, int] = {}
        """The stage of each rank."""
        self.sent: set[tuple[str, int, int]] = set()

    def differences(self) -> Iterator[str]:
        """Yield what the run does differently, the first thing first."""
        yield from self.computed()
        self.place = {rank: self.family.stage(layer) for (layer, _), rank in self.owners.items()}
        yield from self.shared_out()
        for program, lives in zip(self.run.programs, self.run.lifetimes(), strict=True):
            yield from self.given(program, lives)
        for program in self.run.programs:
            for event in program.events:
                if event.op in COLLECTIVES or event.op == "pass_to":
                    yield from self.between_hosts(program, event)
                    yield from (self.message if event.op == "pass_to" else self.collective)(program, event)

    # -- who computes what ------------------------------------------------------------------------------------------

    def computed(self) -> Iterator[str]:
        """Yield what is not computed exactly once, with forward and backward in one place."""
        done: set[tuple[str, int, int]] = set()
        for rank, event in self.run.events():
            if event.op not in COMPUTE or not OPERATIONS[event.op].per_batch or event.layer is None:
                continue
            what, size = f"{event.op} of layer {event.layer}", len(event.batches)
            if (event.op in BY_WEIGHT) != (event.op in BY_INPUT):
                yield f"rank {rank} splits the backward of layer {event.layer} in two halves"
            if any(not value.is_complete() for value in self.run.programs[rank].values_of(event.inputs)):
                yield f"rank {rank} runs {what} with a part of the weight"
            if self.family.grouping == "one" and size > 1:
                yield f"rank {rank} runs {what} on {these('batch', event.batches)} together"
            if self.family.grouping == "all" and size < self.family.mine:
                yield f"rank {rank} runs {what} on {these('batch', event.batches)} alone"
            for batch in sorted(event.batches):
                if (event.op, event.layer, batch) in done:
                    yield f"{what} on batch {batch} is computed more than once, the last time on rank {rank}"
                done.add((event.op, event.layer, batch))
                if self.owners.setdefault((event.layer, batch), rank) != rank:
                    yield f"layer {event.layer} goes forward and backward on batch {batch} on different ranks"
        if len(self.owners) < self.family.layers * self.family.batches:
            yield "it leaves out batches"

    def shared_out(self) -> Iterator[str]:
        """Yield ranks without exactly one stage, or without their share of the batches."""
        batches: dict[int, set[int]] = defaultdict(set)
        for (layer, batch), rank in sorted(self.owners.items()):
            stage = self.family.stage(layer)
            if self.place[rank] != stage:
                yield f"rank {rank} computes layers of several stages"
            if self.owners[stage * self.family.each, batch] != rank:
                yield f"batch {batch} is on several ranks in layers that belong together"
            batches[rank].add(batch)
        for rank in range(self.family.ranks):
            if len(batches[rank]) != self.family.mine:
                yield f"rank {rank} computes {len(batches[rank])} batches, and not {self.family.mine}"

    # -- what was given, and stays ----------------------------------------------------------------------------------

    def given(self, program: Program, lives: Lifetimes) -> Iterator[str]:
        """Yield why a rank does not load exactly its part of its stage, keep it until its update, and update it
        itself."""
        family, events, stage = self.family, program.events, self.place[program.rank]
        mine = range(stage * family.each, (stage + 1) * family.each)
        used = {number for event in events for number in event.inputs}
        loaded: dict[int, tuple[list[Value], list[Value]]] = defaultdict(lambda: ([], []))
        for event in events:
            for number, values in zip(
                event.outputs, loaded[event.layer or 0] if event.op in LOADS else (), strict=False
            ):
                values.extend(program.values_of([number] if number in used else []))
        for layer, (weights, states) in sorted(loaded.items()):
            if weights and layer not in mine:
                yield f"rank {program.rank} loads layer {layer}, which is not of its stage"
            if total_elements(weights) > family.layer.weight * family.share and family.sharded:
                yield f"rank {program.rank} loads more of layer {layer} than its shard"
            if total_elements(states) > family.layer.weight * family.state_share and family.lends:
                yield f"rank {program.rank} loads more of the {OptState.kind} of layer {layer} than its shard"
        for layer in mine:
            updates = [i for i, event in enumerate(events) if event.op == "update" and event.layer == layer]
            if _part([program.values_of(events[i].inputs)[1] for i in updates]) < family.state_share:
                yield f"rank {program.rank} does not itself update {_what(family.state_share)} of layer {layer}"
            last, until = updates[0], "update"
            if family.lends:
                backwards = (i for i, event in enumerate(events) if event.op == "backward" and event.layer == layer)
                last, until = max(backwards), "last backward"
            for kind, share, end, word in (
                (Weight, family.share, last, until),
                (OptState, family.state_share, updates[0], "update"),
            ):
                if not _stays(program, lives, kind, layer, end, share):
                    yield (
                        f"rank {program.rank} does not hold {_what(share)} of the {kind.kind} of layer {layer} "
                        f"from its first forward to the {word}"
                    )

    # -- what travels -----------------------------------------------------------------------------------------------

    def between_hosts(self, program: Program, event: Event) -> Iterator[str]:
        """Yield weights that leave their host before their update, or do not leave it after, if hosts have copies of
        them."""
        if self.family.copies == 1 or (mesh := self.run.mesh) is None:
            return
        ranks = event.group if event.peer is None else (program.rank, event.peer)
        hosts = {mesh.host(rank) for rank in ranks}
        for value in program.values_of(event.inputs):
            if isinstance(value, Weight) and value.step == 0 and len(hosts) > 1:
                yield f"rank {program.rank} brings {definite(describe(value))} to {event.op} with another host"
            if isinstance(value, Weight) and value.step > 0 and len(hosts) < len(ranks):
                yield f"rank {program.rank} brings {definite(describe(value))} to {event.op} inside its host"

    def collective(self, program: Program, event: Event) -> Iterator[str]:
        """Yield why a collective is not one of weights or their gradients among the ranks of their stage."""
        if event.op not in PRICED:
            yield f"rank {program.rank} uses {event.op}"
        for value in program.values_of(event.inputs):
            if isinstance(value, Activation | ActivationGrad):
                yield f"rank {program.rank} brings an activation to {event.op}"
            elif self.family.lends and isinstance(value, OptState):
                yield f"rank {program.rank} brings an optimizer state to {event.op}"
            elif {self.place[rank] for rank in event.group} != {self.family.stage(value.layer)}:
                yield f"{event.op} of layer {value.layer} has members that are not of its stage"

    def message(self, program: Program, event: Event) -> Iterator[str]:
        """Yield why a message is not one activation (or gradient) on its first way to the next stage, nor to a rank of
        the same stage."""
        family, rank, target, values = self.family, program.rank, event.peer, program.values_of(event.inputs)
        # A rank adds gradients up over batches, and shares its layers with other ranks.
        adds_up = family.replicas > 1 and family.mine > 1 and family.grouping != "all"
        for value in values:
            what = definite(describe(value))
            if not isinstance(value, Activation | ActivationGrad):
                if target is None or not self.place[rank] == self.place[target] == family.stage(value.layer):
                    yield f"rank {rank} sends {what} to rank {target}, which is not of the same stage"
                if (family.lends and isinstance(value, OptState)) or (adds_up and isinstance(value, WeightGrad)):
                    yield f"rank {rank} sends {what} in a message"
                continue
            if len(values) > 1:
                yield f"rank {rank} sends {what} and more in one message"
            step = 1 if isinstance(value, Activation) else -1
            edge = (self.place[rank] + (step > 0)) * family.each - (step < 0)
            for batch in sorted(value.batches):
                inside = 0 <= value.layer < family.layers
                if value.layer != edge or not inside or self.owners[value.layer, batch] != target:
                    yield f"rank {rank} sends {what} to rank {target}, which is not where it is needed next"
                if (value.kind, value.layer, batch) in self.sent:
                    yield f"{what} is sent more than once"
                self.sent.add((value.kind, value.layer, batch))


def _what(share: Fraction) -> str:
    return "its shard" if share < 1 else "all"


def _stays(
    program: Program, lives: Lifetimes, kind: type[Weight | OptState], layer: int, update: int, share: Fraction
) -> bool:
    """Tell whether this share of the initial values is alive at every memory sample from first forward to update.

    Values loaded late count from the start (see `memory`); those given away do not count until they come back.
    """
    first = next(i for i, event in enumerate(program.events) if event.op == "forward")
    initial = {n: v for n, v in enumerate(program.values) if isinstance(v, kind) and v.layer == layer and v.step == 0}
    held = stays(program)
    spans = [(n, begin, end) for n in initial for begin, end in held.get(n, ())]
    spans += [(n, lives.born[n] + 1, lives.last[n] + 1) for n in initial]
    sampled = (index for index in range(first, update + 1) if program.events[index].op in TIMED)
    alive = {frozenset(number for number, begin, end in spans if begin <= index < end) for index in sampled}
    return all(_part(initial[number] for number in numbers) >= share for numbers in alive)


def _part(values: Iterable[Value]) -> Fraction:
    """Return how much of a layer some shards make up together; overlaps count once."""
    shards = [value.place.first for value in values if isinstance(value, Weight | OptState) and value.step == 0]
    return Fraction(union(shards).size, shards[0].dim.size) if shards else Fraction(0)
