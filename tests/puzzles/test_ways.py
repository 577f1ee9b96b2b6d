"""All our ways to solve puzzles on meshes and pipelines: their figures, and the goals they reach."""

from __future__ import annotations

import pytest

from lib.course.solutions import alternatives
from tests.support.puzzles import figures, way

OURS = "as good as our reference"
FIRST = "waits only for the first"
WAYS: dict[str, dict[str, tuple[float, float, str | None]]] = {
    "fsdp_prefetch": {
        "": (21.9, 2_752_512, FIRST),
        "keep_all": (21.9, 3_276_800, "passes"),
        "keep_half": (21.9, 2_490_368, FIRST),
        "one_ahead": (23.9, 2_424_832, "hides the reduce-scatters"),
    },
    "hsdp": {
        "": (15.3, 2_424_832, OURS),
        "ddp": (49.5, 4_849_664, None),
        "four_by_two": (36.6, 2_752_512, None),
        "fsdp_over_all": (63.5, 1_998_848, None),
        "step_by_step": (26.4, 1_966_080, "passes"),
        "sums_behind": (20.4, 1_966_080, "sums behind backward"),
    },
    "hsdp_zero": {
        "": (20.6, 1_769_472, OURS),
        "all_reduce": (29.4, 1_769_472, "passes"),
        "look_ahead": (16.3, 2_228_224, None),
        "step_by_step": (26.4, 1_769_472, "as early as HSDP"),
        "two_moves": (28.1, 1_572_864, "passes"),
    },
    "one_f_one_b": {
        "": (52.6, 2_752_512, OURS),
        "behind": (47.4, 3_276_800, "passes"),
        "further_ahead": (50.2, 3_670_016, "passes"),
    },
    "checkpointing": {
        "": (84.0, 6_815_744, "computes nothing in vain"),
        "by_halves": (88.0, 6_815_744, "finds k"),
        "whole_segments": (92.0, 6_815_744, "finds k"),
    },
    "pp_fsdp_keep": {
        "": (34.6, 2_228_224, "gathers before it waits"),
        "all_hidden": (33.7, 2_228_224, "gathers before it waits"),
        "every_microbatch": (38.0, 2_359_296, "passes"),
    },
    "breadth_first": {"": (41.4, 4_456_448, OURS), "backward_reversed": (41.4, 4_456_448, OURS)},
    "interleaved": {
        "": (44.6, 3_670_016, OURS),
        "groups_of_eight": (41.4, 3_932_160, "passes"),
        "one_ahead": (51.0, 3_276_800, "passes"),
    },
    "ragged": {"": (59.2, 4_194_304, OURS), "one_group": (56.2, 4_718_592, "passes")},
    "zero_bubble": {
        "": (46.6, 3_801_088, OURS),
        "no_lag": (48.6, 3_014_656, "passes"),
        "further_ahead": (44.0, 5_373_952, None),
    },
    "breadth_first_fsdp": {
        "": (42.0, 4_194_304, OURS),
        "gathered_at_the_latest": (42.6, 4_194_304, "gathers once a stage"),
        "kept": (42.0, 4_456_448, None),
    },
}


@pytest.mark.parametrize("puzzle", WAYS)
def test_the_figures_of_all_ways(puzzle: str) -> None:
    names = ["", *(path.stem.removeprefix(f"{puzzle}_") for path in alternatives(puzzle))]
    assert {name: figures(way(puzzle, name), puzzle) for name in names} == WAYS[puzzle]
