"""Pictures of values and of schedules. Importing it makes notebooks show them automatically.

All but `step_through`, `draw_ring` and `draw_gallery` give a Picture: notebooks show it, `picture.save("name.svg")`
writes it (or .png or .pdf), and to chalk it is a diagram like any other. A picture is one function from a Trace or a
value to plain marks (see scene), and nothing here runs a student's code. `step_through` gives a page to scrub through a
run, `draw_ring` one to step through a collective, and `draw_gallery` one with the schedules of pipelines: HTML files.
`puzzle_map` draws the order in which to solve puzzles.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from lib.errors.source_lines import notebook

if TYPE_CHECKING:
    from drawing.canvas.picture import Picture
    from drawing.comparing.comparison import compare, draw_figures
    from drawing.comparing.dots import draw_trade_off
    from drawing.comparing.plot import draw_curves
    from drawing.comparing.recordings import draw_recordings
    from drawing.diagrams.attention import draw_attention
    from drawing.diagrams.collective import draw_collective
    from drawing.diagrams.experts import draw_experts
    from drawing.diagrams.halo import draw_halo
    from drawing.diagrams.mesh import draw_mesh
    from drawing.diagrams.ring import draw_ring
    from drawing.diagrams.step import draw_step
    from drawing.display import picture_of
    from drawing.map import puzzle_map
    from drawing.pages.gallery import draw_gallery
    from drawing.pages.view import step_through
    from drawing.planning import draw_memory, draw_plan, draw_plans, draw_predictions, draw_roofline
    from drawing.timeline.schedule import draw
    from drawing.values import draw_group

__all__ = [
    "Picture", "compare", "draw", "draw_attention", "draw_collective", "draw_curves", "draw_experts", "draw_figures",
    "draw_gallery", "draw_group", "draw_halo", "draw_memory", "draw_mesh", "draw_plan", "draw_plans",
    "draw_predictions", "draw_recordings", "draw_ring", "draw_roofline", "draw_step", "draw_trade_off", "picture_of",
    "puzzle_map", "step_through",
]  # fmt: skip

_HOMES = {
    "drawing.canvas.picture": "Picture",
    "drawing.comparing.comparison": "compare draw_figures",
    "drawing.comparing.dots": "draw_trade_off",
    "drawing.comparing.plot": "draw_curves",
    "drawing.comparing.recordings": "draw_recordings",
    "drawing.diagrams.attention": "draw_attention",
    "drawing.diagrams.collective": "draw_collective",
    "drawing.diagrams.experts": "draw_experts",
    "drawing.diagrams.halo": "draw_halo",
    "drawing.diagrams.mesh": "draw_mesh",
    "drawing.diagrams.ring": "draw_ring",
    "drawing.diagrams.step": "draw_step",
    "drawing.display": "picture_of",
    "drawing.map": "puzzle_map",
    "drawing.pages.gallery": "draw_gallery",
    "drawing.pages.view": "step_through",
    "drawing.planning": "draw_memory draw_plan draw_plans draw_predictions draw_roofline",
    "drawing.timeline.schedule": "draw",
    "drawing.values": "draw_group",
}
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}
"""The module of each public name, imported on first use: a command that draws one timeline needs neither meshes nor
maps."""


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_HOME[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if notebook() is not None:
    from drawing.display import register

    register()
