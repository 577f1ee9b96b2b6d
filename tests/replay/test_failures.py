"""Whatever goes wrong is said with rank and operation, and nothing is left (see conftest)."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import lib.replay
from lib import Model, Trace, simulate
from lib.files import ROOT
from lib.replay import RankDied, RankRaised, RankStalled, WrongWorld, replay
from lib.trace.event import Event
from tests.replay.hooks import Hook, hooked, skip_unless_forked
from tests.replay.schedules import trace
from tests.replay.test_parts_of_weights import CASES
from tests.support.said import Said

torch = pytest.importorskip("torch", reason="a replay needs torch: pip install torch")

SMALL: dict[str, Any] = {"hidden": 16, "length": 8}


def first(op: str, rank: int) -> int:
    """The number of a rank's second event of a kind, in the FSDP reference."""
    events = trace("fsdp").programs[rank].events
    return [i for i, event in enumerate(events) if event.op == op][1]


def does(act: Callable[[], object], rank: int, index: int) -> Hook:
    """A hook that does something at an event of a rank."""

    def hook(at_rank: int, at_index: int, event: Event, tensors: dict[int, Any]) -> None:
        if (at_rank, at_index) == (rank, index):
            act()

    return hook


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("act", "op", "said"),
    [
        (lambda: os._exit(3), "forward", r"^rank 2 ended with exit status 3, in event {}, forward of layer 1 "),
        (kill, "allgather", "^rank 2 was killed by SIGKILL, .* in event {}, all-gather of layer 1 over"),
    ],
    ids=["by itself", "by a signal"],
)
def test_a_rank_that_dies(act: Callable[[], object], op: str, said: str) -> None:
    at = first(op, 2)
    with pytest.raises(RankDied, match=said.format(at)) as info:
        hooked(trace("fsdp"), does(act, 2, at), **SMALL)
    assert info.value.rank == 2
    assert "fsdp.py, line" in (info.value.operation or "")


def test_a_rank_that_stalls() -> None:
    at = first("backward", 3)
    with pytest.raises(RankStalled, match=rf"^rank 3 did not move for 4 s, in event {at}, backward of layer 4 "):
        hooked(trace("fsdp"), does(lambda: time.sleep(600), 3, at), timeout=4, **SMALL)


@pytest.mark.parametrize("transport", ["local", "gloo"])
def test_an_operation_that_fails(transport: str) -> None:
    at = first("update", 0)

    def fail() -> None:
        raise ArithmeticError("two and two are five")

    match = rf"^rank 0 failed in event {at}, update of layer 1 \(.*\): ArithmeticError: two and two are five$"
    with pytest.raises(RankRaised, match=match):
        hooked(trace("fsdp"), does(fail, 0, at), transport=transport, **SMALL)


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_signal_to_the_parent_ends_the_ranks(number: int, tmp_path: Path) -> None:
    """Even one that cannot be caught: the ranks notice, and the temporary folder is gone already."""
    (tmp_path / "tmp").mkdir()
    trace("ddp").save(tmp_path / "trace.json")
    script = tmp_path / "run.py"
    script.write_text(
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # which is ignored in a background job of a shell
        "from lib import Trace\n"
        "from tests.replay.hooks import hooked\n"
        "def hook(rank, index, event, tensors):\n"
        "    if event.op == 'update':\n"
        "        open(f'{sys.argv[1]}/rank{rank}', 'w').write(str(os.getpid()))\n"
        "        time.sleep(600)\n"
        "hooked(Trace.load(f'{sys.argv[1]}/trace.json'), hook, hidden=8, length=4)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path / "tmp")}
    command = [sys.executable, str(script), str(tmp_path)]
    parent = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, start_new_session=True)
    ranks = [tmp_path / f"rank{rank}" for rank in range(4)]
    try:
        while not all(path.exists() and path.read_text() for path in ranks) or any((tmp_path / "tmp").iterdir()):
            assert parent.poll() is None
            time.sleep(0.05)
    finally:
        os.killpg(parent.pid, number) if number == signal.SIGINT else parent.send_signal(number)  # as Ctrl-C does
        parent.wait()
    over = time.monotonic() + 120
    while any(_alive(int(path.read_text())) for path in ranks):
        assert time.monotonic() < over
        time.sleep(0.02)
    assert list((tmp_path / "tmp").iterdir()) == []


def _alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def nothing(model: Model) -> None:
    pass


REFUSED = Said(Path(__file__).with_name("said") / "refused.txt", kinds=True)


@pytest.mark.parametrize("call", REFUSED.texts)
def test_what_cannot_be_replayed(call: str) -> None:
    broken = replace(trace("ddp"), error="rank 1 raised")
    public = {name: getattr(lib.replay, name) for name in lib.replay.__all__}
    REFUSED.check(call, public | globals() | {"broken": broken, "parts": CASES[0].run(simulate)})


def test_ranks_that_never_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    skip_unless_forked()
    from lib.replay.rank import forked

    meet = forked.meet
    monkeypatch.setattr(forked, "meet", lambda *all_: time.sleep(600) if all_[1] == 2 else meet(*all_))
    with pytest.raises(
        RankStalled, match=r"^rank \d did not move for 0.5 s, in the start, before it had met the others"
    ):
        replay(trace("ddp"), timeout=0.5, **SMALL)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
@pytest.mark.parametrize(
    "options", [{"transport": "nccl"}, {"device": "cuda"}, {"transport": "local", "device": "cuda"}]
)
def test_no_gpu(options: dict[str, Any]) -> None:
    with pytest.raises(WrongWorld, match="no GPU"):
        replay(trace("ddp"), **options, **SMALL)


@pytest.mark.thorough
def test_a_fresh_python_tells_its_errors_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lib.replay.rank.forked.fork_is_safe", lambda: False)
    with pytest.raises(RankStalled, match=r"^rank \d did not move for 0.001 s, in the start"):
        replay(trace("ddp"), timeout=0.001, **SMALL)


def test_the_command_says_what_is_wrong(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from lib.replay.__main__ import main

    (tmp_path / "damaged.json").write_text("{}")
    assert main([str(tmp_path / "damaged.json")]) == 1
    assert capfd.readouterr().err.startswith("TraceError: ")
    assert main([str(tmp_path / "absent.json")]) == 1
    Trace.of(simulate(lambda model: None, layers=1)).save(tmp_path / "wrong.json")
    assert main([str(tmp_path / "wrong.json")]) == 1
    assert "UnfitTrace: this Trace is not one correct training step" in capfd.readouterr().err
