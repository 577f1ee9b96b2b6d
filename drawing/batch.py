"""The picture of a physical batch: a row for each feed, a box for each slot, and hatched what is only padding."""

from __future__ import annotations

from typing import Final

from drawing.canvas.axes import few
from drawing.canvas.hatching import hatch
from drawing.canvas.palette import ALARM, EDGE, INK, SOFT, TRACK, ink_on, origin_colour
from drawing.canvas.picture import Picture
from drawing.canvas.scene import SMALL, TEXT, Rect, Scene, Text, fit, text_width
from lib.cluster.batch import PhysicalBatch

__all__ = ["picture_of_batch"]

WIDTH: Final = 840
MARGIN: Final = 18
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
