"""The picture of the stages of a pipeline: a lane for each rank, and the way of a microbatch through them all."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from drawing.canvas.axes import few
from drawing.canvas.hatching import hatch
from drawing.canvas.palette import ALARM, ARROW, EDGE, INK, SOFT, TRACK, ink_on, layer_colour
from drawing.canvas.picture import Picture
from drawing.canvas.scene import SMALL, TEXT, Rect, Scene, Text, fit, text_width
from drawing.communication.arrows import arrow
from lib.cluster.stages import Stages
from lib.errors.wording import counted

__all__ = ["picture_of_stages"]

WIDTH: Final = 840
MARGIN: Final = 18
HIGH: Final = 34
PITCH: Final = 50
TOP: Final = 62
BESIDE: Final = 16.0
"""Pixels between the stages, for the way from one to the next."""
WIDEST: Final = 66.0
"""Of a layer, or of a stage whose layers are not known."""
END: Final = 76.0
MOST: Final = 12
"""So many ranks are shown; of more the first, and the last."""


def picture_of_stages(shown: Stages) -> Picture:
    """A lane for each rank, and from left to right the stages in the order in which a microbatch meets them."""
    lanes = {rank: lane for lane, rank in enumerate(few(len(shown.ranks), MOST)) if rank is not None}
    high = len(few(len(shown.ranks), MOST))
    names = max(text_width(f"rank {rank}", TEXT) for rank in lanes) + 14
    sizes = [max(1, len(layers)) for layers in shown.layers] or [1] * shown.count
    ends = [END if words else 0.0 for words in shown.ends]
    beside = min(BESIDE, 300 / shown.count)
    room = WIDTH - 2 * MARGIN - names - sum(ends) - beside * (shown.count - 1)
    unit = min(WIDEST, room / sum(sizes))
    scene = Scene(WIDTH, TOP + PITCH * high + 8)
    title = shown.title or shown.words()
    scene.add(Text(MARGIN, 20, fit(title, WIDTH - 2 * MARGIN, TEXT * 1.05), bold=True))
    told = f"a microbatch goes through all stages, from left to right: {counted(shown.messages(), 'message')} forward"
    scene.add(Text(MARGIN, 38, told, TEXT, SOFT))
    _lanes(scene, lanes, high, names)
    boxes: list[tuple[float, float, float]] = []
    x = MARGIN + names + ends[0]
    for stage, (rank, size) in enumerate(zip(shown.homes(), sizes, strict=True)):
        wide = unit * size
        if rank in lanes:
            boxes.append((x, TOP + PITCH * lanes[rank], wide))
            _stage(scene, shown, stage, *boxes[-1])
        else:
            boxes.append((x, -1.0, wide))
        x += wide + beside
    _way(scene, boxes)
    for words, (left, y, wide), before in zip(shown.ends, (boxes[0], boxes[-1]), (True, False), strict=True):
        if words and y >= 0:
            _end(scene, words, left - END + 8 if before else left + wide, y)
    return Picture(scene, f"<{title}. {shown.words()}. {told}>")


def _lanes(scene: Scene, lanes: dict[int, int], high: int, names: float) -> None:
    """A track and a name for each rank."""
    for rank, lane in lanes.items():
        y = TOP + PITCH * lane
        scene.add(Rect(MARGIN + names - 6, y - 5, WIDTH - 2 * MARGIN - names + 6, HIGH + 10, TRACK, radius=6))
        scene.add(Text(MARGIN, y + HIGH / 2, f"rank {rank}", TEXT, INK))
    if len(lanes) < high:
        scene.add(Text(MARGIN, TOP + PITCH * (high - 2) + HIGH / 2, "…", 16, SOFT))


def _stage(scene: Scene, shown: Stages, stage: int, x: float, y: float, wide: float) -> None:
    """The box of a stage, with its layers, if they are known."""
    colour, layers = layer_colour(stage, shown.count), shown.layers[stage] if shown.layers else None
    has = "" if layers is None else f": {_layers(layers)}"
    scene.add(Rect(x, y, wide, HIGH, colour, radius=4, title=f"stage {stage} on rank {shown.homes()[stage]}{has}"))
    names = [f"stage {stage}", str(stage)]
    words = next((one for one in names if text_width(one, TEXT) < wide - 4), "")
    middle = y + (HIGH / 2 if layers is None else 11)
    scene.add(Text(x + wide / 2, middle, words, TEXT, ink_on(colour), "middle", bold=True))
    if layers is not None and layers:
        each = wide / len(layers)
        for place, layer in enumerate(layers):
            if place:
                scene.add(Rect(x + place * each - 0.5, y + HIGH - 14, 1, 14, ink_on(colour)))
            if text_width(str(layer), SMALL) < each - 2:
                scene.add(Text(x + (place + 0.5) * each, y + HIGH - 7, str(layer), SMALL, ink_on(colour), "middle"))
    if stage in shown.wrong:
        scene.add(Rect(x - 3, y - 3, wide + 6, HIGH + 6, stroke=ALARM, line=2.5, radius=6))


def _layers(layers: range) -> str:
    """Its layers in words."""
    if len(layers) < 2:
        return f"layer {layers.start}" if layers else "no layer"
    return f"layers {layers.start} to {layers.stop - 1}"


def _way(scene: Scene, boxes: list[tuple[float, float, float]]) -> None:
    """The way of a microbatch: an arrow for a message, and a line where it stays on its rank."""
    for (x, y, wide), (left, top, _) in pairwise(boxes):
        if y < 0 or top < 0:
            continue
        begin, end = (x + wide, y + HIGH / 2), (left, top + HIGH / 2)
        if y == top:
            title = "stays on its rank: no message"
            scene.add(Rect(begin[0], begin[1] - 2.5, end[0] - begin[0], 5, ARROW, title=title))
        elif top > y:
            arrow(scene, [(begin[0] - 6, y + HIGH), (left + 6, top)], ARROW, title="a message")
        else:
            arrow(scene, [(begin[0] - 6, y), (left + 6, top + HIGH)], ARROW, title="a message")


def _end(scene: Scene, words: str, x: float, y: float) -> None:
    """What is done before the first layer, or behind the last."""
    wide = END - 8
    scene.add(Rect(x, y, wide, HIGH, TRACK, EDGE, radius=4, title=words), *hatch(x, y, wide, HIGH, EDGE))
    scene.add(Rect(x + 4, y + 9, wide - 8, HIGH - 18, TRACK))
    scene.add(Text(x + wide / 2, y + HIGH / 2, fit(words, wide - 6, SMALL), SMALL, INK, "middle"))
