"""draw_attention: which pairs of queries and keys each rank works on in which step, in the causal triangle."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from drawing.canvas.palette import EDGE, INK, PAPER, SOFT, TRACK, Colour, mix, origin_colour
from drawing.canvas.picture import Picture
from drawing.canvas.scene import SMALL, TEXT, Poly, Rect, Scene, Text, fit, text_width
from drawing.diagrams.tiles import Box, weave
from drawing.timeline.schedule import note, trace_of
from lib.cluster.costs import units
from lib.errors.wording import exact
from lib.trace.trace import Trace, nothing_to
from lib.values.dims import Run, RunSet

__all__ = ["draw_attention"]

WIDTH: Final = 840
MARGIN: Final = 18.0
GAP: Final = 14.0
WIDEST: Final = 190.0
NARROWEST: Final = 600.0
MOST: Final = 8
"""Steps that are drawn: of more the first ones and the last. And ranks that have bars of their own colour."""
BARS: Final = 36.0
PALER: Final = 0.68
PIECES: Final = 4096
"""Rectangles of one step, at most: finer shares are not to be seen."""


class Block(NamedTuple):
    """What a rank works on at once: its queries and keys, in runs, and how long that takes, in ticks."""

    rank: int
    queries: RunSet
    keys: RunSet
    length: int


class Turning(NamedTuple):
    """The attention of a run, step by step, to so many tokens."""

    name: str
    ranks: int
    tokens: int
    steps: Sequence[Sequence[Block]]

    @property
    def shown(self) -> list[int]:
        """The numbers of the steps that are drawn."""
        last = len(self.steps) - 1
        return [*range(last + 1)] if last < MOST else [*range(MOST - 1), last]

    @property
    def shared(self) -> bool:
        """Whether some ranks work on the same pairs, each for some heads."""
        return any(len(ranks) > 1 for blocks in self.steps for _, _, ranks in _cells(blocks))

    @property
    def longest(self) -> list[int]:
        """The longest block of each step."""
        return [max(block.length for block in blocks) for blocks in self.steps]

    @property
    def words(self) -> str:
        """What the picture says."""
        times = [exact(units(length)) for length in self.longest]
        together = f", {exact(units(sum(self.longest)))} together" if len(times) > 1 else ""
        stripes = "; stripes: each rank has some of the heads" if self.shared else ""
        name = f"{self.name}: " if self.name else ""
        return f"{name}the longest block of each step takes {', '.join(times)}{together}{stripes}"


def draw_attention(runs: Any, layer: int | None = None) -> Picture:
    """Which pairs of queries and keys each rank works on, in the forward of an attention layer, step by step.

    Queries go down, keys across, and above the diagonal there is nothing to do. What is being worked on has the colour
    of the rank, what was done before is paler; below are the times. `runs` is a run (a Trace, or Models), or several by
    name, to lie below each other. Without `layer` it is the first layer of attention.
    """
    named = cast("Mapping[Any, Any]", runs) if isinstance(runs, Mapping) else {"": runs}
    if not named:
        raise ValueError('draw_attention takes a run, or some by name, such as {"ring": out1, "zigzag": out2}')
    found: list[Turning] = []
    for name, run in named.items():
        if (why := nothing_to("draw", run, str(name) or None)) is not None:
            return note(why)
        one = _turning(trace_of(run, "draw_attention"), str(name), layer)
        if one is None:
            return note("no rank works on attention in this run")
        found.append(one)
    scene = Scene(max(map(_width, found)), 0)
    y = _legend(scene, max(one.ranks for one in found))
    longest = max(length for one in found for length in one.longest)
    for one in found:
        y = _row(scene, one, longest, y)
    scene.height = y
    return Picture(scene, f"<pairs of queries and keys by step. {'; '.join([one.words for one in found])}>")


def _turning(trace: Trace, name: str, layer: int | None) -> Turning | None:
    """The steps of a run; None where there are none."""
    kinds = [kind.name for kind in trace.shape.kinds]
    if layer is not None and (not 0 <= layer < len(kinds) or kinds[layer] != "attention"):
        there = [str(number) for number, kind in enumerate(kinds) if kind == "attention"]
        raise ValueError(
            f"draw_attention: layer {layer} is no layer of attention; "
            + (f"{', '.join(there)} is" if there else "none is")
        )
    if layer is None:
        layer = kinds.index("attention") if "attention" in kinds else -1
    steps: defaultdict[int, list[Block]] = defaultdict(list)
    for program in trace.programs:
        mine = [event for event in program.events if event.op == "forward" and event.layer == layer]
        first = min([min(event.batches) for event in mine], default=0)
        for step, event in enumerate(event for event in mine if first in event.batches):
            queries, keys = (
                RunSet.of(value.place.named["rows"].pieces)
                for value in program.values_of([event.inputs[0], event.inputs[-1]])
            )
            steps[step].append(Block(program.rank, queries, keys, event.length))
    if not steps:
        return None
    return Turning(name, trace.ranks, trace.shape.kinds[layer].layer.rows, [steps[step] for step in range(len(steps))])


def _side(one: Turning) -> float:
    """How large a triangle is."""
    count = len(one.shown)
    return min(WIDEST, (WIDTH - 2 * MARGIN - (count - 1) * GAP) / count)


def _width(one: Turning) -> float:
    """How much paper a run needs."""
    return max(NARROWEST, 2 * MARGIN + len(one.shown) * (_side(one) + GAP) - GAP)


def _legend(scene: Scene, ranks: int) -> float:
    """Which colour is whose, and what goes where; the height below it."""
    scene.add(Text(MARGIN, 20, "Queries down, keys across", TEXT, SOFT))
    x = scene.width - MARGIN
    for rank in reversed(range(min(ranks, MOST))):
        words = f"rank {rank}"
        x -= text_width(words, TEXT)
        scene.add(Text(x, 20, words, TEXT, INK))
        x -= 15
        scene.add(Rect(x, 15, 10, 10, origin_colour(rank, ranks)))
        x -= 14
    return 44


def _row(scene: Scene, one: Turning, longest: int, y: float) -> float:
    """A run: a triangle for each step, with the times of its blocks below it."""
    words = one.words.partition(";")[0]
    words = f"{words if one.name else words[:1].upper() + words[1:]}."  # a name stays as it is written
    scene.add(Text(MARGIN, y, fit(words, scene.width - 2 * MARGIN, TEXT), TEXT, INK, bold=True))
    side = _side(one)
    for place, step in enumerate(one.shown):
        left, top = MARGIN + place * (side + GAP), y + 16
        _triangle(scene, one, step, Box(left, top, side, side))
        scene.add(Text(left, top + side + 12, f"step {step}", TEXT, SOFT))
        _bars(scene, one, step, longest, Box(left, top + side + 22, side, BARS))
    if one.shared:
        y += 18
        scene.add(Text(MARGIN, y + side + BARS + 34, "Stripes: each of these ranks has some of the heads", TEXT, SOFT))
    return y + side + BARS + 62


def _triangle(scene: Scene, one: Turning, step: int, box: Box) -> None:
    scene.add(Rect(*box, TRACK))
    for number, blocks in enumerate(one.steps[: step + 1]):
        for queries, keys, ranks in _cells(blocks):
            colours = [_colour(rank, one.ranks, paler=number < step) for rank in ranks]
            weave(scene, _cell(box, queries, keys, one.tokens), colours, box)
    left, top, right, bottom = box.x, box.y, box.x + box.width, box.y + box.height
    # What was painted above the diagonal nobody works on: paper lies on it, and on the seams at its edges.
    scene.add(Poly([(left - 1, top - 1), (right + 1, top - 1), (right + 1, bottom + 1)], PAPER))
    scene.add(Poly([(left, top), (right, bottom), (left, bottom), (left, top)], stroke=EDGE))


def _cells(blocks: Sequence[Block]) -> Iterator[tuple[Run, Run, list[int]]]:
    """Runs of queries and of keys that are worked on together, and by whom: each of several ranks has some heads."""
    cells: defaultdict[tuple[Run, Run], list[int]] = defaultdict(list)
    for block in blocks:
        for queries in block.queries.runs:
            for keys in block.keys.runs:
                cells[queries, keys].append(block.rank)
                if len(cells) > PIECES:
                    raise ValueError("draw_attention: these shares are too fine to draw. Longer pieces show the same")
    yield from ((queries, keys, ranks) for (queries, keys), ranks in cells.items())


def _cell(box: Box, queries: Run, keys: Run, tokens: int) -> Box:
    across, down = box.width / tokens, box.height / tokens
    return Box(
        box.x + keys[0] * across,
        box.y + queries[0] * down,
        (keys[1] - keys[0]) * across,
        (queries[1] - queries[0]) * down,
    )


def _colour(rank: int, ranks: int, paler: bool = False) -> Colour:
    own = origin_colour(rank, ranks)
    return mix(own, PAPER, PALER) if paler else own


def _bars(scene: Scene, one: Turning, step: int, longest: int, box: Box) -> None:
    """How long each rank's block of a step takes, and the longest in figures."""
    high = min(9.0, box.height / one.ranks)
    room = box.width - 44
    lengths = {block.rank: block.length for block in one.steps[step]}
    for rank in range(one.ranks):
        width = room * lengths.get(rank, 0) / max(longest, 1)
        words = f"rank {rank}: {exact(units(lengths.get(rank, 0)))}"
        scene.add(
            Rect(box.x, box.y + rank * high, max(width, 1), high - 1.5, origin_colour(rank, one.ranks), title=words)
        )
    most = max(lengths, key=lambda rank: lengths[rank])
    if lengths[most]:
        x, y = box.x + room * lengths[most] / longest, box.y + (most + 0.5) * high
        scene.add(Text(x + 4, y - 0.75, exact(units(lengths[most])), SMALL, INK))
