"""draw_attention: which pairs of queries and keys each rank works on in which step, in the causal triangle."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from drawing.canvas.layout import MARGIN, Box, Piece, hcat, label, vcat
from drawing.canvas.palette import EDGE, INK, PAPER, SOFT, TRACK, mix, origin_colour
from drawing.canvas.picture import Picture
from drawing.canvas.scene import SMALL, TEXT, Mark, Poly, Rect, Scene, Text, fit
from drawing.diagrams.tiles import weave
from drawing.timeline.schedule import note, trace_of
from lib.cluster.costs import units
from lib.errors.wording import exact
from lib.trace.trace import Trace, nothing_to
from lib.values.dims import Run, RunSet

ROOM: Final = 840 - 2 * MARGIN
GAP: Final = 14.0
MOST: Final = 8
"""Most steps drawn: of more, the first ones and the last. Also the most ranks named."""


class Block(NamedTuple):
    """The queries and keys that a rank works on at once, in runs, and how long that takes, in ticks."""

    rank: int
    queries: RunSet
    keys: RunSet
    length: int


class Turning(NamedTuple):
    """The attention of a run, step by step, with its number of tokens."""

    name: str
    ranks: int
    tokens: int
    steps: Sequence[Sequence[Block]]

    @property
    def shared(self) -> bool:
        """Tell whether some ranks work on the same pairs, each for some heads."""
        return any(len(ranks) > 1 for blocks in self.steps for _, _, ranks in _cells(blocks))

    @property
    def longest(self) -> list[int]:
        """The longest block of each step."""
        return [max(block.length for block in blocks) for blocks in self.steps]

    @property
    def words(self) -> str:
        """The picture in words."""
        times = [exact(units(length)) for length in self.longest]
        together = f", {exact(units(sum(self.longest)))} together" if len(times) > 1 else ""
        stripes = "; stripes: each rank has some of the heads" if self.shared else ""
        name = f"{self.name}: " if self.name else ""
        return f"{name}the longest block of each step takes {', '.join(times)}{together}{stripes}"


def draw_attention(runs: Any, layer: int | None = None) -> Picture:
    """Draw which pairs of queries and keys each rank works on, in the forward of an attention layer, step by step.

    Queries go down, keys across, and above the diagonal there is nothing to do. Current pairs have the colour of their
    rank, earlier ones are paler; below are the times. `runs` is a run (a Trace, or Models), or several by name, drawn
    below each other. Without `layer` it is the first layer of attention.
    """
    named = cast("Mapping[Any, Any]", runs) if isinstance(runs, Mapping) else {"": runs}
    if not named:
        raise ValueError('draw_attention takes a run, or some by name, such as {"ring": out1, "zigzag": out2}')
    turnings: list[Turning] = []
    for name, run in named.items():
        if (why := nothing_to("draw", run, str(name) or None)) is not None:
            return note(why)
        turning = _turning(trace_of(run, "draw_attention"), str(name), layer)
        if turning is None:
            return note("no rank works on attention in this run")
        turnings.append(turning)
    longest = max(length for one in turnings for length in one.longest)
    rows = vcat((_row(one, longest) for one in turnings), 14)
    width = max(564.0, rows.width)
    ranks = max(one.ranks for one in turnings)
    names = [
        hcat([Piece(10, 10, [Rect(0, 0, 10, 10, origin_colour(rank, ranks))]), label(f"rank {rank}")], 5)
        for rank in range(min(ranks, MOST))
    ]
    legend = hcat([Piece(width - sum(name.width + GAP for name in names), 0), *names], GAP)
    said = Text(MARGIN, 20, "Queries down, keys across", TEXT, SOFT)
    scene = Scene(width + 2 * MARGIN, rows.height + 56, [said, *legend.at(MARGIN, 13), *rows.at(MARGIN, 36)])
    return Picture(scene, f"<pairs of queries and keys by step. {'; '.join([one.words for one in turnings])}>")


def _turning(trace: Trace, name: str, layer: int | None) -> Turning | None:
    kinds = [kind.name for kind in trace.shape.kinds]
    if layer is not None and (not 0 <= layer < len(kinds) or kinds[layer] != "attention"):
        there = [str(number) for number, kind in enumerate(kinds) if kind == "attention"]
        which = f"{', '.join(there)} is" if there else "none is"
        raise ValueError(f"draw_attention: layer {layer} is not a layer of attention; {which}")
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


def _row(one: Turning, longest: int) -> Piece:
    words = one.words.partition(";")[0]
    words = f"{words if one.name else words[:1].upper() + words[1:]}."  # a name stays as it is written
    last = len(one.steps) - 1
    shown = [*range(last + 1)] if last < MOST else [*range(MOST - 1), last]
    side = min(190.0, (ROOM - (len(shown) - 1) * GAP) / len(shown))
    steps = [
        vcat([_triangle(one, step, side), label(f"step {step}", fill=SOFT, height=22), _bars(one, step, longest, side)])
        for step in shown
    ]
    heads = [label("Stripes: each of these ranks has some of the heads", fill=SOFT, height=22)] if one.shared else []
    return vcat([label(fit(words, ROOM, TEXT), bold=True, height=24), hcat(steps, GAP, 0), *heads])


def _triangle(one: Turning, step: int, side: float) -> Piece:
    """Paint the pairs of a step in the colours of the ranks, and paler those of the steps before."""
    scene, whole, each = Scene(side, side), Box(0, 0, side, side), side / one.tokens
    scene.add(Rect(*whole, TRACK))
    for number, blocks in enumerate(one.steps[: step + 1]):
        for queries, keys, ranks in _cells(blocks):
            colours = [origin_colour(rank, one.ranks) for rank in ranks]
            colours = [mix(colour, PAPER, 0.68) for colour in colours] if number < step else colours
            (top, bottom), (left, right) = queries, keys
            cell = Box(left * each, top * each, (right - left) * each, (bottom - top) * each)
            weave(scene, cell, colours, whole)
    # No rank works on the pairs above the diagonal: paper covers them, and the seams at their edges.
    scene.add(Poly([(-1, -1), (side + 1, -1), (side + 1, side + 1)], PAPER))
    scene.add(Poly([(0, 0), (side, side), (0, side), (0, 0)], stroke=EDGE))
    return Piece(side, side, scene.marks)


def _cells(blocks: Sequence[Block]) -> Iterator[tuple[Run, Run, list[int]]]:
    """Runs of queries and keys worked on together, and their ranks: each of several ranks has some heads."""
    cells: defaultdict[tuple[Run, Run], list[int]] = defaultdict(list)
    for block in blocks:
        for queries in block.queries.runs:
            for keys in block.keys.runs:
                cells[queries, keys].append(block.rank)
                if len(cells) > 4096:  # finer shares cannot be seen
                    raise ValueError("draw_attention: these shares are too fine to draw. Longer pieces show the same")
    yield from ((queries, keys, ranks) for (queries, keys), ranks in cells.items())


def _bars(one: Turning, step: int, longest: int, wide: float) -> Piece:
    """Return bars for how long each rank's block of a step takes, the longest in figures."""
    room, high = wide - 44, min(9.0, 36.0 / one.ranks)
    lengths = {block.rank: block.length for block in one.steps[step]}
    marks: list[Mark] = []
    for rank in range(one.ranks):
        length = lengths.get(rank, 0)
        colour, words = origin_colour(rank, one.ranks), f"rank {rank}: {exact(units(length))}"
        marks.append(Rect(0, rank * high, max(room * length / max(longest, 1), 1), high - 1.5, colour, title=words))
    most = max(lengths, key=lambda rank: lengths[rank])
    if length := lengths[most]:
        words = exact(units(length))
        marks.append(Text(room * length / longest + 4, (most + 0.5) * high - 0.75, words, SMALL, INK))
    return Piece(wide, 36.0, marks)
