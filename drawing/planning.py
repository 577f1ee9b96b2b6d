"""Pictures of plans: bytes beside a GPU's memory, the step of a pipeline, many plans, predictions, and the number of
tokens that hides communication."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf, log2, log10
from typing import Any, Final, NamedTuple, cast

from drawing.canvas import palette
from drawing.canvas.layout import Entry, legend, listed, swatch
from drawing.canvas.palette import ACCENT, ALARM, EDGE, GOOD, INK, KINDS, MINE, PAPER, SOFT, TINTS, TRACK, mix
from drawing.canvas.picture import Picture
from drawing.canvas.scene import SMALL, TEXT, Poly, Rect, Scene, Text, fit, hatch, text_width
from drawing.comparing.bars import Part, stack
from drawing.comparing.plot import LEFT, WIDTH, Frame, Labels, chart, front_line, numbers
from drawing.timeline.paint import banded
from lib.errors.wording import exact
from lib.plan.candidates import Candidate
from lib.plan.records import GIB
from lib.plan.resources import Memory, hides_from
from lib.plan.timing import Span


def _require(things: object, kind: type[Any], said: str) -> None:
    """Raise ValueError, saying what a function takes, unless things, or the values of a mapping, are one or more of a
    kind."""
    found = cast("Mapping[Any, object]", things).values() if isinstance(things, Mapping) else things
    every = [*cast("Iterable[object]", found)] if isinstance(found, Iterable) else []
    if not every or not all(isinstance(one, kind) for one in every):
        raise ValueError(f"{said}; got {things!r:.80}")


def _titled(title: str) -> Scene:
    return Scene(WIDTH, 0, [Text(20, 24, fit(title, WIDTH - 40, TEXT + 2), TEXT + 2, INK, bold=True)])


MEMORY_LOOKS: Final = {
    "weights": KINDS["weight"],
    "gradients": KINDS["weight gradient"],
    "optimizer": KINDS["optimizer state"],
    "activations": KINDS["activation"],
    "logits": KINDS["activation gradient"],
}
"""The colours of the kinds of bytes: those of the five kinds of value."""
BAR, HIGH = 30, 18  # pixels from one bar to the next, and the height of a bar


def draw_memory(plans: Mapping[str, Memory], limit: float, title: str = "Memory of the GPU that holds most") -> Picture:
    """Draw the memory of plans by name, one below another, with the `limit` in bytes as a line."""
    said = "draw_memory takes plans by name, with their Memory as memory_of gives it, and a limit in bytes"
    _require(plans, Memory, said)
    if not isinstance(limit, int | float) or not 0 < limit < inf:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"{said}; got the limit {limit!r:.80}")
    scene = _titled(f"{title}")
    top = legend(scene, 20, 42, WIDTH - 20, [swatch(colour, text=kind) for kind, colour in MEMORY_LOOKS.items()]) + 12
    left = 40 + min(220.0, max(text_width(f"{name}", TEXT) for name in plans))
    scale, y = (WIDTH - left - 110) / max(limit, *(memory.total for memory in plans.values())), top
    for name, memory in plans.items():
        scene.add(Text(left - 10, y + HIGH / 2, fit(f"{name}", left - 30, TEXT), TEXT, INK, "end"))
        parts: list[Part] = []
        for kind, size in zip(memory._fields, memory, strict=True):
            labels = f"{kind} {size / GIB:.1f}", f"{size / GIB:.1f}"
            parts.append(Part(size, MEMORY_LOOKS[kind], labels=labels, title=f"{kind}: {size / GIB:.2f} GiB"))
        end, over = stack(scene, parts, left, y, scale, HIGH), memory.total > limit
        words = f"{memory.total / GIB:.1f} GiB"
        scene.add(Text(end + 8, y + HIGH / 2, words, TEXT, ALARM if over else INK, bold=over))
        y += BAR
    x = left + scale * limit
    scene.add(Poly(((x, top - 6), (x, y)), stroke=MINE, line=1.6, dash="4 3"))
    scene.add(Text(x, y + 9, f"{limit / GIB:.0f} GiB of a GPU", SMALL, SOFT, "middle"))
    scene.add(Rect(left - 1, top - 6, 1, y - top + 6, SOFT))
    scene.height = y + 26
    said = "; ".join(f"{name}: {memory}" for name, memory in plans.items())
    return Picture(scene, f"Memory of the GPU that holds most, of {limit / GIB:.0f} GiB. {said}.")


ROW: Final = 22
MOST: Final = 20_000  # most passes in a picture
PASSES: Final = {"F": "forward", "B": "backward", "I": "backward_input", "W": "backward_weight"}
OPEN: Final = {
    "tp": ("tensor", TINTS["communication"]),
    "cp": ("context", TINTS["shared"]),
    "ep": ("expert", TINTS["collective"]),
    "fsdp": ("FSDP", TINTS["fill"]),
}
"""Communication inside a pass that no work hides: its name, and its colours."""


def draw_plan(spans: Sequence[Span], title: str) -> Picture:
    """Draw the passes of a step (`lib.plan.timing.timeline`), a line for each rank of its pipeline, as all ranks of a
    stage are alike. ValueError for none, or for too many to be seen."""
    said = f"draw_plan draws 1 to {MOST:,} passes, as timeline(model, cluster, plan) of lib.plan.timing gives them"
    _require(spans, Span, said)
    if len(spans) > MOST:
        raise ValueError(f"{said}; got {len(spans):,}")
    ranks, stages = 1 + max(span.rank for span in spans), 1 + max(span.stage for span in spans)
    scene, end = _titled(f"{title}"), max(span.end for span in spans)
    entries: list[Entry] = []
    own = palette.layer_colour(0, stages)
    for name in (name for kind, name in PASSES.items() if any(span.kind == kind for span in spans)):
        marks, wide, words = swatch(*palette.fill_and_border(name, own), palette.PASSES[name].words)
        entries.append(([*marks, *banded(palette.band(name), 0, 0, wide, 12, own)], wide, words))
    for name, tint in (look for kind, look in OPEN.items() if any(kind in span.exposed for span in spans)):
        marks, wide, words = swatch(*tint, f"{name}, in the open")
        entries.append(([*marks, *hatch(0, 0, 16, 12, tint[1], line=1.2)], wide, words))
    top = legend(scene, 20, 42, WIDTH - 20, entries) + 8
    frame = Frame(84, top, WIDTH - 20, top + ROW * ranks, (0, 0), (end, 1))
    moments = [(moment, exact(round(moment, 6))) for moment in numbers(0, end, 8)]
    frame.across(scene, moments, "milliseconds", grid=True)
    for rank in range(ranks):
        y = top + ROW * rank
        scene.add(Rect(frame.left, y + 2, frame.right - frame.left, ROW - 4, TRACK))
        scene.add(Text(frame.left - 10, y + ROW / 2, f"pp rank {rank}", TEXT, INK, "end"))
    for span in spans:
        name, own = PASSES[span.kind], palette.layer_colour(span.stage, stages)
        (fill, border), x, y = palette.fill_and_border(name, own), frame.x(span.start), top + ROW * span.rank + 2
        told = ", ".join(f"{OPEN[kind][0]} {share:.0%}" for kind, share in span.exposed.items())
        words = f"{palette.PASSES[name].words} of microbatch {span.microbatch}, stage {span.stage}: "
        words += f"{span.end - span.start:.4g} ms from {span.start:.5g}" + (f"; in the open: {told}" if told else "")
        right = frame.x(span.end) - 0.4
        wide = right - x
        scene.add(Rect(x, y, max(wide, 0.3), ROW - 4, fill, border if wide > 3.6 else "none", title=words))
        if wide > 1.6:
            scene.add(*banded(palette.band(name), x, y, wide, ROW - 4, own))
        for kind, share in span.exposed.items() if wide > 3.6 else ():
            right -= (part := share * (wide + 0.4))
            if part > 1:
                scene.add(*hatch(right, y, part, ROW - 4, OPEN[kind][1][1], line=1.2))
    scene.add(frame.edge())
    scene.height = frame.bottom + 42
    return Picture(scene, f"{title}. {ranks} lines, {len(spans):,} passes, {end:.5g} ms.")


FEWER: Final = 0.9
"""An unbeaten plan gets a number where it needs less than this share of the memory of the last plan with one."""
LINE: Final = 18


def draw_plans(
    front: Sequence[Candidate], others: Sequence[Candidate] = (),
    marked: Mapping[str, Candidate] | None = None, title: str = "Plans that fit",
) -> Picture:  # fmt: skip
    """Draw plans by seconds and GiB: the `front` of unbeaten plans, up to twice as long as the fastest and with a row
    below, `others` as small dots, and those `marked`, by name, such as published plans."""
    for some in (front, others or front, marked or front):
        _require(some, Candidate, "draw_plans takes plans that fit, as the front and the candidates of a search are")
    named = dict(marked or {})
    low, high = front[0].seconds, max(2 * front[0].seconds, *(one.seconds for one in named.values()), 0)
    front, near = ([one for one in some if one.seconds <= high] for some in (front, others))
    numbered: list[Candidate] = []
    for one in front:
        if not numbered or one.memory < FEWER * numbered[-1].memory:
            numbered.append(one)
    most = max(one.memory for one in (*near, *front, *named.values())) / GIB
    below = 62 + LINE * (len(numbered) + 1)
    scene, frame = chart(f"{title}", 240, below, (low - 0.03 * (high - low), 0.0), (high, 1.1 * most))
    scene.add(frame.edge())
    frame.across(scene, [(x, exact(x)) for x in numbers(frame.low[0], high, 8)], "seconds a step")
    frame.up(scene, [(y, exact(y)) for y in numbers(0, 1.1 * most, 6)], "GiB of the GPU that holds most")

    def place(one: Candidate) -> tuple[float, float]:
        return one.seconds, one.memory / GIB

    scene.add(*(frame.dot(place(one), 2, EDGE, "none", title=_words(one)) for one in near))
    front_line(scene, frame, map(place, front))
    labels, top = Labels(frame), frame.bottom + 46
    for number, one in enumerate(numbered, 1):
        x, y = frame.at(*place(one))
        scene.add(frame.dot(place(one), 8, ACCENT, PAPER, title=_words(one)))
        scene.add(Text(x, y, str(number), SMALL, palette.ACCENT_INK, "middle", bold=True))
        scene.add(Text(LEFT - 10, top + LINE * (number + 0.5), str(number), TEXT, ACCENT, "end", bold=True))
        labels.take(place(one), 9)
    for name, one in named.items():
        scene.add(frame.dot(place(one), 5.5, MINE, PAPER, 1.6, f"{name}: {_words(one)}"))
        labels.write(scene, name, place(one), bold=True)
    cells = [(one.plan.mesh, f"{one.seconds:.2f} s", f"{one.memory / GIB:.1f} GiB") for one in numbered]
    scene.add(*listed([("", "a step", "memory"), *cells], (WIDTH - LEFT - 224, 90, 100), LINE).at(LEFT, top))
    told = [*map(_words, numbered), *(f"{name}: {_words(one)}" for name, one in named.items())]
    return Picture(scene, f"{title}. {'; '.join(told)}.")


def _words(one: Candidate) -> str:
    return f"{one.plan.mesh}: {one.seconds:.4g} s, {one.memory / GIB:.3g} GiB"


class Prediction(NamedTuple):
    """A run with its step in seconds, predicted and published; `look` is "fitted", "held out" or "fails"."""

    name: str
    predicted: float
    published: float
    look: str


WITHIN: Final = 0.1
LOOKS: Final = {"fitted": (PAPER, MINE), "held out": (ACCENT, PAPER), "fails": (ALARM, PAPER)}


def draw_predictions(runs: Sequence[Prediction], title: str = "Seconds of a step, predicted and published") -> Picture:
    """Draw predicted over published seconds, on logarithmic axes, with a band of 10 percent. Fitted runs are hollow,
    held-out ones filled, and those where the model fails red and named."""
    _require(runs, Prediction, "draw_predictions takes one Prediction or more")
    every = [value for run in runs for value in (run.predicted, run.published)]
    low, high, wide = log10(min(every)) - 0.1, log10(max(every)) + 0.1, log10(1 + WITHIN)
    scene, frame = chart(f"{title}", 486, 50, (low, low), (high, high))
    frame = frame._replace(top=frame.top + 26)
    entries = [swatch(fill, border, name) for name, (fill, border) in LOOKS.items()]
    legend(scene, LEFT, 40, WIDTH - 24, [*entries, swatch(mix(GOOD, PAPER, 0.8), text="within 10 percent")])
    band = [(low, low), (low, low + wide), (high - wide, high), (high, high), (high, high - wide), (low + wide, low)]
    scene.add(Poly([frame.at(*place) for place in band], fill=mix(GOOD, PAPER, 0.8)))
    scene.add(Poly((frame.at(low, low), frame.at(high, high)), stroke=GOOD))
    seconds = [digit * 10.0**exponent for exponent in range(int(low) - 1, int(high) + 1) for digit in (1, 2, 5)]
    marks = [(log10(value), exact(round(value, 6))) for value in seconds if low < log10(value) < high]
    frame.across(scene, marks, "published, in seconds", grid=True)
    frame.up(scene, marks, "predicted, in seconds")
    scene.add(frame.edge())
    labels = Labels(frame)
    for run in sorted(runs, key=lambda run: [*LOOKS].index(run.look)):
        place, words = (log10(run.published), log10(run.predicted)), f"predicted {run.predicted:.4g} s"
        words = f"{run.name}: {words}, published {run.published:.4g} s"
        scene.add(frame.dot(place, 3.5, *LOOKS[run.look], 1.2, words))
        labels.take(place, 4)
    for run in runs:
        if run.look == "fails":
            labels.write(scene, run.name, (log10(run.published), log10(run.predicted)), ALARM)
    worst = max(runs, key=lambda run: abs(log10(run.predicted / run.published)))
    return Picture(scene, f"{title}: {len(runs)} runs; the farthest is {worst.name}.")


RIGHT: Final = 190.0
TALLEST: Final = 64.0


def draw_roofline(curves: Mapping[str, Sequence[tuple[int, float]]], title: str) -> Picture:
    """Draw the curves of `lib.plan.resources.roofline`, on axes in logarithms of base 2: below the line at 1
    communication takes longer than the work, and a ring marks where it no longer does. ValueError without a curve, or
    for a curve of fewer than two points."""
    takes = "draw_roofline draws curves of two points or more, as lib.plan.resources.roofline gives them"
    _require(curves, list, takes)
    if any(len(curve) < 2 for curve in curves.values()):
        raise ValueError(takes)
    logs = {
        name: [(log2(count), log2(min(TALLEST, ratio))) for count, ratio in curve] for name, curve in curves.items()
    }
    heights = [y for curve in logs.values() for _, y in curve]
    tokens = [count for count, _ in next(iter(curves.values()))]
    low, high = min([-1.0, *heights]) - 0.3, max([1.0, *heights]) + 0.3
    scene, frame = chart(f"{title}", 250, 48, (log2(tokens[0]), low), (log2(tokens[-1]), high), RIGHT)
    one = frame.y(0)
    scene.add(Rect(LEFT, one, frame.right - LEFT, frame.bottom - one, TRACK))
    frame.across(scene, [(log2(count), f"{count:,}") for count in tokens], "tokens a GPU", grid=True)
    powers = [(power, exact(2.0**power)) for power in range(int(low), int(high) + 1)]
    frame.up(scene, powers, "work over what is sent")
    scene.add(Poly(((LEFT, one), (frame.right, one)), stroke=palette.BOUND, line=1.6))
    scene.add(Text(frame.right - 6, one + 10, "below: what is sent is seen", SMALL, SOFT, "end"), frame.edge())
    ends: list[tuple[float, int, str]] = []
    for number, (name, curve) in enumerate(logs.items()):
        colour, start = palette.origin_colour(number, len(curves)), hides_from([*curves[name]])
        scene.add(Poly([frame.at(*place) for place in curve], stroke=colour, line=2.4))
        always = start == tokens[0]
        words = "never" if start is None else "always" if always else f"from {start:,} tokens"
        ends.append((frame.y(curve[-1][1]), number, f"{name}: {words}"))
        if start is not None and not always:
            scene.add(frame.dot((log2(start), 0), 5, PAPER, colour, 2, f"{name} hides it {words}"))
    frame.names(scene, ends, len(curves), RIGHT - 30)
    said = "; ".join(words for _, _, words in ends)
    return Picture(scene, f"{title}. What is sent is hidden, {said}.")
