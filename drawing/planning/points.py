"""Plans as points: many plans by time and memory with those that nothing beats, and predictions beside what was
published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log10
from typing import Final, NamedTuple

from drawing.canvas.layout import legend, listed, swatch
from drawing.canvas.palette import ACCENT, ACCENT_INK, ALARM, EDGE, GOOD, GRID, INK, MINE, NONE, PAPER, SOFT, mix
from drawing.canvas.picture import Picture
from drawing.canvas.scene import SMALL, TEXT, Poly, Rect, Scene, Text, fit
from drawing.comparing.plot import Frame, Labels, front_line, scales
from drawing.planning import require
from lib.errors.wording import exact
from lib.plan.candidates import Candidate
from lib.plan.records import GIB

__all__ = ["Prediction", "draw_plans", "draw_predictions"]

WIDTH, LEFT, TOP, ROW = 840, 66.0, 40.0, 18


FEWER: Final = 0.9
"""Of plans that nothing beats one gets a number where it needs less than this share of the memory of the one before."""


def draw_plans(
    front: Sequence[Candidate],
    others: Sequence[Candidate] = (),
    marked: Mapping[str, Candidate] | None = None,
    title: str = "Plans that fit",
) -> Picture:
    """Draw plans by seconds and GiB: the `front` of those that nothing beats, up to twice as long as the fastest and
    with a row below, `others` as small dots, and what is `marked` by its name, such as what was published."""
    said = "draw_plans takes plans that fit, as the front and the candidates of a search are"
    require(front, Candidate, said)
    for some in (others, marked):
        if some:
            require(some, Candidate, said)
    named = dict(marked or {})
    low, high = front[0].seconds, max(2 * front[0].seconds, *(one.seconds for one in named.values()), 0)
    front = [one for one in front if one.seconds <= high]
    numbered: list[Candidate] = []
    for one in front:
        if not numbered or one.memory < FEWER * numbered[-1].memory:
            numbered.append(one)
    near = [one for one in others if one.seconds <= high]
    most = max(one.memory for one in (*near, *front, *named.values())) / GIB
    frame = Frame(LEFT, TOP, WIDTH - 24, TOP + 240, (low - 0.03 * (high - low), 0.0), (high, 1.1 * most))
    scene = Scene(WIDTH, frame.bottom + 62 + ROW * (len(numbered) + 1))
    scene.add(Text(LEFT, 22, fit(f"{title}", WIDTH - LEFT - 24, TEXT + 2), TEXT + 2, INK, bold=True))
    scene.add(Rect(frame.left, frame.top, frame.right - frame.left, frame.bottom - frame.top, NONE, EDGE))
    scales(scene, frame, "seconds a step", "GiB of the GPU that holds most")
    for one in near:
        x, y = frame.at(one.seconds, one.memory / GIB)
        scene.add(Rect(x - 2, y - 2, 4, 4, EDGE, radius=2, title=_words(one)))
    front_line(scene, frame, [(one.seconds, one.memory / GIB) for one in front])
    labels = Labels(frame, ())
    for number, one in enumerate(numbered, 1):
        x, y = frame.at(one.seconds, one.memory / GIB)
        scene.add(Rect(x - 8, y - 8, 16, 16, ACCENT, PAPER, 1, radius=8, title=_words(one)))
        scene.add(Text(x, y, str(number), SMALL, ACCENT_INK, "middle", bold=True))
        labels.taken.append((x - 9, y - 9, x + 9, y + 9))
    for name, one in named.items():
        x, y = frame.at(one.seconds, one.memory / GIB)
        scene.add(Rect(x - 5.5, y - 5.5, 11, 11, MINE, PAPER, 1.6, radius=5.5, title=f"{name}: {_words(one)}"))
        labels.write(scene, name, x, y, INK, bold=True)
    cells = [(one.plan.mesh, f"{one.seconds:.2f} s", f"{one.memory / GIB:.1f} GiB") for one in numbered]
    top = frame.bottom + 46
    for number in range(1, len(cells) + 1):
        scene.add(Text(LEFT - 10, top + ROW * (number + 0.5), str(number), TEXT, ACCENT, "end", bold=True))
    scene.add(*listed([("", "a step", "memory"), *cells], (WIDTH - LEFT - 224, 90, 100), ROW).at(LEFT, top))
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


BAND: Final = 0.1
LOOKS: Final = {"fitted": (PAPER, MINE), "held out": (ACCENT, PAPER), "fails": (ALARM, PAPER)}


def draw_predictions(runs: Sequence[Prediction], title: str = "Seconds of a step, predicted and published") -> Picture:
    """Draw predicted over published seconds, both as logarithms, with a band of 10 percent. Fitted runs are hollow,
    held-out ones full, and those where the model fails red and named."""
    require(runs, Prediction, "draw_predictions takes one Prediction or more")
    every = [value for run in runs for value in (run.predicted, run.published)]
    low, high = log10(min(every)) - 0.1, log10(max(every)) + 0.1
    frame = Frame(LEFT, TOP + 26, WIDTH - 24, TOP + 486, (low, low), (high, high))
    scene = Scene(WIDTH, TOP + 536)
    scene.add(Text(LEFT, 22, f"{title}", TEXT + 2, INK, bold=True))
    entries = [swatch(fill, border, name) for name, (fill, border) in LOOKS.items()]
    legend(scene, LEFT, 40, WIDTH - 24, [*entries, swatch(mix(GOOD, PAPER, 0.8), text="within 10 percent")])
    wide = log10(1 + BAND)
    band = [(low, low), (low, low + wide), (high - wide, high), (high, high), (high, high - wide), (low + wide, low)]
    scene.add(Poly([frame.at(*place) for place in band], fill=mix(GOOD, PAPER, 0.8)))
    scene.add(Poly((frame.at(low, low), frame.at(high, high)), stroke=GOOD))
    for exponent in range(int(low) - 1, int(high) + 1):
        for digit in (1, 2, 5):
            value = log10(digit) + exponent
            if not low < value < high:
                continue
            x, y = frame.at(value, value)
            scene.add(
                Poly(((x, frame.top), (x, frame.bottom)), stroke=GRID), Poly(((LEFT, y), (frame.right, y)), stroke=GRID)
            )
            scene.add(Text(x, frame.bottom + 12, exact(round(10**value, 6)), SMALL, SOFT, "middle"))
            scene.add(Text(LEFT - 8, y, exact(round(10**value, 6)), SMALL, SOFT, "end"))
    scene.add(Rect(frame.left, frame.top, frame.right - frame.left, frame.bottom - frame.top, NONE, EDGE))
    scene.add(Text((LEFT + frame.right) / 2, frame.bottom + 30, "published, in seconds", TEXT, SOFT, "middle"))
    scene.add(
        Text(LEFT - 46, (frame.top + frame.bottom) / 2, "predicted, in seconds", TEXT, SOFT, "middle", turned=True)
    )
    labels = Labels(frame, ())
    for run in sorted(runs, key=lambda run: list(LOOKS).index(run.look)):
        x, y = frame.at(log10(run.published), log10(run.predicted))
        fill, border = LOOKS[run.look]
        words = f"{run.name}: predicted {run.predicted:.4g} s, published {run.published:.4g} s"
        scene.add(Rect(x - 3.5, y - 3.5, 7, 7, fill, border, 1.2, radius=3.5, title=words))
        labels.taken.append((x - 4, y - 4, x + 4, y + 4))
    for run in runs:
        if run.look == "fails":
            labels.write(scene, run.name, *frame.at(log10(run.published), log10(run.predicted)), ALARM)
    worst = max(runs, key=lambda run: abs(log10(run.predicted / run.published)))
    return Picture(scene, f"{title}: {len(runs)} runs; the farthest is {worst.name}.")
