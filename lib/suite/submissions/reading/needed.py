"""What a function needs: the statements at top level that give what it uses, and what that uses, and nothing else.

A statement that binds a name is needed where the name is used after it and nothing binds it anew before that; so is one
that changes what the name stands for (`table[3] = 4`, `rows.append(x)`, a call of a function that does). What the body
of a function uses is what there is when it is called: that is where the source last calls it, or its end.
"""

from __future__ import annotations

import ast
import builtins
import copy
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from lib.suite.submissions.reading.cells import Broken, SourceError, Statement
from lib.suite.submissions.reading.names import COMPOUND, FUNCTIONS, Names, names_of, root

__all__ = ["OURS", "SHOWS", "Needed", "Program", "import_paths"]

MOST_STATEMENTS = 5_000
"""Statements at top level: the sources of all puzzles together have 900."""
MOST_STEPS = 200_000
"""How many names are followed, each from a place."""
MOST_LOOKS = 1_000_000
"""How often it is looked who calls or changes what: those sources need some hundreds."""
OURS = ("lib", "drawing")
GIVE_FUNCTIONS = frozenset({"schedule", "stages", "solution_of"})
"""What of ours gives a function when it is called."""
CHANGE_ARGUMENTS = frozenset({"bisect", "collections", "functools", "heapq", "operator", "random"})
"""Modules whose functions may change what they are given."""
SETTINGS = frozenset({"seed", "setrecursionlimit"})
"""What is called of a module so that others find it otherwise."""
LOOK_NAMES_UP = frozenset({"eval", "exec", "globals"})
SHOWS = frozenset({"display", "print"})
LOOPS = (ast.For, ast.AsyncFor, ast.While)
LEAVES = (ast.Break, ast.Continue, ast.Raise)
ASSIGNMENTS = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Delete)
SURE, MAYBE, NEVER = 2, 1, 0


@dataclass(frozen=True, slots=True)
class Needed:
    """What has to run so that `name` is the function, in order. `sure`: it is one, whatever comes of running it.

    `names` are those that must be there in the end; `missing` those of them that nothing gives.
    """

    name: str
    statements: tuple[Statement, ...]
    names: frozenset[str]
    missing: frozenset[str]
    sure: bool


@dataclass(slots=True)
class _Unit:
    """A statement at top level, or one in a compound statement there, `outer`. `end` is where that at top level ends,
    `inner` are the statements in it. `tried`: a `try` catches what it raises."""

    node: ast.stmt
    cell: str
    names: Names
    outer: int | None
    tried: bool = False
    end: int = 0
    inner: list[int] = field(default_factory=list[int])


class Program:
    """The statements at top level of a source, and who gives, takes and changes which names. SourceError for code that
    is nested too deep, or longer than anybody writes."""

    def __init__(self, statements: Sequence[Statement], broken: Sequence[Broken] = ()) -> None:
        self.broken = broken
        self._looks = 0
        self._units: list[_Unit] = []
        self._starts: list[int] = []
        try:
            for one in statements:
                self._starts.append(len(self._units))
                self._add(one.node, one.cell, None)
                for unit in self._units[self._starts[-1] :]:
                    unit.end = len(self._units)
        except (RecursionError, MemoryError):
            raise SourceError("this code is nested too deep to be read") from None
        self.binders = _index(unit.names.gives for unit in self._units)
        self.touchers = _index(unit.names.touches for unit in self._units)
        self.callers = _index(unit.names.calls for unit in self._units)
        self.receivers = _index(set[str]().union(*unit.names.calls.values()) for unit in self._units)
        self.takers = _index(unit.names.later for unit in self._units)
        self.late_touchers = _index(unit.names.touches_later for unit in self._units)
        self.stars = [place for place, unit in enumerate(self._units) if unit.names.star]
        """The imports that take over all names of a module."""
        self._events: dict[tuple[str, str], list[int]] = {}

    def _add(self, node: ast.stmt, cell: str, outer: int | None, tried: bool = False) -> None:
        place = len(self._units)
        if place > MOST_STATEMENTS:
            raise SourceError(f"there are more than {MOST_STATEMENTS:,} statements, so nobody reads them")
        unit = _Unit(node, cell, names_of(node), outer, tried)
        self._units.append(unit)
        for number, block in enumerate(_blocks(node)):
            for inner in block:
                unit.inner.append(len(self._units))
                self._add(inner, cell, place, bool(getattr(node, "handlers", ())) and number == 0)

    # -- what is asked of it ----------------------------------------------------------------------------------------

    def functions(self) -> list[Statement]:
        """The functions and classes that it defines, in order."""
        units = (unit for unit in self._units if isinstance(unit.node, (*FUNCTIONS, ast.ClassDef)))
        return [Statement(unit.node, unit.cell) for unit in units]

    def definition(self, name: str) -> Statement | None:
        """The last statement that makes a name a function; None where none does."""
        places = self._candidates(name)
        return Statement(self._units[places[0]].node, self._units[places[0]].cell) if places else None

    def broken_after(self, name: str) -> SourceError | None:
        """The error of a cell that is no Python, and yet defines a name after all else that does."""
        last = max(self._candidates(name), default=-1)
        count = self._starts.index(self._root(last)) if last >= 0 else -1
        wrong = [one.error for one in self.broken if one.before > count and _defines(one.text, name)]
        return wrong[-1] if wrong else None

    def needed(self, name: str) -> Iterator[Needed]:
        """What each of the statements needs that may make a name a function, the last of them first."""
        for place in self._candidates(name):
            yield _Search(self, name, place, self._end_of_use(name, place)).found()

    # -- which names are functions ----------------------------------------------------------------------------------

    def _candidates(self, name: str) -> list[int]:
        return [place for place in reversed(self.binders.get(name, [])) if self.level(place, name) > NEVER]

    def level(self, place: int, name: str, depth: int = 0) -> int:
        """Whether a statement makes a name a function: SURE, MAYBE or NEVER."""
        node = self._units[place].node
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            return SURE
        if isinstance(node, ast.Import | ast.ImportFrom):
            return MAYBE
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            plain = any(isinstance(one, ast.Name) and one.id == name for one in targets)
            return self._value_level(node.value, place, depth) if plain else MAYBE
        return NEVER

    def _value_level(self, node: ast.expr, place: int, depth: int) -> int:
        if depth > 20:
            return NEVER
        if isinstance(node, ast.Lambda):
            return SURE
        if isinstance(node, ast.Name):
            before = self.before(node.id, place)
            return NEVER if before is None else self.level(before, node.id, depth + 1)
        if isinstance(node, ast.IfExp | ast.BoolOp):
            values = [node.body, node.orelse] if isinstance(node, ast.IfExp) else node.values
            return min(MAYBE, max(self._value_level(one, place, depth + 1) for one in values))
        if isinstance(node, ast.Attribute | ast.Subscript):
            name = root(node)
            return MAYBE if name in self.binders and self.ours(name, place) is None else NEVER
        return self._call_level(node, place, depth) if isinstance(node, ast.Call) else NEVER

    def _call_level(self, node: ast.Call, place: int, depth: int) -> int:
        """Whether a call may give a function."""
        name = root(node.func) or ""
        if (ours := self.ours(name, place)) is not None:
            return MAYBE if ours.rpartition(".")[2] in GIVE_FUNCTIONS or _last(node.func) in GIVE_FUNCTIONS else NEVER
        given = [*node.args, *(one.value for one in node.keywords)]
        if isinstance(node.func, ast.Call):
            given += [*node.func.args, *(one.value for one in node.func.keywords)]
        is_given = any(self._value_level(one, place, depth + 1) > NEVER for one in given)
        before = self.before(name, place)
        maker = None if before is None else self._units[before].node
        if isinstance(maker, ast.ClassDef):
            return (
                MAYBE if is_given or isinstance(node.func, ast.Attribute) or maker.bases or _is_called(maker) else NEVER
            )
        if isinstance(maker, FUNCTIONS):
            if self._runs(name, place):
                return NEVER
            makes = any(
                isinstance(one, (*FUNCTIONS, ast.Lambda, ast.ClassDef)) for one in ast.walk(maker) if one is not maker
            )
            return MAYBE if is_given or makes else NEVER
        return MAYBE if is_given else NEVER

    def _runs(self, name: str, place: int) -> bool:
        """Whether a function, or one that it uses, calls what of ours runs a schedule or shows something."""
        seen: set[str] = set()
        todo = [name]
        while todo and len(seen) < MOST_STEPS:
            one = todo.pop()
            self._look()
            if one in seen:
                continue
            seen.add(one)
            if self.is_run(one, place):
                return True
            todo += [later for at in self.binders.get(one, []) for later in self._units[at].names.later]
        return False

    def is_run(self, name: str, place: int) -> bool:
        """Whether a name is something of ours that does not belong into a function: `simulate`, `draw`, `check`."""
        ours = self.ours(name, place)
        last = "" if ours is None else ours.rpartition(".")[2]
        return ours is not None and last not in GIVE_FUNCTIONS and not last[:1].isupper() and last not in OURS

    def ours(self, name: str, place: int) -> str | None:
        """What of ours a name stands for, as a path with dots; None where it is not ours."""
        before = self.before(name, place)
        node = None if before is None else self._units[before].node
        if isinstance(node, ast.Import | ast.ImportFrom):
            return next((path for path in import_paths(node, name) if path.partition(".")[0] in OURS), None)
        if node is None and name in RUN_BY_NAME and any(_is_ours(self._units[star].node) for star in self.stars):
            return f"lib.{name}"
        return None

    def before(self, name: str, place: int) -> int | None:
        """The last statement before a place that binds a name."""
        places = self.binders.get(name, [])
        found = bisect_left(places, place)
        return places[found - 1] if found else None

    def _end_of_use(self, name: str, place: int) -> int:
        """Where the source last calls a function, or gives it to something that does, after the place that makes it."""
        uses = [use for use in self._uses(name) if self._units[use].end > self._units[place].end]
        return max(uses) if uses else len(self._units)

    def _uses(self, name: str) -> Iterator[int]:
        for place, unit in enumerate(self._units):
            calls = any(name == called or name in given for called, given in unit.names.calls.items())
            if calls and name not in unit.names.gives and not isinstance(unit.node, FUNCTIONS):
                yield place

    # -- what changes a name ----------------------------------------------------------------------------------------

    def events(self, name: str, target: str) -> list[int]:
        """Where a name is bound, or what it stands for is changed, in order."""
        if (name, target) not in self._events:
            changers = self._changers(name)
            called = {place for one in changers for place in self.callers.get(one, [])}
            places = called.union(self.touchers.get(name, []), self.receivers.get(name, []))
            changes = [place for place in places if self._changes(place, name, changers, target)]
            self._events[name, target] = sorted({*self.binders.get(name, []), *changes})
        return self._events[name, target]

    def _changers(self, name: str) -> set[str]:
        """The functions that change what a name stands for when they are called, or call one that does."""
        found: set[str] = set()
        todo = list(self.late_touchers.get(name, []))
        while todo:
            self._look()
            for one in self._units[todo.pop()].names.gives - found:
                found.add(one)
                todo += self.takers.get(one, [])
        return found

    def _changes(self, place: int, name: str, changers: set[str], target: str) -> bool:
        """Whether a statement is there to change what a name stands for. One that runs the function is not."""
        unit = self._units[place]
        node, names = unit.node, unit.names
        self._look(1 + len(names.calls))
        if target in names.now or any(self.is_run(one, place) for one in names.calls):
            return False
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            return bool(node.decorator_list) and (name in names.touches or not changers.isdisjoint(names.calls))
        if isinstance(node, ASSIGNMENTS):
            is_touched = name in names.touches and not self._is_import(name, place)
            return is_touched or not changers.isdisjoint(names.calls)
        value = node.value if isinstance(node, ast.Expr) else None
        value = value.value if isinstance(value, ast.Await) else value
        if not isinstance(value, ast.Call):
            return False
        if isinstance(value.func, ast.Attribute) and root(value.func) == name:
            return value.func.attr in SETTINGS if self._is_import(name, place) else not self._is_function(name, place)
        callee = root(value.func) or ""
        if callee in changers:
            return True
        return (
            name in names.calls.get(callee, ()) and not self._is_import(name, place) and self._may_change(callee, place)
        )

    def _look(self, count: int = 1) -> None:
        """Counts a look. What somebody wrote to be read for ever is not read to its end."""
        self._looks += count
        if self._looks > MOST_LOOKS:
            raise SourceError("who calls and changes what in it is more than anybody can follow")

    def _may_change(self, callee: str, place: int) -> bool:
        """Whether a function may change what it is given: one of the source's own, or of some modules."""
        before = self.before(callee, place)
        node = None if before is None else self._units[before].node
        if isinstance(node, ast.Import | ast.ImportFrom):
            return any(path.partition(".")[0] in CHANGE_ARGUMENTS for path in import_paths(node, callee))
        return isinstance(node, FUNCTIONS) and not self._runs(callee, place)

    def _is_import(self, name: str, place: int) -> bool:
        before = self.before(name, place)
        return before is not None and isinstance(self._units[before].node, ast.Import | ast.ImportFrom)

    def _is_function(self, name: str, place: int) -> bool:
        before = self.before(name, place)
        return before is not None and isinstance(self._units[before].node, FUNCTIONS)

    # -- for the search ---------------------------------------------------------------------------------------------

    def unit(self, place: int) -> _Unit:
        return self._units[place]

    def size(self) -> int:
        return len(self._units)

    def _root(self, place: int) -> int:
        while (outer := self._units[place].outer) is not None:
            place = outer
        return place

    def kept(self, places: set[int]) -> tuple[Statement, ...]:
        """The statements at these places, in order. What is in a compound one and not needed is left out of it."""
        found: list[Statement] = []
        for start in self._starts:
            if start in places:
                unit = self._units[start]
                wanted = {id(self._units[place].node) for place in range(start, unit.end) if place in places}
                found.append(Statement(_pruned(unit.node, wanted), unit.cell))
        return tuple(found)


RUN_BY_NAME = frozenset({"check", "check_function", "compare", "draw", "goal", "predict", "review", "simulate"})
"""What `from lib import *` brings and no function uses."""


class _Search:
    """Follows names back from a function to the statements that give them."""

    def __init__(self, program: Program, target: str, place: int, end: int) -> None:
        self._program = program
        self._target = target
        self._place = place
        self._end = end
        self._places: set[int] = set()
        self._names: set[str] = {target}
        self._missing: set[str] = set()
        self._seen: set[tuple[str, int, bool]] = set()
        self._taken: set[tuple[int, int, bool]] = set()
        self._todo: list[tuple[str, int, bool]] = []

    def found(self) -> Needed:
        """What is needed."""
        unit = self._program.unit(self._place)
        self._take(self._place, self._end, True)
        if unit.outer is not None:  # others in the same statement may be the ones that are run
            self._follow(self._target, unit.end, True, among=unit)
        for event in self._program.events(self._target, self._target):
            if self._place < event < self._end and self._target not in self._program.unit(event).names.gives:
                self._take(event, self._end, False)
        self._work()
        if self._missing & LOOK_NAMES_UP:
            self._take_all()
            self._work()
        missing = frozenset(name for name in self._missing if not hasattr(builtins, name))
        sure = self._program.level(self._place, self._target) == SURE
        statements = self._program.kept(self._places)
        return Needed(self._target, statements, frozenset(self._names), missing, sure)

    def _work(self) -> None:
        while self._todo:
            self._follow(*self._todo.pop())

    def _ask(self, names: set[str], place: int, must: bool) -> None:
        for name in sorted(names):
            for at in {place, self._end} if must else {place}:
                self._ask_once(name, at, must)

    def _follow(self, name: str, place: int, must: bool, among: _Unit | None = None) -> None:
        """Takes what gives a name at a place."""
        if must:
            self._names.add(name)
        if name == self._target and among is None and place > self._place:
            return
        events = self._program.events(name, self._target)
        found = bisect_left(events, place)
        if not found:
            self._follow_absent(name, place, must, events)
            return
        event = events[found - 1]
        unit = self._program.unit(event)
        gives = name in unit.names.gives
        self._take(event, place, must and gives)
        if not gives or unit.outer is not None:
            self._ask_once(name, event, must)

    def _ask_once(self, name: str, place: int, must: bool) -> None:
        if (name, place, must) not in self._seen:
            self._seen.add((name, place, must))
            self._todo.append((name, place, must))
        if len(self._seen) > MOST_STEPS:
            raise SourceError(f"{self._target} uses more names than anybody can follow")

    def _follow_absent(self, name: str, place: int, must: bool, events: list[int]) -> None:
        """Nothing gives a name before a place: an import of everything may, or a cell below that was run before."""
        later = [event for event in events if name in self._program.unit(event).names.gives]
        if self._program.before(name, self._program.size()) is None or place < self._end:
            for star in self._program.stars:
                self._take(star, place, False)
        if later and place == self._end:
            self._take(later[-1], self._program.size(), must)
        elif must and not later:
            self._missing.add(name)

    def _take(self, place: int, at: int, must: bool) -> None:
        """Takes a statement, whose functions may be called at a place."""
        if (place, at, must) in self._taken:
            return
        self._taken.add((place, at, must))
        self._places.add(place)
        unit = self._program.unit(place)
        here = place if unit.outer is None and not isinstance(unit.node, COMPOUND) else unit.end
        for name in sorted(unit.names.now):
            self._ask_once(name, here, must)
        self._ask(unit.names.later, at, must)
        if unit.outer is not None:
            self._take(unit.outer, at, must)
        for inner in unit.inner:
            self._take_way(inner, at)

    def _take_way(self, place: int, at: int) -> None:
        """Takes what decides how a compound statement goes: what leaves it, and what may fail in a `try`."""
        unit = self._program.unit(place)
        if isinstance(unit.node, LEAVES) or (unit.tried and self._may_fail(unit)):
            self._take(place, at, False)
        elif not isinstance(unit.node, LOOPS):
            for inner in unit.inner:
                if not self._program.unit(inner).tried:
                    self._take_way(inner, at)

    def _may_fail(self, unit: _Unit) -> bool:
        runs = any(self._program.is_run(one, unit.end) for one in unit.names.calls)
        shows = not SHOWS.isdisjoint(unit.names.calls)
        return not runs and not shows and self._target not in unit.names.now

    def _take_all(self) -> None:
        """Takes all that may be looked up by its name and does nothing else."""
        for place in range(self._program.size()):
            unit = self._program.unit(place)
            plain = isinstance(unit.node, (*FUNCTIONS, ast.ClassDef, ast.Import, ast.ImportFrom))
            plain = plain or (isinstance(unit.node, ASSIGNMENTS[:3]) and not unit.names.calls)
            if plain and unit.outer is None and self._target not in unit.names.gives and place < self._end:
                self._take(place, self._end, False)


def _blocks(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    """The blocks of a compound statement; those of a definition are its own."""
    if not isinstance(node, COMPOUND):
        return
    for name in ("body", "orelse", "finalbody"):
        yield getattr(node, name, [])
    for inner in [*getattr(node, "handlers", []), *getattr(node, "cases", [])]:
        yield inner.body


def _pruned(node: ast.stmt, wanted: set[int]) -> ast.stmt:
    """A compound statement with those alone in it that are wanted; any other as it is."""
    if not isinstance(node, COMPOUND):
        return node
    made = copy.copy(node)
    for name in ("body", "orelse", "finalbody"):
        if hasattr(node, name):
            setattr(
                made,
                name,
                _some(getattr(node, name), wanted, must=name == "body" or not getattr(node, "handlers", True)),
            )
    for name in ("handlers", "cases"):
        if hasattr(node, name):
            inner = [copy.copy(one) for one in getattr(node, name)]
            for one in inner:
                one.body = _some(one.body, wanted, must=True)
            setattr(made, name, inner)
    return made


def _some(block: list[ast.stmt], wanted: set[int], *, must: bool) -> list[ast.stmt]:
    kept = [_pruned(one, wanted) for one in block if id(one) in wanted]
    return kept or ([ast.copy_location(ast.Pass(), block[0])] if block and must else [])


def _index(
    names: Iterator[set[str]] | Iterator[dict[str, set[str]]] | Iterator[set[str] | dict[str, set[str]]],
) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for place, some in enumerate(names):
        for name in some:
            found.setdefault(name, []).append(place)
    return found


def import_paths(node: ast.Import | ast.ImportFrom, name: str) -> Iterator[str]:
    """What an import gives under a name, as a path with dots."""
    for alias in node.names:
        if isinstance(node, ast.ImportFrom):
            if name == (alias.asname or alias.name):
                yield f"{'.' * node.level}{node.module or ''}.{alias.name}"
        elif name == (alias.asname or alias.name.partition(".")[0]):
            yield alias.name if alias.asname else name


def _is_ours(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in OURS


def _last(node: ast.AST) -> str:
    """The last name of a call's function: `schedule` of `lib.schedule(...)(f)`."""
    while isinstance(node, ast.Call):
        node = node.func
    return node.attr if isinstance(node, ast.Attribute) else ""


def _is_called(node: ast.ClassDef) -> bool:
    return any(isinstance(one, FUNCTIONS) and one.name == "__call__" for one in node.body)


def _defines(text: str, name: str) -> bool:
    """Whether a text that is no Python seems to define a name."""
    return re.search(rf"^[ \t]*(async[ \t]+)?(def|class)[ \t]+{re.escape(name)}\b", text, re.MULTILINE) is not None
