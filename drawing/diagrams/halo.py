"""draw_halo: a grid split over its ranks, the rows that each borrows in forward, and where their gradients go."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence, Set
from itertools import product
from typing import Any, Final, NamedTuple

from drawing.canvas.layout import Box, arrow
from drawing.canvas.palette import ALARM, ALARM_PALE, EDGE, INK, PAPER, SOFT, TRACK, mix, origin_colour
from drawing.canvas.picture import Picture
from drawing.canvas.scene import TEXT, Rect, Scene, Text, fit
from drawing.diagrams.tiles import weave
from drawing.timeline.schedule import note, trace_of
from lib.errors.wording import counted, numbered
from lib.trace.trace import Trace, nothing_to
from lib.values.dims import Run, RunSet
from lib.values.operations import COMMUNICATION
from lib.values.values import Activation, ActivationGrad, Value

WIDTH: Final = 840
MARGIN, NAMES, BETWEEN, TOP = 18.0, 150.0, 24.0, 82.0
MOST, PIECES = 32, 2048
ROLES: Final = ("rows", "columns")

Cell = tuple[int, int]
Area = tuple[Run, Run]  # rows and columns
Key = tuple[Area, Area, Area]  # parts of an owner and of a borrower, and what is lent


class Loan(NamedTuple):
    """A loan of one rank to another in forward, for some batches; those for which the borrower has done backward, and
    those for which the owner has the gradient as the sum of both ranks' results."""

    owner: int
    borrower: int
    area: Area
    batches: frozenset[int]
    worked: frozenset[int]
    home: frozenset[int]


def draw_halo(run: Any, layer: int | None = None) -> Picture:
    """Draw the grid that a convolution takes, split over its ranks: the rows that each borrows in forward, and what
    becomes of their gradients in backward.

    `run` is a Trace, or the Models that simulate returned. Without `layer` it is the first convolution. However rows
    travel, by a halo exchange, an all-to-all or messages: those that came and were not there before are borrowed.
    """
    if (why := nothing_to("draw", run)) is not None:
        return note(why)
    trace = trace_of(run, "draw_halo")
    found = [number for number, kind in enumerate(trace.shape.kinds) if kind.name == "convolution"]
    if layer is not None and layer not in found:
        there = f"{numbered('layer', found)} {'is' if len(found) == 1 else 'are'}" if found else "none is"
        raise ValueError(f"draw_halo: layer {layer} is not a convolution; {there}")
    if not found:
        return note("no layer of this run is a convolution")
    if trace.ranks > MOST:
        raise ValueError(f"draw_halo shows up to {MOST} ranks; a smaller run looks the same")
    grid = _Grid(trace, found[0] if layer is None else layer)
    return _Picture(grid).picture() if grid.parts else note(f"no rank works on layer {grid.layer} in this run")


class _Grid:
    """The input of a layer: the parts at rest on each rank, the loans, and the gradients that come home.

    Parts are sets of cells: the grid is cut wherever some value begins or ends, so that a million adjacent rows are one
    cell. Everything is kept by rank and batch.
    """

    def __init__(self, trace: Trace, layer: int) -> None:
        self.trace, self.layer, self.number = trace, layer, trace.shape.of(layer)[0]
        kind = trace.shape.kinds[layer]
        self.sums = [one for one in kind.owes[0] if one.relation and one.of in ROLES]
        self.sizes = [int(kind.dims[name].size) if name in kind.dims else 1 for name in ROLES]
        every = [value for program in trace.programs for value in program.values_of(range(len(program.values)))]
        cuts = [self._runs(value) for value in every if value.layer == self.number - isinstance(value, ActivationGrad)]
        self.ends = [sorted({end for runs in cuts for run in runs[axis] for end in run}) for axis in (0, 1)]
        if max(map(len, self.ends)) > PIECES:
            raise ValueError("draw_halo: these parts are too fine to draw. Longer pieces show the same")
        self.own, self.came, self.took = (defaultdict[tuple[int, int], set[Cell]](set) for _ in range(3))
        self.worked = defaultdict[tuple[int, int, str], RunSet](RunSet)
        self.gradients = defaultdict[tuple[int, int], list[Value]](list)
        self.near = defaultdict[int, set[int]](set)
        workers = {rank for rank, event in trace.events() if event.op == "forward" and event.layer == layer}
        for rank in range(trace.ranks):
            self._read(rank, workers - {rank})
        for at in {*self.took}:
            self.own[at] |= self.took[at] - self.came[at]
        self.loans = [loan for rank in sorted(workers) for loan in self._borrowed(rank)]
        mine, self.parts = defaultdict[int, set[Cell]](set), defaultdict[Area, list[int]](list)
        for (rank, _), cells in self.own.items():
            mine[rank] |= cells
        there = workers | {loan.owner for loan in self.loans}
        for area, rank in sorted((area, who) for who in there for area in self._areas(mine[who])):
            self.parts[area].append(rank)

    def _runs(self, value: Value) -> list[Sequence[Run]]:
        """Its rows and columns; all of them where it lacks the dim."""
        named = zip(map(value.place.named.get, ROLES), self.sizes, strict=True)
        return [RunSet.of(part.pieces).runs if part else [(0, size)] for part, size in named]

    def _cells(self, runs: Iterable[Sequence[Run]]) -> set[Cell]:
        rows, columns = (
            [at for low, high in some for at in range(bisect_left(ends, low), bisect_left(ends, high))]
            for some, ends in zip(runs, self.ends, strict=True)
        )
        return {*product(rows, columns)}

    def _areas(self, cells: Iterable[Cell]) -> list[Area]:
        """Cells as areas: runs of rows that have the same runs of columns."""
        across, down = defaultdict[int, set[int]](set), defaultdict[Run, set[int]](set)
        for row, column in cells:
            across[row].add(column)
        for row, columns in across.items():
            for run in RunSet.of(columns).runs:
                down[run].add(row)
        rows, columns = self.ends
        runs = [(here, there) for there, some in down.items() for here in RunSet.of(some).runs]
        return sorted(((rows[a], rows[b]), (columns[c], columns[d])) for (a, b), (c, d) in runs)

    def _read(self, rank: int, others: Set[int]) -> None:
        """Read a rank's holdings, inputs and results, in the order of its program. `others` work at this layer too."""
        program, here = self.trace.programs[rank], set[int]()
        for event in program.events:
            everybody = {*event.group, rank if event.peer is None else event.peer}
            partners = everybody - {rank} if event.op in COMMUNICATION else set[int]()
            both = [(value, False) for value in program.values_of(event.inputs)]
            both += [(value, True) for value in program.values_of(event.outputs)]
            for (value, new), batch in ((pair, batch) for pair in both for batch in pair[0].place.batches):
                at = rank, batch
                if isinstance(value, Activation) and value.layer == self.number:
                    # The first that comes from a rank of another stage is there to stay.
                    if partners and (batch in here or partners & others):
                        mine, theirs = (self.came, self.own) if new else (self.own, self.came)
                        mine[at] |= self._cells(self._runs(value)) - theirs[at]
                        self.near[rank] |= partners
                    elif event.op == "forward" and event.layer == self.layer:
                        self.took[at] |= self._cells(self._runs(value))
                    here.add(batch)
                elif isinstance(value, ActivationGrad) and value.layer == event.layer == self.layer and not partners:
                    for one in self.sums:
                        rows = RunSet.of(value.place.named[one.of].pieces)
                        self.worked[*at, one.of] = RunSet.union([self.worked[*at, one.of], rows])
                elif isinstance(value, ActivationGrad) and value.layer == self.number - 1:
                    self.gradients[at].append(value)

    def _borrowed(self, rank: int) -> list[Loan]:
        """Return a rank's loans and their owners: where several have an area, one with which it communicates."""
        lent = defaultdict[tuple[int, Cell], set[int]](set)
        owners = [*sorted(self.near[rank]), *sorted({who for who, _ in self.own})]
        for batch in [batch for who, batch in self.took if who == rank]:
            for cell in self.took[rank, batch] - self.own[rank, batch]:
                for owner in [who for who in owners if cell in self.own.get((who, batch), ())][:1]:
                    lent[owner, cell].add(batch)
        alike = defaultdict[tuple[int, frozenset[int]], set[Cell]](set)
        for (owner, cell), batches in lent.items():
            alike[owner, frozenset(batches)].add(cell)
        loans: list[Loan] = []
        for (owner, some), cells in alike.items():
            worked = frozenset(batch for batch in some if any(self.worked[rank, batch, one.of] for one in self.sums))
            for area in self._areas(cells):
                home = frozenset(batch for batch in worked if self._is_home(owner, rank, batch, area))
                loans.append(Loan(owner, rank, area, some, worked, home))
        return sorted(loans, key=lambda loan: (loan.area, loan.owner))

    def _is_home(self, owner: int, borrower: int, batch: int, area: Area) -> bool:
        """Check if the owner has the gradient of an area as the sum of both ranks' results."""
        missing = self._cells([[run] for run in area])
        for value in self.gradients[owner, batch]:
            here = self._cells(self._runs(value)) & missing
            for one in self.sums:
                part, rows = value.place.part(one.dim.name), [place[ROLES.index(one.of)] for place in self._areas(here)]
                if part and not part.whole and one.relation:
                    due = one.relation(RunSet.union(RunSet.span(*run) for run in rows))
                    both = RunSet.union(self.worked[rank, batch, one.of] for rank in (owner, borrower))
                    here = here if due & both <= RunSet.of(part.pieces) else set[Cell]()
            missing -= here
        return not missing


class _Picture:
    """Forward and backward side by side, each with all parts to scale, and borrowed areas in the gaps between them."""

    def __init__(self, grid: _Grid) -> None:
        self.grid, self.ranks, self.scene = grid, grid.trace.ranks, Scene(WIDTH, 0)
        # Of ranks that have the same part, each for batches or features of its own, the loans are drawn as one.
        self.loans = defaultdict[Key, list[Loan]](list)
        for loan in grid.loans:
            of, to = (self._nearest(rank, loan.area) for rank in (loan.owner, loan.borrower))
            self.loans[of, to, loan.area].append(loan)
        # What is borrowed lies in strips beside a part: -1 is the nearest before it, 1 the nearest after it.
        self.strips: dict[tuple[Area, int, Run], int] = {}
        for part, axis in product(grid.parts, (0, 1)):
            runs, (low, high) = sorted({area[axis] for _, to, area in self.loans if to == part}), part[axis]
            before, after = [run for run in runs if run[1] <= low][::-1], [run for run in runs if run[0] >= high]
            for side, some in ((-1, before), (1, after)):
                self.strips |= {(part, axis, run): side * number for number, run in enumerate(some, 1)}
        self.tiled = len({columns for _, columns in grid.parts}) > 1
        names = 0 if self.tiled else NAMES
        self.wide = (WIDTH - 2 * MARGIN - names - BETWEEN) / 2
        self.lefts = [MARGIN + names, MARGIN + names + self.wide + BETWEEN]
        self.thick = 8.0 if len(grid.parts) <= 8 else 5.0
        self.gap = 2 * max(map(abs, self.strips.values()), default=0) * (self.thick + 2) + 17.0
        self.lows: list[dict[Run, tuple[float, float]]] = [{}, {}]
        for axis, (lows, room) in enumerate(zip(self.lows, (256.0, self.wide), strict=True)):
            runs, at = sorted({part[axis] for part in grid.parts}), 0.0
            scale = (room - axis * (len(runs) - 1) * self.gap) / sum(high - low for low, high in runs)
            for low, high in runs:
                lows[low, high] = at, (high - low) * scale
                at += lows[low, high][1] + self.gap

    def _nearest(self, rank: int, area: Area) -> Area:
        """Return the part of a rank that some area is in, or next to."""

        def away(part: Area) -> int:
            return sum(max(mine[0] - its[1], its[0] - mine[1], 0) for mine, its in zip(part, area, strict=True))

        return min((part for part, ranks in self.grid.parts.items() if rank in ranks), key=away)

    def _box(self, part: Area, area: Area, back: int) -> Box:
        """Return the place of an area as a part has it: within it to scale, beside it in strips."""
        found: list[float] = []
        for axis, begin in enumerate((TOP, self.lefts[back])):
            (low, high), (first, last) = part[axis], area[axis]
            at, size = self.lows[axis][low, high]
            if strip := self.strips.get((part, axis, area[axis]), 0):
                away = (abs(strip) - 1) * (self.thick + 2) + 2
                found += [begin + at + (size + away if strip > 0 else -away - self.thick), self.thick]
            else:
                found += [begin + at + size * (first - low) / (high - low), size * (last - first) / (high - low)]
        return Box(found[2], found[0], found[3], found[1])

    def picture(self) -> Picture:
        scene, grid = self.scene, self.grid
        sizes = [counted(size, role[:-1], ",") for role, size in zip(ROLES, grid.sizes, strict=True)]
        title = f"Layer {grid.layer}: {' and '.join(sizes[: 1 + self.tiled])} on {counted(self.ranks, 'rank')}"
        scene.add(Text(MARGIN, 22, title, TEXT + 2, INK, bold=True))
        names = {part: numbered("rank", ranks) for part, ranks in grid.parts.items()}
        for back, words in enumerate(("forward: who lends what", "backward: which gradients go home")):
            scene.add(Text(self.lefts[back], 52, words, TEXT, SOFT))
            for part, ranks in grid.parts.items():
                box = self._box(part, part, back)
                weave(scene, box, [mix(origin_colour(rank, self.ranks), PAPER, 0.65) for rank in ranks])
                scene.add(Rect(*box, "none", EDGE, title=f"{names[part]}: {self._words(part)}"))
            for paint in (self._strips, self._way):  # what goes somewhere lies on all strips
                for key, loans in self.loans.items():
                    paint(key, loans, back)
            for part, name in names.items() if self.tiled or not back else ():
                box = self._box(part, part, back)
                x, anchor = (box.x + box.width / 2, "middle") if self.tiled else (MARGIN, "start")
                name = name if self.tiled else f"{name}: {self._words(part)}"
                name = fit(name, box.width / 2 if self.tiled else NAMES - 6, TEXT)
                scene.add(Text(x, box.y + box.height / 2, name, TEXT, INK, anchor))
        y = TOP + max(map(sum, self.lows[0].values())) + 22
        empty = {*range(self.ranks)}.difference(*grid.parts.values())
        none = f"{numbered('rank', empty).capitalize()} {'has' if len(empty) == 1 else 'have'} no rows."
        told = [*([(none, INK)] if empty else []), *self._told()]
        for words, fill in told:
            y = scene.paragraph(MARGIN, y, words, WIDTH - 2 * MARGIN, 17, fill)
        scene.height = y + 2
        parts = [f"{name}: {self._words(part)}" for part, name in names.items()]
        loans = [f"rank {one.owner} lends rank {one.borrower} {self._words(one.area)}" for one in grid.loans]
        return Picture(scene, f"<{title}. {'; '.join([*parts, *loans])}. {' '.join(words for words, _ in told)}>")

    def _words(self, area: Area, batches: Collection[int] = ()) -> str:
        words = [numbered(role[:-1], RunSet.span(*run)) for role, run in zip(ROLES, area, strict=True)]
        some = [numbered("batch", batches)] if 0 < len(batches) < self.grid.trace.shape.items else []
        return ", ".join([*words[: 1 + self.tiled], *some])

    def _strips(self, key: Key, loans: Sequence[Loan], back: int) -> None:
        """Paint what is lent, at home and where it is borrowed, and a gradient that is still there."""
        home, there = (self._box(part, key[2], back) for part in key[:2])
        owners, borrowers = ([origin_colour(loan[at], self.ranks) for loan in loans] for at in (0, 1))
        came = any(loan.home for loan in loans)
        if came or not back:
            here = (key[0], key[2])
            others = [loan for (of, _, area), some in self.loans.items() if (of, area) == here for loan in some]
            summed = [origin_colour(loan.borrower, self.ranks) for loan in others if back and loan.home]
            weave(self.scene, home, [*owners, *summed])
            weave(self.scene, there, borrowers if back else owners)
        if back and any(loan.worked - loan.home for loan in loans):
            fill, line = (ALARM_PALE, ALARM) if self.grid.number else (TRACK, EDGE)
            self.scene.add(Rect(*there, "none" if came else fill, line, dash="4 3"))

    def _way(self, key: Key, loans: Sequence[Loan], back: int) -> None:
        """An arrow from owner to borrower, or back, with words beside it where there is room for them."""
        of, to, area = key
        batches = frozenset[int]().union(*[loan.home if back else loan.batches for loan in loans])
        if not batches:
            return
        words = ("+ " if back else "") + self._words(area, batches)
        # Each way has a side of its own, and what is borrowed from farther away lies farther on.
        strip, axis = next(((at, axis) for axis in (0, 1) if (at := self.strips.get((to, axis, area[axis])))), (1, 0))
        beside = sum(part == to and on == axis and at * strip > 0 for (part, on, _), at in self.strips.items())
        share = 0.06 + 0.48 * (strip > 0) + 0.48 * (abs(strip) - 1) / max(beside, 1)
        home, there, ends = self._box(of, area, back), self._box(to, area, back), list[tuple[float, float]]()
        for low, size, its, other in (
            (home.x, home.width, there.x, there.width),
            (home.y, home.height, there.y, there.height),
        ):
            first, last = max(low, its), min(low + size, its + other)
            straight = first + share * (last - first)
            ends.append((straight, straight) if first < last else (low + size * (low < its), its + other / 2))
        points = [*zip(*ends, strict=True)]
        arrow(self.scene, points[::-1] if back else points, INK, 1.5, title=words)
        if not self.tiled:
            part = self._box(to, to, back)
            middle = part.y + part.height + self.gap / 2 if strip > 0 else part.y - self.gap / 2
            self.scene.add(Text(points[0][0] + 9, middle, words, TEXT, INK))

    def _told(self) -> list[tuple[str, str]]:
        grid = self.grid
        count = len(self.loans) if self.tiled else sum(high - low for *_, ((low, high), _) in self.loans)
        if not count:
            return [("In forward nobody borrows anything.", INK)]
        told = f"In forward {counted(count, 'piece' if self.tiled else 'row')} {'is' if count == 1 else 'are'} lent."
        ahead = {loan.borrower for loan in grid.loans if loan.batches - loan.worked}
        stay = [loan for loan in grid.loans if loan.worked - loan.home]
        if ahead:
            told += f" Backward of this layer has not run on {numbered('rank', ahead)}."
        elif not stay:
            told += " In backward each gradient goes home: stripes are a sum of what both have worked out."
        if stay and not grid.number:
            return [(f"{told} This is the data: nobody needs the gradients that stay where they are.", INK)]
        lacking = ", ".join(f"{self._words(one.area, one.worked - one.home)} on rank {one.borrower}" for one in stay)
        words = f"These gradients stay, and the owners of the rows lack them: {lacking}."
        return [(told, INK), *([(words, ALARM)] if stay else [])]
