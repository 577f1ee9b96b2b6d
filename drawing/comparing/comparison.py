"""Schedules one under another on one time axis, with their figures and the place where they first differ.

All in one picture, or in parts, for a page or for slides: the runs are laid out once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple, cast

from drawing.canvas.layout import Entry, legend
from drawing.canvas.palette import ALARM, INK, SOFT
from drawing.canvas.picture import Picture
from drawing.canvas.scene import TEXT, Poly, Rect, Scene, Text, fit, text_width, wrapped
from drawing.comparing.bars import table
from drawing.timeline.boxes import size
from drawing.timeline.memory import kinds_of, memory_at_peak
from drawing.timeline.paint import LEFT, Panel, Rows, heading
from drawing.timeline.schedule import WIDTH, note, panels_of, trace_of
from lib.analysis.difference import Difference, difference, figures_of, lesson, said, unequal
from lib.analysis.figures import peak
from lib.trace.trace import Trace, nothing_to

TITLE: Final = 17
EDGE_ROOM: Final = 24.0  # pixels beside all but timelines
LINES: Final = 8
"""Most lines about a run that went wrong; the rest is in the words of the command."""
Placed = tuple[Panel, int, Difference | None]  # a drawn run, its number, and where it first differs
NAMED: Final = 6  # most runs named in a headline; beyond that, it says how many there are


class Compared(NamedTuple):
    """A run to compare, under its name, with a longer `title`. A failed run goes up to its failure; without any run,
    `trace` is None. `said` is what went wrong. A run that does not count has figures, and is never the best. `task` is
    its puzzle: runs of different puzzles differ from the start, so the place where they first do says nothing."""

    name: str
    trace: Trace | None
    said: str = ""
    counts: bool = True
    title: str = ""
    task: str = ""


def compare(*runs: Any, fold: bool = True, **named: Any) -> Picture:
    """Draw runs (Traces, Models or lists of Models) under each other: `compare(ddp=out1, fsdp=out2)`.

    Names come from the keywords, or from the keys of a dict given alone. Ranks that do the same at the same times share
    a row, unless `fold` is False.

    >>> async def work(model):
    ...     model.forward(0, model.get_activation([0]), model.load_weights(0)[0])
    >>> run = simulate(work, layers=1)
    >>> print(compare(mine=run, theirs=run).words.splitlines()[0])
    mine: end 1 · peak ...
    """
    found = _named("compare", runs, named)
    return found if isinstance(found, Picture) else Comparison(found, fold=fold).picture()


def draw_figures(*runs: Any, **named: Any) -> Picture:
    """Draw only the figures of runs as bars beside each other: time, values alive at the peak, traffic.

    Names come as for `compare`.
    """
    found = _named("draw_figures", runs, named)
    return found if isinstance(found, Picture) else Comparison(found).figures()


def _named(call: str, runs: Sequence[Any], named: Mapping[str, Any]) -> list[Compared] | Picture:
    """The runs with their names; or, where there is nothing to draw, a picture that says why."""
    if len(runs) == 1 and isinstance(runs[0], Mapping):
        named = {str(key): run for key, run in cast("Mapping[Any, Any]", runs[0]).items()} | {**named}
        runs = ()
    labelled = [*((f"run {number}", run) for number, run in enumerate(runs, 1)), *named.items()]
    if not labelled:
        return note("nothing to draw yet")
    for name, run in labelled:
        if (why := nothing_to("draw", run, name)) is not None:
            return note(why)
    traces = [(name, trace_of(run, call)) for name, run in labelled]
    return [Compared(name, trace, task=trace.puzzle or "") for name, trace in traces]


def together(names: Sequence[str]) -> str:
    """Return names in a row, "ddp, fsdp and gpipe"; where they are many, the first and the number of others."""
    if len(names) > NAMED:
        names = [*names[: NAMED - 1], f"{len(names) - NAMED + 1} others"]
    if any(" and " in name for name in names):
        return ", ".join(names)
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1]))) if names else ""


class Comparison:
    """Runs drawn beside each other: in one picture, or in parts as wide as you like, all on one time axis.

    Memory is that of the rank with the highest peak. `fold`: ranks that are alike share a row. The `title` stands
    above everything in one picture; by default it is the names of the runs.
    """

    def __init__(self, runs: Sequence[Compared], *, width: float = WIDTH, fold: bool = True, title: str = "") -> None:
        self.runs, self.width, self.fold, self.title = tuple(runs), width, fold, title
        shown = [run for run in runs if run.trace is not None]
        self.drawn = [(run.name, run.trace) for run in runs if run.trace is not None]
        self.traces = [trace for _, trace in self.drawn]
        self.related = [not shown[0].task or not run.task or run.task == shown[0].task for run in shown[1:]]
        """Whether each run may do the same as the first, so that it is worth saying where it does not."""
        self.gaps = [
            difference(self.traces[0], trace) if alike else None
            for trace, alike in zip(self.traces[1:], self.related, strict=True)
        ]
        # The first schedule is marked where it differs from the next one that does, the others where they do from it.
        self.marks = [next((gap for gap in self.gaps if gap is not None), None), *self.gaps]
        self.highest = max((float(peak(trace).elements) for trace in self.traces), default=0.0)
        self.lesson = lesson(self.drawn) if all(run.counts for run in self.runs) else None

    def picture(self) -> Picture:
        """Draw all of it in one picture."""
        scene = Scene(self.width, 0)
        y = self._table(scene, self._headline(scene)) + 8
        y = self._legend(scene, y)
        for placed, run in zip(self._laid[0], self.runs, strict=True):
            y = self._run(scene, placed, run, y) + 16
        y = self._differences(scene, y)
        scene.height = y + 6
        words = [*map(_words_of, self.runs), *filter(None, (unequal(self.drawn), self.lesson))]
        return Picture(scene, "\n".join([*words, *(said(gap, first, name) for gap, first, name in self._parted)]))

    def figures(self) -> Picture:
        """Draw only the figures, as bars."""
        scene = Scene(self.width, 0)
        y = self._table(scene, self._headline(scene))
        scene.height = legend(scene, EDGE_ROOM, y + 12, self.width - 12, kinds_of(self.traces)) + 6
        return Picture(scene, "\n".join(f"{name}: {figures_of(trace)}" for name, trace in self.drawn))

    def parts(self) -> tuple[Picture, list[Picture]]:
        """Return the legend, and a picture of each run under its name, to stand under each other."""
        pictures: list[Picture] = []
        for placed, run in zip(self._laid[0], self.runs, strict=True):
            part = Scene(self.width, 0)
            part.height = self._run(part, placed, run, 10) + 8
            pictures.append(Picture(part, _words_of(run)))
        scene = Scene(self.width, 0)
        scene.height = self._legend(scene, 14)
        return Picture(scene, "what the colours mean"), pictures

    def differences(self) -> list[str]:
        """Say how each run differs from the first: what it has less or more of, and where they first part, if they
        belong to one puzzle."""
        found: list[str] = []
        counts = [run.counts for run in self.runs if run.trace is not None]
        for place, (gap, (name, trace)) in enumerate(zip(self.gaps, self.drawn[1:], strict=True), 1):
            first = self.drawn[0]
            taught = lesson([first, (name, trace)]) if counts[0] and counts[place] else None
            parting = f"{said(gap, first[0], name)}." if self.related[place - 1] else None
            found.append(" ".join(filter(None, (taught, parting))))
        return found

    @property
    def _parted(self) -> list[tuple[Difference | None, str, str]]:
        """Where each run of the same puzzle differs from the first, and the names of both."""
        every = zip(self.drawn[1:], self.gaps, self.related, strict=True)
        return [(gap, self.drawn[0][0], name) for (name, _), gap, related in every if related]

    def _headline(self, scene: Scene) -> float:
        """The names and the size, or that the sizes differ; and the lesson. Returns where it ends."""
        title = self.title or together([run.name for run in self.runs])
        scene.add(Text(EDGE_ROOM, 26, fit(title, self.width - 260, TITLE), TITLE, INK, bold=True))
        y, room = 48.0, self.width - 2 * EDGE_ROOM
        if (warning := unequal(self.drawn)) is not None:
            y = scene.paragraph(EDGE_ROOM, y, warning, room, 17, SOFT)
        elif self.traces:
            scene.add(Text(self.width - EDGE_ROOM, 26, size(self.traces[0]), TEXT, SOFT, "end"))
        if self.lesson is not None:
            y = scene.paragraph(EDGE_ROOM, y, self.lesson, room, 17)
        return y + 4

    def _table(self, scene: Scene, y: float) -> float:
        """The runs that reached their end. Runs of different sizes have no winner, and a run that does not count never
        wins: one that leaves something out is over sooner."""
        whole = [(run, run.trace) for run in self.runs if run.trace is not None and run.trace.error is None]
        shown = [(run.name, trace) for run, trace in whole]
        valid = [unequal(shown) is None and run.counts for run, _ in whole]
        return table(scene, shown, EDGE_ROOM, self.width - EDGE_ROOM, y, valid) if shown else y

    @cached_property
    def _laid(self) -> tuple[list[Placed | None], list[Entry]]:
        """The panels of the runs, laid out once (None for one that has no Trace), and what their colours mean."""
        if not self.traces:
            return [None] * len(self.runs), []
        shown, entries = panels_of(self.width, self.traces, fold=self.fold)
        drawn = enumerate(zip(shown, self.marks, strict=True))
        placed = iter((panel, number, gap) for number, (panel, gap) in drawn)
        return [None if run.trace is None else next(placed) for run in self.runs], entries

    def _legend(self, scene: Scene, y: float) -> float:
        if not self.traces:
            return y
        y = legend(scene, LEFT, y, self.width - 12, self._laid[1])
        return 4 + legend(scene, LEFT, y, self.width - 12, kinds_of(self.traces))

    def _run(self, scene: Scene, placed: Placed | None, run: Compared, y: float) -> float:
        if placed is None:
            scene.add(Text(LEFT, y + 8, fit(run.name, self.width - LEFT - 10, TEXT), TEXT, INK, bold=True))
            return self._message(scene, run, y + 26)
        panel, number, gap = placed
        y = self._message(scene, run, heading(scene, run.title or run.name, "", y) if run.name else y + 4)
        below = len(scene.marks)
        rows = panel.rows(scene, y)
        if gap is not None and gap.rank in rows.tops:
            _mark(scene, below, panel, rows, gap, min(number, 1))
        y = panel.numbers(scene, rows)
        return memory_at_peak(scene, panel.trace, panel.axis, self.highest, y) if self.highest else y

    def _message(self, scene: Scene, run: Compared, y: float) -> float:
        room = self.width - LEFT - 16
        lines = [fit(part, room, TEXT) for line in run.said.splitlines() for part in wrapped(line, room, TEXT)]
        if len(lines) > LINES:
            lines[LINES - 1 :] = ["…"]
        for line in lines:
            scene.add(Text(LEFT, y + 4, line, TEXT, ALARM))
            y += 17
        return y + (8 if lines else 0)

    def _differences(self, scene: Scene, y: float) -> float:
        """Where runs differ: on one line where it fits, else with what each side does on a line of its own."""
        room = self.width - LEFT - 10
        for gap, first, name in self._parted:
            parts = [said(gap, first, name)]
            if gap is not None and text_width(parts[0], TEXT) > room:
                parts = [f"{gap.head(first, name)}:", f"– {gap.side(first, 0)}", f"– {gap.side(name, 1)}"]
            for part in parts:
                scene.add(Text(LEFT, y + 6, fit(part, room, TEXT), TEXT, INK if gap is None else SOFT))
                y += 18
            y += 5
        return y


def _words_of(run: Compared) -> str:
    figures = "" if run.trace is None else figures_of(run.trace)
    wrong = " ".join(run.said.split())
    return f"{run.name}: {' · '.join(filter(None, (figures, wrong)))}"


def _mark(scene: Scene, below: int, panel: Panel, rows: Rows, gap: Difference, side: int) -> None:
    """Point at the event where a schedule begins to differ, or at the moment where it has none: a line behind the
    boxes (`below` is how many marks lie under it), and a frame around the box."""
    axis, top, x = panel.axis, rows.tops[gap.rank], panel.axis.x(gap.time)
    for box in panel.timeline.boxes:
        if box.number == gap.numbers[side] and rows.tops[box.rank] == top and box.look != "wait":
            x, (y, height) = axis.x(box.start), rows.lane(box.rank, box.lane)
            width = max(2.0, axis.x(box.end) - x)
            scene.add(Rect(x - 1.5, y - 1.5, width + 2.2, height + 3, "none", INK, 2, radius=1))
    high = min(rows.tops.values())
    scene.marks.insert(below, Poly(((x, high - 7), (x, rows.bottom + 4)), stroke=INK, dash="2 2"))
    scene.add(Poly(((x - 5, high - 9), (x + 5, high - 9), (x, high - 2)), fill=INK))
