"""draw: what it prints, what it takes, and that its picture is one chalk diagram and one SVG."""

import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import chalk
import chalk.core
import pytest

from drawing import draw, draw_group, picture_of
from drawing.canvas.picture import Canvas
from lib import Model, NotSolved, PuzzleError, Weight, simulate
from tests.drawing.runs import RUNS, VALUES, ddp, quietly, relay, trace
from tests.drawing.shown import drawn
from tests.support.drivers import in_asyncio
from tests.support.puzzles import way
from tests.support.said import Said
from tests.support.schedules import CLASSIC


def printed(name: str) -> str:
    """As the original prints it for its solution, but for float noise such as 33.29999999999999."""
    (case,) = (case for case in CLASSIC if case.name == name)
    # These two cases work out in variables what the original keeps in the stores, as our references do.
    ours = way(case.name) if case.name in ("basic", "grad_accum") else case.function
    return repr(quietly(draw, in_asyncio(ours, ranks=case.ranks, layers=case.layers, batches=case.batches))[1])


test_draw_prints_the_two_lines_of_the_original = Said(Path(__file__).with_name("original.txt")).test(lambda: globals())


def test_draw_counts_what_is_in_the_stores_as_the_original_does() -> None:
    _, printed = quietly(draw, in_asyncio(relay, ranks=3, layers=3, batches=2))  # which keeps all in variables
    assert printed == "Timesteps: 14.2 \nMaximum Memory: 0.0 at GPU: 0 time: 0\n"

    def twice(model: Model) -> None:
        model.weights[0], _ = model.load_weights(0)
        model.activations[0] = model.activations["again"] = model.get_activation([0])
        model.forward(0, model.activations[0], model.weights[0])

    _, printed = quietly(draw, in_asyncio(twice, layers=1, batches=1))
    assert printed == f"Timesteps: 0 \nMaximum Memory: {512.0 * 512 + 2 * 512 * 256} at GPU: 0 time: 0\n"


def test_beside_a_run_of_simulate_no_other_figures_are_printed() -> None:
    """When the last operation starts is not when it is over, and what the stores hold is not all that is alive."""
    models = simulate(ddp, ranks=4, layers=2, batches=4)
    sandbox = Model(layers=1)
    sandbox.load_weights(0)
    for run in (models, models[0], models[0].trace, sandbox, in_asyncio(ddp, ranks=4, layers=2, batches=4)[0].trace):
        assert quietly(draw, run)[1] == ""
    # A list of one sandbox is what the original's notebook draws first.
    assert quietly(draw, [sandbox])[1].startswith("Timesteps: 0 \nMaximum Memory: ")


def test_draw_takes_a_trace_a_model_or_models() -> None:
    models = simulate(ddp, ranks=4, layers=2, batches=4)
    pictures = [quietly(draw, run)[0].svg() for run in (models, models[0].trace, tuple(models))]
    assert len(set(pictures)) == 1
    alone = Model(layers=1)
    alone.forward(0, alone.get_activation([0]), alone.load_weights(0)[0])
    assert "1 rank" in quietly(draw, alone)[0].words


def test_a_puzzle_that_is_not_solved_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    def stub(model: Model) -> None:
        raise NotSolved("ddp")

    models = simulate(stub, ranks=2)
    capsys.readouterr()
    picture = draw(models)
    assert capsys.readouterr().out == ""
    assert picture.words == "nothing to draw yet: ddp is not solved"
    assert "ddp is not solved" in picture.svg()
    assert draw([]).words == "nothing to draw yet"


def test_batches_are_named_in_order() -> None:
    def many(model: Model) -> None:
        model.forward(0, model.get_activation([9, 40, 8, 33, 10, 64]), model.load_weights(0)[0])

    svg = picture_of(trace(many, ranks=1, layers=1, batches=65)).svg()
    assert "forward, layer 0, batches 8-10, 33, 40, 64" in svg
    assert ">8 9 10 33 40 64</text>" in svg


def test_a_notebook_gets_one_picture_and_a_short_text() -> None:
    picture = picture_of(RUNS["ddp"])
    assert picture._repr_html_ is picture._repr_svg_ is None
    bundle = picture._repr_mimebundle_()
    assert drawn(bundle) == picture.svg(framed=True).strip()
    assert bundle["text/plain"] == ("<timeline of 4 ranks, 2 layers, 4 batches: end 5.6, peak 2,490,368 on rank 0>")
    assert repr(picture_of(VALUES["weight"])) == "<picture of weight of layer 1, shards 1, 2 of 4>"


def test_chalk_sets_the_height(monkeypatch: pytest.MonkeyPatch) -> None:
    picture = draw_group(Weight(0, 2, 0))
    natural = drawn(picture._repr_mimebundle_())
    assert f'height="{picture.scene.height:g}"' in natural
    monkeypatch.setattr(chalk.core, "SVG_HEIGHT", chalk.core.SVG_HEIGHT)
    monkeypatch.setattr(chalk.core, "SVG_DRAW_HEIGHT", None)
    chalk.core.set_svg_height(200)
    shown = drawn(picture._repr_mimebundle_())
    assert 'height="200"' in shown
    chalk.core.set_svg_draw_height(400)
    assert drawn(picture._repr_mimebundle_()) != shown
    assert 'stroke-width="2"' in drawn(picture._repr_mimebundle_())


def test_a_picture_is_a_chalk_diagram(tmp_path: Path) -> None:
    one, two = picture_of(RUNS["ddp"]), draw_group(Weight(0, 2, 0))
    assert one != two
    both: Any = chalk.vcat([one, two], 1)
    assert both.get_envelope().height == pytest.approx((one.scene.height + two.scene.height) / 40 + 1)
    both.render_svg(str(tmp_path / "both.svg"), 500)
    root = ET.parse(tmp_path / "both.svg").getroot()
    titles = [element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}title")]
    assert any(title.startswith("all-reduce") for title in titles)
    assert root.get("height") == "500"
    row: Any = chalk.hcat([one.scale(0.5), two.pad(1.1)])
    row.render_svg(str(tmp_path / "row.svg"))


def test_saving(tmp_path: Path) -> None:
    picture = picture_of(RUNS["alone"])
    assert picture.save(tmp_path / "a.svg").read_text("utf-8") == picture.svg()
    picture.render_svg(str(tmp_path / "b.svg"), 500)
    assert 'height="500"' in (tmp_path / "b.svg").read_text("utf-8")
    with pytest.raises(ValueError, match=r"\.svg, \.png or \.pdf"):
        picture.save(tmp_path / "a.gif")
    visitor: Any = object()  # of another backend of chalk
    with pytest.raises(NotImplementedError, match=r"picture\.save"):
        Canvas(picture.scene).accept(visitor)


def test_bitmaps_need_an_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picture = draw_group(Weight(0, 2, 0))
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "vl_convert", None)
        with pytest.raises(ImportError, match=r"PNG and PDF need the extra \"png\""):
            picture.save(tmp_path / "a.png")
    assert not (tmp_path / "a.png").exists()
    pytest.importorskip("vl_convert")
    assert picture.save(tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert picture.save(tmp_path / "a.pdf").read_bytes().startswith(b"%PDF")


def test_a_rank_that_had_not_begun_when_another_failed_says_so() -> None:
    def first(model: Model) -> None:
        if model.rank == 0:
            model.forward(0, model.get_activation([0]), model.load_weights(0)[0])
            model.update(0, model.fake_grad(0), *model.load_weights(0))

    with pytest.raises(PuzzleError) as caught:
        simulate(first, layers=1, batches=2, ranks=3)
    svg = draw(caught.value.trace).svg()
    assert "ranks 1, 2 had not begun when the run stopped" in svg
    assert "had not begun" not in draw(simulate(lambda model: None, ranks=2)).svg()

    async def waits(model: Model) -> None:
        if model.rank == 0:
            await model.receive(1)

    with pytest.raises(PuzzleError, match="rank 1 has finished") as caught:
        simulate(waits, ranks=2)
    assert "rank 1 did nothing" in draw(caught.value.trace).svg()
