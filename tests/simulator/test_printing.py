"""What ranks print comes in the order of simulated time, and nothing of it is lost."""

import asyncio
import random
from typing import Any

import pytest

from lib import Model, NotSolved, RankFailed, simulate
from lib.simulator import simulator


async def chatty(model: Model) -> None:
    weight, _ = model.load_weights(0)
    print("rank", model.rank, "begins")
    x = model.get_activation([model.rank])
    for layer in range(1 + model.rank % 2):
        x = model.forward(0, model.get_activation([model.rank]), weight)
        print("rank", model.rank, "forward", layer)
    grad, _ = model.backward(0, model.get_activation([model.rank]), model.loss(x), weight)
    await model.allreduce(grad, 0)
    print("rank", model.rank, "summed at", model.time)


SAYS: list[tuple[str, Any]] = [
    ("begins", range(4)),
    ("forward 0", range(4)),
    ("forward 1", (1, 3)),
    ("summed at 3.3", range(4)),
]
SAID = "".join(f"rank {rank} {what}\n" for what, ranks in SAYS for rank in ranks)
SIZE: dict[str, Any] = {"ranks": 4, "layers": 1, "batches": 4}


async def in_a_task(model: Model) -> None:
    await asyncio.create_task(chatty(model))


@pytest.mark.parametrize("function", [chatty, in_a_task])
@pytest.mark.parametrize("seed", range(5))
def test_lines_come_in_the_order_of_time_and_rank_however_ranks_are_stepped(
    function: Any, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    draw = random.Random(seed)
    simulate(function, **SIZE, order=lambda ranks: draw.sample(ranks, len(ranks)))
    assert capsys.readouterr().out == SAID


def test_a_run_that_begins_anew_in_a_loop_prints_once(capsys: pytest.CaptureFixture[str]) -> None:
    def loop() -> Any:
        return getattr(asyncio, "get_" + "running_loop")()

    async def asks_late(model: Model) -> None:
        print("rank", model.rank)
        loop()

    simulate(asks_late, ranks=2)
    assert capsys.readouterr().out == "rank 0\nrank 1\n"


@pytest.mark.parametrize(
    ("error", "raised", "printed"),
    [(KeyboardInterrupt, KeyboardInterrupt, "rank 0\nrank 1\n"), (SystemExit, RankFailed, "rank 0\nrank 1\nrank 2\n")],
)
def test_what_was_printed_before_an_interrupt_is_shown(
    error: type[BaseException], raised: type[BaseException], printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def stops(model: Model) -> None:
        print("rank", model.rank, flush=True)
        if model.rank == 1:
            raise error

    with pytest.raises(raised):
        simulate(stops, ranks=3)
    assert capsys.readouterr().out == printed


def test_a_stub_prints_its_notice_last(capsys: pytest.CaptureFixture[str]) -> None:
    def stub(model: Model) -> None:
        print("hello")
        raise NotSolved("ddp")

    simulate(stub, puzzle="ddp")
    assert capsys.readouterr().out.startswith("hello\nddp is not solved yet")


def test_whoever_prints_a_lot_sees_it_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(simulator, "MOST_KEPT", 100)
    seen: list[int] = []

    def endless(model: Model) -> None:
        for number in range(40):
            print(f"line {number:04d}")
            seen.append(len(capsys.readouterr().out))

    simulate(endless)
    assert seen[:9] == [0] * 9
    assert all(seen[12:])
    assert sum(seen) == 40 * len("line 0000\n")


def test_a_stream_is_asked_for_everything_else(capsys: pytest.CaptureFixture[str]) -> None:
    import sys

    def asks(model: Model) -> None:
        sys.stdout.writelines(["a", "b"])
        assert sys.stdout.encoding == before.encoding
        assert not sys.stdout.isatty()

    before = sys.stdout
    simulate(asks)
    assert capsys.readouterr().out == "ab"
    assert sys.stdout is before
