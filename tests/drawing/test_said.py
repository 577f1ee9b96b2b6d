"""What pictures say in words, and what is said where there is nothing to draw: to the letter."""

# ruff: noqa: F401  # names that the texts know
from pathlib import Path
from typing import Any

import drawing
from lib import Mesh, Model, simulate
from lib.cluster.layouts import Stages
from lib.schedules.gallery import gallery
from tests.drawing.comparing.test_plot import FLAT, UP
from tests.drawing.curriculum import Stop
from tests.drawing.diagrams import exchanges
from tests.drawing.diagrams.test_halo import DROPPED, UNEVEN, by_batches
from tests.drawing.diagrams.test_inside import run_of as inside
from tests.drawing.diagrams.test_mesh import DIMS
from tests.drawing.pages.runs import GRID, TRACES
from tests.drawing.runs import RUNS, VALUES
from tests.support.said import Said


def nothing(model: Model) -> None:
    """What a rank does that does nothing."""


def not_awaited() -> Any:
    model = simulate(nothing, ranks=2)[0]
    return model.allreduce(model.fake_grad(0, [0]), 0)


def said(shown: Any) -> str:
    return getattr(shown, "words", repr(shown))


DRAW = {name: getattr(drawing, name) for name in drawing.__all__}
test_what_pictures_say = Said(__file__, "pictures").test(lambda: {**vars(exchanges), **DRAW, **globals()})
