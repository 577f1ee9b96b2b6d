"""draw_experts: bands as wide as the tokens are many, who is dropped, and who has more than an even share."""

from __future__ import annotations

from typing import Any

import pytest

from drawing import Picture, draw_experts
from lib import PUZZLES, Layer, Model, simulate
from tests.drawing.marks import polys, texts
from tests.support.puzzles import way

HOT = ((0, 1),) * 7 + ((2, 3),)


def picture(**described: Any) -> Picture:
    layers = [Layer(), Layer("dispatch", experts=4, route=HOT, **described), *PUZZLES["expert_parallel"].last[2:]]
    return draw_experts(simulate(way("expert_parallel"), layers=layers, ranks=4, batches=4))


def test_what_leaves_a_rank_comes_home() -> None:
    titles = {mark.title: mark for mark in polys(picture()) if mark.title}
    sent = [title for title in titles if " sends " in title]
    assert len(sent) == 12
    for title in sent:
        back = titles[title.replace("sends", "gets back").replace(" to ", " from ")]
        high = [mark.points[-1][1] - mark.points[0][1] for mark in (titles[title], back)]
        assert high == pytest.approx([int(title.split()[3]) * 260 / 2048] * 2)
    assert "rank 3 sends 224 tokens to expert 0 on rank 0" in titles
    assert "32 tokens of rank 3 stay there, for expert 3 on rank 3" in titles


def test_loads_and_what_is_dropped_are_told() -> None:
    assert {"expert 0: 896", "expert 2: 128", "512 choices"} <= set(texts(picture()))
    assert (
        "Expert 0 has 640, and an even share of what is left would be 384. 512 choices of 2,048 are dropped."
        in picture(capacity=160).words
    )


def test_ranks_of_other_stages_are_left_out() -> None:
    run = simulate(way("moe_pipeline"), puzzle="moe_pipeline")
    for layer, ranks in ((1, range(4)), (5, range(4, 8))):
        shown = [text for text in texts(draw_experts(run, layer)) if text.startswith("rank ")]
        assert shown == [f"rank {rank}" for rank in ranks] * 2


async def stops_at_dispatch(model: Model) -> None:
    model.forward(1, model.forward(0, model.get_activation([model.rank]), model.load_weights(0)[0]))


def test_a_run_without_experts_says_so() -> None:
    stopped = simulate(stops_at_dispatch, layers=PUZZLES["expert_parallel"].last, ranks=4, batches=4)
    assert "no expert of layer 2 has taken any token" in draw_experts(stopped).words
    basic = simulate(way("basic"), puzzle="basic")
    assert "no layer of this run dispatches tokens" in draw_experts(basic).words
    with pytest.raises(
        ValueError, match="layer 0 of this run does not dispatch tokens to experts; no layer of it does"
    ):
        draw_experts(basic, layer=0)
