"""MLCommons Chakra: a Trace as execution traces for network simulators such as ASTRA-sim, a file a rank.

A file is a sequence of messages of protocol buffers, each after its length: `GlobalMetadata`, then a `Node` for each
operation that takes time. The schema (version 0.0.4) is at https://github.com/mlcommons/chakra in
schema/protobuf/et_def.proto; the few kinds of fields that it needs are written here, so no package has to be installed.

What a node needs is in `data_deps`: the nodes that made its values (what takes no time, such as a sum, is passed
through). In `ctrl_deps` is what its rank did or awaited before. The n-th message of two ranks has the tag n, and
`comm_size` are the bytes that a rank itself brings. A time unit is a millisecond. Not written: how many floating point
operations a node is, which a Trace does not say; reading of data; and communications that never took place.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from pathlib import Path
from typing import Final

from lib.cluster.costs import TICKS
from lib.files import ready, write_whole
from lib.trace.event import Program
from lib.trace.order import collectives, messages
from lib.trace.trace import Trace
from lib.values.collectives import COLLECTIVES
from lib.values.operations import MESSAGES, READS, TIMED

SCHEMA: Final = "0.0.4"
MICROSECONDS: Final = 1000
"""Of a time unit, as in files for Perfetto."""
COMPUTES, SENDS, RECEIVES, COLLECTS = 4, 5, 6, 7
"""Kinds of nodes."""
COLLECTIVE_TYPES: Final = {
    "allreduce": 0,
    "allreduce_bucket": 0,
    "allgather": 2,
    "allgather_padded": 2,
    "broadcast": 5,
    "alltoall": 6,
    "alltoall_padded": 6,
    "scatterreduce": 7,
    "shift": 6,
    "halo": 6,
    "allreduce_mean": 0,
}
"""What Chakra calls the collectives: ALL_REDUCE, ALL_GATHER, BROADCAST, ALL_TO_ALL, REDUCE_SCATTER. Another one has no
number there."""


# -- protocol buffers ---------------------------------------------------------------------------------------------


def _varint(number: int) -> bytes:
    """Return a number that is not negative, seven bits a byte, the lowest first."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*found, number))


def _number(field: int, value: int) -> bytes:
    """Return a field that is a number or a truth. One that is 0 is not written, as the default is 0."""
    return _varint(field << 3) + _varint(value) if value else b""


def _bytes(field: int, value: bytes) -> bytes:
    """Return a field that is text, or a message."""
    return _varint(field << 3 | 2) + _framed(value)


def _packed(field: int, values: Iterable[int]) -> bytes:
    """Return a field of several numbers."""
    joined = b"".join(map(_varint, values))
    return _bytes(field, joined) if joined else b""


def _framed(message: bytes) -> bytes:
    return _varint(len(message)) + message


BOOL, INT32, INT64, STRING = 27, 7, 9, 29
"""The fields of an attribute that hold its value, by its type."""


def _attribute(name: str, kind: int, value: int | str) -> bytes:
    """Return an attribute of a node. A value is written even if it is 0: it is one of several that there may be."""
    held = _bytes(kind, value.encode()) if isinstance(value, str) else _varint(kind << 3) + _varint(value)
    return _bytes(10, _bytes(1, name.encode()) + held)


# -- nodes --------------------------------------------------------------------------------------------------------


def groups_of(trace: Trace) -> dict[str, list[int]]:
    """Return the ranks of each group, by the name that its collectives have in the files."""
    met = dict.fromkeys(frozenset(_group(trace, one.calls)) for one in collectives(trace))
    return {str(number): sorted(ranks) for number, ranks in enumerate(met)}


def _group(trace: Trace, calls: Sequence[tuple[int, int]]) -> Sequence[int]:
    rank, number = calls[0]
    return trace.programs[rank].events[number].group


def chakra(trace: Trace, bytes_per_element: int = 4) -> list[bytes]:
    """Return the execution trace of each rank. ValueError where a collective has no name in Chakra."""
    count: Counter[tuple[int, int]] = Counter()
    tags: dict[tuple[int, int], int] = {}
    """The tag of each message that took place, by rank and event."""
    for source, sent, target, received in messages(trace):
        if received is not None:
            tags[source, sent] = tags[target, received] = count[source, target]
            count[source, target] += 1
    joined = [one.calls for one in collectives(trace)]
    met = {call for calls in joined for call in calls if len(calls) == len(_group(trace, calls))}
    groups = {frozenset(ranks): name for name, ranks in groups_of(trace).items()}

    def attributes(program: Program, index: int) -> Iterator[bytes]:
        """Yield what kind of communication an event is."""
        event, rank = program.events[index], program.rank
        sends = event.op != "receive"
        elements = sum(value.elements() for value in program.values_of(event.inputs if sends else event.outputs))
        brought = _attribute("comm_size", INT64, round(elements * bytes_per_element))
        if event.op in COLLECTIVES:
            if event.op not in COLLECTIVE_TYPES:
                raise ValueError(f"Chakra has no {COLLECTIVES[event.op].title}: it knows {', '.join(COLLECTIVE_TYPES)}")
            yield _attribute("comm_type", INT64, COLLECTIVE_TYPES[event.op])
            yield brought
            yield _attribute("pg_name", STRING, groups[frozenset(event.group)])
        else:
            ends = (rank, event.peer or 0) if sends else (event.peer or 0, rank)
            yield brought
            yield _attribute("comm_src", INT32, ends[0])
            yield _attribute("comm_dst", INT32, ends[1])
            yield _attribute("comm_tag", INT32, tags[rank, index])

    head = _framed(_bytes(1, SCHEMA.encode()))
    return [head + b"".join(_nodes(program, tags.keys() | met, attributes)) for program in trace.programs]


def write_chakra(folder: str | Path, trace: Trace, bytes_per_element: int = 4) -> list[Path]:
    """Write `rank.0.et` and so on into a folder, and `comm_groups.json`, which says who is in each group."""
    files = chakra(trace, bytes_per_element)
    paths = [Path(folder, f"rank.{rank}.et") for rank in range(len(files))]
    for path, data in zip(paths, files, strict=True):
        ready(path).write_bytes(data)
    write_whole(Path(folder, "comm_groups.json"), json.dumps(groups_of(trace)) + "\n")
    return paths


def _nodes(
    program: Program, taken: Set[tuple[int, int]], attributes: Callable[[Program, int], Iterable[bytes]]
) -> Iterator[bytes]:
    """Yield the nodes of a rank, numbered from 1 by their events. `taken`: the communications that took place."""
    makers: dict[int, frozenset[int]] = {}
    """The nodes on which each value depends."""
    before: frozenset[int] = frozenset()
    """What the rank has done or awaited last."""
    written: set[int] = set()
    for index, event in enumerate(program.events):
        needs = frozenset[int]().union(*(makers.get(number, frozenset()) for number in event.inputs))
        communicates = event.op in COLLECTIVES or event.op in MESSAGES
        node = event.start is not None and event.op in TIMED and event.op not in READS
        if not node or (communicates and (program.rank, index) not in taken):
            makers.update(dict.fromkeys(event.outputs, needs))
            if event.op == "wait" and event.arg and event.arg[0] + 1 in written:
                before |= {event.arg[0] + 1}
            continue
        written.add(index + 1)
        start, length = (round(ticks * MICROSECONDS / TICKS) for ticks in (event.start or 0, event.length))
        name = event.op if event.layer is None else f"{event.op} {event.layer}"
        kind = COLLECTS if event.op in COLLECTIVES else {"pass_to": SENDS, "receive": RECEIVES}.get(event.op, COMPUTES)
        parts = [_number(1, index + 1), _bytes(2, name.encode()), _number(3, kind)]
        parts += [_packed(4, sorted(before - needs)), _packed(5, sorted(needs)), _number(6, start), _number(7, length)]
        parts += [_attribute("is_cpu_op", BOOL, 0), *(attributes(program, index) if communicates else ())]
        yield _framed(b"".join(parts))
        makers.update(dict.fromkeys(event.outputs, frozenset({index + 1})))
        if not communicates or event.blocking:
            before = frozenset({index + 1})
