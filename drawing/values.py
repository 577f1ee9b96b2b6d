"""Pictures of values: the network as a row of layers, with each value held highlighted in its place.

In a slot shards go down, so a quarter of a weight is a quarter of its slot, and its columns go across. Batches of
activations go across, and their features down. A gradient is as large as its weight however many batches are summed in
it: they are written on it, and counted by dots. Values that would overlap are sheets of a stack.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import Any, Final, NamedTuple, cast

from drawing.canvas.layout import Box, Piece, hcat, label, pad, vcat
from drawing.canvas.palette import EDGE, GRID, INK, KINDS, PAPER, SOFT, TRACK, ink_on, mix
from drawing.canvas.picture import Picture, note
from drawing.canvas.scene import SMALL, TEXT, Poly, Rect, Scene, Text, fit, fitting, text_width
from lib.errors.wording import counted, is_awaitable, numbered, ranges, runs
from lib.values.dims import DIMS
from lib.values.placement import Part, Place
from lib.values.values import Activation, ActivationGrad, OptState, Value, Weight, WeightGrad, describe

MARGIN: Final = 14
NUMBERED: Final = 8  # most shards that a slot has room to number
LISTED: Final = 12
NOTED: Final = 3  # notes on how values are cut, in one line
COLUMNS: Final = 12  # layers shown side by side; a deeper network shows only those that the picture is about
NAMES: Final = {"layer": ("weight", "optimizer", "gradient"), "between": ("activation", "gradient")}


class Slot(NamedTuple):
    """The place of a value: in layer number `place` or in its input, in which row, and which part of the slot.

    `summed`: its batches are added up in it and take no room. `shards` go down; in an activation they are rows.
    `columns` go across; in an activation they are features, in each of its batches. `partial` names the part of a sum
    that it is.
    """

    column: str
    place: int
    row: int
    batches: frozenset[int] = frozenset([0])
    total_batches: int = 1
    shards: frozenset[int] = frozenset([0])
    total: int = 1
    summed: bool = False
    columns: frozenset[int] = frozenset([0])
    total_columns: int = 1
    partial: str = ""

    @property
    def across(self) -> tuple[frozenset[int], int]:
        """The parts that lie across, and their total: columns of a weight, batches of an activation, features in it."""
        if self.column == "layer":
            return self.columns, self.total_columns
        if self.total_columns == 1:
            return self.batches, self.total_batches
        cells = frozenset(batch * self.total_columns + at for batch in self.batches for at in self.columns)
        return cells, self.total_batches * self.total_columns


LANES: Final[dict[type[Value], tuple[str, int]]] = {
    Weight: ("layer", 0),
    OptState: ("layer", 1),
    WeightGrad: ("layer", 2),
    Activation: ("between", 0),
    ActivationGrad: ("between", 1),
}
"""The column, and the slot in it, of each kind of value."""


def slot(value: Any) -> Slot:
    """Return the place of a value in the network: the first dim of a weight goes down and the next across; the first
    of an activation goes across, the next down, and cuts along the others lie in each piece of the first."""
    kind = next((kind for kind in LANES if isinstance(value, kind)), None)
    if kind is None:
        hint = "; did you forget `await`?" if is_awaitable(value) else ""
        raise TypeError(f"pictures of the network show values, such as a Weight; got {type(value).__name__}{hint}")
    (column, row), place, dims = LANES[kind], value.place, value.place.dims
    down, within = (dims[0], dims[1:2]) if place.sharded else (dims[:2][-1], [dim for dim in dims[2:] if not dim.whole])
    pieces = (place.shards, place.total) if place.sharded else _cut(down)
    batches = (frozenset([0]), 1) if place.schema.batch is None else (place.batches, place.total_batches)
    number = value.layer + (kind is ActivationGrad)
    columns = _cut(within[0]) if within else (frozenset([0]), 1)
    return Slot(column, number, row, *batches, *pieces, kind is WeightGrad, *columns, _partial(place))


def _cut(part: Part) -> tuple[frozenset[int], int]:
    """Return the pieces of a dim that are there, and their total."""
    return (frozenset([0]), 1) if part.whole else (frozenset(part.pieces), part.grid)


def _partial(place: Place) -> str:
    """Name the part of a sum that a value is, if it is one. Batches are named elsewhere."""
    sums = [one for one in place.rest if one[0] in place.schema.roles[place.schema.ndim :]]
    if not all(pieces for _, pieces, _ in sums):
        return "nothing"
    return ", ".join(
        f"{DIMS[role].plural} {ranges(pieces)}" if DIMS[role].counted else f"{ranges(pieces)} of {total}"
        for role, pieces, total in sums
    )


def picture_of_value(value: Value) -> Picture:
    """Draw a value in its place in the network."""
    return _picture([("", value)], f"<picture of {describe(value)}>")


def draw_group(group: Any) -> Picture:
    """Draw all values of a store, a dict or a list in one picture of the network, with their keys."""
    if isinstance(group, Value):
        return picture_of_value(group)
    if isinstance(group, Mapping):
        named = cast("Mapping[Any, Value]", group).items()
        items = [(key if isinstance(key, str) else repr(key), value) for key, value in named]
    elif isinstance(group, Iterable):
        items = [("", value) for value in cast("Iterable[Value]", group)]
    else:
        raise ValueError(f"draw_group takes values: a store, a dict or a list of them; got {group!r}")
    if not items:
        return note("empty: no values here", "<picture of nothing: empty>")
    return _picture(items, f"<picture of {counted(len(items), 'value', ',')}>")


def _picture(items: list[tuple[str, Value]], words: str) -> Picture:
    slots = Counter((slot(value), value.kind) for _, value in items)
    layers = max(1, *(value.layers for _, value in items))
    lines = _lines(items)
    # Values cut along many dims have long words, which need a single column.
    long = any(value.place.rest and text_width(text, TEXT) > 378 for (text, _), (_, value) in zip(lines, items))  # noqa: B905
    per_column = -(-len(lines) // (2 if len(lines) > 6 and not long else 1))
    used = -(-len(lines) // per_column)
    room = (840 - 2 * MARGIN - (used - 1) * 20) / used - 18  # no wider than other pictures
    lines = [(fit(text, room if long else min(440, room), TEXT), colour) for text, colour in lines]
    wide = max(text_width(text, TEXT) for text, _ in lines) + 2
    entries = [
        hcat([Piece(16, 17, [Rect(0, 3.5, 10, 10, colour, radius=1.5)] if colour else []),
              label(text, wide, fill=INK if colour else SOFT, height=17)])
        for text, colour in lines
    ]  # fmt: skip
    below = hcat([vcat(entries[first : first + per_column]) for first in range(0, len(entries), per_column)], 20, 0)
    # A layer is as high as three slots, with room for the numbers of the shards.
    bands = max(part.total if part.total <= NUMBERED else 1 for part, _ in slots)
    network = _network(layers, _columns(layers, {place for place, _ in slots}), slots, 3 * max(30.0, 13.0 * bands) + 8)
    whole = vcat([network, Piece(0, 9.5), below])
    return Picture(Scene(whole.width + 2 * MARGIN, whole.height + 16.5, whole.at(MARGIN, 8)), words)


def _lines(items: list[tuple[str, Value]]) -> list[tuple[str, str]]:
    shown = items if len(items) <= LISTED else items[: LISTED - 1]
    found = [(f"{key}: {value}" if key else str(value), str(KINDS[value.kind])) for key, value in shown]
    if len(items) > len(shown):
        found.append((f"and {len(items) - len(shown):,} more", ""))
    parts = [slot(value) for _, value in items]
    ways, order = {way for _, value in items for way in _directions(value)}, ("across", "in each", "down")
    notes = sorted(ways, key=lambda way: (order.index(way.partition(":")[0]), way))
    notes += ["Σ: added up"] if any(part.summed and len(part.batches) > 1 for part in parts) else []
    notes += ["pale: a part of a sum"] if any(part.partial for part in parts) else []
    return found + [(", ".join(notes[first : first + NOTED]), "") for first in range(0, len(notes), NOTED)]


def _directions(value: Value) -> Iterator[str]:
    """Yield the directions of the dims that are cut: "across: batches"."""
    part, place = slot(value), value.place
    for at, dim in enumerate(place.dims):
        cut = not dim.whole or (at == 0 and (part.total if place.sharded else part.total_batches) > 1)
        way = ("across" if at else "down") if place.sharded else ("across", "down", "in each")[min(at, 2)]
        if cut:
            yield f"{way}: {DIMS[dim.dim.name].plural}"


def _columns(layers: int, slots: Iterable[Slot]) -> list[tuple[str, int]]:
    wanted = sorted({min(max(s.place, 0), layers - 1) for s in slots})
    shown = range(layers) if layers <= COLUMNS else wanted[:COLUMNS]
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


def _network(layers: int, columns: list[tuple[str, int]], slots: Counter[tuple[Slot, str]], tall: float) -> Piece:
    natural = {"layer": 78, "between": 58, "gap": 16}
    squeeze = min(1.0, 810 / sum(natural[kind] + 8 for kind, _ in columns))
    line = Poly(((0, tall / 2), (8 * squeeze, tall / 2)), stroke=EDGE, line=2)
    parts: list[Piece] = []
    for kind, place in columns:
        width = natural[kind] * squeeze
        parts += [Piece(8 * squeeze, tall, [line])] if parts else []
        if kind == "gap":
            parts.append(label("…", width, 12, SOFT, anchor="middle", height=tall))
            continue
        word = f"layer {place}" if kind == "layer" else f"act {place}"
        word = fitting(width + 6, word, str(place) if kind == "layer" else "", size=SMALL)
        here = [(s, name, n) for (s, name), n in slots.items() if (s.column, s.place) == (kind, place)]
        rows = len(NAMES[kind])
        height = (tall - 4 * (rows - 1)) / rows
        boxes = [_slot(width, height, name, [item for item in here if item[0].row == row])
                 for row, name in enumerate(NAMES[kind])]  # fmt: skip
        head = pad(label(word, width + 6, SMALL, SOFT, anchor="middle", height=22), left=-3, right=-3)
        parts.append(vcat([head, vcat(boxes, 4)]))
    return hcat(parts, align=1)


def _slot(width: float, height: float, name: str, here: list[tuple[Slot, str, int]]) -> Piece:
    if not here:
        words = label(fitting(width - 2, name, "", size=SMALL), width, SMALL, SOFT, anchor="middle", height=height)
        return Piece(width, height, [Rect(0, 0, width, height, TRACK, GRID), *words.marks])
    scene = Scene(width, height, [Rect(0, 0, width, height, TRACK, GRID)])
    stack = _sheets([part for part, _, _ in here])
    fill = KINDS[here[0][1]]
    for number, sheet in enumerate(stack):
        back = len(stack) - 1 - number
        place = Box(4 * back, 3 * number, width - 4 * (len(stack) - 1), height - 3 * (len(stack) - 1))
        for part in sheet:
            shade = mix(fill, PAPER, 0.6) if part.partial else fill
            _part(scene, part, shade, place)
            if not back:
                _numbers(scene, part, shade, place)
        if len(stack) > 1:
            scene.add(Rect(*place, stroke=mix(fill, PAPER, 0.45)))
    scene.add(Rect(0, 0, width, height, stroke=mix(fill, INK, 0.3)))
    count = (sum if len(stack) > 1 else max)(count for _, _, count in here)
    if count > 1:
        scene.add(Rect(width - 20, -6, 24, 12, PAPER, EDGE, radius=2))
        scene.add(Text(width - 8, 0, f"×{count}", SMALL, INK, "middle"))
    return Piece(width, height, scene.marks)


def _sheets(parts: Iterable[Slot]) -> list[list[Slot]]:
    """Group values into sheets: those side by side in a slot share one, and any that would overlap goes to the next."""
    found: list[list[Slot]] = []
    for part in parts:
        sheet = next((sheet for sheet in found if not any(_overlap(part, other) for other in sheet)), None)
        if sheet is not None:
            sheet.append(part)
        elif len(found) < 4:
            found.append([part])
    return found


def _overlap(one: Slot, other: Slot) -> bool:
    if one.summed or one.column == "layer":
        if one.total_columns == other.total_columns and one.columns.isdisjoint(other.columns):
            return False
        if one.total == other.total:
            return not one.shards.isdisjoint(other.shards)
        # In units of both grids.
        mine = [(low * other.total, high * other.total) for low, high in runs(one.shards)]
        its = [(low * one.total, high * one.total) for low, high in runs(other.shards)]
        return any(low < end and begin < high for low, high in mine for begin, end in its)
    apart = one.total == other.total and one.shards.isdisjoint(other.shards)
    beside = one.total_columns == other.total_columns and one.columns.isdisjoint(other.columns)
    return not (apart or beside or one.batches.isdisjoint(other.batches))


def _part(scene: Scene, part: Slot, fill: str, box: Box) -> None:
    """Fill the cells of a slot that a value covers: columns of batches times rows of shards."""
    x, y, width, height = box
    held, columns = part.across[0], max(1, part.across[1])
    wide, high = width / columns, height / max(1, part.total)
    across = runs(number for number in held if 0 <= number < columns)
    down = runs(shard for shard in part.shards if 0 <= shard < part.total)
    for (left, right), (top, bottom) in product(across, down):
        scene.add(Rect(x + left * wide, y + top * high, (right - left) * wide, (bottom - top) * high, fill))
    pale = mix(fill, PAPER, 0.45)
    cells = columns if part.column == "layer" else max(1, part.total_batches)
    wide = width / cells
    seams = [((x + batch * wide, y), (x + batch * wide, y + height)) for batch in range(1, cells if wide >= 4 else 0)]
    seams += [((x, y + at * high), (x + width, y + at * high)) for at in range(1, part.total if high >= 3 else 0)]
    scene.add(*(Poly(seam, stroke=pale, line=0.7) for seam in seams))


def _numbers(scene: Scene, part: Slot, fill: str, box: Box) -> None:
    """Write the numbers of its shards and batches on a value."""
    x, y, width, height = box
    held, across = part.across if part.column == "layer" else (part.batches, part.total_batches)
    wide, high = width / max(1, across), height / max(1, part.total)
    batches = sorted(number for number in held if 0 <= number < across)
    shards = sorted(shard for shard in part.shards if 0 <= shard < part.total)
    middle = y + (shards[0] + shards[-1] + 1) / 2 * high if shards else y + height / 2
    if part.summed and part.total_batches > 1 and shards and batches:
        left, right = runs(batches)[0]
        top, bottom = runs(shards)[0]
        _summed(scene, part, fill, Box(x + left * wide, y + top * high, (right - left) * wide, (bottom - top) * high))
    elif part.partial:
        words = f"Σ {part.partial}"
        words = words if text_width(words, SMALL) <= width - 2 else "Σ"
        scene.add(Text(x + width / 2, y + height / 2, words, SMALL, INK, "middle"))
    elif not part.summed and not batches:
        scene.add(Text(x + width / 2, y + height / 2, "no batches", SMALL, SOFT, "middle"))
    elif across > 1 and not part.summed and wide >= SMALL - 1:
        for batch in batches:
            scene.add(Text(x + (batch + 0.5) * wide, middle, str(batch), SMALL, ink_on(fill), "middle"))
    if part.total > 1 and high >= SMALL and part.column == "layer":
        for shard in shards:
            scene.add(Text(x + 8, y + (shard + 0.5) * high, str(shard), SMALL, ink_on(fill), "middle"))


def batches_in(part: Slot) -> str:
    """Return the words on a gradient: the batches whose sum it is."""
    batches = [batch for batch in part.batches if 0 <= batch < part.total_batches]
    words = f"Σ {ranges(batches)}" if len(batches) > 1 else numbered("batch", batches) if batches else "no batches"
    return f"{words}, {part.partial}" if part.partial else words


def _summed(scene: Scene, part: Slot, fill: str, box: Box) -> None:
    """Write the batches in a gradient on it, with a dot for each batch there is: filled where it is in."""
    x, y, width, height = box
    ink, middle = ink_on(fill), x + width / 2
    words = fitting(width - 4, batches_in(part), batches_in(part._replace(partial="")), size=SMALL)
    dots = part.total_batches * 7 - 3
    room = width - (32 if part.total > 1 else 4)
    if height < SMALL or room < 20:
        return
    has_dots = height >= 24 and dots <= width - 8
    scene.add(Text(middle, y + height / 2 - (4 if has_dots else 0), fit(words, room, SMALL), SMALL, ink, "middle"))
    for number in range(part.total_batches if has_dots else 0):
        dot = Rect(middle - dots / 2 + number * 7, y + height / 2 + 4, 4, 4, ink, radius=2)
        scene.add(dot if number in part.batches else dot._replace(fill=mix(fill, ink, 0.35)))
