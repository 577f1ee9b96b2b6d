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
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from lib.suite.submissions.statements import FUNCTIONS, Broken, Names, SourceError, Statement, names_of, root

MOST_STATEMENTS = 5_000  # at top level: the sources of all puzzles together have 900
MOST_LOOKS = 1_000_000  # at who gives, calls or changes a name: those sources need some hundreds
OURS = ("lib", "drawing")
GIVE_FUNCTIONS = frozenset({"schedule", "stages", "solution_of"})  # what of ours gives a function when it is called
RUN_BY_NAME = frozenset({"check", "check_function", "compare", "draw", "goal", "predict", "review", "simulate"})
"""What `from lib import *` brings and no function uses."""
CHANGE_ARGUMENTS = frozenset({"bisect", "collections", "functools", "heapq", "operator", "random"})
"""Modules whose functions may change what they are given."""
SETTINGS = frozenset({"seed", "setrecursionlimit"})  # what is called of a module so that others find it otherwise
LOOK_NAMES_UP = frozenset({"eval", "exec", "globals"})
SHOWS = frozenset({"display", "print"})
IMPORTS = (ast.Import, ast.ImportFrom)
ASSIGNMENTS = (ast.Assign, ast.AnnAssign, ast.AugAssign)
DEFINITIONS = (*FUNCTIONS, ast.ClassDef)
COMPOUND = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match)
"""The statements with others in them that are run at once."""
SURE, MAYBE, NEVER = 2, 1, 0


@dataclass(frozen=True, slots=True)
class Needed:
    """The statements to run so that `name` is the function, in order. `sure`: it is one, whatever comes of running it.
    `names` are those that must be there in the end; `missing` those of them that nothing gives."""

    name: str
    statements: tuple[Statement, ...]
    names: frozenset[str]
    missing: frozenset[str]
    sure: bool


@dataclass(slots=True)
class Unit:
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
        self.units: list[Unit] = []
        self._looks = 0
        self._starts: list[int] = []
        try:
            for one in statements:
                self._starts.append(len(self.units))
                self._add(one.node, one.cell, None)
                for unit in self.units[self._starts[-1] :]:
                    unit.end = len(self.units)
        except (RecursionError, MemoryError):
            raise SourceError("this code is nested too deep to be read") from None
        # Where each name is given, touched, called, handed on, or taken by a function.
        self._at = defaultdict[str, list[int]](list)
        for place, unit in enumerate(self.units):
            names = unit.names
            handed = set[str]().union(*names.calls.values())
            for name in {*names.gives, *names.touches, *names.touches_later, *names.later, *names.calls, *handed}:
                self._at[name].append(place)
        self.stars = [place for place, unit in enumerate(self.units) if unit.names.star]
        self._events: dict[tuple[str, str], list[int]] = {}

    def _add(self, node: ast.stmt, cell: str, outer: int | None, tried: bool = False) -> None:
        place = len(self.units)
        if place > MOST_STATEMENTS:
            raise SourceError(f"there are more than {MOST_STATEMENTS:,} statements, so nobody reads them")
        unit = Unit(node, cell, names_of(_pruned(node, ())), outer, tried)
        self.units.append(unit)
        if isinstance(node, COMPOUND):  # the blocks of a definition are its own
            blocks = [getattr(node, name, []) for name in ("body", "orelse", "finalbody")]
            blocks += [inner.body for name in ("handlers", "cases") for inner in getattr(node, name, [])]
            for number, block in enumerate(blocks):
                for inner in block:
                    unit.inner.append(len(self.units))
                    self._add(inner, cell, place, bool(getattr(node, "handlers", ())) and number == 0)

    def look(self, count: int = 1) -> None:
        """Count a look. What somebody wrote to be read for ever is not read to its end: SourceError."""
        self._looks += count
        if self._looks > MOST_LOOKS:
            raise SourceError("who uses, calls and changes what in it is more than anybody can follow")

    # -- what is asked of it ----------------------------------------------------------------------------------------

    def functions(self) -> list[Unit]:
        """Return the functions and classes that it defines, in order."""
        return [unit for unit in self.units if isinstance(unit.node, DEFINITIONS)]

    def definition(self, name: str) -> Unit | None:
        """Return the last statement that makes a name a function; None where none does."""
        return next((self.units[place] for place in self._candidates(name)), None)

    def broken_after(self, name: str) -> SourceError | None:
        """Return the error of a cell that is no Python, and yet defines a name after all else that does."""
        last = next(self._candidates(name), -1)
        count = sum(start <= last for start in self._starts) - 1
        defines = re.compile(rf"^[ \t]*(async[ \t]+)?(def|class)[ \t]+{re.escape(name)}\b", re.MULTILINE)
        wrong = [one.error for one in self.broken if one.before > count and defines.search(one.text)]
        return wrong[-1] if wrong else None

    def needed(self, name: str) -> Iterator[Needed]:
        """Yield what each of the statements needs that may make a name a function, the last of them first."""
        for place in self._candidates(name):
            yield _Search(self, name, place).found()

    def givers(self, name: str) -> list[int]:
        """Return where a name is bound, in order."""
        return [place for place in self._at.get(name, ()) if name in self.units[place].names.gives]

    # -- which names are functions ----------------------------------------------------------------------------------

    def _candidates(self, name: str) -> Iterator[int]:
        return (place for place in reversed(self.givers(name)) if self.level(place, name) > NEVER)

    def level(self, place: int, name: str, depth: int = 0) -> int:
        """Tell whether a statement makes a name a function: SURE, MAYBE or NEVER."""
        match self.units[place].node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                return SURE
            case ast.Import() | ast.ImportFrom():
                return MAYBE
            case ast.Assign(targets, value):
                pass
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                targets = [target]
            case _:
                return NEVER
        plain = any(isinstance(one, ast.Name) and one.id == name for one in targets)
        return self._value_level(value, place, depth) if plain else MAYBE

    def _value_level(self, node: ast.expr, place: int, depth: int) -> int:
        if depth > 20:
            return NEVER
        match node:
            case ast.Lambda():
                return SURE
            case ast.Name(name):
                before = self._before(name, place)
                return NEVER if before is None else self.level(before, name, depth + 1)
            case ast.IfExp() | ast.BoolOp():
                values = [node.body, node.orelse] if isinstance(node, ast.IfExp) else node.values
                return min(MAYBE, max(self._value_level(value, place, depth + 1) for value in values))
            case ast.Attribute() | ast.Subscript():
                name = root(node)
                return MAYBE if name and self.givers(name) and self._ours(name, place) is None else NEVER
            case ast.Call():
                name = root(node) or ""
                if (ours := self._ours(name, place)) is None:
                    return NEVER if self._runs(name, place) else MAYBE
                while isinstance(node, ast.Call):
                    node = node.func
                names = {ours.rpartition(".")[2], getattr(node, "attr", "")}
                return MAYBE if names & GIVE_FUNCTIONS else NEVER
            case _:
                return NEVER

    def _runs(self, name: str, place: int) -> bool:
        """Tell whether a function, or one that it uses, calls what of ours runs a schedule or shows something."""
        seen: set[str] = set()
        todo = [name]
        while todo:
            self.look()
            if (one := todo.pop()) not in seen:
                seen.add(one)
                if self.is_run(one, place):
                    return True
                todo += [later for at in self.givers(one) for later in self.units[at].names.later]
        return False

    def is_run(self, name: str, place: int) -> bool:
        """Tell whether a name is something of ours that belongs into no function: `simulate`, `draw`, `check`."""
        last = (self._ours(name, place) or "lib").rpartition(".")[2]
        return last not in GIVE_FUNCTIONS and not last[:1].isupper() and last not in OURS

    def _ours(self, name: str, place: int) -> str | None:
        """Return the path with dots of a thing of ours that a name stands for; None where it is not ours."""
        node = self._binding(name, place)
        if isinstance(node, IMPORTS):
            return next((path for path in import_paths(node, name) if path.partition(".")[0] in OURS), None)
        if node is None and name in RUN_BY_NAME:
            modules = (getattr(self.units[star].node, "module", None) or "" for star in self.stars)
            return next((f"lib.{name}" for module in modules if module.partition(".")[0] in OURS), None)
        return None

    def _before(self, name: str, place: int) -> int | None:
        """The last place before another where a name is bound."""
        return max((one for one in self.givers(name) if one < place), default=None)

    def _binding(self, name: str, place: int) -> ast.stmt | None:
        before = self._before(name, place)
        return None if before is None else self.units[before].node

    # -- what changes a name ----------------------------------------------------------------------------------------

    def events(self, name: str, target: str) -> list[int]:
        """Return where a name is bound, or what it stands for is changed, in order."""
        if (name, target) not in self._events:
            # The functions that change what it stands for when they are called, or call one that does.
            changers = set[str]()
            todo = [place for place in self._at.get(name, ()) if name in self.units[place].names.touches_later]
            while todo:
                self.look()
                for one in self.units[todo.pop()].names.gives - changers:
                    changers.add(one)
                    todo += [place for place in self._at.get(one, ()) if one in self.units[place].names.later]
            places = {*self._at.get(name, ()), *(place for one in changers for place in self._at.get(one, ()))}
            self._events[name, target] = [
                place
                for place in sorted(places)
                if name in self.units[place].names.gives or self._changes(place, name, changers, target)
            ]
        return self._events[name, target]

    def _changes(self, place: int, name: str, changers: set[str], target: str) -> bool:
        """Tell whether a statement is there to change what a name stands for. One that runs the function is not."""
        node, names = self.units[place].node, self.units[place].names
        self.look(1 + len(names.calls))
        if target in names.now or any(self.is_run(one, place) for one in names.calls):
            return False
        is_import = isinstance(self._binding(name, place), IMPORTS)
        calls_changer = not changers.isdisjoint(names.calls)
        if isinstance(node, DEFINITIONS):
            return bool(node.decorator_list) and (name in names.touches or calls_changer)
        if isinstance(node, (*ASSIGNMENTS, ast.Delete)):
            return calls_changer or (name in names.touches and not is_import)
        match node:
            case ast.Expr(ast.Call(function) | ast.Await(ast.Call(function))):
                callee = root(function) or ""
            case _:
                return False
        if isinstance(function, ast.Attribute) and callee == name:
            return function.attr in SETTINGS if is_import else not isinstance(self._binding(name, place), FUNCTIONS)
        if callee in changers or is_import or name not in names.calls.get(callee, ()):
            return callee in changers
        # It is given to a function: one of the source's own may change it, or one of some modules.
        called = self._binding(callee, place)
        if isinstance(called, IMPORTS):
            return any(path.partition(".")[0] in CHANGE_ARGUMENTS for path in import_paths(called, callee))
        return isinstance(called, FUNCTIONS) and not self._runs(callee, place)

    def kept(self, places: set[int]) -> tuple[Statement, ...]:
        """Return the statements at these places, in order. What is in a compound one and not needed is left out."""
        wanted = {id(self.units[place].node) for place in places}
        units = (self.units[start] for start in self._starts if start in places)
        return tuple(Statement(_pruned(unit.node, wanted), unit.cell) for unit in units)


class _Search:
    """Follows names back from a function to the statements that give them. `must`: the function lacks what fails."""

    def __init__(self, program: Program, target: str, place: int) -> None:
        self._program, self._units, self._target, self._place = program, program.units, target, place
        # What a function uses is what there is where the source last calls it, or hands it on.
        own = self._units[place].end
        calls = (at for at, unit in enumerate(self._units) if unit.end > own and _calls(unit, target))
        self._end = max(calls, default=len(self._units))
        self._places, self._names, self._missing = set[int](), {target}, set[str]()
        self._seen: set[tuple[str, int, bool]] = set()
        self._taken: set[tuple[int, int, bool]] = set()
        self._todo: list[tuple[str, int, bool]] = []

    def found(self) -> Needed:
        """Return what is needed."""
        program, target, place = self._program, self._target, self._place
        self._take(place, self._end, True)
        if self._units[place].outer is not None:  # others in the same statement may be the ones that are run
            self._follow(target, self._units[place].end, True)
        for event in program.events(target, target):
            if place < event < self._end and target not in self._units[event].names.gives:
                self._take(event, self._end, False)
        self._work()
        if self._missing & LOOK_NAMES_UP:
            for number, unit in enumerate(self._units[: self._end]):  # all that does nothing else than give a name
                plain = isinstance(unit.node, (*DEFINITIONS, *IMPORTS))
                plain = plain or (isinstance(unit.node, ASSIGNMENTS) and not unit.names.calls)
                if plain and unit.outer is None and target not in unit.names.gives:
                    self._take(number, self._end, False)
            self._work()
        missing = frozenset(name for name in self._missing if not hasattr(builtins, name))
        sure = program.level(place, target) == SURE
        return Needed(target, program.kept(self._places), frozenset(self._names), missing, sure)

    def _work(self) -> None:
        while self._todo:
            name, place, must = self._todo.pop()
            if name != self._target or place <= self._place:
                self._follow(name, place, must)
            elif must:
                self._names.add(name)

    def _ask(self, names: Iterable[str], place: int, must: bool) -> None:
        for name in sorted(names):
            if (name, place, must) not in self._seen:
                self._program.look(5)
                self._seen.add((name, place, must))
                self._todo.append((name, place, must))

    def _follow(self, name: str, place: int, must: bool) -> None:
        """Take what gives a name at a place."""
        if must:
            self._names.add(name)
        events = self._program.events(name, self._target)
        if before := bisect_left(events, place):
            event = events[before - 1]
            gives = name in self._units[event].names.gives
            self._take(event, place, must and gives)
            if not gives or self._units[event].outer is not None:  # what it stood for before still counts
                self._ask([name], event, must)
            return
        # An import of everything may give it, or a cell below that was run before.
        later = [event for event in events if name in self._units[event].names.gives]
        if not later or place < self._end:
            for star in self._program.stars:
                self._take(star, place, False)
        if later and place == self._end:
            self._take(later[-1], len(self._units), must)
        elif must and not later:
            self._missing.add(name)

    def _take(self, place: int, at: int, must: bool) -> None:
        """Take a statement, whose functions may be called at a place."""
        if (place, at, must) in self._taken:
            return
        self._taken.add((place, at, must))
        self._places.add(place)
        unit = self._units[place]
        here = place if unit.outer is None and not isinstance(unit.node, COMPOUND) else unit.end
        self._ask(unit.names.now, here, must)
        for when in {at, self._end} if must else {at}:
            self._ask(unit.names.later, when, must)
        if unit.outer is not None:
            self._take(unit.outer, at, must)
        for inner in unit.inner:
            self._take_way(inner, at)

    def _take_way(self, place: int, at: int) -> None:
        """Take what decides how a compound statement goes: what leaves it, and what may fail in a `try`."""
        unit = self._units[place]
        may_fail = unit.tried and self._target not in unit.names.now
        may_fail = may_fail and not any(one in SHOWS or self._program.is_run(one, unit.end) for one in unit.names.calls)
        if may_fail or isinstance(unit.node, ast.Break | ast.Continue | ast.Raise):
            self._take(place, at, False)
        elif not isinstance(unit.node, ast.For | ast.AsyncFor | ast.While):
            for inner in unit.inner:
                if not self._units[inner].tried:
                    self._take_way(inner, at)


def _calls(unit: Unit, name: str) -> bool:
    """Tell whether a statement calls a function, or hands it to something that it calls."""
    handed = any(name == called or name in given for called, given in unit.names.calls.items())
    return handed and name not in unit.names.gives and not isinstance(unit.node, FUNCTIONS)


def _pruned(node: ast.stmt, wanted: Collection[int]) -> ast.stmt:
    """Return a compound statement with those alone in it whose `id` is wanted, or `pass`; any other as it is."""
    if not isinstance(node, COMPOUND):
        return node

    def kept(block: list[ast.stmt], *, must: bool = True) -> list[ast.stmt]:
        some = [_pruned(one, wanted) for one in block if id(one) in wanted]
        return some or ([ast.copy_location(ast.Pass(), block[0])] if block and must else [])

    made = copy.copy(node)
    for name in ("body", "orelse", "finalbody"):
        if hasattr(node, name):
            must = name == "body" or not getattr(node, "handlers", True)
            setattr(made, name, kept(getattr(node, name), must=must))
    for name in ("handlers", "cases"):
        if hasattr(node, name):
            setattr(made, name, [copy.copy(one) for one in getattr(node, name)])
            for one in getattr(made, name):
                one.body = kept(one.body)
    return made


def import_paths(node: ast.Import | ast.ImportFrom, name: str) -> Iterator[str]:
    """Yield what an import gives under a name, as a path with dots."""
    for alias in node.names:
        if isinstance(node, ast.ImportFrom):
            if name == (alias.asname or alias.name):
                yield f"{'.' * node.level}{node.module or ''}.{alias.name}"
        elif name == (alias.asname or alias.name.partition(".")[0]):
            yield alias.name if alias.asname else name
