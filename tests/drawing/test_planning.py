"""Pictures of plans: what they say in words, what is drawn, and what they refuse."""

import pytest

from drawing.canvas.scene import Rect
from drawing.planning import Prediction, draw_memory, draw_plan, draw_plans, draw_predictions, draw_roofline
from lib.plan import CLUSTERS, MODELS, STACKS, Plan, memory_of, search
from lib.plan.candidates import candidate
from lib.plan.resources import roofline
from lib.plan.timing import timeline
from tests.drawing.marks import texts

GPT3, A100 = MODELS["gpt3-175b"], CLUSTERS["a100"]
PLAN = Plan(64, 64, tp=8, pp=8, v=3, zero=0, recompute="selective", stack=STACKS["megatron"])


def test_memory_is_drawn_to_scale_beside_the_memory_of_a_gpu() -> None:
    picture = draw_memory({"both": memory_of(GPT3, PLAN)}, A100.memory)
    kinds = [mark for mark in picture.scene.marks if isinstance(mark, Rect) and mark.title]
    sizes = [size for size in memory_of(GPT3, PLAN) if size]
    assert [mark.width / kinds[0].width for mark in kinds] == pytest.approx(
        [size / sizes[0] for size in sizes], rel=0.05
    )
    assert "both: 59.5 GiB: optimizer 31.3, activations 12.6" in picture.words
    with pytest.raises(ValueError, match="takes plans by name"):
        draw_memory({}, A100.memory)


def test_a_step_has_a_line_a_rank_and_a_box_a_pass() -> None:
    spans = timeline(GPT3, A100, PLAN)
    picture = draw_plan(spans, "GPT-3")
    boxes = [mark for mark in picture.scene.marks if isinstance(mark, Rect) and "microbatch" in mark.title]
    assert len(boxes) == len(spans) == 3072
    assert "in the open: tensor" in boxes[0].title
    assert picture.words.startswith("GPT-3. 8 lines, 3,072 passes, 13723 ms")
    assert {"pp rank 0", "pp rank 7", "tensor, in the open", "milliseconds"} <= set(texts(picture))
    with pytest.raises(ValueError, match="1 to 20,000 passes"):
        draw_plan([], "nothing")


def test_plans_that_nothing_beats_are_numbered_and_listed() -> None:
    found = search(GPT3, A100, PLAN)
    picture = draw_plans(found.front(), found.candidates, {"NVIDIA": candidate(GPT3, A100, PLAN)})
    assert "NVIDIA: tp8 pp8 v3 micro 1 zero0 1f1b recompute selective: 13.8 s, 59.5 GiB" in picture.words
    assert texts(picture).count("1") == 2, "at its point and at its row"
    assert any("GiB of the GPU that holds most" in text for text in texts(picture))
    with pytest.raises(ValueError, match="takes plans that fit"):
        draw_plans([])


def test_predictions_that_fail_are_named() -> None:
    runs = [("good", 10, 10.5, "held out"), ("bad", 10, 30, "fails"), ("own", 1, 1, "fitted")]
    picture = draw_predictions([Prediction(*run) for run in runs])
    assert [name for name in ("bad", "good") if name in texts(picture)] == ["bad"]
    assert picture.words.endswith("3 runs; the farthest is bad.")
    assert any("within 10 percent" in text for text in texts(picture))
    with pytest.raises(ValueError, match="one Prediction or more"):
        draw_predictions([])


def test_the_roofline_says_from_where_on_each_kind_hides() -> None:
    tokens = (256, 512, 1024, 2048, 4096)
    picture = draw_roofline(roofline(MODELS["llama3-70b"], CLUSTERS["h100"], tokens), "70B")
    assert picture.words == (
        "70B. What is sent is hidden, data: from 1,140 tokens; tensor 4: always; tensor 8: always; tensor 16: from 890 "
        "tokens."
    )
    with pytest.raises(ValueError, match="two points or more"):
        draw_roofline({"data": [(1, 1.0)]}, "nothing")
