"""Calibration: the fit finds the constants that times were made from; what is measured is written as a cluster that the
planner reads; and what cannot be measured is refused. No test looks at how fast this machine is."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from lib.plan import CLUSTERS
from lib.plan.files import cluster_named, cluster_text
from tests.suite.cli.commands import puzzles, words

torch = pytest.importorskip("torch", reason="a calibration needs torch: pip install torch")

from lib.replay import ReplayError, ReplayOptions, WrongWorld  # noqa: E402
from lib.replay import machine as calibration  # noqa: E402
from lib.replay.machine import SIZES, Sizes, Timed, fitted, measured, predicted  # noqa: E402

MACHINE = replace(
    CLUSTERS["h100"],
    gemm=0.7125,
    half_size=412.5,
    hbm_share=0.8125,
    link_share=0.25,
    collective=1.5e-05,
    source="made up",
)
SMALL: Sizes = {"all-gather": [(8,), (16,)], "product": [(16, 16, 16), (8, 16, 24)], "copy": [(64,), (4096,)]}


def times(ranks: int, sizes: Sizes = SIZES["cuda"]) -> list[Timed]:
    """What a machine would take by the planner's forms."""
    made = [Timed("all-gather", (4 * side * side,), 0.0) for (side,) in sizes["all-gather"] if ranks > 1]
    made += [Timed(kind, one, 0.0) for kind in ("product", "copy") for one in sizes[kind]]
    return [one._replace(seconds=predicted(one, MACHINE, ranks)) for one in made]


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_the_constants_come_out_of_made_up_times(ranks: int) -> None:
    like = replace(CLUSTERS["h100"], source="made up")
    assert fitted(times(ranks), like, ranks, sheet=True) == MACHINE


def test_without_a_data_sheet_the_peaks_are_what_was_reached() -> None:
    found = fitted(times(4), CLUSTERS["b200"], 4, sheet=False)
    assert (found.flops, found.hbm, found.nvlink) == (7.047e14, 2.722e12, 1.125e11)
    assert (found.gemm, found.hbm_share, found.link_share) == (1, 1, 1)
    assert (found.half_size, found.collective) == (MACHINE.half_size, MACHINE.collective)
    assert (found.memory, found.nic, found.attention) == (192e9, 50e9, CLUSTERS["b200"].attention)


def test_beyond_its_data_sheet_a_peak_is_what_was_reached() -> None:
    found = fitted(times(4), replace(MACHINE, hbm=1e12), 4, sheet=True)
    assert (found.hbm, found.hbm_share) == (2.722e12, 1)
    assert (found.flops, found.gemm) == (MACHINE.flops, MACHINE.gemm)


def test_one_rank_has_no_ring() -> None:
    found, like = fitted(times(1), CLUSTERS["a100"], 1, sheet=False), CLUSTERS["a100"]
    assert (found.nvlink, found.link_share, found.collective) == (like.nvlink, like.link_share, like.collective)
    assert found.half_size == MACHINE.half_size


def test_what_counts_is_the_relative_error() -> None:
    """Sums of (c / y - 1)^2 over y = 1 and 2 are least at c = (1 + 1/2) / (1 + 1/4)."""
    rest = [one for one in times(1) if one.kind == "product"]
    copies = [Timed("copy", (10**9,), 1.0), Timed("copy", (10**9,), 2.0)]
    assert fitted([*rest, *copies], MACHINE, 1, sheet=False).hbm == pytest.approx(2e9 / 1.2, rel=1e-3)


def test_where_short_sides_cost_nothing_no_constant_is_negative() -> None:
    faster = [one._replace(seconds=one.seconds / (3 if 2048 in one.sizes else 1)) for one in times(1)]
    assert fitted(faster, MACHINE, 1, sheet=False).half_size == 0


@pytest.mark.parametrize("kind", ["product", "all-gather"])
def test_times_that_do_not_grow_give_no_rate(kind: str) -> None:
    odd = [one._replace(seconds=1.0) if one.kind == kind else one for one in times(2)]
    with pytest.raises(ReplayError, match=f"the times of each {kind} do not grow with its size"):
        fitted(odd, MACHINE, 2, sheet=True)


@pytest.mark.parametrize("ranks", [1, 2])
def test_all_kinds_are_timed_at_all_sizes(ranks: int) -> None:
    threads = torch.get_num_threads()
    found = measured(ReplayOptions(steps=1, verify=False, dtype="float32", device="cpu"), ranks, SMALL)
    assert [(one.kind, one.sizes) for one in found] == [
        *[("all-gather", (4 * side * side,)) for (side,) in SMALL["all-gather"] if ranks > 1],
        *[(kind, sizes) for kind in ("product", "copy") for sizes in SMALL[kind]],
    ]
    assert all(one.seconds > 0 for one in found)
    assert torch.get_num_threads() == threads


def test_all_that_is_timed_has_a_form_and_every_device_times_all_of_it() -> None:
    for sizes in SIZES.values():
        assert set(sizes) == set(calibration.RATES)
    assert all(predicted(one, MACHINE, 2) > 0 for one in times(2))


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch, no_gpu: None) -> None:
    """The times are those of MACHINE."""
    monkeypatch.setattr(calibration, "measured", lambda options, ranks, sizes: times(ranks, sizes))


def test_the_command_writes_what_the_planner_reads(tmp_path: Path, made_up: None) -> None:
    mine = tmp_path / "new" / "mine.toml"
    result = puzzles("calibrate", "-o", mine)
    assert result.exit_code == 0, result.output
    found = cluster_named(str(mine))
    assert (found.flops, found.half_size, found.collective) == (7.047e14, MACHINE.half_size, MACHINE.collective)
    assert found.source.startswith("Measured on a core of a CPU (")
    assert f"torch {torch.__version__}: products in float32, copies, all-gathers of 2 ranks over gloo" in found.source
    assert found.source.endswith("all else is that of h100")
    assert mine.read_text() == cluster_text(found)
    said = words(result)
    assert found.source in said
    for row in ("all-gather 4 MiB 0.026 ms 0.026 ms", "product 1024 x 128 x 1024", "copy 128 MiB"):
        assert row in said
    assert said.count("+0%") + said.count("-0%") == len(times(2, SIZES["cpu"]))
    assert f"puzzles plan --gpu {mine}" in result.output
    planned = puzzles("plan", "--gpu", mine, "--model", "llama3-8b", "--gpus", "8", "--batch", "64")
    assert planned.exit_code == 0, planned.output


def test_what_is_not_measured_is_that_of_a_record_and_a_calibration_may_be_one(tmp_path: Path, made_up: None) -> None:
    one, two = tmp_path / "one.toml", tmp_path / "two.toml"
    assert puzzles("calibrate", "-o", one, "--like", "a100", "--ranks", "1").exit_code == 0
    assert puzzles("calibrate", "-o", two, "--like", one).exit_code == 0
    first, second = cluster_named(str(one)), cluster_named(str(two))
    a100 = CLUSTERS["a100"]
    assert (first.nvlink, first.attention, first.nic) == (a100.nvlink, a100.attention, a100.nic)
    assert "one rank, so no ring; all else is that of a100" in first.source
    assert (second.nvlink, second.attention) == (1.125e11, a100.attention)
    assert second.source.endswith(f"that of {one}")


@pytest.mark.parametrize(
    ("status", "options", "said"),
    [
        (2, "", "Missing option '--output'"),
        (2, "-o mine.json", "a cluster is .toml; got 'mine.json'"),
        (2, "-o mine.toml --like h10", "--like: there is no GPU 'h10' (did you mean h100"),
        (2, "-o mine.toml --like absent.toml", "absent.toml cannot be read"),
        (2, "-o mine.toml --ranks 0", "--ranks"),
        (2, "-o mine.toml --ranks 65", "--ranks"),
        (2, "-o mine.toml --backend mpi", "--backend"),
        (1, "-o mine.toml --backend nccl", "nccl moves tensors between GPUs only; use --backend gloo on the CPU"),
        (1, "-o file/mine.toml", "a file, and no folder"),
    ],
)
def test_what_is_refused(
    status: int, options: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_gpu: None
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    result = puzzles("calibrate", *options.split())
    assert (result.exit_code, said in words(result)) == (status, True), result.output
    assert sorted(tmp_path.iterdir()) == [tmp_path / "file"], "nothing is written"


def test_ranks_that_cannot_be_started_are_told_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_gpu: None
) -> None:
    def refuse(*_: object) -> None:
        raise WrongWorld("nccl needs a GPU for each rank of a machine. With transport='gloo' several ranks share one")

    monkeypatch.setattr(calibration, "measured", refuse)
    result = puzzles("calibrate", "-o", tmp_path / "mine.toml")
    assert (result.exit_code, "With --backend gloo several ranks share one" in words(result)) == (1, True)


def test_without_torch_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    result = puzzles("calibrate", "-o", tmp_path / "mine.toml")
    assert result.exit_code == 1
    assert "a calibration needs torch, which is not installed" in words(result)
