"""Feed a mesh for real: each process opens the files of its examples, and all compare what their devices hold.

    torchrun --nproc-per-node 3 docs/examples/feeding.py

Six devices in no order, two in each process, and a batch of six examples for three rows of data: the smallest mesh for
which the mapping of `break_the_map` is wrong. Beside it: what `fix_the_map` asks for, reading by index.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import torch.distributed as dist

from lib import Mesh

BATCH = 6
MESH = Mesh({"data": 3, "model": 2}, ranks=[0, 2, 3, 4, 1, 5], processes=2)
ROWS = MESH.rows("data")
Examples = Mapping[int, Sequence[int]]
"""The numbers of the examples that each device gets."""


def by_shards() -> Examples:
    """Each process reads a shard, that of the smallest row in which it has a device, and cuts it for its rows."""
    mine = {process: rows_of(process) for process in range(len(MESH.processes))}
    corners = sorted({rows[0] for rows in mine.values()})
    held: dict[int, Sequence[int]] = {}
    for process, rows in mine.items():
        shard = range(corners.index(rows[0]), BATCH, len(corners))
        for row, piece in zip(rows, (shard[:2], shard[2:]), strict=False):
            held |= {device: piece for device in ROWS[row] if MESH.process(device) == process}
    return held


def by_index() -> Examples:
    """Row i of data gets the i-th part of the batch, whoever feeds it."""
    each = BATCH // len(ROWS)
    return {device: range(i * each, (i + 1) * each) for i, row in enumerate(ROWS) for device in row}


def rows_of(process: int) -> list[int]:
    """Return the rows of data in which a process has a device, in ascending order."""
    return [i for i, row in enumerate(ROWS) if set(row) & set(MESH.devices(process))]


def fed(held: Examples, folder: Path, process: int) -> list[dict[int, list[str]]]:
    """Open the files of this process's devices, each once, and hear the hashes of what the devices of all hold."""
    devices = MESH.devices(process)
    numbers = sorted({number for device in devices for number in held[device]})
    read = {number: (folder / f"{number}").read_bytes() for number in numbers}
    print(
        f"process {process} feeds rows {rows_of(process)}: reads {len(read)} examples of {BATCH}, {numbers}", flush=True
    )
    mine = {device: [hashlib.sha256(read[number]).hexdigest() for number in held[device]] for device in devices}
    everybody: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everybody, mine)
    return everybody


def faults(everybody: Sequence[Mapping[int, list[str]]]) -> list[str]:
    """Say what is wrong: devices of a row must hold the same, no two rows the same example, and every example a row."""
    held = {device: hashes for each in everybody for device, hashes in each.items()}
    rows = [{one for device in row for one in held[device]} for row in ROWS]
    found = [f"devices {row} hold different examples" for row in ROWS if any(held[one] != held[row[0]] for one in row)]
    found += [
        f"rows {i} and {j} hold the same example" for i, j in combinations(range(len(rows)), 2) if rows[i] & rows[j]
    ]
    if len(set[str]().union(*rows)) < BATCH:
        found.append("an example is in no row")
    return found


def main() -> None:
    """Feed the mesh in both ways, as one process of torchrun, and print what is wrong with each."""
    dist.init_process_group("gloo")
    process = dist.get_rank()
    with tempfile.TemporaryDirectory(prefix="examples-") as own:
        place = [own]
        dist.broadcast_object_list(place)  # all read the folder of process 0
        folder = Path(place[0])
        if process == 0:
            for number in range(BATCH):
                (folder / f"{number}").write_bytes(f"example {number}".encode())
        dist.barrier()
        for way in (by_shards, by_index):
            wrong = faults(fed(way(), folder, process))
            if process == 0:
                print(f"{way.__name__}: {'; '.join(wrong) or 'every row has examples of its own'}", flush=True)
        dist.barrier()  # nobody's folder goes while another process reads in it
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
