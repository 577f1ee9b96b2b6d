"""Whether a student's function uses asyncio for more than giving way to others, as its code tells before it has run.

Such a function runs in an event loop of ours (see `event_loop`) from the start. What is overlooked here is noticed when
it asks for a loop, and costs a second run; what is found here without need costs nothing but a little speed.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any, cast

from lib.errors.source_lines import is_students

__all__ = ["asked_for_a_loop", "uses_asyncio"]

MOST_FUNCTIONS = 200
"""Functions that are looked through: the student's own, and those that they call."""
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
_QUIET = ("PUSH_NULL", "PRECALL", "CACHE")


def uses_asyncio(function: Any) -> bool:
    """Whether a function, or one of the student's own that it calls, uses anything of asyncio but sleep(0)."""
    waiting, seen = list(_functions(function)), set[CodeType]()
    while waiting and len(seen) < MOST_FUNCTIONS:
        one = waiting.pop()
        if one.__code__ in seen or not is_students(one.__code__):
            continue
        seen.add(one.__code__)
        named = _named(one)
        meets = any(map(_is_asyncio, named.values())) or "asyncio" in _names(one.__code__)
        if meets and any(_uses(code, named) for code in _codes(one.__code__)):
            return True
        waiting.extend(found for thing in named.values() for found in _functions(thing))
    return False


def _functions(thing: Any) -> Iterator[FunctionType]:
    """The functions behind something that can be called."""
    while isinstance(thing, functools.partial):
        thing = thing.func
    thing = getattr(thing, "__func__", thing)
    if isinstance(thing, FunctionType):
        yield thing
        if isinstance(inside := getattr(thing, "__wrapped__", None), FunctionType):
            yield inside
    elif not isinstance(thing, type | ModuleType):
        call = vars(cast("type[object]", type(thing))).get("__call__")
        if isinstance(call, FunctionType):
            yield call


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A function's code, and that of all functions inside it."""
    yield code
    for item in code.co_consts:
        if isinstance(item, CodeType):
            yield from _codes(item)


def _names(code: CodeType) -> Iterator[str]:
    for one in _codes(code):
        yield from one.co_names


def _named(function: FunctionType) -> dict[str, Any]:
    """What the names of a function stand for that come from outside it."""
    known = function.__globals__
    found = {name: known[name] for name in _names(function.__code__) if name in known}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # it has no value yet
            continue
    return found


def _is_asyncio(thing: Any) -> bool:
    """Whether something is asyncio itself, or a part of it: gather, an Event."""
    if isinstance(thing, ModuleType):
        return thing.__name__.partition(".")[0] == "asyncio"
    for owner in (thing, cast("type[object]", type(thing))):
        module = getattr(owner, "__module__", None)
        if isinstance(module, str) and module.partition(".")[0] in ("asyncio", "_asyncio"):
            return True
    return False


def _uses(code: CodeType, named: dict[str, Any]) -> bool:
    """Whether code takes anything of asyncio but a sleep of no time."""
    import dis  # here and not above: only who names asyncio needs it

    steps = [step for step in dis.get_instructions(code) if step.opname not in _QUIET]
    for index, step in enumerate(steps):
        following = steps[index + 1] if index + 1 < len(steps) else None
        name = step.argval if isinstance(step.argval, str) else None
        if name is None or step.opname.startswith("STORE"):
            continue
        if step.opname == "IMPORT_FROM" and index and any(s.argval == "asyncio" for s in steps[:index]):
            if name != "sleep":
                return True
        elif step.opname in _ATTRIBUTES and index and _stands_for(steps[index - 1].argval, named):
            if name != "sleep" or not _is_zero(following):
                return True
        elif step.opname not in _ATTRIBUTES and name in named and _is_asyncio(named[name]):
            if isinstance(named[name], ModuleType):
                continue  # what is taken of it comes next
            if getattr(named[name], "__name__", "") != "sleep" or not _is_zero(following):
                return True
        elif step.opname in ("LOAD_FAST", "LOAD_DEREF") and name == "sleep" and not _is_zero(following):
            return True
    return False


def _stands_for(name: Any, named: dict[str, Any]) -> bool:
    """Whether a name is that of the module asyncio, whether it is imported above or in the function."""
    thing = named.get(name) if isinstance(name, str) else None
    return _is_asyncio(thing) if isinstance(thing, ModuleType) else name == "asyncio" and thing is None


def _is_zero(step: Any) -> bool:
    return step is not None and step.opname.startswith("LOAD_") and step.argval == 0


def asked_for_a_loop(error: BaseException) -> bool:
    """Whether an error is asyncio's, because no loop is running that it could use."""
    if isinstance(error, RuntimeError) and str(error) in ("no running event loop", "no current event loop"):
        return True
    if not isinstance(error, RuntimeError | AttributeError):
        return False
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    folder = os.path.join(os.path.dirname(os.__file__), "asyncio", "")
    return trace is not None and trace.tb_frame.f_code.co_filename.startswith(folder)
