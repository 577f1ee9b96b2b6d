"""How cost grows with the work: seconds of each step of a run's life by the number of its events, as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from math import log10
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.rows import cpu
from drawing import draw
from drawing.canvas.palette import EDGE, GRID, INK, NONE, SOFT, origin_colour
from drawing.canvas.picture import Picture
from drawing.canvas.scene import SMALL, TEXT, Poly, Rect, Scene, Text
from lib import Costs, Trace, check, retime, simulate
from lib.schedules.data_parallel import ddp

Curves = Mapping[str, list[tuple[int, float]]]

RANKS = 16
LAYERS, QUICK = (8, 32, 128, 512), (4, 16, 64)
LEFT, TOP, WIDTH, HIGH, NAMES = 70, 50, 460, 300, 110


def measured(quick: bool) -> Curves:
    """Measure DDP of more and more layers: the lowest of three (of one, if it is to be `quick`)."""
    found: dict[str, list[tuple[int, float]]] = {}
    for layers in QUICK if quick else LAYERS:
        size = {"ranks": RANKS, "layers": layers, "batches": RANKS}
        for _ in range(1 if quick else 3):
            trace = Trace.of(simulate(ddp, **size))
            events = sum(len(program.events) for program in trace.programs)
            with TemporaryDirectory() as folder:
                path = Path(folder, "run.json")
                steps = {
                    "simulate": lambda size=size: simulate(ddp, **size),
                    "check": lambda trace=trace: check(trace),
                    "retime": lambda trace=trace: retime(trace, Costs(forward=2.0)),
                    "draw": lambda trace=trace: draw(trace).svg(),
                    "save": lambda trace=trace, path=path: trace.save(path),
                    "load": lambda path=path: Trace.load(path),
                }
                for name, step in steps.items():
                    curve, seconds = found.setdefault(name, []), cpu(step)
                    if curve and curve[-1][0] == events:
                        curve[-1] = events, min(seconds, curve[-1][1])
                    else:
                        curve.append((events, seconds))
    return found


def draw_growth(curves: Curves) -> Picture:
    """Draw curves with logarithms on both axes: what grows as the work does is parallel to the dashed line."""
    points = [point for curve in curves.values() for point in curve]
    low, high = ((min(one), max(one)) for one in zip(*points, strict=True))
    first = log10(low[0]), log10(high[0])
    last = log10(low[1]), log10(high[1])

    def at(events: float, seconds: float) -> tuple[float, float]:
        across = (log10(events) - first[0]) / (last[0] - first[0])
        up = (log10(seconds) - first[1]) / (last[1] - first[1])
        return LEFT + WIDTH * across, TOP + HIGH * (1 - up)

    scene = Scene(LEFT + WIDTH + NAMES, TOP + HIGH + 50)
    scene.add(Text(LEFT, 24, f"Seconds by events: DDP of {RANKS} ranks", TEXT + 2, INK, bold=True))
    scene.add(Rect(LEFT, TOP, WIDTH, HIGH, NONE, EDGE))
    for power in range(-4, 8):
        if low[0] <= 10**power <= low[1]:
            x, _ = at(10**power, high[0])
            scene.add(
                Poly(((x, TOP), (x, TOP + HIGH)), stroke=GRID),
                Text(x, TOP + HIGH + 14, f"{10**power:,}", SMALL, SOFT, "middle"),
            )
        if high[0] <= 10.0**power <= high[1]:
            _, y = at(low[0], 10.0**power)
            scene.add(
                Poly(((LEFT, y), (LEFT + WIDTH, y)), stroke=GRID),
                Text(LEFT - 8, y, f"{10.0**power:g} s", SMALL, SOFT, "end"),
            )
    most = min(low[1], low[0] * high[1] / high[0])
    scene.add(Poly((at(low[0], high[0]), at(most, high[0] * most / low[0])), stroke=SOFT, dash="4 4"))
    ends = sorted(curves.items(), key=lambda item: -item[1][-1][1])
    y = TOP - 16.0
    for number, (name, curve) in enumerate(ends):
        colour = origin_colour(number, len(ends))
        scene.add(Poly([at(*point) for point in curve], stroke=colour, line=2.4))
        y = max(y + 16, at(*curve[-1])[1])
        scene.add(Text(LEFT + WIDTH + 10, y, name, TEXT, colour))
    scene.add(Text(LEFT + WIDTH / 2, TOP + HIGH + 34, "events", TEXT, SOFT, "middle"))
    said = "; ".join(f"{name}: {curve[0][1]:.3g} s to {curve[-1][1]:.3g} s" for name, curve in ends)
    return Picture(scene, f"Seconds by events, {low[0]:,} to {low[1]:,}. {said}.")
