"""The error of a forgotten `await`: it shows the student's own line with the `await` put in."""

from __future__ import annotations

import re
from types import CodeType
from typing import Any, cast

from lib.errors.exceptions import ForgottenAwait
from lib.errors.source_lines import Place, resolve, student_frame, student_place

__all__ = ["forgotten_await", "put_await", "used_before_await"]

CO_COROUTINE = 0x80
"""The flag of the code of an async function: inspect.CO_COROUTINE, without the price of importing inspect."""


def forgotten_await(what: str, expected: str, thing: object) -> ForgottenAwait:
    """The error of an awaitable in a value's place. It shows the call that made it, with the `await` put in.

    A coroutine is closed, so that Python does not complain a second time, about its never having been awaited.
    """
    code: CodeType | None = getattr(thing, "cr_code", None)
    frame = student_frame()
    here = where = None if frame is None else resolve(frame.f_code, frame.f_lasti)
    call, got = "", "something that has to be awaited"
    if code is not None:
        cast(Any, thing).close()
        call, got = code.co_name, f"a call of the async function {code.co_name}, not awaited yet"
    elif (issued := getattr(type(thing), "issued", None)) is not None:
        call, where = issued(thing)
        got = f"a call of model.{call}, not awaited yet"
    fix = put_await(call, where)
    if where is not None and here is not None and where.line != here.line:
        fix += "\nor put `await` where the result is used, if other work should run in the meantime"
    if frame is not None and frame.f_code.co_name[:1] != "<" and not frame.f_code.co_flags & CO_COROUTINE:
        fix += f"\nand `async` before the function: async def {frame.f_code.co_name}(...)"
    return ForgottenAwait(what, expected=expected, got=got, fix=fix)


def used_before_await(name: str, call: str, where: Place | None) -> ForgottenAwait:
    """The error of the Work of a call that was used as its result: asked for an attribute, or as a value."""
    here = student_place()
    fix = f"await it first, on a line of its own: result = await model.{call}(...)"
    if where is not None and here is not None and where.line != here.line:
        fix = f"{put_await(call, where)}\nor await it first, where it is used: result = await work"
    return ForgottenAwait(
        "a call that was not awaited was used as a value"
        if name == "a value"
        else f"`.{name}` was asked of a call that was not awaited",
        expected=f"the result of model.{call}",
        got=f"a call of model.{call}, not awaited yet",
        fix=fix,
    )


def put_await(call: str, where: Place | None) -> str:
    """Advice that shows the line of a call with `await` before it."""
    if where is None or not call:
        return "put `await` in front of the call"
    mended = re.sub(rf"(?<![\w.])(?<!await )((?:\w+\.)*{call}\()", r"await \1", where.text)
    return f"put `await` in front of the call in line {where.line}" + (f": {mended}" if mended != where.text else "")
