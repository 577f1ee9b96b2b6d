"""Finds what a function needs: the top-level statements that bind what it uses, directly or indirectly, and no others.

A statement is needed if it binds a name that is used, or changes the value of such a name (`table[3] = 4`,
`rows.append(x)`, a call of a function that does). All needed statements run in order, so that each name has the value
that it had when the source last called the function (later statements are ignored), or, if the source never calls it,
at the end. Which of several bindings of a name reaches where is not analysed: running one that is overwritten does no
harm, as failures are skipped (see `load.py`).
"""

from __future__ import annotations

import ast
import builtins
import copy
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from lib.suite.submissions.statements import DEFINITIONS, Broken, SourceError, Statement, root

MOST_STATEMENTS = 5_000  # at top level: the sources of all puzzles together have 900
OURS = ("lib", "drawing")
GIVE_FUNCTIONS = frozenset({"schedule", "stages", "solution_of"})  # ours that return a function
RUN_BY_NAME = frozenset({"check", "check_function", "compare", "draw", "goal", "predict", "review", "simulate"})
"""Names from `from lib import *` that no function uses."""
WORD = re.compile(r"\w+")
IMPORTS = (ast.Import, ast.ImportFrom)
COMPOUND = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match)
"""Statements that contain others and run them at once."""
T = TypeVar("T", bound=ast.AST)


@dataclass(frozen=True, slots=True)
class Needed:
    """The statements to run to make a name the function, in order. `sure`: the name is a function, however the run
    goes. `names` must exist in the end; `missing` are those of them that nothing binds."""

    statements: tuple[Statement, ...]
    names: frozenset[str]
    missing: frozenset[str]
    sure: bool


class Program:
    """The top-level statements of a source, and which of them bind, use and change which names. SourceError for code
    that is nested too deeply, or unreasonably long."""

    def __init__(self, statements: Sequence[Statement], broken: Sequence[Broken] = ()) -> None:
        if len(statements) > MOST_STATEMENTS:
            raise SourceError(f"there are more than {MOST_STATEMENTS:,} statements, so nobody reads them")
        self.broken = broken
        self._ours: dict[str, str] = {}
        self._givers, self._users = defaultdict[str, list[int]](list), defaultdict[str, list[int]](list)
        try:
            self._given = set[str]().union(*(one.names.gives for one in statements))
            for one in statements:
                paths = import_paths(one.node) if isinstance(one.node, IMPORTS) else {}
                self._ours |= {name: path for name, path in paths.items() if path.partition(".")[0] in OURS}
            self.units = [  # compound ones without the parts that only run something
                Statement(pruned(one.node, self._only_runs), one.cell) if isinstance(one.node, COMPOUND) else one
                for one in statements
            ]
            for place, names in enumerate(unit.names for unit in self.units):
                for name in names.gives:
                    self._givers[name].append(place)
                for name in {*names.touches, *names.touches_later, *names.later, *names.calls, *names.hands}:
                    self._users[name].append(place)
        except (RecursionError, MemoryError):
            raise SourceError("this code is nested too deep to be read") from None

    def definition(self, name: str) -> tuple[ast.stmt, str] | None:
        """Return the last statement that makes a name a function, and its cell; None if none does."""
        for unit in (self.units[place] for place in self._candidates(name)):
            return next((node for node in unit.definitions() if node.name == name), unit.node), unit.cell
        return None

    def broken_after(self, name: str) -> SourceError | None:
        """Return the error of the last cell that is not Python, yet defines a name after all valid definitions."""
        last = next(self._candidates(name), -1)
        defines = re.compile(rf"^[ \t]*(async[ \t]+)?(def|class)[ \t]+{re.escape(name)}\b", re.MULTILINE)
        wrong = [one.error for one in self.broken if one.before > last and defines.search(one.text)]
        return wrong[-1] if wrong else None

    def broken_that_gives(self, names: frozenset[str]) -> SourceError | None:
        """Return the error of the first cell that is not Python, and has one of `names` as the first or second word of
        a line."""
        for one in self.broken if names else ():
            if any(word in names for line in one.text.split("\n") for word in WORD.findall(line)[:2]):
                return one.error
        return None

    def needed(self, name: str) -> Iterator[Needed]:
        """Yield what is needed for each statement that may make a name a function, the last first."""
        for place in self._candidates(name):
            yield self._needed(name, place)

    def _candidates(self, name: str) -> Iterator[int]:
        return (place for place in reversed(self._givers.get(name, ())) if self._may_give(self.units[place].node))

    def _may_give(self, node: ast.stmt) -> bool:
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            return not isinstance(node, ast.For | ast.AsyncFor | ast.AugAssign | ast.Delete)
        if isinstance(node.value, ast.Call) and (ours := self._ours.get(root(node.value) or "")) is not None:
            called = {one.attr for one in ast.walk(node.value) if isinstance(one, ast.Attribute)}
            return not GIVE_FUNCTIONS.isdisjoint({ours.rpartition(".")[2], *called})
        kinds = (ast.Lambda, ast.Name, ast.Attribute, ast.Subscript, ast.Call, ast.IfExp, ast.BoolOp, ast.Tuple)
        return isinstance(node.value, kinds)

    def is_run(self, name: str) -> bool:
        """Tell whether a name is one of ours that does not belong in a function: `simulate`, `draw`, `check`."""
        last = self._ours.get(name, name if name in RUN_BY_NAME - self._given else "lib").rpartition(".")[2]
        return last not in GIVE_FUNCTIONS and not last[:1].isupper() and last not in OURS

    def _only_runs(self, node: ast.stmt) -> bool:
        """Tell whether a statement in a compound one only runs or shows something: no name needs it."""
        if isinstance(node, (*COMPOUND, *DEFINITIONS)):
            return False
        calls = {root(one.func) or "" for one in ast.walk(node) if isinstance(one, ast.Call)}
        unknown = isinstance(node, ast.Expr) and any(not hasattr(builtins, name) for name in calls - self._given)
        return unknown or any(map(self.is_run, calls))

    def _runs(self, names: Iterable[str]) -> bool:
        """Tell whether functions, or those that they use, call ours that run a schedule or show something."""
        seen, todo = set[str](), [*names]
        while todo:
            if (name := todo.pop()) not in seen:
                seen.add(name)
                if self.is_run(name):
                    return True
                todo += [later for at in self._givers.get(name, ()) for later in self.units[at].names.later]
        return False

    def _needed(self, target: str, place: int) -> Needed:
        # A function uses what exists when the source last calls it, or passes it on.
        calls = (at for at, unit in enumerate(self.units) if target in unit.names.calls or target in unit.names.hands)
        end = max(
            (at for at in calls if at > place and target not in self.units[at].names.gives), default=len(self.units)
        )
        taken, changers, names, missing = dict[int, bool](), set[str](), dict[str, bool](), set[str]()

        def take(at: int, must: bool) -> None:
            if taken.get(at) is not True and taken.get(at) is not must:
                taken[at] = must
                unit = self.units[at].names
                todo.extend((name, must) for name in sorted(unit.now | unit.later))

        def change(name: str) -> None:
            """Take calls of a function that changes something, and of functions that call it."""
            for at in self._users.get(name, ()) if name not in changers else ():
                unit = self.units[at].names
                if name in unit.later:
                    later.extend(unit.gives)
                if name in unit.calls and at < end and target not in unit.now and not any(map(self.is_run, unit.calls)):
                    take(at, False)
            changers.add(name)

        todo, later = list[tuple[str, bool]](), list[str]()
        take(place, True)
        names[target] = True
        todo.append((target, False))
        while todo or later:
            if later:
                change(later.pop())
                continue
            name, must = todo.pop()
            if name in names and (names[name] or not must) and name != target:
                continue
            names[name] = names.get(name, False) or must
            givers = self._givers.get(name, [])
            # A cell further down may have been run earlier.
            before = [at for at in givers if at < (place if name == target else end)] or (
                [] if name == target else givers
            )
            for at in before:
                take(at, must and at == before[-1])
            if not givers:
                for at, unit in enumerate(self.units):
                    if unit.names.star:
                        take(at, False)
                if must:
                    missing.add(name)
            for at in self._users.get(name, ()):
                if name in self.units[at].names.touches_later:
                    later.extend(self.units[at].names.gives)
                if at < end and self._changes(at, name, target):
                    take(at, False)
        kept = tuple(self.units[at] for at in sorted(taken))
        lacking = frozenset(name for name in missing if not hasattr(builtins, name))
        node = self.units[place].node
        sure = isinstance(node, DEFINITIONS) or (isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda))
        return Needed(kept, frozenset(name for name, must in names.items() if must), lacking, sure)

    def _changes(self, place: int, name: str, target: str) -> bool:
        """Tell whether a statement may change the value of a name; one that runs the function does not count."""
        unit = self.units[place]
        if target in unit.names.now - unit.names.gives or any(map(self.is_run, unit.names.calls)):
            return False
        if name in unit.names.touches:
            return name not in self._ours  # a call of what we import, such as PhysicalBatch.filled, changes nothing
        # It is passed to one of the source's own functions, or a module's.
        handed = name in unit.names.hands and isinstance(unit.node, ast.Expr)
        own = unit.names.calls.intersection(self._given)
        return handed and bool(own) and not self._runs(own)


def pruned(node: T, drops: Callable[[ast.stmt], bool]) -> T:
    """Return a copy of a compound statement without those inside that `drops` selects."""
    made = copy.copy(node)
    for name, block in ast.iter_fields(node):
        match block:
            case [ast.ExceptHandler() | ast.match_case(), *_]:
                setattr(made, name, [pruned(one, drops) for one in block])
            case [ast.stmt(), *_]:
                kept = [pruned(one, drops) if isinstance(one, COMPOUND) else one for one in block if not drops(one)]
                setattr(made, name, kept or [ast.copy_location(ast.Pass(), block[0])])
            case _:
                pass
    return made


def import_paths(node: ast.Import | ast.ImportFrom) -> dict[str, str]:
    """Return what an import binds, by name, as dotted paths."""
    if isinstance(node, ast.ImportFrom):
        above = f"{'.' * node.level}{node.module or ''}"
        return {alias.asname or alias.name: f"{above}.{alias.name}" for alias in node.names}
    tops = {alias: alias.name.partition(".")[0] for alias in node.names}
    return {alias.asname or top: alias.name if alias.asname else top for alias, top in tops.items()}
