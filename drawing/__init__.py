"""Pictures of values and of schedules. Importing it makes notebooks show them unasked.

    from drawing import compare, draw, draw_group, step_through
    from drawing import draw_collective, draw_curves, draw_figures, draw_mesh, draw_ring, draw_step
    from drawing import draw_attention, draw_experts, draw_gallery, draw_halo, draw_recordings, draw_trade_off
    from drawing import draw_memory, draw_plan, draw_plans, draw_predictions, draw_roofline

All but `step_through`, `draw_ring` and `draw_gallery` give a Picture: notebooks show it, `picture.save("name.svg")`
writes it (or .png or .pdf), and to chalk it is a diagram like any other. A picture is one function from a Trace or a
value to plain marks (see scene), and nothing here runs a student's code. `step_through` gives a page to scrub through a
run, `draw_ring` one to step through a collective, and `draw_gallery` one with the schedules of pipelines: HTML files.
`puzzle_map` draws what to solve before what.
"""

from __future__ import annotations

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
from drawing.display import picture_of, register
from drawing.map import puzzle_map
from drawing.pages.gallery import draw_gallery
from drawing.pages.view import step_through
from drawing.planning import draw_memory, draw_plan, draw_plans, draw_predictions, draw_roofline
from drawing.timeline.schedule import draw
from drawing.values import draw_group

__all__ = [
    "Picture",
    "compare",
    "draw",
    "draw_attention",
    "draw_collective",
    "draw_curves",
    "draw_experts",
    "draw_figures",
    "draw_gallery",
    "draw_group",
    "draw_halo",
    "draw_memory",
    "draw_mesh",
    "draw_plan",
    "draw_plans",
    "draw_predictions",
    "draw_recordings",
    "draw_ring",
    "draw_roofline",
    "draw_step",
    "draw_trade_off",
    "picture_of",
    "puzzle_map",
    "step_through",
]

register()
