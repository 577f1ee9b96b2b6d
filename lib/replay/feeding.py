"""Feeding a mesh for real: processes read the files of a small data set, and hand each device its examples.

    from lib.replay import Feeding, feed
    print(feed(Feeding(mesh, 4, reads={0: [0, 1], 1: [2, 3]})).text())

What a process reads, and which of it each device gets, is data, as it comes from the puzzles about mapping. Processes
count what they read; then all say what their devices hold, and everybody looks at the rows. By itself `feed` forks the
processes of the mesh; where torchrun has started them each plays its own:

    torchrun --nproc-per-node 4 -m lib.replay.feeding feeding.json
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import hashlib
import json
import os
import struct
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from lib.cluster.mesh import Mesh, mesh_from
from lib.errors.wording import counted, these
from lib.files import write_whole
from lib.replay.errors import ReplayError, WrongWorld, need_torch

if TYPE_CHECKING:
    from multiprocessing.context import ForkProcess

    from lib.replay.rank.context import Examples, Reads

__all__ = ["FeedResult", "Feeding", "feed", "feed_and_tell", "main"]

SIZE = 512
"""Bytes of an example, behind its number."""
TIMEOUT = 60.0
AXES = ("replica", "data")


@dataclass(frozen=True)
class Feeding:
    """The examples of a batch that each process of a mesh reads, in which order; and those that each device gets.

    Without `held` a process cuts its list into as many equal pieces as it has rows of data, the first piece for the
    devices in its first row. The batch is split along the axes `along` (default: replica and data, where the mesh has
    them). ValueError where the rows cannot have equal parts, or a device is to get what its process has not read.
    """

    mesh: Mesh
    batch: int
    reads: Mapping[int, Sequence[int]]
    held: Mapping[int, Sequence[int]] | None = None
    along: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        processes, rows, batch = range(len(self.mesh.processes)), len(self.rows), self.batch
        if batch < 1 or batch % rows:
            raise ValueError(f"{counted(rows, 'row')} need equal parts of a batch; {batch} does not divide by {rows}")
        if set(self.reads) != set(processes):
            raise ValueError(f"reads has a list for each process, 0 to {processes[-1]}; got {sorted(self.reads)}")
        pieces = self.hands_out()
        for process, reads in self.reads.items():
            if strange := [number for number in reads if number not in range(batch)]:
                raise ValueError(f"the batch has the examples 0 to {batch - 1}; process {process} reads {strange[0]}")
            if twice := [number for number, times in Counter(reads).items() if times > 1]:
                what = these("example", twice)
                raise ValueError(f"process {process} reads {what} twice: name each once, it is kept for all devices")
            for device in self.mesh.devices(process):
                if missing := set(pieces[device]) - set(reads):
                    what = these("example", missing)
                    raise ValueError(f"device {device} is to get {what}, but its process {process} does not read that")

    @property
    def rows(self) -> tuple[tuple[int, ...], ...]:
        """The devices of each row of data."""
        return self.mesh.rows(*(self.along or (axis for axis in AXES if axis in self.mesh.axes)))

    def rows_of(self, process: int) -> list[int]:
        """The rows in which a process has a device."""
        mine = set(self.mesh.devices(process))
        return [number for number, row in enumerate(self.rows) if mine & set(row)]

    def hands_out(self) -> dict[int, list[int]]:
        """The examples of each device."""
        if self.held is not None:
            return {device: list(self.held.get(device, ())) for device in self.mesh.ranks}
        found: dict[int, list[int]] = {}
        for process, devices in enumerate(self.mesh.processes):
            mine, reads = self.rows_of(process), list(self.reads[process])
            each = len(reads) // len(mine)
            for place, number in enumerate(mine):
                piece = reads[place * each : (place + 1) * each]
                found |= {device: piece for device in self.rows[number] if device in devices}
        return found

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        held = {str(device): examples for device, examples in self.hands_out().items()}
        reads = [list(self.reads[process]) for process in range(len(self.mesh.processes))]
        along = list(self.along)
        return {"mesh": self.mesh.to_json(), "batch": self.batch, "reads": reads, "held": held, "along": along}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Feeding:
        """Make a feeding of what `to_json` gave. ValueError where it is something else."""
        needed = {"mesh", "batch", "reads"}
        if not needed <= set(data) <= needed | {"held", "along"}:
            raise ValueError(f"a feeding has mesh, batch and reads, and may have held and along; got {', '.join(data)}")
        try:
            held = data.get("held")
            pieces = None if held is None else {int(device): examples for device, examples in held.items()}
            along = tuple(data.get("along", ()))
            return cls(mesh_from(data["mesh"]), data["batch"], dict(enumerate(data["reads"])), pieces, along)
        except (TypeError, AttributeError) as error:
            raise ValueError(f"a feeding is numbers, and lists of them, as Feeding.save writes them: {error}") from None

    def save(self, path: Path) -> None:
        """Write it as JSON."""
        write_whole(path, json.dumps(self.to_json()) + "\n")


@dataclass(frozen=True)
class FeedResult:
    """The result of a feeding. `held` are the examples that each device really has, `read` what each process counted,
    and `needed` how many examples it could not do without."""

    feeding: Feeding
    held: Mapping[int, tuple[int, ...]]
    read: tuple[Reads, ...]
    needed: tuple[int, ...]
    faults: tuple[str, ...]
    process: int = 0

    @property
    def ok(self) -> bool:
        """Tell whether every row has examples of its own, and every example a row."""
        return not self.faults

    def text(self) -> str:
        """Say what each process read, and what is wrong."""
        mesh = self.feeding.mesh
        lines: list[str] = []
        for process, (read, needed) in enumerate(zip(self.read, self.needed, strict=True)):
            lines.append(
                f"process {process} ({these('device', mesh.devices(process))}) feeds "
                f"{these('row', self.feeding.rows_of(process))}: read {counted(read.examples, 'example')} of "
                f"{self.feeding.batch}, {read.bytes:,} bytes; its rows need {needed}"
            )
        for number, row in enumerate(self.feeding.rows):
            for examples in dict.fromkeys(self.held[device] for device in row):
                who = these("device", [device for device in row if self.held[device] == examples])
                has = these("example", examples) if examples else "nothing"
                lines.append(f"row {number} ({who}): {has}")
        lines += [f"WRONG: {fault}" for fault in self.faults] or ["Correct: every row has examples of its own."]
        return "\n".join(lines)


def feed(feeding: Feeding) -> FeedResult:
    """Read and hand out for real, from a data set that is made for it and gone afterwards. ReplayError where that
    cannot be done; what is wrong with the examples is told by the result."""
    need_torch()
    from lib.replay.processes.torchrun import process_here

    process = process_here()
    return _feed_forked(feeding) if process is None else _feed_here(feeding, process)


def content(number: int) -> bytes:
    """An example: its number, and what nobody could guess."""
    return struct.pack("<q", number) + hashlib.shake_256(f"example {number}".encode()).digest(SIZE)


def _feed_forked(feeding: Feeding) -> FeedResult:
    if not hasattr(os, "fork"):
        raise ReplayError(f"{sys.platform} cannot fork the processes: use torchrun")
    import multiprocessing

    from lib.replay.rank.context import Examples  # and torch, once, and not in each of them

    with tempfile.TemporaryDirectory(prefix="puzzles-feeding-") as name, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside torch's threads
        folder = Path(name)
        Examples(folder / "examples").write({number: content(number) for number in range(feeding.batch)})
        fork, numbers = multiprocessing.get_context("fork"), range(len(feeding.mesh.processes))
        children = [fork.Process(target=_forked, args=(number, feeding, folder), daemon=True) for number in numbers]
        try:
            for child in children:
                child.start()
            _until_all_ended(children, folder)
        finally:
            for child in children:
                child.kill()
                child.join()
                child.close()
        return _result(feeding, json.loads((folder / "said.json").read_text("utf-8")))


def _until_all_ended(children: Sequence[ForkProcess], folder: Path) -> None:
    from multiprocessing.connection import wait

    left = {child.sentinel: number for number, child in enumerate(children)}
    while left:
        ended = wait(left, TIMEOUT)
        if not ended:
            raise ReplayError(f"process {min(left.values())} did not end within {TIMEOUT:g} s")
        for sentinel in ended:
            number = left.pop(cast("int", sentinel))
            children[number].join()
            if children[number].exitcode:
                said = folder / f"error{number}"
                why = said.read_text("utf-8") if said.exists() else f"exit status {children[number].exitcode}"
                raise ReplayError(f"process {number} could not feed its devices: {why}")


def _forked(process: int, feeding: Feeding, folder: Path) -> None:
    from lib.replay.processes.play import Rendezvous, join, loopback
    from lib.replay.rank.context import Examples

    try:
        meeting = Rendezvous(f"file://{folder / 'store'}", TIMEOUT, loopback())
        join(meeting, process, len(feeding.mesh.processes))
        said = _said(feeding, process, Examples(folder / "examples"))
        if process == 0:
            (folder / "said.json").write_text(json.dumps(said), "utf-8")
    except Exception as error:
        (folder / f"error{process}").write_text(f"{type(error).__name__}: {error}", "utf-8")
        os._exit(1)


def _feed_here(feeding: Feeding, process: int) -> FeedResult:
    import torch.distributed as dist

    from lib.replay.processes import torchrun
    from lib.replay.processes.play import join

    processes = len(feeding.mesh.processes)
    if torchrun.processes_started() != processes:
        raise WrongWorld(
            f"the mesh has {processes} processes, torchrun started {torchrun.processes_started()}: "
            f"--nnodes times --nproc-per-node must be {processes}"
        )
    store = join(torchrun.rendezvous_here(TIMEOUT), process, processes)
    try:
        with torchrun.examples_here(store, {number: content(number) for number in range(feeding.batch)}) as examples:
            return _result(feeding, _said(feeding, process, examples), process)
    finally:
        dist.destroy_process_group()


def _said(feeding: Feeding, process: int, examples: Examples) -> list[Any]:
    """Reads, hands out, and says what was read and what each device holds: what all processes say."""
    import torch

    from lib.replay.rank.context import Reader
    from lib.replay.rank.distributed import exchange

    reader, reads = Reader(examples), feeding.reads[process]
    read = dict(zip(reads, reader.read(reads), strict=True))
    pieces = feeding.hands_out()
    held: dict[int, list[tuple[int, str]]] = {}
    for device in feeding.mesh.devices(process):
        tensors = [torch.frombuffer(bytearray(read[number]), dtype=torch.uint8) for number in pieces[device]]
        held[device] = [_digest(bytes(tensor.tolist())) for tensor in tensors]
    return exchange({"read": reader.read_in(0), "held": held}, torch.device("cpu"))


def _digest(example: bytes) -> tuple[int, str]:
    """The number that an example has in it, and a hash of all of it."""
    return struct.unpack_from("<q", example)[0], hashlib.sha256(example).hexdigest()


def _result(feeding: Feeding, said: Sequence[Any], process: int = 0) -> FeedResult:
    from lib.replay.rank.context import Reads

    told = [item for one in said for item in one["held"].items()]
    held = {int(device): [(number, digest) for number, digest in examples] for device, examples in told}
    each = feeding.batch // len(feeding.rows)
    return FeedResult(
        feeding,
        held={device: tuple(number for number, _ in examples) for device, examples in sorted(held.items())},
        read=tuple(Reads(*one["read"]) for one in said),
        needed=tuple(each * len(feeding.rows_of(process)) for process in range(len(said))),
        faults=tuple(_faults(feeding, held)),
        process=process,
    )


def _faults(feeding: Feeding, held: Mapping[int, Sequence[tuple[int, str]]]) -> Iterator[str]:
    """Say what is wrong with the examples that devices hold, by their hashes."""
    digests = {device: [digest for _, digest in examples] for device, examples in held.items()}
    for number, row in enumerate(feeding.rows):
        for device in row:
            if digests[device] != digests[row[0]]:
                yield f"devices {row[0]} and {device} stand in row {number} and hold different examples"
    rows = [{digest for device in row for digest in digests[device]} for row in feeding.rows]
    for (i, first), (j, second) in combinations(enumerate(rows), 2):
        if first & second:
            yield f"rows {i} and {j} hold the same example"
    there = set[str]().union(*rows)
    missing = [number for number in range(feeding.batch) if _digest(content(number))[1] not in there]
    if missing:
        yield f"no row has {these('example', missing)}"


def feed_and_tell(feedings: Sequence[Feeding]) -> int:
    """Feed one after the other, and print what came of it. The exit status is that of `main`."""
    try:
        results = [feed(feeding) for feeding in feedings]
    except (ReplayError, ImportError, OSError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return 1
    if results[0].process == 0:
        print("\n\n".join(result.text() for result in results), flush=True)
    return 0 if all(result.ok for result in results) else 1


def main(arguments: Sequence[str]) -> int:
    """Feed what a file says. Exit status 1 where it is wrong or cannot be done."""
    try:
        (path,) = arguments
        feeding = Feeding.from_json(json.loads(Path(path).read_text("utf-8")))
    except (OSError, ValueError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return 1
    return feed_and_tell([feeding])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
