"""`puzzles plan` and `puzzles predictions`: what they print, what they write, and what they refuse."""

import json
import tomllib
from pathlib import Path

import pytest

from lib.plan import CLUSTERS
from lib.plan.files import cluster_text
from tests.suite.cli.commands import puzzles, words

LLAMA = ("plan", "--model", "llama3-70b", "--gpus", "512", "--seq", "8192", "--batch", "1024")


def test_the_best_plans_with_what_they_are_made_of() -> None:
    result = puzzles(*LLAMA, "--top", "3")
    said = words(result)
    assert result.exit_code == 0
    assert "llama3-70b on 512 h100, 1,024 sequences of 8,192 tokens" in said
    assert "dp64 tp2 cp2 pp2 v8 micro 1" in said
    assert "16.81 s 47.4% 64.8 GiB compute 91%, tp 5%, cp 2%" in said
    assert "are alike, within 2% of the fastest" in said


def test_why_says_what_limits_and_what_each_choice_costs() -> None:
    said = words(puzzles(*LLAMA, "--why"))
    assert "One step away" in said
    assert "tp 2 -> 1 15.67 s 127.5 GiB -7%, does not fit" in said
    assert "Memory, 64.8 GiB: weights 32.9, activations 29.9" in said


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


def test_a_picture(tmp_path: Path) -> None:
    assert puzzles(*LLAMA, "-o", tmp_path / "front.svg").exit_code == 0
    assert "GiB of the GPU that holds most" in (tmp_path / "front.svg").read_text()


def test_where_nothing_fits_the_nearest_is_said_and_by_how_much() -> None:
    result = puzzles("plan", "--model", "llama3-405b", "--gpus", "8", "--batch", "64")
    assert result.exit_code == 1
    said = words(result)
    assert "none of 1,071 plans fits into 76.0 GiB, which is 95% of a GPU" in said
    assert "The nearest is tp8 micro 1 zero3 recompute full, which needs 688.1 GiB more" in said
    result = puzzles("plan", "--model", "llama3-8b", "--gpus", "8", "--batch", "16", "--tp", "3")
    assert result.exit_code == 1
    assert "no plan is possible. tp 3 x cp 1 x pp 1 make 3, which does not divide 8 GPUs" in words(result)


def test_predictions_beside_what_was_published(tmp_path: Path) -> None:
    result = puzzles("predictions", "--each", "-o", tmp_path / "predictions.svg")
    said = words(result)
    assert result.exit_code == 0
    assert "Megatron-LM 22B to 1T, 8 to 512 A100 held out 8 2.3 % +4% 3 %" in said
    assert "ZeRO-3 175B, 384 and 1,536 A100, 2021 fails 2" in said
    assert "deepseek-v3 2,048" in said
    assert "within 10 percent" in (tmp_path / "predictions.svg").read_text()
