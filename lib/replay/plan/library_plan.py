"""What each rank trains with a library and keeps of it; and whether the library can train this model on these ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from lib.replay.errors import ReplayError
from lib.replay.options import DATA, TENSOR
from lib.replay.plan.plan import Plan
from lib.schedules.formats.trace import pipeline_of
from lib.schedules.pipelines.action import Order, parts_of, places
from lib.schedules.pipelines.catalogue import SCHEDULES
from lib.schedules.pipelines.lowering import compute_only
from lib.trace.trace import Trace, kept
from lib.values.kinds.kind import USUAL

__all__ = ["PIPELINES", "LibraryResults", "PipelinePlan", "layers_of", "library_results", "lines_of"]
__all__ += ["microbatches_of", "pipeline_plan"]

TORCH: Final = "torch-pipelining"
"""The order of the Trace itself, on torch's pipelines."""
PIPELINES: Final = {"gpipe": "gpipe", "1f1b": "one_f_one_b", TORCH: ""}
"""The libraries that are pipelines, and the schedule that each has; TORCH that of the Trace."""
HYBRID = ("replica", "shard")
"""The axes of hybrid sharding, wherever they stand in the mesh. Other two axes are taken in their order."""


@dataclass(frozen=True, slots=True)
class LibraryResults:
    """Numbers that a rank keeps of a library's step: gradient, weight and state of whole layers, from `offset` on."""

    offset: int
    layers: tuple[int, ...]


class PipelinePlan(NamedTuple):
    """A pipeline as torch is told of it: its order, the layers of each stage, the batches of each microbatch, and the
    class of torch.distributed.pipelining that has this schedule, if any."""

    order: Order
    layers_of: tuple[range, ...]
    microbatches: tuple[tuple[int, ...], ...]
    torch: str | None

    def stages(self, rank: int) -> list[int]:
        """The stages of a rank."""
        return [stage for stage, place in places(self.order).items() if place == rank]


def pipeline_plan(plan: Plan, name: str) -> PipelinePlan:
    """The pipeline that a library is to be. ReplayError where the Trace of TORCH is none, or none for torch."""
    ranks, batches = plan.ranks, plan.trace.batches
    if name != TORCH:
        row, each = SCHEDULES[PIPELINES[name]], plan.trace.layers // ranks
        stages = tuple(range(rank * each, (rank + 1) * each) for rank in range(ranks))
        return PipelinePlan(row.make(ranks, batches), stages, tuple((batch,) for batch in range(batches)), row.torch)
    return _own_pipeline(plan.trace)


@kept
def _own_pipeline(trace: Trace) -> PipelinePlan:
    try:
        order, layers, microbatches = pipeline_of(trace)
    except ValueError as error:
        raise ReplayError(f"{TORCH} cannot train beside this Trace: {error}") from None
    if len(order) != trace.ranks:
        raise ReplayError(f"{TORCH} is one pipeline, and this Trace has several beside each other")
    if len(set(map(len, microbatches))) > 1:
        raise ReplayError(f"{TORCH} needs microbatches of one size: torch fixes the shape of what stages pass on")
    order = compute_only(order)
    return PipelinePlan(order, layers, microbatches, _class_of_torch(order, len(layers), len(microbatches)))


def _class_of_torch(order: Order, stages: int, batches: int) -> str | None:
    """The class of torch's that has an order as its own, if our schedule of that name is this order."""
    ranks = len(order)
    for row in SCHEDULES.values():
        chunks = {"chunks": stages // ranks} if "chunks" in row.takes else {}
        if row.torch is not None and (chunks or row.chunks * ranks == stages):
            try:
                named = row.make(ranks, batches, **chunks)
            except ValueError:  # it has none of this size
                continue
            if _words(named) == _words(order):
                return row.torch
    return None


def _words(order: Order) -> list[list[str]]:
    """Name what ranks compute; the parts of a pair each on its own, as a Trace has them."""
    return [[str(action) for action in parts_of(actions)] for actions in order]


def library_results(plan: Plan, against: tuple[str, ...], rank: int) -> tuple[dict[str, LibraryResults], int]:
    """Return what a rank keeps of each library, and how many numbers it keeps in all."""
    at = plan.rank_plans[rank].kept
    found: dict[str, LibraryResults] = {}
    for name in against:
        _refuse(plan, name)
        layers = layers_of(plan, name, rank)
        if name not in PIPELINES and rank != 0:
            layers = ()
        found[name] = LibraryResults(at, layers)
        at += sum(map(plan.sizes.weight, layers)) * (2 + plan.sizes.moments)
    return found, at


def layers_of(plan: Plan, name: str, rank: int) -> tuple[int, ...]:
    """The layers that a rank trains: all, or those of its stage."""
    layers = plan.trace.layers
    if name not in PIPELINES:
        return tuple(range(layers))
    pipeline = pipeline_plan(plan, name)
    return tuple(layer for stage in pipeline.stages(rank) for layer in pipeline.layers_of[stage])


def microbatches_of(plan: Plan, name: str, rank: int) -> tuple[tuple[int, ...], ...]:
    """The batches of a rank, in the parts in which it takes them one after the other. With a data parallel library as
    the schedule does it, where all ranks take batches of their own in as many parts; else every n-th batch, in one."""
    if name in PIPELINES:
        return pipeline_plan(plan, name).microbatches
    if name in TENSOR:
        return (tuple(range(plan.trace.batches)),)
    taken = [_taken(plan, other) for other in range(plan.ranks)]
    every = [batch for parts in taken for part in parts for batch in part]
    if sorted(every) == list(range(plan.trace.batches)) and len(set(map(len, taken))) == 1:
        return taken[rank]
    return (tuple(range(rank, plan.trace.batches, plan.ranks)),)


def _taken(plan: Plan, rank: int) -> tuple[tuple[int, ...], ...]:
    """The batches of each forward of layer 0."""
    program = plan.trace.programs[rank]
    events = (event for event in program.events if event.op == "forward" and event.layer == 0)
    values = (plan.rank_plans[rank].value(event.inputs[0]) for event in events)
    return tuple(tuple(sorted(value.place.batches)) for value in values)


def lines_of(plan: Plan) -> tuple[tuple[int, ...], ...]:
    """The ranks that hybrid sharding shards over, one line for each replica, by coordinate: those of the Trace's mesh,
    or two halves where it has no axes for that."""
    mesh = plan.trace.mesh
    if mesh is not None and len(mesh.axes) == 2:
        replica, shard = HYBRID if set(mesh.axes) == set(HYBRID) else tuple(mesh.axes)
        return tuple(mesh.group(first, shard) for first in mesh.group(mesh.ranks[0], replica))
    half = plan.ranks // 2
    return tuple(range(half)), tuple(range(half, plan.ranks))


def _refuse(plan: Plan, name: str) -> None:
    ranks, layers, batches = plan.ranks, plan.trace.layers, plan.trace.batches
    wrong = None
    if plan.trace.descriptions != USUAL:
        wrong = "linear layers of one size, and nothing else"
    elif ranks == 1:
        wrong = "more than one rank"
    elif name in PIPELINES and name != TORCH and layers % ranks:
        wrong = f"as many layers on each rank: {layers} do not divide by {ranks}"
    elif name in TENSOR and (width := plan.sizes.shape.descriptions[0].inputs) % ranks:
        wrong = f"as many columns on each rank: {width} do not divide by {ranks}"
    elif name == "sequence_parallel" and batches * plan.sizes.rows % ranks:
        wrong = f"as many rows on each rank: {batches * plan.sizes.rows} do not divide by {ranks}"
    elif name in DATA and batches < ranks:
        wrong = f"a batch for every rank: there are {batches} for {ranks}"
    elif name == "hsdp" and len(set(map(len, lines_of(plan)))) > 1:
        wrong = f"a mesh of replicas and shards, or an even number of ranks; there are {ranks}"
    if wrong is not None:
        raise ReplayError(f"{name} cannot train beside this Trace: it needs {wrong}")
