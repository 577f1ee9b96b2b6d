"""Many machines: processes of torchrun, which meet in the store of its agent."""

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from lib import PUZZLES, Trace, simulate
from lib.files import ROOT
from lib.replay import ReplayError, WrongWorld, replay
from lib.trace.event import Event
from tests.replay.hooks import hooked
from tests.replay.schedules import fitting, overlapped, trace
from tests.replay.test_conformance import SMALL, correct
from tests.support.profiles import THOROUGH
from tests.support.worlds import as_torchrun

pytest.importorskip("torch", reason="a replay needs torch: pip install torch")

import lib.replay.rank.run  # noqa: F401  # once, and not in each of the processes that are forked


@pytest.mark.thorough
@pytest.mark.parametrize("agents", [1, 2])
def test_agents(agents: int, tmp_path: Path) -> None:
    """Of torchrun itself, four processes together: all else of it is tried in processes that are forked."""
    trace("ddp" if agents == 1 else "fsdp").save(tmp_path / "trace.json")
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{one.getsockname()[1]}"
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--nnodes", str(agents), "--nproc-per-node", str(4 // agents)),
        *("--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint, "--rdzv-id", "replay", "--local-addr", "127.0.0.1"),
        *("-m", "lib.replay", str(tmp_path / "trace.json"), "--hidden", "32", "--length", "16", "--steps", "3"),
        *("--json", str(tmp_path / "figures.json"), "--save", str(tmp_path / "measured.json")),
        *("--perfetto", str(tmp_path / "timeline.json"), "--timeout", "120"),
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "TORCHINDUCTOR_CACHE_DIR": "/nowhere"}
    started = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(agents)
    ]
    try:
        said = [agent.communicate(timeout=300)[0] for agent in started]
    finally:
        for agent in started:
            agent.kill()
        no_logs()
    assert [agent.returncode for agent in started] == [0] * agents, "\n".join(said)
    assert sum("Correct: the same as ordinary training" in text for text in said) == 1  # rank 0 alone prints
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert figures["ok"]
    assert len(figures["seconds"]) == 3
    assert all(error["relative"] <= 1e-12 for error in figures["errors"])
    assert all(one["measured"] == one["simulated"] for one in figures["ranks"])
    assert Trace.load(tmp_path / "measured.json").ranks == 4
    assert json.loads((tmp_path / "timeline.json").read_text())["traceEvents"]


def no_logs() -> None:
    """Torch's agents leave empty folders of logs behind."""
    for path in Path(tempfile.gettempdir()).glob("torchelastic_*"):
        for log in sorted(path.rglob("*"), reverse=True):
            log.rmdir() if log.is_dir() else log.unlink()
        path.rmdir()


def several(rank: int) -> int:
    """Replays one after the other, on a mesh whose ranks are in no order, and of what reads a data set."""
    for schedule in (trace("turned"), trace("fsdp"), trace("fed"), trace("turned")):
        result = replay(schedule, hidden=24, length=8, timeout=120)
        assert result.ok, result.text()
        assert all(one.measured == one.simulated for one in result.ranks), result.text()
        assert [one.examples for one in result.ranks] == [2 * (schedule is trace("fed"))] * 4
    return result.rank


def test_several_replays_one_after_the_other() -> None:
    assert as_torchrun(4, several) == [0, 1, 2, 3]


INSIDE = [record.id for record in PUZZLES.values() if record.chapter == "inside" and record.ranks == 4]


def inside_a_layer(process: int) -> int:
    """Replays what cuts rows, columns, heads and experts."""
    for name in INSIDE if THOROUGH else INSIDE[-1:]:
        correct(replay(trace(name), **fitting(trace(name), SMALL)), trace(name))
    return process


def test_layers_that_are_cut() -> None:
    assert as_torchrun(4, inside_a_layer) == [0, 1, 2, 3]


def waiting(process: int) -> str:
    """What a process says when rank 1 does not get on."""

    def hook(rank: int, index: int, event: Event, tensors: dict[int, Any]) -> None:
        if rank == 1 and event.op == "backward" and event.layer == 1:
            time.sleep(6)

    with pytest.raises(ReplayError) as caught:
        hooked(Trace.of(simulate(overlapped, layers=2, batches=2, ranks=2)), hook, hidden=8, length=4, timeout=2)
    return f"{type(caught.value).__name__} {caught.value}"


def test_a_rank_that_waits_in_vain_says_in_what() -> None:
    """And all end, without an agent that would see to it."""
    said, _ = as_torchrun(2, waiting)
    assert re.match(
        r"RankRaised rank 0 failed in event \d+, wait for all-reduce of layer 1 over ranks 0 and 1 \(.*\): ", said
    )


def test_a_wrong_number_of_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(WrongWorld, match=r"the Trace has 4 ranks, torchrun started 3 processes: .* must be 4$"):
        replay(trace("fsdp"), hidden=8, length=4)
