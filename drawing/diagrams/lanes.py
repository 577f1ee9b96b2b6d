"""Rows of boxes: the stages of a pipeline on their ranks, and the slots of a physical batch on their devices."""

from __future__ import annotations

from itertools import groupby, pairwise
from typing import Final

from drawing.canvas.layout import MARGIN, Box, Piece, arrow, card, few, hcat, heading, label, vcat
from drawing.canvas.palette import ALARM, ARROW, EDGE, INK, SOFT, TRACK, ink_on, layer_colour, origin_colour
from drawing.canvas.picture import Picture
from drawing.canvas.scene import SMALL, TEXT, Mark, Rect, Scene, Text, fit, fitting, hatch, text_width
from lib.cluster.layouts import PhysicalBatch, Stages
from lib.errors.wording import counted

WIDTH: Final = 840
ROOM: Final = WIDTH - 2 * MARGIN
STAGE, LANE, TOP, END = 34, 50, 62, 68.0
"""Pixels: the height of a stage, the step from one rank to the next, their top, and the width of their ends."""
SLOT: Final = 26


def picture_of_stages(shown: Stages) -> Picture:
    """Draw a lane for each rank, and from left to right the stages in the order in which a microbatch meets them."""
    ranks = few(len(shown.ranks), 12)
    names = max(text_width(f"rank {rank}", TEXT) for rank in ranks if rank is not None) + 14
    sizes = [max(1, len(layers)) for layers in shown.layers] or [1] * shown.count
    beside = min(16.0, 300 / shown.count)
    ends = sum(END + 8 for words in shown.ends if words)
    unit = min(66.0, (ROOM - names - ends - beside * (shown.count - 1)) / sum(sizes))
    title = shown.title or shown.words()
    told = f"a microbatch goes through all stages, from left to right: {counted(shown.messages(), 'message')} forward"
    scene = Scene(WIDTH, TOP + LANE * len(ranks) + 8, heading(title, told, ROOM).at(MARGIN, 11))
    for lane, rank in enumerate(ranks):
        y = TOP + LANE * lane
        if rank is not None:
            scene.add(Rect(MARGIN + names - 6, y - 5, ROOM - names + 6, STAGE + 10, TRACK, radius=6))
        scene.add(*label("…" if rank is None else f"rank {rank}", height=STAGE).at(MARGIN, y))
    x, boxes = MARGIN + names + (END + 8 if shown.ends[0] else 0), list[Box | None]()
    for stage, (rank, size) in enumerate(zip(shown.homes(), sizes, strict=True)):
        boxes.append(Box(x, TOP + LANE * ranks.index(rank), unit * size, STAGE) if rank in ranks else None)
        if (box := boxes[-1]) is not None:
            scene.add(*_stage(shown, stage, rank, box.width).at(box.x, box.y))
        x += unit * size + beside
    for here, there in pairwise(boxes):
        if here is not None and there is not None:
            _way(scene, here, there)
    for words, box, right in zip(shown.ends, (boxes[0], boxes[-1]), (False, True), strict=True):
        if words and box is not None:
            scene.add(*_end(words).at(box.x + (box.width if right else -END), box.y))
    return Picture(scene, f"<{title}. {shown.words()}. {told}>")


def _stage(shown: Stages, stage: int, rank: int, wide: float) -> Piece:
    """A stage with its number, and its layers below, if they are known."""
    colour, layers = layer_colour(stage, shown.count), shown.layers[stage] if shown.layers else None
    has = "" if layers is None else ": no layer" if not layers else f": layer {layers.start}"
    if layers is not None and len(layers) > 1:
        has = f": layers {layers.start} to {layers.stop - 1}"
    words, ink = fitting(wide - 4, f"stage {stage}", str(stage), ""), ink_on(colour)
    marks: list[Mark] = [
        Rect(0, 0, wide, STAGE, colour, radius=4, title=f"stage {stage} on rank {rank}{has}"),
        Text(wide / 2, STAGE / 2 if layers is None else 11, words, TEXT, ink, "middle", bold=True),
    ]
    for place, layer in enumerate(layers or ()):
        each = wide / len(layers or ())
        if place:
            marks.append(Rect(place * each - 0.5, STAGE - 14, 1, 14, ink))
        marks.append(Text((place + 0.5) * each, STAGE - 7, fitting(each - 2, str(layer), ""), SMALL, ink, "middle"))
    if stage in shown.wrong:
        marks.append(Rect(-3, -3, wide + 6, STAGE + 6, stroke=ALARM, line=2.5, radius=6))
    return Piece(wide, STAGE, [mark for mark in marks if not isinstance(mark, Text) or mark.text])


def _way(scene: Scene, here: Box, there: Box) -> None:
    """The way of a microbatch to the next stage: an arrow for a message, and a line where it stays on its rank."""
    end = here.x + here.width
    if here.y == there.y:
        title = "stays on its rank: no message"
        scene.add(Rect(end, here.middle[1] - 2.5, there.x - end, 5, ARROW, title=title))
    else:
        start, stop = (here.y + STAGE, there.y) if there.y > here.y else (here.y, there.y + STAGE)
        arrow(scene, [(end - 6, start), (there.x + 6, stop)], ARROW, title="a message")


def _end(words: str) -> Piece:
    """Return the box of the work before the first layer, or after the last."""
    frame = Rect(0, 0, END, STAGE, TRACK, EDGE, radius=4, title=words)
    ground = Rect(4, 9, END - 8, STAGE - 18, TRACK)
    said = Text(END / 2, STAGE / 2, fit(words, END - 6, SMALL), SMALL, INK, "middle")
    return Piece(END, STAGE, [frame, *hatch(0, 0, END, STAGE, EDGE), ground, said])


def picture_of_batch(batch: PhysicalBatch) -> Picture:
    """Draw the slots of a batch, a row for each feed, and the device of each; padding is hatched."""
    feeds, noun = few(len(batch.feeds), 16), batch.names[0]
    names = max((text_width(f"{noun} {feed}", TEXT) for feed in feeds if feed is not None), default=-12.0) + 12
    room = ROOM - names - (260 if batch.notes else 0)
    slots = few(len(batch.feeds[0]) if batch.feeds else 0, int(room / 22))
    wide = min(46.0, room / max(1, len(slots)))
    rows: list[Piece] = []
    for feed in feeds:
        if feed is None:
            rows.append(hcat([Piece(names, SLOT), label("…", size=16, fill=SOFT)]))
            continue
        wrong, row = feed in batch.wrong, hcat([_slot(batch, feed, slot, wide) for slot in slots])
        if batch.devices is not None:
            row = vcat([row, _devices(batch, feed, slots, wide)], 4)
        frame = Rect(-3, -3, row.width + 4, SLOT + 6, stroke=ALARM, line=2, radius=4)
        row = Piece(row.width, row.height, [*row.marks, *([frame] if wrong else [])])
        name = label(f"{noun} {feed}", names, fill=ALARM if wrong else INK, bold=wrong, height=SLOT)
        said = batch.notes[feed] if feed < len(batch.notes) else ""
        told = label(said, ROOM - names - row.width - 14, fill=ALARM if wrong else SOFT, height=SLOT)
        rows.append(hcat([name, row, Piece(14, 0), told], align=0))
    whole = vcat([heading(batch.title or "A physical batch", batch.words(), ROOM), Piece(0, 12), vcat(rows, 8)])
    scene = Scene(WIDTH, whole.height + 30, whole.at(MARGIN, 11))
    return Picture(scene, f"<{batch.title or 'A physical batch'}. {batch.words()}>")


def _slot(batch: PhysicalBatch, feed: int, slot: int | None, wide: float) -> Piece:
    if slot is None:
        return label("…", wide, fill=SOFT, anchor="middle")
    example, (noun, item), device = batch.feeds[feed][slot], batch.names, batch.device(feed, slot)
    title = f"{noun} {feed}, slot {slot}{'' if device is None else f', device {device}'}: "
    if example is None:
        frame = Rect(0, 0, wide - 2, SLOT, TRACK, EDGE, radius=3, title=f"{title}padding")
        return Piece(wide, SLOT, [frame, *hatch(0, 0, wide - 2, SLOT, EDGE)])
    colour = origin_colour(feed, len(batch.feeds))
    box = card(wide - 2, SLOT, colour, [str(example)], radius=3, title=f"{title}{item} {example}")
    return Piece(wide, SLOT, box.marks)


def _devices(batch: PhysicalBatch, feed: int, slots: list[int | None], wide: float) -> Piece:
    lines: list[Piece] = []
    for device, same in groupby(slots, key=lambda slot: None if slot is None else batch.device(feed, slot)):
        long = len([*same]) * wide
        words = fitting(long - 2, f"device {device}", str(device), "", size=SMALL)
        marks: list[Mark] = [] if device is None else [Rect(0, 0, long - 2, 2, SOFT)]
        marks += [Text(long / 2 - 1, 9, words, SMALL, SOFT, "middle")] if marks and words else []
        lines.append(Piece(long, 12, marks))
    return hcat(lines)
