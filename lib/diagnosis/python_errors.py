"""Mistakes that are Python's rather than the model's: ordinary errors, a forgotten `await`, a useless function."""

from __future__ import annotations

import ast
import builtins
import inspect
import linecache
import re
import sys
from collections.abc import Iterable
from itertools import islice
from traceback import walk_tb
from types import CodeType, FrameType
from typing import Any, cast

from lib.diagnosis import ADVICE, words_of
from lib.errors import source_lines
from lib.errors.exceptions import BudgetError, ForgottenAwait, PuzzleError, RankFailed, put_await
from lib.errors.source_lines import Place, function_of, place, resolve
from lib.errors.wording import message_of, with_article
from lib.values.operations import OPERATIONS, calls, signatures
from lib.values.values import KINDS, describe

__all__ = ["asleep", "failed", "interrupted", "never_awaited", "never_begun", "not_callable", "not_here", "not_ours"]
__all__ += ["not_the_latest", "waiting_at"]

REFUSED = "this line refuses on purpose: its sentence above says what it does not take"
PLAIN = "the line is ordinary Python: look at what each name in it is on this rank, with print"
SHOWN = 6
"""The most keys of a dictionary that a message shows."""
ALSO = {"reducescatter": "scatterreduce", "send": "pass_to", "recv": "receive"}
"""What other libraries call some operations."""


def failed(rank: int | None, error: BaseException) -> RankFailed:
    """Return the error for a rank that raised a Python error: the same words, the line, and the likely fix."""
    text = re.sub(r" at 0x[0-9A-Fa-f]+", "", message_of(error).partition("\n")[0])  # differs from run to run
    text = "" if isinstance(error, SystemExit) and error.code is None else text
    found = source_lines.innermost(error)
    frame, where = (None, None) if found is None else (found[0], resolve(found[0].f_code, found[1]))
    fix = (_key_of_given(error) if isinstance(error, KeyError) else None) or _fix(error, text, frame)
    if fix is None:
        fix = REFUSED if where is not None and where.text.lstrip().startswith("raise ") else PLAIN
    what = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return RankFailed(what, fix=fix, rank=rank, where=where)


def _fix(error: BaseException, text: str, frame: FrameType | None) -> str | None:
    explain = {NameError: _name, AttributeError: _attribute, TypeError: _type, KeyError: _key, IndexError: _index}
    for kind, ask in explain.items():
        if isinstance(error, kind) and (found := ask(error, text, frame)) is not None:
            return found
    if isinstance(error, TypeError | ValueError | ArithmeticError) and (given := _in_given(error)) is not None:
        return _handed(given)
    for row in ADVICE["python"]:
        kind = getattr(builtins, row["of"])
        if isinstance(error, kind) and (match := re.match(row["says"], text)) is not None:
            *others, last = [row.name for row in OPERATIONS.values() if len(row.gives) > 1]
            two, forward = f"{', '.join(others)} and {last}", signatures()["forward"]
            return row["fix"].format(*match.groups(), two=two, forward=forward)
    return None


def _similar(name: str, known: Iterable[str]) -> str | None:
    from difflib import get_close_matches  # here and not above: only a mistake needs it

    return next(iter(get_close_matches(name, sorted(known), 1, 0.7)), None)


def _called(name: str, names: Iterable[str]) -> str | None:
    """Return which of some names is meant by one that is spelt differently, or is another library's."""
    plain = {known.replace("_", "").lower(): known for known in names} | ALSO
    short = name.replace("_", "").lower()
    return plain.get(short) or plain.get(_similar(short, plain) or "")


def _name(error: Any, text: str, frame: FrameType | None) -> str:
    if isinstance(error, UnboundLocalError):
        return _unbound(text.split("'")[1], frame)
    name = str(getattr(error, "name", None) or "")
    if name in calls():
        return f"it belongs to the model: {calls()[name]}"
    if name in ("BATCHES", "LAYERS", "RANKS", "rank"):
        return f"it belongs to the model: model.{name}"
    if name in ("dist", "torch"):
        place = None if frame is None else resolve(frame.f_code, frame.f_lasti)
        called = None if place is None else re.search(rf"\b{name}\.(?:\w+\.)*(\w+)\(", place.text)
        ours = None if called is None else _called(called[1], calls())
        known = "every operation is one of the model" if ours is None else f"write {calls()[ours]}"
        return f"values are labels here, not tensors: {known}"
    if name in getattr(sys.modules.get("lib"), "__all__", ()):
        return f"import it first: from lib import {name}"
    if name in sys.stdlib_module_names:
        return f"import it first: import {name}"
    other = _similar(name, set[str]() if frame is None else {*frame.f_locals, *frame.f_globals})
    made = f"give {name} a value before this line; names that a function uses are made in it, or above it"
    return made if other is None else f"did you mean {other}?"


def _unbound(name: str, frame: FrameType | None) -> str:
    """Say what deleted a name, or that nothing has given it a value."""
    node, last = (None, 0) if frame is None else (function_of(frame.f_code), frame.f_lineno)
    inside = [] if node is None else [*ast.walk(node)]
    for loop in inside:  # all of its lines may have run before
        if isinstance(loop, ast.For | ast.While) and loop.lineno <= last:
            last = max(last, loop.end_lineno or 0)
    for one in inside:
        if not isinstance(one, ast.Delete) or one.lineno > last:
            continue
        if any(isinstance(it, ast.Name) and it.id == name for it in one.targets):
            return f"del {name} in line {one.lineno} takes the name away: delete what is in it, as in del {name}[...]"
    return f"give {name} a value before this line: before the loop, and on every rank and in every branch"


def _attribute(error: Any, text: str, frame: FrameType | None) -> str | None:
    thing, name = getattr(error, "obj", None), str(getattr(error, "name", None) or "")
    if (one := _in_given(error)) and one.f_locals.get("model") is thing and (op := one.f_code.co_name) in calls():
        return f"this {op} is a helper, and takes the model first; you want {calls()[op]}"
    here = None if frame is None else resolve(frame.f_code, frame.f_lasti)
    if thing is None and here is not None and here.text and f".{name}" not in here.text:
        return "what is handed in is None: a call that stores what it makes gives nothing back. Take it from its store"
    if thing is None:
        return "the thing before the dot is None: the call that made it gives nothing back"
    if not hasattr(thing, "RANKS"):
        other = _similar(name, [known for known in dir(thing) if not known.startswith("_")])
        if other is None and type(thing) in KINDS.values():
            known = f"write {calls()[name]}" if name in calls() else "every operation is one of the model"
            return f"values are labels here, not tensors: {known}"
        return None if other is None else f"did you mean .{other}?"
    given: dict[str, object] = {**getattr(thing, "given", {}), **vars(thing)}
    names: list[str] = [*calls(), *(str(known) for known in given if known[0] != "_")]
    if (other := _called(name, names)) is not None:
        return f"did you mean {calls().get(other, f'model.{other}')}?"
    return f"the operations are {', '.join(calls())}"


def _type(error: Any, text: str, frame: FrameType | None) -> str | None:
    call = re.match(r"(?:Model|Value)\.(\w+)\(\) ", text)
    known = signatures() | {"shard": 'model.shard(value, "rows", shard, total)', "cut": 'value.cut("rows", low, high)'}
    if call is not None and call[1] in known:
        none = ";\ndispatch and combine need no activation: model.backward(layer, None, gradient)"
        return f"write {known[call[1]]}" + none * ("missing" in text and "'grad'" in text)
    if "object is not an async iterator" in text:
        what = "the function itself takes no turns, and what it gives does: call it, as in"
        what = what if "'function'" in text else "only calls of async functions take turns, and this is none:"
        return f"{what} in_turn(step(b) for b in ...)"
    if "'async_generator' object is not iterable" in text:
        return "an async function with a `yield` in it is gone through with `async for`"
    if "can't be used in 'await' expression" not in text and "can't be awaited" not in text:
        return None
    if _in_given(error) is not None:
        return "what is given here awaits what your function returns: the call itself, return model.allreduce(...)"
    place = None if frame is None else resolve(frame.f_code, frame.f_lasti)
    if "NoneType" in text:
        if place and (plain := re.search(r"\bawait (\w+)\(", place.text)):
            called = None if frame is None else {**frame.f_globals, **frame.f_locals}.get(plain[1])
            own = inspect.isfunction(called) and source_lines.is_students(called.__code__)
            asked = f",\nor, if this line is given, begin yours with async def {plain[1]}" if own else ""
            return f"{plain[1]}(...) does its work at once, and gives nothing to await: leave out this `await`{asked}"
        return "what this line awaits is None here: keep the call itself under this name, work = model.allreduce(...)"
    if "async_generator" in text:
        made = None if place is None else re.search(r"\bawait (\w+\(.*\))$", place.text.strip())
        call = made[1] if made else "..."
        if frame is not None and frame.f_code.co_flags & inspect.CO_ASYNC_GENERATOR:
            return f"hand its stops on: async for _ in {call}: yield"
        return f"a function with a `yield` in it is given turns: await in_turn([{call}])"
    if place is not None and "list" in text and (many := re.search(r"\bawait (\w+)\(", place.text)) is not None:
        return f"{many[1]}(...) gives a list of calls: await each of them, or hand the list to a helper that does"
    bare = None if place is None else re.search(r"\bawait (\w+)$", place.text.strip())
    kinds = "|".join(kind.__name__ for kind in KINDS.values())
    # Python 3.14 writes 'WeightGrad' object; before that it was object WeightGrad.
    if bare is not None and re.search(rf"object ({kinds}) |'({kinds})' object ", text):
        handed_in = frame and bare[1] in frame.f_code.co_varnames[: frame.f_code.co_argcount]
        before = "what hands it in has awaited it. Leave out the" if handed_in else "leave out one"
        return f"{bare[1]} is a result already: {before} `await`{' there' if handed_in else ''}"
    op = None if place is None else re.search(r"\bawait \w+\.(\w+)\(", place.text)
    why = f"{op[1]} computes, and its result is there at once" if op is not None and op[1] in calls() else "it is there"
    fix = f"leave out this `await`: {why}.\n"
    return f"{fix}What is awaited is communication, such as model.allreduce and model.receive"


def _index(error: Any, text: str, frame: FrameType | None) -> str | None:
    """Say which list of a line is empty, and which line gave it to the function."""
    here = None if frame is None else resolve(frame.f_code, frame.f_lasti)
    for name in re.findall(r"(\w+)\[", "" if here is None else here.text):
        held: object = {} if frame is None else frame.f_locals.get(name, 0)
        if frame is None or not isinstance(held, list | tuple | range) or held:
            continue
        above = frame.f_back if name in frame.f_code.co_varnames[: frame.f_code.co_argcount] else None
        outer = None if above is None else source_lines.student_frame(above)
        line = None if outer is None else resolve(outer.f_code, outer.f_lasti)
        of = "" if line is None else f", and line {line.line} gives it to {frame.f_code.co_name}:\n{line.text}"
        return f"{name} is empty on this rank{of}\nIs there a `//` before it that gives 0?"
    return None


def _key(error: Any, text: str, frame: FrameType | None) -> str | None:
    key = error.args[0] if error.args else None
    line = None if frame is None else resolve(frame.f_code, frame.f_lasti)
    if frame is None or line is None:
        return None
    model = next((v for v in frame.f_locals.values() if hasattr(v, "RANKS")), None)
    mesh = getattr(getattr(model, "dist", None), "mesh", None)
    of_axes = "coord[" in line.text or (isinstance(key, str) and "coord" in frame.f_code.co_names)
    if mesh is not None and of_axes:  # an axis has a name
        return f"the axes of the mesh are {' and '.join(map(repr, mesh.axes))}: model.coord has a number for each"
    known = {**frame.f_globals, **frame.f_locals}
    names = [name for name in re.findall(r"(\w+)(?:\.pop\(|\[)", line.text) if type(known.get(name)) is dict]
    said = (_absent(name, key, cast("dict[object, object]", known[name])) for name in names)
    return never_begun(frame) or next(filter(None, said), None)


def never_begun(frame: FrameType | None) -> str | None:
    """Recognise a call, alone on a line, of a function that takes turns: there it gets none."""
    node, known = (function_of(frame.f_code), {**frame.f_globals, **frame.f_locals}) if frame else (None, {})
    for one in () if node is None else ast.walk(node):
        call = one.value if isinstance(one, ast.Expr) else None
        made = call.func if isinstance(call, ast.Call) else None
        if call is not None and isinstance(made, ast.Name) and inspect.isasyncgenfunction(known.get(made.id)):
            text = f"{made.id}(...) in line {call.lineno} only makes something that takes turns: it has not begun"
            how = f"Give it turns: await in_turn({ast.unparse(call)});\nin a function with a `yield`, hand its own on: "
            return f"{text}.\n{how}async for _ in {ast.unparse(call)}: yield"
    return None


def _key_of_given(error: KeyError) -> str | None:
    """Say what a notebook's helper has not found, or which other helper was to put it there."""
    from dis import get_instructions  # here and not above: only a mistake needs it

    frame = _in_given(error)
    said = None if frame is None else _key(error, "", frame)
    if frame is None or said is None:
        return None
    takes, code, key = frame.f_code.co_name, frame.f_code, error.args[0]
    lacking = {name for name in code.co_freevars if type(held := frame.f_locals.get(name)) is dict and key not in held}
    for outer, _ in walk_tb(error.__traceback__):
        for name, other in outer.f_locals.items():
            theirs: CodeType | None = getattr(other, "__code__", None)
            steps = () if theirs is None or lacking.isdisjoint(theirs.co_freevars) else get_instructions(theirs)
            if any(one.opname == "STORE_SUBSCR" for one in steps):
                why = f"{takes} takes what {name} has begun, and nothing is under way under {key!r} here"
                return f"{why}:\ncall {name}({key!r}, ...) before it, once for each {takes}({key!r})"
    return f"{takes} finds nothing under this key:\n{said}"


def _in_given(error: BaseException) -> FrameType | None:
    """Return the frame that raised an error, if it is in a helper from a notebook."""
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    return frames[-1] if frames and frames[-1].f_code.co_filename.startswith(source_lines.MARK) else None


def _handed(helper: FrameType) -> str | None:
    """Say what a notebook's helper was given that it cannot use; None if it refuses on purpose."""
    code, here = helper.f_code, resolve(helper.f_code, helper.f_lasti)
    if here is None or here.text.lstrip().startswith("raise "):
        return None
    takes = [name for name in code.co_varnames[: code.co_argcount] if name in helper.f_locals]
    said = [f"{name} is {describe(helper.f_locals[name])}" for name in takes if name != "model"]
    why = f"{code.co_name}({', '.join(takes)}) is a helper, and cannot use what this line hands it:\n"
    return why + ",\n".join(said)


def _absent(name: str, key: object, mine: dict[object, object]) -> str | None:
    """Say which keys a dictionary has instead of this one; None if it has this one, or if comparing keys fails."""
    try:
        if key in mine:
            return None
        absent, keys = repr(key), [repr(one) for one in islice(mine, SHOWN + 1)]
    except Exception:  # a student's keys may raise anything, or `raise KeyError(...)` may name no possible key
        return None
    here = f"it has {', '.join(keys[:SHOWN])}{', ...' * (len(keys) > SHOWN)}" if keys else "it is empty"
    why = f"{name} has no {absent} on this rank now; {here}. Is it stored on every rank that\n"
    return f"{why}comes to this line, and not taken out before, by an earlier pop or del?"


def interrupted(rank: int | None, stop: KeyboardInterrupt) -> KeyboardInterrupt:
    """Return the same interrupt, with a note that says what it stopped. Showing it shows the student's lines, too."""
    where = "" if rank is None else f", in the code of rank {rank}"
    stop.add_note(f"You stopped the run{where}. If it ought to be quick, a loop here never ends: look at what ends it.")
    return stop


# -- what simulate alone can see ----------------------------------------------------------------------------------


def never_awaited(name: str, rank: int | None) -> ForgottenAwait:
    where = source_lines.student_place()
    handed_on = where is not None and re.search(rf"[(,=] ?{name}[,)]", where.text) is not None
    parts = {"name": name, "line": where and where.line, "put": put_await(name, where)}
    words = words_of("never_awaited", "handed_on" * handed_on, **parts)
    return ForgottenAwait(**words._asdict(), rank=rank, where=where)


def not_ours(rank: int, thing: object, where: Place | None) -> PuzzleError:
    """Return the error for awaiting something that neither we nor asyncio can handle."""
    words = words_of("not_ours", thing=with_article(type(thing).__name__))
    return PuzzleError(**words._asdict(), rank=rank, where=where)


def not_here(thing: str, fix: str) -> PuzzleError:
    """Return the error for a part of asyncio that needs more than this program."""
    return PuzzleError(**words_of("not_here", thing=thing, fix=fix)._asdict())


def asleep(rank: int, where: Place | None, turns: int) -> BudgetError:
    """Return the error for a rank that polls forever, letting all others run in between."""
    return BudgetError(**words_of("asleep", turns=turns)._asdict(), rank=rank, where=where)


def waiting_at(coroutine: Any) -> Place | None:
    """Return the student's line in which a coroutine waits."""
    found: Place | None = None
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        if source_lines.is_students(frame.f_code):
            found = resolve(frame.f_code, frame.f_lasti) or found
        coroutine = coroutine.cr_await
    return found


def not_the_latest(function: Any) -> PuzzleError | None:
    """Recognise an outdated notebook function: the latest cell that defines it has a syntax error."""
    shell = source_lines.notebook()
    name = getattr(function, "__name__", "")
    if shell is None or getattr(function, "__module__", "") != "__main__":
        return None
    defines = re.compile(rf"^\s*(async\s+)?def\s+{re.escape(name)}\s*\(", re.MULTILINE)
    text = next((cell for cell in reversed(cast("list[str]", shell.user_ns.get("In", []))) if defines.search(cell)), "")
    # Mostly the function was made by this very cell: a check, which runs it at three sizes, need not compile it.
    code = getattr(getattr(function, "__wrapped__", function), "__code__", None)
    if isinstance(code, CodeType) and text == "".join(linecache.getlines(code.co_filename)):
        return None
    try:
        compile(text, "<cell>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    except SyntaxError as error:
        problem = f"{type(error).__name__} in line {error.lineno} of that cell: {error.msg}"
        words = words_of("not_the_latest", name=name, problem=problem, text=(error.text or "").strip())
        return PuzzleError(**words._asdict())
    except ValueError:  # a cell with a null character
        return None
    return None


def not_callable(function: Any) -> PuzzleError:
    """Return the error for something that simulate cannot call with a rank's model."""
    if not callable(function):
        if inspect.iscoroutine(function):
            function.close()
        return PuzzleError(**words_of("not_callable", function=describe(function))._asdict())
    code: CodeType | None = getattr(function, "__code__", None)
    name, takes = getattr(function, "__name__", "the function"), list(inspect.signature(function).parameters)
    where = None if code is None else place(code, code.co_firstlineno)
    words = words_of("not_callable", "function", "with_parameters" * bool(takes), name=name, takes=", ".join(takes))
    return PuzzleError(**words._asdict(), where=where)
