"""The work of all ranks, what one rank has for the whole replay, and what a kernel is told of the operation it does."""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from pathlib import Path

import torch
from torch import Tensor

from lib.replay import WrongWorld
from lib.replay.layers.layers import Held, RealLayer
from lib.replay.layers.training import Comparison, InitialNumbers, compared
from lib.replay.options import Hook, ReplayOptions
from lib.replay.plan import Plan, RankPlan
from lib.replay.rank.transport import Transport
from lib.replay.sizes import Range, length
from lib.trace.event import Event
from lib.values.operations import READS
from lib.values.values import Value


@dataclass(frozen=True)
class Job:
    """The work of all ranks of a replay, however they were started."""

    plan: Plan
    options: ReplayOptions
    initial: InitialNumbers
    hook: Hook | None = None

    @classmethod
    def of(cls, plan: Plan, options: ReplayOptions, hook: Hook | None = None, share: bool = True) -> Job:
        """Make the job of a plan. `share`: the ranks share the memory of its initial numbers."""
        dtype = getattr(torch, options.dtype)
        initial = InitialNumbers(plan.sizes, dtype, options.seed, share, plan.trace.batches)
        return cls(plan, options, initial, hook)

    @cached_property
    def reads(self) -> bool:
        """Tell whether ranks read data, which needs a data set on disk."""
        return any(event.op in READS for _, event in self.plan.trace.events())

    def write_examples(self, folder: Path) -> None:
        """Write the data set, a file for each batch, where one is read."""
        folder.mkdir(parents=True, exist_ok=True)
        for batch in range(self.plan.trace.batches if self.reads else 0):
            data = self.initial("data", batch)
            _file(folder, batch).write_bytes(ctypes.string_at(data.data_ptr(), data.numel() * data.itemsize))

    @cached_property
    def library_results(self) -> list[tuple[dict[str, tuple[int, Sequence[int]]], int]]:
        """What each rank keeps of each library, and how many numbers in all: see the function of that name."""
        if not self.options.against:
            return [({}, rank_plan.kept) for rank_plan in self.plan.rank_plans]
        from lib.replay.rank.libraries import library_results  # it imports much of torch

        return [library_results(self.plan, self.options.against, rank) for rank in range(self.plan.ranks)]

    @property
    def kept(self) -> list[int]:
        """How many numbers each rank keeps to be compared. ReplayError if a library cannot train this model."""
        return [count for _, count in self.library_results]

    def compared(self, results: Sequence[Tensor]) -> Comparison:
        """Compare what each rank has kept with ordinary training."""
        libraries = {name: [kept[name] for kept, _ in self.library_results] for name in self.options.against}
        return compared(self.plan, self.options, self.initial, results, libraries)


def device_of(options: ReplayOptions, local_rank: int) -> torch.device:
    """Return the device of a rank: the CPU, or the GPUs in turn. WrongWorld where there are too few."""
    if not options.on_gpu:
        return torch.device("cpu")
    count = torch.cuda.device_count()
    if count == 0:
        raise WrongWorld("there is no GPU here that torch can use: transport='gloo', device='cpu' needs none")
    if options.transport == "nccl" and local_rank >= count:
        raise WrongWorld(
            f"nccl needs a GPU for each rank of a machine: this one has {count}, and a rank number {local_rank}. "
            "With transport='gloo', device='cuda' several ranks share one"
        )
    return torch.device("cuda", local_rank % count)


class Reader:
    """The reader of one rank, of a folder with a file for each example. `counts` are the examples and bytes that were
    read in the first step."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.counts = folder, (0, 0)
        self.step, self.kept = -1, dict[int, bytes]()

    def read(self, numbers: Sequence[int], step: int) -> bytes:
        """Return these examples. A file that was read in this step is not opened again."""
        if step > self.step:
            self.step, self.kept = step, {}
        for number in numbers:
            if number not in self.kept:
                self.kept[number] = content = _file(self.folder, number).read_bytes()
                if step == 0:
                    self.counts = self.counts[0] + 1, self.counts[1] + len(content)
        return b"".join(self.kept[number] for number in numbers)


def _file(folder: Path, number: int) -> Path:
    return folder / f"example{number:05}.bin"


@dataclass
class RankContext:
    """The state that all steps of a rank share. `mine` is the plan of this rank, `rows` are those of all batches.

    `softmaxes` are those that this step has finished, by activation, before their numbers were divided.
    `step` counts the steps, `now` is the number of the event, and `moved` is told it.
    """

    job: Job
    rank: int
    transport: Transport
    reader: Reader
    device: torch.device
    results: Tensor
    moved: Callable[[int], None] = lambda index: None
    step: int = -1
    now: int = -1
    softmaxes: dict[int, list[tuple[tuple[Range, ...], Tensor]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.plan, self.options, self.initial = self.job.plan, self.job.options, self.job.initial
        self.mine, self.sizes = self.plan.rank_plans[self.rank], self.plan.sizes
        self.rows = self.plan.trace.batches * self.sizes.output_points
        self.library_results, _ = self.job.library_results[self.rank]

    def now_in(self, index: int) -> None:
        """Note the event that the rank comes to."""
        self.now = index
        self.moved(index)

    def empty(self, numel: int) -> Tensor:
        """Make a new flat tensor on the rank's device."""
        return torch.empty(numel, dtype=self.initial.dtype, device=self.device)


@dataclass
class Call:
    """One operation of a rank, as its kernel sees it. Inputs and outputs are numbered as in the Trace, from 0.

    `tensors` are those of the rank, by the id of their value. All are flat: see `sizes`.
    """

    context: RankContext
    plan: RankPlan
    index: int
    event: Event
    tensors: dict[int, Tensor]

    def __post_init__(self) -> None:
        self.ranges, self.numel, self.empty = self.context.sizes.ranges, self.context.sizes.numel, self.context.empty

    def input(self, place: int) -> Value:
        """Return what the Trace says of an input."""
        return self.plan.value(self.event.inputs[place])

    def output(self, place: int) -> Value:
        """Return what the Trace says of an output."""
        return self.plan.value(self.event.outputs[place])

    @property
    def layer(self) -> RealLayer:
        """The layer that it is a call of."""
        return self.context.initial.layers[self.event.layer or 0]

    def held(self, place: int) -> Held:
        """Return an input in the form of its dims, as layers take it."""
        return self.form(self.input(place), self.tensors[self.event.inputs[place]])

    def form(self, value: Value, flat: Tensor) -> Held:
        """Return the numbers of a value in the form of its dims, of what goes to experts a matrix of tokens; one number
        stands for all where they are not looked at."""
        parts = self.context.sizes.parts(value)
        sizes = [length(ranges) for ranges in parts.values()]
        if value.place.schema.route is not None:
            sizes = [self.numel(value) // max(sizes[-1], 1), sizes[-1]]
        return Held(flat.view(sizes) if flat.ndim else flat.expand(sizes), parts)

    def made(self, place: int, tensor: Tensor) -> Tensor:
        """Return an output, of numbers that were worked out: flat, in memory of its own, and finished if it is done."""
        value, flat = self.output(place), tensor.reshape(-1)
        if value.place.schema.running and not value.place.open and flat.numel() != self.numel(value):
            if value.layer in self.plan.keeps:
                self.context.softmaxes.setdefault(value.layer, []).append((self.ranges(value), flat))
            flat = self.context.initial.layers[value.layer - 1].finish(flat)
        return flat if flat.untyped_storage().nbytes() == flat.nbytes else flat.clone()

    def sum(self, place: int, values: Sequence[Value], tensors: Sequence[Tensor]) -> Tensor:
        """Return an output that is the sum of these values, of which some are nothing, and some have a softmax
        running."""
        some = [tensor for value, tensor in zip(values, tensors, strict=True) if not value.place.zero] or tensors[:1]
        softmax = values[0].place.schema.running
        add = self.context.initial.layers[values[0].layer - 1].merge if softmax else torch.add
        return self.made(place, reduce(add, some) if len(some) > 1 else some[0].clone())

    def may_overwrite(self, place: int) -> bool:
        """Tell whether an input is not needed afterwards."""
        return (self.index, self.event.inputs[place]) in self.plan.overwritable

    def own(self, place: int) -> Tensor:
        """Return an input to work in: its own tensor if that is not needed afterwards, else a copy."""
        tensor = self.tensors[self.event.inputs[place]]
        return tensor if self.may_overwrite(place) else tensor.clone()

    def is_used(self, place: int) -> bool:
        """Tell whether anybody uses an output."""
        return self.event.outputs[place] in self.plan.used
