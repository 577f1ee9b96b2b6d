"""Many machines: torchrun with two agents, here both on the loopback."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import lib.replay
from lib import Trace
from lib.replay import WrongWorld, replay
from tests.replay.schedules import trace

pytest.importorskip("torch", reason="a replay needs torch: pip install torch")

ROOT = Path(lib.replay.__file__).parents[2]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def environment(**more: str) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "TORCHINDUCTOR_CACHE_DIR": "/nowhere",
        **more,
    }


def test_two_agents(tmp_path: Path) -> None:
    trace("fsdp").save(tmp_path / "trace.json")
    endpoint = f"127.0.0.1:{free_port()}"
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "2"),
        *("--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint, "--rdzv-id", "replay", "--local-addr", "127.0.0.1"),
        *("-m", "lib.replay", str(tmp_path / "trace.json"), "--hidden", "32", "--length", "16", "--steps", "3"),
        *("--json", str(tmp_path / "figures.json"), "--save", str(tmp_path / "measured.json")),
        *("--perfetto", str(tmp_path / "timeline.json"), "--timeout", "60"),
    ]
    agents = [
        subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(2)
    ]
    try:
        said = [agent.communicate(timeout=100)[0] for agent in agents]
    finally:
        for agent in agents:
            agent.kill()
    assert [agent.returncode for agent in agents] == [0, 0], "\n".join(said)
    assert sum("Correct: the same as ordinary training" in text for text in said) == 1  # rank 0 alone prints
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert figures["ok"]
    assert len(figures["seconds"]) == 3
    assert all(error["relative"] <= 1e-12 for error in figures["errors"])
    assert all(one["measured"] == one["simulated"] for one in figures["ranks"])
    assert Trace.load(tmp_path / "measured.json").ranks == 4
    assert json.loads((tmp_path / "timeline.json").read_text())["traceEvents"]
    no_logs()


def test_several_devices_a_process(tmp_path: Path) -> None:
    """A process plays the devices that it owns on the mesh, whatever their order there; one replay after the other."""
    script = tmp_path / "several.py"
    script.write_text(
        "from pathlib import Path\n"
        "from lib import Mesh, Trace, simulate\n"
        "from lib.replay import feed, replay\n"
        "from lib.schedules.data_parallel import fully_sharded\n"
        "from tests.replay.schedules import trace\n"
        "from tests.replay.test_feeding import TURNED, by_index, in_parts\n"
        "order = [0, 3, 2, 1, 7, 6, 5, 4]\n"
        "mesh = Mesh({'replica': 2, 'shard': 4}, ranks=order, processes=[[0, 5], [1, 2, 7], [4], [3, 6]])\n"
        "several = Trace.of(simulate(fully_sharded('shard', 'replica'), layers=2, batches=8, mesh=mesh))\n"
        "for schedule in (several, trace('fsdp'), trace('fed_in_rows'), several):\n"
        "    result = replay(schedule, hidden=24, length=8, timeout=60)\n"
        "    assert result.ok and all(one.measured == one.simulated for one in result.ranks), result.text()\n"
        "    assert len(result.processes) == 4\n"
        "    if schedule is trace('fed_in_rows'):\n"
        "        assert [one.examples for one in result.processes] == [4, 4, 2, 2]\n"
        "for feeding in (in_parts(TURNED, 16, [0, 0, 1, 1]), by_index(TURNED, 16)):\n"
        "    fed = feed(feeding)\n"
        "    assert fed.ok and [one.examples for one in fed.read] == [8, 8, 8, 8], fed.text()\n"
        "wrong = feed(in_parts(TURNED, 16, [0, 1, 0, 1]))\n"
        "(Path(__file__).parent / f'process{fed.process}').write_text(f'{result.rank} {wrong.faults[-1]}')\n"
    )
    torchrun(4, script)
    for process, rank in enumerate((0, 1, 4, 3)):
        said = (tmp_path / f"process{process}").read_text()
        assert said == f"{rank} rows 2 and 3 hold the same example"


def torchrun(processes: int, script: Path) -> None:
    """Runs a script in the processes of one agent."""
    command = [*(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes))]
    try:
        done = subprocess.run(
            [*command, str(script)],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=100,
        )
    finally:
        no_logs()
    assert done.returncode == 0, done.stderr


def no_logs() -> None:
    """Torch's agents leave empty folders of logs behind."""
    for path in Path(tempfile.gettempdir()).glob("torchelastic_*"):
        for log in sorted(path.rglob("*"), reverse=True):
            log.rmdir() if log.is_dir() else log.unlink()
        path.rmdir()


def test_a_rank_that_stalls_is_named_by_the_others(tmp_path: Path) -> None:
    """Even by one of its own process. And all end, without an agent that would see to it."""
    script = tmp_path / "stall.py"
    script.write_text(
        "import os, sys, time\n"
        "from lib import Mesh, Trace, simulate\n"
        "from lib.replay import ReplayError\n"
        "from tests.replay.hooks import hooked\n"
        "from tests.replay.schedules import overlapped\n"
        "def hook(rank, index, event, tensors):\n"
        "    if rank == 1 and event.op == 'backward':\n"
        "        time.sleep(30)\n"
        "try:\n"
        "    mesh = Mesh({'data': 4}, processes=2)\n"
        "    schedule = Trace.of(simulate(overlapped, layers=2, batches=4, mesh=mesh))\n"
        "    hooked(schedule, hook, hidden=8, length=4, timeout=1)\n"
        "except ReplayError as error:\n"
        "    print(type(error).__name__, error)\n"
        "    os._exit(1)\n"
    )
    port = str(free_port())
    ranks = [
        subprocess.Popen(
            [sys.executable, str(script)],
            env=environment(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=port),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        said, _ = ranks[0].communicate(timeout=60)
    finally:
        for one in ranks:
            one.kill()
            one.communicate()
    assert ranks[0].returncode == 1
    assert "RankStalled rank 1 did not move for 1 s, in event" in said
    assert "backward of layer 1" in said
    assert "rank 0 waited for it in event" in said


def test_a_wrong_number_of_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(WrongWorld, match=r"the Trace has 4 ranks, torchrun started 3 processes: .* must be 4$"):
        replay(trace("fsdp"), hidden=8, length=4)
    monkeypatch.setenv("WORLD_SIZE", "2")
    match = r"6 ranks in 3 processes, torchrun started 2 processes: .* must be 3, or 6 with --processes 6$"
    with pytest.raises(WrongWorld, match=match):
        replay(trace("owned"), hidden=8, length=4)
