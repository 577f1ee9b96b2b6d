"""Rows of boxes: the stages of a pipeline on their ranks, and the slots of a physical batch on their devices."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from drawing.canvas.layout import arrow, few
from drawing.canvas.palette import ALARM, ARROW, EDGE, INK, SOFT, TRACK, ink_on, layer_colour, origin_colour
from drawing.canvas.picture import Picture
from drawing.canvas.scene import SMALL, TEXT, Rect, Scene, Text, fit, hatch, text_width
from lib.cluster.batch import PhysicalBatch
from lib.cluster.stages import Stages
from lib.errors.wording import counted

__all__ = ["picture_of_batch", "picture_of_stages"]

WIDTH: Final = 840
MARGIN: Final = 18
STAGE: Final = 34
LANE: Final = 50
TOP: Final = 62
BESIDE: Final = 16.0
"""Pixels between the stages, for the way from one to the next."""
WIDEST: Final = 66.0
"""Of a layer, or of a stage whose layers are not known."""
END: Final = 76.0
RANKS: Final = 12
"""So many ranks are shown; of more the first, and the last."""


def picture_of_stages(shown: Stages) -> Picture:
    """A lane for each rank, and from left to right the stages in the order in which a microbatch meets them."""
    lanes = {rank: lane for lane, rank in enumerate(few(len(shown.ranks), RANKS)) if rank is not None}
    high = len(few(len(shown.ranks), RANKS))
    names = max(text_width(f"rank {rank}", TEXT) for rank in lanes) + 14
    sizes = [max(1, len(layers)) for layers in shown.layers] or [1] * shown.count
    ends = [END if words else 0.0 for words in shown.ends]
    beside = min(BESIDE, 300 / shown.count)
    room = WIDTH - 2 * MARGIN - names - sum(ends) - beside * (shown.count - 1)
    unit = min(WIDEST, room / sum(sizes))
    scene = Scene(WIDTH, TOP + LANE * high + 8)
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
            boxes.append((x, TOP + LANE * lanes[rank], wide))
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
        y = TOP + LANE * lane
        scene.add(Rect(MARGIN + names - 6, y - 5, WIDTH - 2 * MARGIN - names + 6, STAGE + 10, TRACK, radius=6))
        scene.add(Text(MARGIN, y + STAGE / 2, f"rank {rank}", TEXT, INK))
    if len(lanes) < high:
        scene.add(Text(MARGIN, TOP + LANE * (high - 2) + STAGE / 2, "…", 16, SOFT))


def _stage(scene: Scene, shown: Stages, stage: int, x: float, y: float, wide: float) -> None:
    """The box of a stage, with its layers, if they are known."""
    colour, layers = layer_colour(stage, shown.count), shown.layers[stage] if shown.layers else None
    has = "" if layers is None else f": {_layers(layers)}"
    scene.add(Rect(x, y, wide, STAGE, colour, radius=4, title=f"stage {stage} on rank {shown.homes()[stage]}{has}"))
    names = [f"stage {stage}", str(stage)]
    words = next((one for one in names if text_width(one, TEXT) < wide - 4), "")
    middle = y + (STAGE / 2 if layers is None else 11)
    scene.add(Text(x + wide / 2, middle, words, TEXT, ink_on(colour), "middle", bold=True))
    if layers is not None and layers:
        each = wide / len(layers)
        for place, layer in enumerate(layers):
            if place:
                scene.add(Rect(x + place * each - 0.5, y + STAGE - 14, 1, 14, ink_on(colour)))
            if text_width(str(layer), SMALL) < each - 2:
                scene.add(Text(x + (place + 0.5) * each, y + STAGE - 7, str(layer), SMALL, ink_on(colour), "middle"))
    if stage in shown.wrong:
        scene.add(Rect(x - 3, y - 3, wide + 6, STAGE + 6, stroke=ALARM, line=2.5, radius=6))


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
        begin, end = (x + wide, y + STAGE / 2), (left, top + STAGE / 2)
        if y == top:
            title = "stays on its rank: no message"
            scene.add(Rect(begin[0], begin[1] - 2.5, end[0] - begin[0], 5, ARROW, title=title))
        elif top > y:
            arrow(scene, [(begin[0] - 6, y + STAGE), (left + 6, top)], ARROW, title="a message")
        else:
            arrow(scene, [(begin[0] - 6, y), (left + 6, top + STAGE)], ARROW, title="a message")


def _end(scene: Scene, words: str, x: float, y: float) -> None:
    """What is done before the first layer, or behind the last."""
    wide = END - 8
    scene.add(Rect(x, y, wide, STAGE, TRACK, EDGE, radius=4, title=words), *hatch(x, y, wide, STAGE, EDGE))
    scene.add(Rect(x + 4, y + 9, wide - 8, STAGE - 18, TRACK))
    scene.add(Text(x + wide / 2, y + STAGE / 2, fit(words, wide - 6, SMALL), SMALL, INK, "middle"))


BOX: Final = (22.0, 46.0)
"""Pixels that a slot is wide: at least, where there are many, and at most."""
HIGH: Final = 26
PITCH: Final = (34, 50)
"""Pixels from one feed to the next, where the devices do not stand below, and where they do."""
NOTES: Final = 260
MOST: Final = 16
"""So many feeds are shown; of more the first, and the last."""


def picture_of_batch(batch: PhysicalBatch) -> Picture:
    """The slots of a batch, and which device has which."""
    feeds, noun = few(len(batch.feeds), MOST), batch.names[0]
    names = max(text_width(f"{noun} {feed}", TEXT) for feed in feeds if feed is not None) + 12 if feeds else 0.0
    room = WIDTH - 2 * MARGIN - names - (NOTES if batch.notes else 0)
    each = len(batch.feeds[0]) if batch.feeds else 0
    slots = few(each, int(room / BOX[0]))
    wide = min(BOX[1], room / max(1, len(slots)))
    pitch = PITCH[batch.devices is not None]
    scene = Scene(WIDTH, 60 + pitch * len(feeds) + 10)
    scene.add(Text(MARGIN, 20, fit(batch.title or "A physical batch", WIDTH - 2 * MARGIN, TEXT * 1.05), bold=True))
    scene.add(Text(MARGIN, 38, batch.words(), TEXT, SOFT))
    for row, feed in enumerate(feeds):
        y = 60.0 + pitch * row
        if feed is None:
            scene.add(Text(MARGIN + names, y + HIGH / 2, "…", 16, SOFT))
            continue
        wrong = feed in batch.wrong
        scene.add(Text(MARGIN, y + HIGH / 2, f"{noun} {feed}", TEXT, ALARM if wrong else INK, bold=wrong))
        for column, slot in enumerate(slots):
            x = MARGIN + names + column * wide
            if slot is None:
                scene.add(Text(x + wide / 2, y + HIGH / 2, "…", TEXT, SOFT, "middle"))
            else:
                _slot(scene, batch, feed, slot, x, y, wide)
        if batch.devices is not None:
            _devices(scene, batch, feed, slots, MARGIN + names, y + HIGH + 4, wide)
        if wrong:
            scene.add(Rect(MARGIN + names - 3, y - 3, wide * len(slots) + 4, HIGH + 6, stroke=ALARM, line=2, radius=4))
        if feed < len(batch.notes):
            left = MARGIN + names + wide * len(slots) + 14
            words = fit(batch.notes[feed], WIDTH - MARGIN - left, TEXT)
            scene.add(Text(left, y + HIGH / 2, words, TEXT, ALARM if wrong else SOFT))
    return Picture(scene, f"<{batch.title or 'A physical batch'}. {batch.words()}>")


def _slot(scene: Scene, batch: PhysicalBatch, feed: int, slot: int, x: float, y: float, wide: float) -> None:
    """An example with its number, in the colour of its feed, or padding."""
    example, box = batch.feeds[feed][slot], (x, y, wide - 2, float(HIGH))
    (noun, item), device = batch.names, batch.device(feed, slot)
    title = f"{noun} {feed}, slot {slot}{'' if device is None else f', device {device}'}: "
    if example is None:
        scene.add(Rect(*box, TRACK, EDGE, radius=3, title=f"{title}padding"), *hatch(*box, EDGE))
        return
    colour = origin_colour(feed, len(batch.feeds))
    scene.add(Rect(*box, colour, radius=3, title=f"{title}{item} {example}"))
    scene.add(Text(x + (wide - 2) / 2, y + HIGH / 2, str(example), TEXT, ink_on(colour), "middle", bold=True))


def _devices(
    scene: Scene, batch: PhysicalBatch, feed: int, slots: list[int | None], x: float, y: float, wide: float
) -> None:
    """Lines below the slots that lie on one device, with its number."""
    first = 0
    for last, slot in enumerate(slots):
        here = None if slot is None else batch.device(feed, slot)
        after = slots[last + 1] if last + 1 < len(slots) else None
        if after is not None and here == batch.device(feed, after):
            continue
        if here is not None:
            left, long = x + first * wide, (last + 1 - first) * wide - 2
            words = next((one for one in (f"device {here}", str(here)) if text_width(one, SMALL) <= long), "")
            scene.add(Rect(left, y, long, 2, SOFT), Text(left + long / 2, y + 9, words, SMALL, SOFT, "middle"))
        first = last + 1
