"""One suite over all transports: every schedule gives what ordinary training gives, in the simulated memory."""

import asyncio
import signal
import threading
from typing import Any

import pytest

from lib import Trace, simulate
from lib.replay import ReplayResult, replay
from lib.schedules.pipelines.action import places
from lib.schedules.pipelines.catalogue import SCHEDULES
from lib.schedules.pipelines.program import Messages, program_of
from tests.replay.schedules import CASES, CLASSIC, besides, compared, fitting, overlapped, trace
from tests.support.profiles import sample
from tests.support.puzzles import SCHEDULES as PUZZLES

torch = pytest.importorskip("torch", reason="a replay needs torch: pip install torch")

GPUS = torch.cuda.device_count()
SMALL: dict[str, Any] = {"hidden": 32, "length": 16, "timeout": 120}
NAMES = [*CLASSIC, *CASES, *(name for name in PUZZLES if name not in {*CLASSIC, *CASES})]
TRANSPORTS = {"local": {}, "gloo": {}, "gloo on a GPU": {"transport": "gloo", "device": "cuda"}, "nccl": {}}
EVERYWHERE = [
    pytest.param(
        name,
        {"transport": where} | choices,
        id=f"{name}-{where}",
        marks=pytest.mark.skipif("GPU" in where and not GPUS, reason="there is no GPU here"),
    )
    for place, (where, choices) in enumerate(TRANSPORTS.items())
    for name in (dict.fromkeys([*CLASSIC, *CASES, *sample(NAMES)]) if where == "local" else sample(NAMES[place:]))
]
"""In this process all that are made for it and some puzzles' (all of them in `make test-all`); on each of the other
transports some, and not the same ones."""


def correct(result: ReplayResult, schedule: Trace) -> None:
    """Right numbers, exactly the simulated memory at every event, in flight included, and the simulated bytes sent."""
    assert result.ok, result.text()
    assert {error.what for error in result.errors} >= {"gradient", "weight", "optimizer state", "final weight"}
    assert all(error.relative <= 1e-12 and error.absolute <= 1e-12 for error in result.errors)
    for one, program in zip(result.ranks, schedule.programs, strict=True):
        rounding = 16 * len(program.values)  # a shard of an uneven cut is less than an element larger than its share
        assert one.by_event or not program.events
        for event, simulated, measured in one.by_event:
            most = rounding - 1 if _uneven(schedule) else besides(result, one.rank)
            assert abs(measured - simulated) <= most, (one, event)
        sent = one.simulated_sent - (8192 if schedule is trace("loose") and one.rank == 0 else 0)  # nobody receives it
        assert one.sent == pytest.approx(sent, abs=rounding if _uneven(schedule) else 1e-6)
    assert all(0 <= measured - exact <= besides(result, at[0]) for at, measured, exact in compared(result))


def _uneven(schedule: Trace) -> bool:
    return any(1024 % len(event.group) for _, event in schedule.events() if event.group)


@pytest.mark.parametrize(("name", "where"), EVERYWHERE)
def test_every_schedule_is_ordinary_training(name: str, where: dict[str, Any]) -> None:
    schedule = trace(name)
    if where["transport"] == "nccl" and schedule.ranks > GPUS:
        pytest.skip(f"nccl needs a GPU for each of {schedule.ranks} ranks, there are {GPUS}")
    correct(replay(schedule, **fitting(schedule, SMALL), **where), schedule)


@pytest.mark.parametrize("name", ["fsdp", "odd", "overlapped"])
def test_adam_doubles_the_optimizer_state_and_nothing_else(name: str) -> None:
    schedule = trace(name)
    transport = "gloo" if name == "odd" else "local"
    result = replay(schedule, transport=transport, optimizer="adam", **SMALL)
    correct(result, schedule)
    assert "Adam keeps two numbers a weight" in result.text()
    assert result.ranks[0].measured > replay(schedule, transport="local", **SMALL).ranks[0].measured


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["wsdp", "odd", "pipeline_fsdp"])
def test_smaller_types_have_their_own_tolerance(name: str, dtype: str) -> None:
    transport = "gloo" if (name, dtype) == ("odd", "bfloat16") else "local"
    result = replay(trace(name), transport=transport, dtype=dtype, **SMALL)
    assert result.ok, result.text()
    assert max(error.relative for error in result.errors) > 1e-9
    assert all(one.measured == pytest.approx(one.simulated, abs=64) for one in result.ranks)


@pytest.mark.parametrize(("hidden", "length"), [(5, 3), (7, 1), (2, 1), (16, 50)])
def test_any_size_will_do(hidden: int, length: int) -> None:
    for name in ("pipeline_fsdp", "fsdp"):
        assert replay(trace(name), transport="local", hidden=hidden, length=length).ok
    assert hidden != 5 or replay(trace("fsdp"), hidden=hidden, length=length).ok


def test_the_sizes_of_the_puzzle_give_the_memory_of_the_puzzle() -> None:
    result = replay(trace("fsdp"), transport="local", dtype="float32", verify=False)
    assert max(one.measured for one in result.ranks) == 4 * 2_359_296


def test_a_seed_gives_other_numbers_and_the_same_answer() -> None:
    first, second = (replay(trace("ddp"), transport="local", seed=seed, **SMALL) for seed in (1, 2))
    assert first.ok
    assert second.ok
    assert first.errors != second.errors


async def test_the_process_is_as_it_was_afterwards_inside_a_running_event_loop_too() -> None:
    ticking = asyncio.create_task(asyncio.sleep(0.01))
    threads = torch.get_num_threads()
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM), threading.active_count()
    for transport in ("local", "gloo"):
        assert replay(trace("ddp"), transport=transport, **SMALL).ok
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM), threading.active_count()) == before
    assert torch.get_num_threads() == threads
    assert not torch.distributed.is_initialized()
    await ticking


def test_models_will_do_as_well_as_a_trace() -> None:
    models = simulate(overlapped, ranks=4, layers=2, batches=4)
    assert replay(models, transport="local", **SMALL).ok


def test_gloo_by_way_of_main_memory() -> None:
    """What is on a GPU goes through main memory: the same copies, here from main memory to main memory."""
    from lib.replay.rank import run, transport

    class Staged(transport.ProcessTransport):
        def __init__(self, *arguments: Any, **more: Any) -> None:
            super().__init__(*arguments, **more)
            self.staged = True

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "ProcessTransport", Staged)
        for name in ("odd", "pipeline"):
            assert replay(trace(name), **SMALL).ok


def test_a_fresh_python_starts_the_ranks_where_this_one_cannot_be_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lib.replay.rank.forked.fork_is_safe", lambda: False)
    correct(replay(trace("ahead"), **SMALL), trace("ahead"))


TINY: dict[str, Any] = {"hidden": 16, "length": 4, "timeout": 120}
ALIKE = {"zb_h1": "ScheduleInterleavedZeroBubble"}
"""What is torch's interleaved zero bubble with one chunk."""


def named(name: str, messages: Messages, batches: int) -> Trace:
    """A schedule on four ranks, with a layer for each stage."""
    order = SCHEDULES[name].order(4, batches)
    return Trace.of(simulate(program_of(order, messages=messages), ranks=4, layers=len(places(order)), batches=batches))


@pytest.mark.usefixtures("cache_of_torch")
@pytest.mark.parametrize("name", sample([*ALIKE, *(name for name in SCHEDULES if name not in ALIKE)]))
def test_a_named_schedule_on_gloo_beside_torch(name: str) -> None:
    """On the class that torch has of it, else on torch's executor."""
    schedule = named(name, "posted", 8)
    result = replay(schedule, against=("torch-pipelining",), **TINY)
    correct(result, schedule)
    (theirs,) = result.libraries
    assert theirs.by == (SCHEDULES[name].torch or ALIKE.get(name, "torch's executor with this order"))
    assert theirs.counts == theirs.replay_counts
    assert all(error.relative <= 1e-12 for error in theirs.errors)


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_named_schedule_in_one_process_with_messages_that_are_awaited(name: str) -> None:
    schedule = named(name, "awaited", 5)
    correct(replay(schedule, transport="local", **TINY), schedule)
