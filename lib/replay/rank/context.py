"""What a rank has for the whole replay, and what a kernel is told of the operation that it does."""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from lib.replay.errors import WrongWorld
from lib.replay.layers.initial_numbers import InitialNumbers
from lib.replay.layers.layers import Held, RealLayer
from lib.replay.options import Hook, ReplayOptions
from lib.replay.plan.library_plan import LibraryResults, library_results
from lib.replay.plan.plan import Plan, RankPlan, processes_of
from lib.replay.plan.sizes import Range, length
from lib.replay.rank.transport import Transport
from lib.trace.event import Event
from lib.values.operations import READS
from lib.values.values import Value

__all__ = ["Call", "Examples", "Job", "KernelTable", "RankContext", "Reader", "Reads", "device_of"]


@dataclass(frozen=True)
class Job:
    """The work of all ranks of a replay, however they were started. `processes` are the ranks of each process."""

    plan: Plan
    options: ReplayOptions
    initial: InitialNumbers
    processes: tuple[tuple[int, ...], ...]
    hook: Hook | None = None

    @classmethod
    def of(cls, plan: Plan, options: ReplayOptions, hook: Hook | None = None, share: bool = True) -> Job:
        """The job of a plan. `share`: the ranks share the memory of its initial numbers."""
        processes = processes_of(plan.trace, options)
        return cls(plan, options, InitialNumbers.of(plan, options, share), processes, hook)

    @property
    def reads(self) -> bool:
        """Tell whether ranks ask the reader of their process for data, which needs a data set on disk."""
        return any(event.op in READS for _, event in self.plan.trace.events())

    def examples(self) -> dict[int, bytes]:
        """Return the data set, by batch the bytes of its file. Nothing where nobody reads one."""
        data = {batch: self.initial("data", batch) for batch in range(self.plan.trace.batches) if self.reads}
        return {batch: ctypes.string_at(one.data_ptr(), one.numel() * one.itemsize) for batch, one in data.items()}

    @property
    def kept(self) -> list[int]:
        """Count the numbers that each rank keeps to be compared. ReplayError if a library cannot train this model."""
        return [library_results(self.plan, self.options.against, rank)[1] for rank in range(self.plan.ranks)]


class RankContext:
    """The state that all steps of a rank share. `mine` is the plan of this rank, `rows` are those of all batches.

    `softmaxes` are those that this step has finished, by activation, before their numbers were divided.
    `reader` is that of the process. `step` counts the steps, `now` is the number of the event, and `moved` is told it.
    """

    def __init__(
        self,
        job: Job,
        rank: int,
        transport: Transport,
        reader: Reader,
        device: torch.device,
        results: Tensor,
        moved: Callable[[int], None] = lambda index: None,
    ) -> None:
        self.job = job
        self.rank = rank
        self.transport = transport
        self.reader = reader
        self.step = -1
        self.device = device
        self.results = results
        self.now, self.moved = -1, moved
        self.plan, self.options, self.initial = job.plan, job.options, job.initial
        self.mine = job.plan.rank_plans[rank]
        self.sizes = job.plan.sizes
        self.rows = job.plan.trace.batches * job.plan.sizes.output_points
        self.softmaxes: dict[int, list[tuple[tuple[Range, ...], Tensor]]] = {}

    def now_in(self, index: int) -> None:
        """Note the event that the rank comes to."""
        self.now = index
        self.moved(index)

    @property
    def library_results(self) -> dict[str, LibraryResults]:
        """Return what this rank keeps of each library."""
        return library_results(self.plan, self.options.against, self.rank)[0]

    def empty(self, numel: int) -> Tensor:
        """A new flat tensor on the rank's device."""
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

    def input(self, place: int) -> Value:
        """Return what the Trace says of an input."""
        return self.plan.value(self.event.inputs[place])

    def output(self, place: int) -> Value:
        """Return what the Trace says of an output."""
        return self.plan.value(self.event.outputs[place])

    def ranges(self, value: Value) -> tuple[Range, ...]:
        """Return the ranges of a value on the line of its layer, or of the batches."""
        return self.context.sizes.ranges(value)

    def numel(self, value: Value) -> int:
        """Numbers in the tensor of a value."""
        return self.context.sizes.numel(value)

    def empty(self, numel: int) -> Tensor:
        """A new flat tensor on the rank's device."""
        return self.context.empty(numel)

    @property
    def layer(self) -> RealLayer:
        """The layer that it is a call of."""
        return self.context.initial.layers[self.event.layer or 0]

    def held(self, place: int) -> Held:
        """An input in the form of its dims, as layers take it."""
        return self.form(self.input(place), self.tensors[self.event.inputs[place]])

    def form(self, value: Value, flat: Tensor) -> Held:
        """The numbers of a value in the form of its dims, of what goes to experts a matrix of tokens; one number stands
        for all where nobody looks at them."""
        parts = self.context.sizes.parts(value)
        sizes = [length(ranges) for ranges in parts.values()]
        if value.place.schema.route is not None:
            sizes = [self.context.sizes.numel(value) // max(sizes[-1], 1), sizes[-1]]
        return Held(flat.view(sizes) if flat.ndim else flat.expand(sizes), parts)

    def made(self, place: int, tensor: Tensor) -> Tensor:
        """An output, of numbers that were worked out: flat, in memory of its own, and finished if it is done."""
        value, flat = self.output(place), tensor.reshape(-1)
        if value.place.schema.running and not value.place.open and flat.numel() != self.numel(value):
            if value.layer in self.plan.keeps:
                self.context.softmaxes.setdefault(value.layer, []).append((self.ranges(value), flat))
            flat = self.context.initial.layers[value.layer - 1].finish(flat)
        return flat if flat.untyped_storage().nbytes() == flat.nbytes else flat.clone()

    def sum(self, place: int, values: Sequence[Value], tensors: Sequence[Tensor]) -> Tensor:
        """An output that is the sum of these values, of which some are nothing, and some have a softmax running."""
        some = [tensor for value, tensor in zip(values, tensors, strict=True) if not value.place.zero] or tensors[:1]
        softmax = values[0].place.schema.running
        add = self.context.initial.layers[values[0].layer - 1].merge if softmax else torch.add
        total = reduce(add, some) if len(some) > 1 else some[0].clone()
        return self.made(place, total)

    def may_overwrite(self, place: int) -> bool:
        """Tell whether nobody needs an input afterwards."""
        return (self.index, self.event.inputs[place]) in self.plan.overwritable

    def own(self, place: int) -> Tensor:
        """An input to work in: its own tensor if nobody needs that afterwards, else a copy."""
        tensor = self.tensors[self.event.inputs[place]]
        return tensor if self.may_overwrite(place) else tensor.clone()

    def is_used(self, place: int) -> bool:
        """Tell whether anybody uses an output."""
        return self.event.outputs[place] in self.plan.used


K = TypeVar("K")


class KernelTable(dict[str, K]):
    """Kernels by the name of their operation."""

    def __missing__(self, name: str) -> K:
        raise LookupError(f"no kernel for {name}: an operation is replayed by a row in a table of kernels")


def device_of(options: ReplayOptions, local_rank: int) -> torch.device:
    """The device of a rank: the CPU, or the GPUs in turn. WrongWorld where there are too few."""
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


class Reads(NamedTuple):
    """The examples and bytes that a process has read."""

    examples: int
    bytes: int


class Examples:
    """A folder with a file for each example."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, contents: Mapping[int, bytes]) -> None:
        """Put examples there, by number."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for number, content in contents.items():
            self._path(number).write_bytes(content)

    def read(self, number: int) -> bytes:
        """Opens the file of an example."""
        return self._path(number).read_bytes()

    def _path(self, number: int) -> Path:
        return self.folder / f"example{number:05}.bin"


class Reader:
    """The reader of one process. Its devices may be threads, which ask it one at a time."""

    def __init__(self, examples: Examples) -> None:
        self.examples = examples
        self.lock = threading.Lock()
        self.step = -1
        self.kept: dict[int, bytes] = {}
        self.counts: dict[int, Reads] = {}

    def read(self, numbers: Iterable[int], step: int = 0) -> list[bytes]:
        """These examples. A file that the process has read in this step is not opened again."""
        with self.lock:
            if step > self.step:
                self.step, self.kept = step, {}
            for number in (wanted := list(numbers)):
                if number not in self.kept:
                    self.kept[number] = content = self.examples.read(number)
                    examples, size = self.read_in(step)
                    self.counts[step] = Reads(examples + 1, size + len(content))
            return [self.kept[number] for number in wanted]

    def read_in(self, step: int) -> Reads:
        """Return what was read in a step so far."""
        return self.counts.get(step, Reads(0, 0))
