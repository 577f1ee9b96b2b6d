"""Pictures of values: the network as a row of layers, with what is held highlighted in its place.

A layer has three slots, for its weight, optimizer state and weight gradient; before and after it lie the activation
and its gradient. In a slot batches go across and shards go down, so a quarter of a weight is a quarter of its slot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import singledispatch
from typing import Any, Final, NamedTuple, cast

from drawing.canvas.palette import EDGE, GRID, INK, KINDS, PAPER, SOFT, TRACK, ink_on, mix
from drawing.canvas.picture import Picture
from drawing.canvas.scene import SMALL, TEXT, Poly, Rect, Scene, Text, fit, text_width
from lib.errors.arguments import is_awaitable
from lib.errors.wording import counted, runs
from lib.values.values import Activation, ActivationGrad, OptState, Value, Weight, WeightGrad, describe

__all__ = ["Slot", "draw_group", "picture_of_value", "slot"]

MARGIN: Final = 14
HEIGHT: Final = 98
"""Of a layer, with three slots of 30; the two slots between layers are 47 high."""
LISTED: Final = 12
COLUMNS: Final = 12
"""Layers shown side by side; of a deeper network only those that the picture is about."""
NAMES: Final = {"layer": ("weight", "optimizer", "gradient"), "between": ("activation", "gradient")}


class Slot(NamedTuple):
    """Where a value lies: in layer number `place` or in what goes into it, in which row, and which part of the slot."""

    column: str
    place: int
    row: int
    batches: frozenset[int] = frozenset([0])
    total_batches: int = 1
    shards: frozenset[int] = frozenset([0])
    total: int = 1


@singledispatch
def slot(value: Any) -> Slot:
    """The place of a value in the network, by its class."""
    hint = "; did you forget `await`?" if is_awaitable(value) else ""
    raise TypeError(f"pictures of the network show values, such as a Weight; got {type(value).__name__}{hint}")


@slot.register
def _(value: Weight) -> Slot:
    return Slot("layer", value.layer, 0, shards=value.shards, total=value.total)


@slot.register
def _(value: OptState) -> Slot:
    return Slot("layer", value.layer, 1, shards=value.shards, total=value.total)


@slot.register
def _(value: WeightGrad) -> Slot:
    return Slot("layer", value.layer, 2, value.batches, value.total_batches, value.shards, value.total)


@slot.register
def _(value: Activation) -> Slot:
    return Slot("between", value.layer, 0, value.batches, value.total_batches)


@slot.register
def _(value: ActivationGrad) -> Slot:
    return Slot("between", value.layer + 1, 1, value.batches, value.total_batches)


def picture_of_value(value: Value) -> Picture:
    """A value in its place in the network."""
    return _picture([("", value)], f"<picture of {describe(value)}>")


def draw_group(group: Any) -> Picture:
    """All values of a store, a dict or a list in one picture of the network, with the keys they have there."""
    if isinstance(group, Value):
        return picture_of_value(group)
    items: list[tuple[str, Value]] = []
    if isinstance(group, Mapping):
        for key, value in cast("Mapping[Any, Value]", group).items():
            items.append((key if isinstance(key, str) else repr(key), value))
    else:
        items = [("", value) for value in cast("Iterable[Value]", group)]
    if not items:
        scene = Scene(240, 46)
        scene.add(Text(120, 23, "empty: no values here", 12, SOFT, "middle"))
        return Picture(scene, "<picture of nothing: empty>")
    return _picture(items, f"<picture of {counted(len(items), 'value', ',')}>")


def _picture(items: list[tuple[str, Value]], words: str) -> Picture:
    slots = Counter((slot(value), value.kind) for _, value in items)
    layers = max(1, *(value.layers for _, value in items))
    lines = _lines(items)
    columns = _columns(layers, {place for place, _ in slots})
    scene = Scene(0, 0)
    right = _network(scene, layers, columns, slots)
    widest = max(text_width(text, TEXT) for text, _ in lines) + 18
    per_column = -(-len(lines) // (2 if len(lines) > 6 else 1))
    for number, (text, colour) in enumerate(lines):
        column, row = divmod(number, per_column)
        x, y = MARGIN + column * (widest + 20), 30 + HEIGHT + 18 + row * 17
        if colour:
            scene.add(Rect(x, y - 5, 10, 10, colour, radius=1.5))
        scene.add(Text(x + 16, y, text, TEXT, INK if colour else SOFT))
    used = -(-len(lines) // per_column)
    scene.width = max(right, 2 * MARGIN + used * widest + (used - 1) * 20)
    scene.height = 30 + HEIGHT + 18 + per_column * 17
    return Picture(scene, words)


def _lines(items: list[tuple[str, Value]]) -> list[tuple[str, str]]:
    """What stands below the network: each value with its key, and the colour of its kind."""
    shown = items if len(items) <= LISTED else items[: LISTED - 1]
    found: list[tuple[str, str]] = []
    found += [(fit(f"{key}: {value}" if key else str(value), 440, TEXT), KINDS[value.kind]) for key, value in shown]
    if len(items) > len(shown):
        found.append((f"and {len(items) - len(shown):,} more", ""))
    parts = [slot(value) for _, value in items]
    batches, shards = any(part.total_batches > 1 for part in parts), any(part.total > 1 for part in parts)
    if batches or shards:
        found.append((", ".join(["across: batches"] * batches + ["down: shards"] * shards), ""))
    return found


def _columns(layers: int, slots: Iterable[Slot]) -> list[tuple[str, int]]:
    """The columns from left to right; ("gap", n) where layers are left out."""
    shown: Iterable[int] = range(layers)
    if layers > COLUMNS:
        wanted = {min(max(s.place, 0), layers - 1) for s in slots}
        shown = sorted(sorted(wanted)[:COLUMNS])
    found: list[tuple[str, int]] = []
    for layer in shown:
        if ("between", layer) not in found:
            if layer:
                found.append(("gap", layer))
            found.append(("between", layer))
        found += [("layer", layer), ("between", layer + 1)]
    if found and found[-1] != ("between", layers):
        found.append(("gap", layers))
    return found


def _network(scene: Scene, layers: int, columns: list[tuple[str, int]], slots: Counter[tuple[Slot, str]]) -> float:
    """Paints the columns and what lies in them; returns the right edge of the paper."""
    natural = {"layer": 78, "between": 58, "gap": 16}
    whole = sum(natural[kind] + 8 for kind, _ in columns)
    squeeze = min(1.0, 810 / whole)
    x = float(MARGIN)
    for kind, place in columns:
        width = natural[kind] * squeeze
        if kind == "gap":
            scene.add(Text(x + width / 2, 30 + HEIGHT / 2, "…", 12, SOFT, "middle"))
        else:
            word = f"layer {place}" if kind == "layer" else f"act {place}"
            scene.add(Text(x + width / 2, 19, fit(word, width + 6, SMALL), SMALL, SOFT, "middle"))
            here = [(s, name, n) for (s, name), n in slots.items() if (s.column, s.place) == (kind, place)]
            rows = len(NAMES[kind])
            height = (HEIGHT - 4 * (rows - 1)) / rows
            for row, name in enumerate(NAMES[kind]):
                _slot(scene, x, 30 + row * (height + 4), width, height, name, [i for i in here if i[0].row == row])
        x += width + 8 * squeeze
        if (kind, place) != columns[-1]:
            scene.add(Poly(((x - 8 * squeeze, 30 + HEIGHT / 2), (x, 30 + HEIGHT / 2)), stroke=EDGE, line=2))
    return x - 8 * squeeze + MARGIN


def _slot(
    scene: Scene, x: float, y: float, width: float, height: float, name: str, here: list[tuple[Slot, str, int]]
) -> None:
    """One slot: empty, or with its parts that are held."""
    scene.add(Rect(x, y, width, height, TRACK, GRID))
    if not here:
        if text_width(name, SMALL) < width - 2:
            scene.add(Text(x + width / 2, y + height / 2, name, SMALL, SOFT, "middle"))
        return
    badges: list[Rect | Text] = []
    for part, kind, count in here:
        _part(scene, part, KINDS[kind], x, y, width, height)
        if count > 1:
            badges += [Rect(x + width - 20, y - 6, 24, 11, PAPER, EDGE, radius=2)]
            badges += [Text(x + width - 8, y - 0.5, f"×{count}", SMALL, INK, "middle")]
    scene.add(Rect(x, y, width, height, stroke=mix(KINDS[here[0][1]], INK, 0.3)), *badges)


def _part(scene: Scene, part: Slot, fill: str, x: float, y: float, width: float, height: float) -> None:
    """Fills the cells of a slot that a value covers: columns of batches times rows of shards."""
    wide, high = width / max(1, part.total_batches), height / max(1, part.total)
    across = runs(batch for batch in part.batches if 0 <= batch < part.total_batches)
    down = runs(shard for shard in part.shards if 0 <= shard < part.total)
    for left, right in across:
        for top, bottom in down:
            scene.add(Rect(x + left * wide, y + top * high, (right - left) * wide, (bottom - top) * high, fill))
    pale = mix(fill, PAPER, 0.45)
    for batch in range(1, part.total_batches if wide >= 4 else 0):
        scene.add(Poly(((x + batch * wide, y), (x + batch * wide, y + height)), stroke=pale, line=0.7))
    for shard in range(1, part.total if high >= 3 else 0):
        scene.add(Poly(((x, y + shard * high), (x + width, y + shard * high)), stroke=pale, line=0.7))
    if not across:
        scene.add(Text(x + width / 2, y + height / 2, "no batches", SMALL, SOFT, "middle"))
    elif part.total_batches > 1 and wide >= 9 and down:
        middle = y + (down[0][0] + down[0][1]) / 2 * high
        for batch in sorted(part.batches):
            if 0 <= batch < part.total_batches:
                scene.add(Text(x + (batch + 0.5) * wide, middle, str(batch), SMALL, ink_on(fill), "middle"))
    elif part.total > 1 and high >= SMALL - 1:
        for shard in sorted(part.shards):
            if 0 <= shard < part.total:
                scene.add(Text(x + 8, y + (shard + 0.5) * high, str(shard), SMALL, ink_on(fill), "middle"))
