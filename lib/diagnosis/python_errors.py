"""Mistakes that are Python's rather than the model's: ordinary errors, a forgotten `await`, a useless function."""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from ast import PyCF_ALLOW_TOP_LEVEL_AWAIT
from collections.abc import Iterable
from types import CodeType, FrameType
from typing import Any

from lib.errors.exceptions import BudgetError, ForgottenAwait, PuzzleError, RankFailed, put_await
from lib.errors.source_lines import Place, innermost, is_students, notebook, place, resolve, student_place
from lib.errors.wording import message_of, with_article
from lib.values.operations import OPERATIONS, calls, signatures
from lib.values.values import KINDS, describe

__all__ = ["asleep", "failed", "interrupted", "never_awaited", "not_callable", "not_here", "not_ours", "not_the_latest"]
__all__ += ["waiting_at"]


def failed(rank: int | None, error: BaseException) -> RankFailed:
    """The error of a rank that raised an error of Python's: the same words, the line, and the likely fix."""
    text = re.sub(
        r" at 0x[0-9A-Fa-f]+", "", message_of(error).partition("\n")[0]
    )  # no two runs have the same addresses
    if isinstance(error, SystemExit) and error.code is None:
        text = ""
    found = innermost(error)
    frame, where = (None, None) if found is None else (found[0], resolve(found[0].f_code, found[1]))
    fix = _fix(error, text, frame)
    if fix == PLAIN and where is not None and where.text.lstrip().startswith("raise "):
        fix = REFUSED
    failure = RankFailed(f"{type(error).__name__}: {text}" if text else type(error).__name__, fix=fix, rank=rank)
    if where is not None:
        failure.where.append((None, where))
    return failure


def interrupted(rank: int | None, stop: KeyboardInterrupt) -> KeyboardInterrupt:
    """The same interrupt, which says what it stopped. Who shows it shows the student's lines, too."""
    where = "" if rank is None else f", in the code of rank {rank}"
    stop.add_note(f"You stopped the run{where}. If it ought to be quick, a loop here never ends: look at what ends it.")
    return stop


def _fix(error: BaseException, text: str, frame: FrameType | None) -> str:
    for kind, explain in (
        (UnboundLocalError, _unbound),
        (NameError, _name),
        (AttributeError, _attribute),
        (TypeError, _type),
        (RuntimeError, _runtime),
        (ValueError, _value),
        (KeyError, _key),
    ):
        if isinstance(error, kind):
            found = explain(error, text, frame)
            if found is not None:
                return found
            break
    if re.match(r"pop from (an )?empty", text):
        return "nothing is left in it: more is taken out than was put in. Who else takes from this same list or set?"
    if text.startswith("range object index"):
        return "this range is empty, or shorter than you think: look at where it begins and ends, with print"
    return next((fix for kind, fix in SIMPLE.items() if isinstance(error, kind)), PLAIN)


REFUSED = "this line refuses on purpose: its sentence above says what it does not take"
PLAIN = "the line is ordinary Python: look at what each name in it is on this rank, with print"
SIMPLE: dict[type[BaseException], str] = {
    SystemExit: "exit() and sys.exit() end the whole of Python; to end this rank's work here, write `return`",
    MemoryError: "look for a list that grows in a loop without end, or a number that is far too large",
    RecursionError: "this function calls itself, directly or through others, and nothing ends that",
    IndexError: "an index goes from 0 to the length - 1: the last stage and the last layer have no next one",
    ZeroDivisionError: "ranks, layers and batches are counted from 0: on this rank the divisor is 0",
    AssertionError: "this `assert` is in your own code: what it claims is not true on this rank",
}


def _unbound(error: Any, text: str, frame: FrameType | None) -> str | None:
    name = re.search(r"variable '(\w+)'", text)
    if name is None:
        return None
    return f"give {name[1]} a value before this line: before the loop, and on every rank and in every branch"


def _similar(name: str, known: Iterable[str]) -> str | None:
    from difflib import get_close_matches  # here and not above: only a mistake needs it

    found = get_close_matches(name, sorted(known), 1, 0.7)
    return found[0] if found else None


def _name(error: Any, text: str, frame: FrameType | None) -> str | None:
    name = str(getattr(error, "name", None) or "")
    if name in calls():
        return f"it belongs to the model: {calls()[name]}"
    if name in ("dist", "torch"):
        return "values are labels here, not tensors, and every operation is one of the model:\n" + (
            textwrap.fill(", ".join(calls()), width=100)
        )
    if name in getattr(sys.modules.get("lib"), "__all__", ()):
        return f"import it first: from lib import {name}"
    if name in sys.stdlib_module_names:
        return f"import it first: import {name}"
    known: set[str] = set() if frame is None else {*frame.f_locals, *frame.f_globals}
    other = _similar(name, known)
    if other is None:
        return f"give {name} a value before this line; names that a function uses are made in it, or above it"
    return f"did you mean {other}?"


def _attribute(error: Any, text: str, frame: FrameType | None) -> str | None:
    thing, name = getattr(error, "obj", None), str(getattr(error, "name", None) or "")
    if thing is None:
        return "the thing before the dot is None: the call that made it gives nothing back"
    if not hasattr(thing, "RANKS"):
        other = _similar(name, [known for known in dir(thing) if not known.startswith("_")])
        return None if other is None else f"did you mean .{other}?"
    given: dict[str, object] = {**getattr(thing, "given", {}), **vars(thing)}
    names: list[str] = [*calls(), *(str(known) for known in given if known[0] != "_")]
    plain = {known.replace("_", "").lower(): known for known in names} | ALSO
    short = name.replace("_", "").lower()
    other = plain.get(short) or plain.get(_similar(short, plain) or "")
    if other is not None:
        return f"did you mean {calls().get(other, f'model.{other}')}?"
    return f"the operations are {', '.join(calls())}"


ALSO = {"reducescatter": "scatterreduce", "send": "pass_to", "recv": "receive"}
"""What other libraries call some operations."""


def _type(error: Any, text: str, frame: FrameType | None) -> str | None:
    call = re.match(r"Model\.(\w+)\(\) ", text)
    if call is not None and call[1] in signatures():
        return f"write {signatures()[call[1]]}"
    if "can't be used in 'await' expression" in text or "can't be awaited" in text:
        place = None if frame is None else resolve(frame.f_code, frame.f_lasti)
        bare = None if place is None else re.search(r"\bawait (\w+)$", place.text.strip())
        kinds = "|".join(kind.__name__ for kind in KINDS.values())
        # Python 3.14 writes 'WeightGrad' object; before that it was object WeightGrad.
        if bare is not None and re.search(rf"object ({kinds}) |'({kinds})' object ", text):
            return (
                f"{bare[1]} is a result already, so it was awaited before: leave out this `await`, or the earlier one"
            )
        *others, last = [name for name, signature in signatures().items() if signature.startswith("await ")]
        awaited = f"only communication is awaited, which is {', '.join(others)} and {last}"
        return textwrap.fill(f"leave out this `await`: {awaited}", width=108)
    if re.match(r"a coroutine was expected, got <\w+, to be awaited>", text):
        return (
            "a communication is under way as soon as it is called, and needs no task: keep what the call returns,\n"
            "and await it later: work = model.allreduce(...), then await work"
        )
    if text.startswith("cannot unpack non-iterable"):
        return f"this call gives one value: give it one name; {_give_two()} give two"
    if re.match(r"unsupported operand type\(s\) for \+: 'int' and '(\w+)'", text):
        return (
            "sum() begins with the number 0: add the gradients with a loop, total = total + grad, from the first one on"
        )
    if re.match(r"unsupported operand type\(s\) for [/*]=?: '\w+' and '\w+'", text) and "WeightGrad" in text:
        return "gradients are only added up here, with `+`: leave the factor out, it takes no time and no memory"
    if re.match(
        r"unsupported operand type\(s\) for (@|\*).*'Weight'|'(Weight|Activation)' object is not callable", text
    ):
        return f"values are labels here, without numbers in them: a layer is computed by {signatures()['forward']}"
    if text.startswith("'float' object cannot be interpreted as an integer"):
        return "`/` gives a number with a point even where nothing is left over: `//` divides whole numbers"
    if text.endswith("object is not callable"):
        return "round brackets call a function; what is in a store is taken out with square ones: weights[layer]"
    if text.endswith("is not subscriptable"):
        return "square brackets take something out of a store, list or tuple; this is neither"
    return None


def _give_two() -> str:
    """The operations that give two results."""
    *others, last = [row.name for row in OPERATIONS.values() if len(row.gives) > 1]
    return f"{', '.join(others)} and {last}"


def _value(error: Any, text: str, frame: FrameType | None) -> str | None:
    if "values to unpack" in text:
        return f"give the result as many names as it has parts: storage gives five, {_give_two()} two"
    if "has no mesh" in text:
        return "this run has no mesh, so there are no coordinates and no axes: a rank is known by model.rank alone"
    return None


def _key(error: Any, text: str, frame: FrameType | None) -> str | None:
    model = None if frame is None else next((v for v in frame.f_locals.values() if hasattr(v, "RANKS")), None)
    mesh = getattr(getattr(model, "dist", None), "mesh", None)
    by_name = bool(error.args) and isinstance(error.args[0], str)  # an axis has a name; a key of one's own a number
    if mesh is not None and frame is not None and by_name and "coord" in frame.f_code.co_names:
        return f"the axes of the mesh are {' and '.join(map(repr, mesh.axes))}: model.coord has a number for each"
    return "nothing is stored under that key on this rank: is it stored on all ranks that come to this line?"


def _runtime(error: Any, text: str, frame: FrameType | None) -> str | None:
    if "cannot be called from a running event loop" in text:
        return "a rank's function runs in a loop already: await the coroutine, without asyncio.run"
    if "is bound to a different event loop" in text:
        return "it belongs to an earlier run: make a new one for each run, right before simulate(...)"
    if "changed size during iteration" in text:
        return "go through a copy of the keys, so that the store may change: for key in list(...):"
    return None


# -- what simulate alone can see ----------------------------------------------------------------------------------


def never_awaited(name: str, rank: int | None) -> ForgottenAwait:
    where = student_place()
    return ForgottenAwait(
        f"the async function {name} was called, but not awaited",
        expected=f"`await` in front of the call of {name}",
        got=f"a call without `await`: nothing of {name} has run",
        fix=put_await(name, where),
        rank=rank,
        where=[] if where is None else [(None, where)],
    )


def not_ours(rank: int, thing: object, where: Place | None) -> PuzzleError:
    """Something to await that neither we nor asyncio know what to do with."""
    return PuzzleError(
        "awaited something that is not an operation of the model",
        expected="`await` on what model.allreduce, allgather, pass_to, receive, ... return",
        got=with_article(type(thing).__name__),
        fix="time is simulated, and there is nothing else to wait for: leave this `await` out",
        rank=rank,
        where=[] if where is None else [(None, where)],
    )


def not_here(thing: str, fix: str) -> PuzzleError:
    """A part of asyncio that needs more than this one program."""
    return PuzzleError(
        f"{thing} cannot be simulated",
        expected="tasks, timers, locks, events and queues of asyncio: whatever runs in this one program",
        got="something that comes from outside, at a time that cannot be foreseen",
        fix=fix,
    )


def asleep(rank: int, where: Place | None, turns: int) -> BudgetError:
    """A rank that asks again and again, and lets all others run in between, without end."""
    return BudgetError(
        f"this rank has taken more than {turns} turns, and no rank has moved",
        expected="a loop that ends: some rank can still do what its condition asks for",
        got="a loop around `await asyncio.sleep(...)`, while all others wait or have finished",
        fix="wait for what another rank does with `await`, not with a loop: value = await model.receive(source)",
        rank=rank,
        where=[] if where is None else [(None, where)],
    )


def waiting_at(coroutine: Any) -> Place | None:
    """The student's line in which a coroutine waits."""
    found: Place | None = None
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        if is_students(frame.f_code):
            found = resolve(frame.f_code, frame.f_lasti) or found
        coroutine = coroutine.cr_await
    return found


def not_the_latest(function: Any) -> PuzzleError | None:
    """A function of a notebook whose latest cell has an error of syntax: what is there under its name is older."""
    shell = notebook()
    name = getattr(function, "__name__", "")
    if shell is None or getattr(function, "__module__", "") != "__main__":
        return None
    defines = re.compile(rf"^\s*(async\s+)?def\s+{re.escape(name)}\s*\(", re.MULTILINE)
    cells: list[str] = shell.user_ns.get("In", [])
    text = next((cell for cell in reversed(cells) if defines.search(cell)), None)
    try:
        compile(text or "", "<cell>", "exec", PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    except SyntaxError as error:
        line = (error.text or "").strip()
        return PuzzleError(
            f"the last cell that defines {name} did not run, so this would be the {name} from before it",
            expected=f"a cell that Python can read, and that defines {name}",
            got=f"{type(error).__name__} in line {error.lineno} of that cell: {error.msg}\n{line}",
            fix="mend that line, and run the cell again before this one",
        )
    except ValueError:  # a cell with a null character
        return None
    return None


def not_callable(function: Any) -> PuzzleError:
    """Something that simulate cannot call with the model of a rank."""
    code: CodeType | None = getattr(function, "__code__", None)
    where: list[tuple[int | None, Place]] = [] if code is None else [(None, place(code, code.co_firstlineno))]
    if not callable(function):
        if inspect.iscoroutine(function):
            function.close()
        return PuzzleError(
            "simulate was not given a function",
            expected="the function itself, without brackets after its name: simulate(ddp, ...)",
            got=describe(function),
            fix="leave out the brackets after the function's name: simulate calls it, once for each rank",
        )
    name, takes = getattr(function, "__name__", "the function"), list(inspect.signature(function).parameters)
    fix = "take from the model whatever else the function needs: model.rank, model.RANKS, model.LAYERS, ..."
    return PuzzleError(
        f"simulate cannot call {name}: it calls it once for each rank, with the model of that rank",
        expected=f"one parameter: async def {name}(model)",
        got=f"{name}({', '.join(takes)})",
        fix=fix if takes else "give it the parameter model, on which all operations are called",
        where=where,
    )
