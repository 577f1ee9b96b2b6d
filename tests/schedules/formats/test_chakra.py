"""Execution traces for Chakra, decoded by Google's library with the fields of the public schema."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lib import Trace, simulate
from lib.schedules.data_parallel import fully_sharded
from lib.schedules.formats.chakra import COLLECTIVE_TYPES, chakra, groups_of, write_chakra
from lib.schedules.pipelines.generators import one_f_one_b
from lib.schedules.pipelines.program import program_of
from lib.values.collectives import COLLECTIVES
from tests.support.schedules import OTHERS, Case

descriptors: Any = pytest.importorskip("google.protobuf.descriptor_pb2", reason="decoding needs protobuf")

PIPELINE = Trace.of(simulate(program_of(one_f_one_b(4, 6)), ranks=4, layers=8, batches=6))
SHARDED = Trace.of(simulate(fully_sharded(), ranks=4, layers=3, batches=4))

BOOL, INT32, INT64, UINT64, STRING, ENUM, MESSAGE = 8, 5, 3, 4, 9, 14, 11
SCHEMA = {
    "AttributeProto": [
        ("name", 1, STRING, 0),
        ("int32_val", 7, INT32, 0),
        ("int64_val", 9, INT64, 0),
        ("bool_val", 27, BOOL, 0),
        ("string_val", 29, STRING, 0),
    ],
    "GlobalMetadata": [("version", 1, STRING, 0)],
    "Node": [
        ("id", 1, UINT64, 0),
        ("name", 2, STRING, 0),
        ("type", 3, INT32, 0),  # an enum, which is written as one
        ("ctrl_deps", 4, UINT64, 1),
        ("data_deps", 5, UINT64, 1),
        ("start_time_micros", 6, UINT64, 0),
        ("duration_micros", 7, UINT64, 0),
        ("attr", 10, MESSAGE, 1),
    ],
}
"""The fields that we write, with their numbers in et_def.proto."""


def classes() -> dict[str, Any]:
    from google.protobuf import descriptor_pool, message_factory

    file = descriptors.FileDescriptorProto(name="et_def.proto", package="ChakraProtoMsg", syntax="proto3")
    for name, fields in SCHEMA.items():
        message = file.message_type.add(name=name)
        for field, number, kind, many in fields:
            made = message.field.add(name=field, number=number, type=kind, label=3 if many else 1)
            if field.endswith("_val"):
                if not message.oneof_decl:
                    message.oneof_decl.add(name="value")
                made.oneof_index = 0
            if kind == MESSAGE:
                made.type_name = ".ChakraProtoMsg.AttributeProto"
    pool: Any = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {n: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"ChakraProtoMsg.{n}")) for n in SCHEMA}


class Node(NamedTuple):
    """A node as a reader has it."""

    number: int
    name: str
    kind: int
    control: tuple[int, ...]
    data: tuple[int, ...]
    start: int
    length: int
    about: dict[str, Any]


def decoded(data: bytes) -> list[Node]:
    """The nodes of a file, as chakra's own reader takes them apart: a length, then a message."""
    from google.protobuf.internal.decoder import _DecodeVarint32  # pyright: ignore

    known, at, found = classes(), 0, []
    messages: list[bytes] = []
    while at < len(data):
        size, at = _DecodeVarint32(data, at)
        messages.append(data[at : at + size])
        at += size
    head = known["GlobalMetadata"]()
    head.ParseFromString(messages[0])
    assert head.version == "0.0.4"
    for message in messages[1:]:
        node = known["Node"]()
        node.ParseFromString(message)
        assert node.SerializeToString(deterministic=True) == message
        about = {one.name: getattr(one, one.WhichOneof("value")) for one in node.attr}
        times = node.start_time_micros, node.duration_micros
        found.append(Node(node.id, node.name, node.type, tuple(node.ctrl_deps), tuple(node.data_deps), *times, about))
    return found


@pytest.mark.parametrize("case", OTHERS, ids=lambda case: case.name)
def test_every_schedule_is_a_graph_whose_nodes_begin_when_what_they_need_is_over(case: Case) -> None:
    trace = Trace.of(case.run(simulate))
    for data in chakra(trace):
        over: dict[int, int] = {}
        for node in decoded(data):
            for need in (*node.control, *node.data):
                assert over[need] <= node.start + 1  # microseconds are whole
            over[node.number] = node.start + node.length


def test_messages_of_a_pipeline_meet_by_their_tags() -> None:
    ends: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
    for rank, data in enumerate(chakra(PIPELINE, bytes_per_element=2)):
        nodes = decoded(data)
        assert {node.kind for node in nodes} == {4, 5, 6}
        for node in nodes:
            assert not node.about["is_cpu_op"]
            if node.kind in (5, 6):
                about = node.about
                assert about["comm_src" if node.kind == 5 else "comm_dst"] == rank
                key = about["comm_src"], about["comm_dst"], about["comm_tag"]
                ends.setdefault(key, []).append((node.kind, about["comm_size"]))
    assert len(ends) == 2 * 3 * 6
    assert all(sorted(kind for kind, _ in both) == [5, 6] for both in ends.values())
    assert {size for both in ends.values() for _, size in both} == {
        2 * PIPELINE.shape.descriptions[0].rows * PIPELINE.shape.descriptions[0].inputs
    }


def test_what_a_node_needs_is_who_made_its_values() -> None:
    nodes = {node.number: node for node in decoded(chakra(PIPELINE)[1])}
    received = next(node for node in nodes.values() if node.kind == 6)
    forward = next(node for node in nodes.values() if node.name == "forward 2")
    assert forward.data == (received.number,)
    after = next(node for node in nodes.values() if node.name == "forward 3")
    assert after.data == (forward.number,)
    update = next(node for node in nodes.values() if node.name == "update 3")
    assert [nodes[need].name for need in update.data] == ["backward 3"] * 6  # through the sums, which take no time
    event = PIPELINE.programs[1].events[forward.number - 1]
    assert (forward.start, forward.length) == ((event.start or 0) / 10**6, 1000)


def test_collectives_name_their_group(tmp_path: Path) -> None:
    paths = write_chakra(tmp_path / "fsdp", SHARDED)
    assert [path.name for path in paths] == [f"rank.{rank}.et" for rank in range(4)]
    assert json.loads((tmp_path / "fsdp" / "comm_groups.json").read_text()) == groups_of(SHARDED) == {"0": [0, 1, 2, 3]}
    gather = next(node for node in decoded(paths[0].read_bytes()) if node.kind == 7)
    weight = SHARDED.shape.descriptions[0].inputs * SHARDED.shape.descriptions[0].outputs
    assert gather.about == {
        "is_cpu_op": False,
        "comm_type": 2,
        "comm_size": weight,
        "pg_name": "0",
    }  # a quarter, 4 bytes


def test_every_collective_has_a_number_there() -> None:
    assert COLLECTIVES.keys() == COLLECTIVE_TYPES.keys()
