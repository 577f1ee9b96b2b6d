"""draw_step: the life of one training step on one rank, from the data to the updated weights, in its own order.

A rank's operations are numbered; waiting does not count. The place of each in the network follows from the rows of the
tables and from the kinds of its values, so that a new operation has a place as well.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from drawing.canvas.layout import MARGIN, Box, arrow, curve
from drawing.canvas.palette import EDGE, INK, KINDS, LOOKS, SOFT, TRACK, fill_and_border, ink_on, layer_colour
from drawing.canvas.picture import Picture
from drawing.canvas.scene import SMALL, TEXT, Rect, Scene, Text, fit, fitting, text_width
from drawing.timeline.schedule import note, trace_of
from lib.errors.wording import counted, numbered, ranges
from lib.trace.event import Event, Program, event_words, spoken
from lib.trace.trace import Trace, nothing_to
from lib.values.kinds.kind import PRICED
from lib.values.operations import COMMUNICATION, OPERATIONS, Operation
from lib.values.values import Activation, ActivationGrad, OptState, Weight, WeightGrad

LANES: Final[dict[str, str]] = {
    Weight.kind: "weight",
    OptState.kind: "update",
    WeightGrad.kind: "gradient",
    Activation.kind: "activation",
    ActivationGrad.kind: "activation gradient",
}
"""The lane of operations on each kind of value."""


class Deed(NamedTuple):
    """One thing that a rank does. `lane` says where it belongs, at which layer or, between layers, at which activation.

    `chip` is its name where it has no box of its own: "all-reduce", "from rank 1".
    """

    number: int
    event: Event
    lane: str
    place: int
    chip: str = ""


class Kept(NamedTuple):
    """An activation kept from the deed that made it to the one that computes gradients with it."""

    place: int
    made: int
    used: int


def deeds(program: Program) -> list[Deed]:
    """Return what a rank does, in the order of its program."""
    where = [(event, found) for event in program.events if (found := _where(program, event)) is not None]
    return [Deed(number, event, *found) for number, (event, found) in enumerate(where, 1)]


def kept(program: Program, done: list[Deed]) -> Iterator[Kept]:
    """Yield the activations that backward takes, each with the deed that made it."""
    maker = {number: deed.number for deed in done for number in deed.event.outputs}
    for deed in done:
        for number in deed.event.inputs if deed.lane == "backward" else ():
            value = program.values[number]
            if isinstance(value, Activation) and number in maker:
                yield Kept(value.layer, maker[number], deed.number)


def _where(program: Program, event: Event) -> tuple[str, int, str] | None:
    """The lane of an event, the place in it, and its name where it has no box of its own."""
    row = OPERATIONS.get(event.op)
    if row is not None and row.kind == "wait":
        return None
    box = None if row is None or event.op in COMMUNICATION else _box(row)
    values = program.values_of(event.outputs) or program.values_of(event.inputs)
    if box in ("forward", "backward", "update", "weight") and event.layer is not None:
        return box, event.layer, ""
    if box == "loss":
        return box, 0, ""
    if not values:
        return None
    first, hands_in = values[0], row is not None and row.hands_in
    # Gradients with respect to the output of layer k lie where activation k + 1 does.
    place = first.layer + isinstance(first, ActivationGrad)
    chip = "" if box == "activation" else "final weight" if hands_in else spoken(event.op)
    if chip and not hands_in and event.peer is not None:
        chip = f"{'to' if event.op == 'pass_to' else 'from'} {event.peer}"
    elif event.op == "add":
        chip = "added up"
    return "update" if hands_in else LANES[first.kind], place, chip


def _box(row: Operation) -> str | None:
    """The box that an operation is, by the kinds that it takes and gives."""
    if row.loads:
        return "weight" if Weight in row.gives else "activation"
    if OptState in row.takes:
        return "update"
    if ActivationGrad in row.takes:
        return "backward"
    if Activation in row.takes:
        return "forward" if Weight in row.takes else "loss"
    return None


BOX, BETWEEN, GAP, LOSS = 88, 50, 15, 56
"""Pixels that the box of a layer is wide, and what lies between layers, with the gap; and the loss."""
CHIP, CHIPS, STATE = 20, 33, 18
"""Pixels of height: a chip, a chip with the numbers on its lower edge, and the optimizer state below an update."""
LISTED: Final = 40  # things that are told in words


def draw_step(run: Any, rank: int = 0) -> Picture:
    """Draw the life of one training step on one rank: what it does to each layer, numbered in order.

    `run` is a Trace, or the Models that simulate returned. It suits small runs; of many layers it shows only some.
    """
    if (why := nothing_to("draw", run)) is not None:
        return note(why)
    trace = trace_of(run, "draw_step")
    if not 0 <= rank < trace.ranks:
        raise ValueError(f"draw_step: this run has {counted(trace.ranks, 'rank')}, counted from 0; got rank={rank}")
    done = deeds(trace.programs[rank])
    if not done:
        return note(f"rank {rank} does nothing in this run")
    return _Step(trace, rank, done).picture()


class Lane(NamedTuple):
    """A row of boxes: its top, and the height of a box."""

    y: float
    height: float

    @property
    def middle(self) -> float:
        """The height of its middle."""
        return self.y + self.height / 2


class _Step:
    def __init__(self, trace: Trace, rank: int, done: list[Deed]) -> None:
        self.trace, self.rank, self.done = trace, rank, done
        self.at: dict[tuple[str, int], list[Deed]] = defaultdict(list)
        for deed in done:
            self.at[deed.lane, deed.place].append(deed)
        # Those for which the rank computes a gradient: tokens have none.
        values = trace.programs[rank].values_of([number for deed in done for number in deed.event.outputs])
        self.back = {value.layer + 1 for value in values if isinstance(value, ActivationGrad)}
        # The layers that this rank works on: of many, the first two and the last.
        lanes = ("weight", "forward", "backward", "gradient", "update")
        about = sorted({at for lane, at in self.at if lane in lanes and 0 <= at < trace.layers}) or [0]
        self.layers = about if len(about) <= 4 else [*about[:2], about[-1]]
        self.x, x = dict[tuple[str, int], float](), MARGIN
        for number, layer in enumerate(self.layers):
            if number and self.layers[number - 1] != layer - 1:
                self.x["left out", 0] = x + 10
                x += 24
            if ("between", layer) not in self.x:
                self.x["between", layer] = x
                x += BETWEEN + GAP
            self.x["layer", layer] = x
            self.x["between", layer + 1] = x + BOX + GAP
            x += BOX + BETWEEN + 2 * GAP
        self.x["loss", 0] = x
        natural = x + (LOSS if self.at["loss", 0] else -GAP) + MARGIN
        width = max(520.0, natural)
        self.x = {column: left + (width - natural) / 2 for column, left in self.x.items()}
        self.lanes, self.scene = self._lanes(), Scene(width, 0)

    def _called(self, lane: str, place: int) -> list[str]:
        """The different chips at a place, in order of first occurrence."""
        return [*dict.fromkeys(deed.chip for deed in self.at.get((lane, place), ()) if deed.chip)]

    def _lanes(self) -> dict[str, Lane]:
        chips = defaultdict[str, float](float)
        for lane, place in [*self.at]:
            chips[lane] = max(chips[lane], CHIPS * len(self._called(lane, place)))
        weight = Lane(78, 30)
        forward = Lane(weight.y + weight.height + chips["weight"] + 26, 46)
        backward = Lane(forward.y + forward.height + max(56.0, chips["activation"] + 40), 46)
        gradient = Lane(backward.y + backward.height + 26, 30)
        below = gradient.y + chips["activation gradient"]
        update = Lane(max(gradient.y + gradient.height + chips["gradient"] + 26, below), 34)
        self.bottom = update.y + update.height + STATE + chips["update"]
        return {"weight": weight, "forward": forward, "backward": backward, "gradient": gradient, "update": update}

    def picture(self) -> Picture:
        scene, run = self.scene, self.trace
        title = f"One training step on rank {self.rank}" + (f" of {run.ranks}" if run.ranks > 1 else "")
        scene.add(Text(MARGIN, 20, title, 13, INK, bold=True))
        scene.add(Text(MARGIN, 38, "The numbers say in which order things happen.", TEXT, SOFT))
        pairs = [*kept(run.programs[self.rank], self.done)]
        self._flow(pairs)
        for layer in self.layers:
            self._layer(layer)
        if (left_out := self.x.get(("left out", 0))) is not None:
            scene.add(Text(left_out, self.lanes["forward"].middle, "…", 16, SOFT, "middle"))
        for kind, place in self.x:
            if kind == "between":
                self._between(place)
        self._loss()
        told = "Forward goes from left to right, backward from right to left."
        if pairs:
            first = max(pairs, key=lambda pair: pair.used - pair.made)
            told = "Forward goes from left to right. Backward goes from right to left and needs the activations again: "
            told += f"act {first.place} is made in {first.made}, and kept until {first.used}."
        scene.height = scene.paragraph(MARGIN, self.bottom + 22, told, scene.width - 2 * MARGIN, 17, SOFT) + 2
        words = [f"{deed.number} {event_words(deed.event, run.ranks)}" for deed in self.done[:LISTED]]
        words += [f"and {len(self.done) - LISTED} more"] if len(self.done) > LISTED else []
        return Picture(scene, f"<{title}: {'; '.join(words)}>")

    def _flow(self, pairs: Sequence[Kept]) -> None:
        """Arrows along forward and backward, from weights down, and from activations to where they are needed again."""
        forward, backward = self.lanes["forward"], self.lanes["backward"]
        for layer in self.layers:
            left, x, right = self.x["between", layer], self.x["layer", layer], self.x["between", layer + 1]
            if ("forward", layer) in self.at:
                self._level(left + BETWEEN, x - 1, forward.middle)
                self._level(x + BOX, right - 1, forward.middle)
            if ("backward", layer) in self.at:
                self._level(right, x + BOX + 1, backward.middle)
                if layer in self.back:
                    self._level(x, left + BETWEEN + 1, backward.middle)
            self._down(layer)
        for place in dict.fromkeys(pair.place for pair in pairs if pair.place in self.layers):
            first, *others = [pair for pair in pairs if pair.place == place]
            words = f"kept {first.made}–{first.used}" + (", …" if others else "")
            # Down from the activation, below its chips, to the backward that needs it again.
            x, y = self.x["between", place] + BETWEEN / 2, forward.y + forward.height - 5
            low, end = y + len(self._called("activation", place)) * CHIPS, (self.x["layer", place] + 26, backward.y - 1)
            arrow(self.scene, [(x, y), *curve((x, low), end)], KINDS["activation"], 2)
            self.scene.add(Text(max(MARGIN, x - 24), (low + end[1]) / 2 + 19, words, SMALL, INK))

    def _level(self, start: float, end: float, y: float) -> None:
        arrow(self.scene, [(start, y), (end, y)], SOFT, 1.5)

    def _upright(self, x: float, start: float, end: float, kind: str) -> None:
        arrow(self.scene, [(x, start), (x, end)], KINDS[kind], 1.5)

    def _down(self, layer: int) -> None:
        """From the weight through forward to backward, and from the gradient to the update."""
        if self.trace.shape.kinds[layer].weight is None:
            return
        x = self.x["layer", layer] + BOX / 2
        weight, forward, backward, gradient, update = self.lanes.values()
        top = weight.y + weight.height + len(self._called("weight", layer)) * CHIPS
        if ("forward", layer) in self.at:
            self._upright(x, top, forward.y - 1, "weight")
        if ("backward", layer) in self.at:
            start = forward.y + forward.height if ("forward", layer) in self.at else top
            self._upright(x + 24, start, backward.y - 1, "weight")
            self._upright(x, backward.y + backward.height, gradient.y - 1, "weight gradient")
        if ("update", layer) in self.at:
            low = gradient.y + gradient.height + len(self._called("gradient", layer)) * CHIPS
            self._upright(x, low, update.y - 1, "weight gradient")

    def _layer(self, layer: int) -> None:
        x, kind = self.x["layer", layer], self.trace.shape.kinds[layer].name
        title = f"layer {layer}" + (f": {kind.replace('_', ' ')}" if kind != PRICED.kind else "")
        self.scene.add(Text(x + BOX / 2, self.lanes["weight"].y - 14, title, TEXT, SOFT, "middle"))
        own = layer_colour(layer, self.trace.layers)
        looks = {
            "weight": (KINDS["weight"], SOFT),
            "forward": fill_and_border("forward", own),
            "backward": fill_and_border("backward", own),
            "gradient": (KINDS["weight gradient"], SOFT),
            "update": LOOKS["update"].pair,
        }
        for lane, (fill, border) in looks.items():
            if self.trace.shape.kinds[layer].weight is None and lane not in ("forward", "backward"):
                continue
            y, height = self.lanes[lane]
            here = [deed for deed in self.at.get((lane, layer), ()) if not deed.chip]
            made = lane == "gradient" and ("backward", layer) in self.at
            self._box(Box(x, y, BOX, height), lane, fill, border, here, bool(here) or made)
            if lane == "update" and here:  # the optimizer state is updated with the weight
                state, low = KINDS["optimizer state"], y + height
                self.scene.add(Rect(x, low, BOX, STATE, state, SOFT, radius=4))
                words, ink = "optimizer state", ink_on(state)
                self.scene.add(Text(x + BOX / 2, low + STATE / 2, words, SMALL, ink, "middle"))
                height += STATE
            self._put_chips(lane, layer, x, y + height + 4, BOX)

    def _box(self, box: Box, name: str, fill: str, border: str, here: Sequence[Deed], held: bool) -> None:
        """A box with its name, what batches it is about, and its numbers; dashed and empty where nothing happens."""
        (x, y, width, height), (middle, centre) = box, box.middle
        if not held:
            self.scene.add(Rect(x + 0.5, y + 0.5, width - 1, height - 1, "none", EDGE, dash="4 3", radius=4))
            self.scene.add(Text(middle, centre, name, TEXT, SOFT, "middle"))
            return
        self.scene.add(Rect(x, y, width, height, fill, border, radius=4))
        batches, ink = frozenset[int]().union(*[deed.event.batches for deed in here]), ink_on(fill)
        about = batches and height > 40
        self.scene.add(Text(middle, centre - (10 if about else 0), name, TEXT, ink, "middle", bold=True))
        if about:
            words = fitting(width - 6, numbered("batch", batches), fit(ranges(batches), width - 6, SMALL), size=SMALL)
            self.scene.add(Text(middle, centre + 5, words, SMALL, ink, "middle"))
        # Arrows reach high boxes from above: there the numbers stand on the lower edge.
        self._pill(x, y + height + 1 if about else y, here)

    def _pill(self, x: float, y: float, here: Sequence[Deed], anchor: str = "start") -> None:
        """The numbers of what happens here, over an edge of its box: of many the first two and the last."""
        if not here:
            return
        numbers = [str(deed.number) for deed in here]
        words = ", ".join(numbers if len(numbers) <= 3 else [*numbers[:2], "…", numbers[-1]])
        width = max(18.0, text_width(words, SMALL) + 10)
        left = x - 4 if anchor == "start" else x + 6 - width
        self.scene.add(Rect(left, y - 8, width, 16, INK, TRACK, radius=8))
        self.scene.add(Text(left + width / 2, y, words, SMALL, ink_on(INK), "middle", bold=True))

    def _put_chips(self, lane: str, place: int, x: float, y: float, width: float) -> None:
        fill, border = LOOKS["collective"].pair
        for chip in self._called(lane, place):
            here = [deed for deed in self.at[lane, place] if deed.chip == chip]
            room = BETWEEN + 2 * GAP if width < BOX else width  # between layers there is some for a long word
            words = fit(chip, room - 4, SMALL)
            wide = max(width, text_width(words, SMALL) + 6)
            self.scene.add(Rect(x - (wide - width) / 2, y, wide, CHIP, fill, border, radius=4))
            self.scene.add(Text(x + width / 2, y + 7.5, words, SMALL, ink_on(fill), "middle", bold=True))
            self._pill(x + width, y + CHIP + 3, here, "end")
            y += CHIPS

    def _between(self, place: int) -> None:
        """Paint what lies between layers: an activation, and below it its gradient."""
        x = self.x["between", place]
        for kind, lane, name in (("activation", "forward", "act"), ("activation gradient", "backward", "grad")):
            y, height = self.lanes[lane]
            here = [deed for deed in self.at.get((kind, place), ()) if not deed.chip]
            made = ("forward", place - 1) in self.at if lane == "forward" else place in self.back
            exists = bool(self.at.get((kind, place))) or made
            self._box(Box(x, y + 5, BETWEEN, height - 10), f"{name} {place}", KINDS[kind], SOFT, here, exists)
            self._put_chips(kind, place, x - 6, y + height + 2, BETWEEN + 12)

    def _loss(self) -> None:
        here, last = self.at["loss", 0], self.x.get(("between", self.trace.layers))
        if not here or last is None:
            return
        x = self.x["loss", 0]
        y, low = self.lanes["forward"].middle, self.lanes["backward"].middle
        self._box(Box(x, y - 12, LOSS, low - y + 24), "loss", *LOOKS["loss"].pair, here, True)
        self._level(last + BETWEEN, x - 1, y)
        self._level(x, last + BETWEEN + 1, low)
