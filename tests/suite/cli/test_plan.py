"""`puzzles plan`: what other programs read of it, and files of one's own; what it says is in sessions.txt."""

import json
import tomllib
from pathlib import Path

import pytest

from lib.plan import CLUSTERS
from lib.plan.files import cluster_text
from tests.suite.cli.commands import puzzles

LLAMA = ("plan", "--model", "llama3-70b", "--gpus", "512", "--seq", "8192", "--batch", "1024")


def test_json_has_the_plans_and_the_front() -> None:
    found = json.loads(puzzles(*LLAMA, "--json", "--tp", "4,8").output)
    assert (found["format"], found["version"]) == ("llm-training-puzzles plan", 1)
    assert len(found["plans"]) == 5
    assert {one["plan"]["tp"] for one in found["plans"]} <= {4, 8}
    for one in found["plans"]:
        assert sum(one["parts"].values()) == pytest.approx(one["seconds"])
        assert one["memory"]["total"] <= 0.95 * CLUSTERS["h100"].memory
    seconds = [one["seconds"] for one in found["front"]]
    assert seconds == sorted(seconds)


def test_a_configuration_for_torchtitan() -> None:
    told = tomllib.loads(puzzles(*LLAMA, "--export", "torchtitan").output)
    assert told["parallelism"]["tensor_parallel_degree"] == 2
    assert told["training"]["global_batch_size"] == 1024


def test_ones_own_model_and_cluster(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('like = "llama3-8b"\nlayers = 40\n')
    (tmp_path / "gpus.toml").write_text(cluster_text(CLUSTERS["a100"]))
    result = puzzles(
        "plan", "--model", tmp_path / "mine.toml", "--gpu", tmp_path / "gpus.toml", "--gpus", "8", "--batch", "64"
    )
    assert result.exit_code == 0, result.output
