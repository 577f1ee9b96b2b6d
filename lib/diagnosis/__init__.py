"""Explanations of what went wrong, with likely cause and fix, as in `diagnosis.not_callable(...)`; and the advice they
are made of, which says what to do, or names the idea behind a line that the student is to find.

A run that goes well needs nothing here, so it is imported on first use. The words of each rule are in `words.toml`,
advice that is the same in every run in `advice.toml`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from lib.errors.exceptions import Words, words_in
from lib.files import table
from lib.values.dims import DIMS

if TYPE_CHECKING:
    from lib.diagnosis.deadlock import *  # noqa: F403
    from lib.diagnosis.groups import *  # noqa: F403
    from lib.diagnosis.python_errors import *  # noqa: F403
    from lib.errors.exceptions import PuzzleError
    from lib.simulator.recorder import Recorder as Running
else:
    Running = Any  # the simulator stands above

    def __getattr__(name: str) -> Any:
        for home in ("python_errors", "groups", "deadlock"):
            if name in (module := import_module(f"lib.diagnosis.{home}")).__all__:
                return getattr(module, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class Line(NamedTuple):
    """A fix for the student to find: the message names the idea, and `fix()` shows the line."""

    idea: str
    fix: str


Advice = str | Line
Told = Iterator[Words | Advice | None]
"""What a fact yields: its words, then what to do about each likely cause in a program."""

WORDS, ADVICE = (table("lib.diagnosis", name) for name in ("words", "advice"))
words_of = partial(words_in, WORDS)


def because(cause: str, **parts: object) -> str:
    """Return why something is wrong and what to do about it, from `advice.toml`, with the parts filled in."""
    return ADVICE["because"][cause].format(**parts)


def of_dim(need: str, role: str) -> str:
    """Return what to do if values are not "alike" along a dim, do not have each piece of it "once", or are a sum that
    is "owed" the rest of it; "" if there is no advice."""
    known, words = ADVICE[need], DIMS[role].plural.split()
    found: str = known.get(role) or known.get(words[0], "")  # the dims of a grid share theirs: "output columns"
    return found.format(of=words[-1], one=words[-1][:-1])


def line(program: Running | None, asked: str, name: str, /, **parts: object) -> Advice:
    """Return a fix that is the answer to some puzzle, with its idea, by its name in `advice.toml`; for a student at
    another puzzle who has solved that one, the fix itself."""
    texts = ADVICE["line"][name]
    idea: str = texts["idea"].format(**parts)
    fix: str = texts["fix"].format(idea=idea, **parts)
    asks = None if program is None else program.world.asks
    return fix if asks is not None and asked not in asks else Line(idea, fix)


def advise(error: PuzzleError, program: Running | None = None) -> None:
    """Put the likely reason, if one is found, into the fix of an error that has a fact; only once. What the rank did
    before says more than the values that it ended up with.

    This decides nothing: an error stays an error, whatever the advice.
    """
    if error.fact is None or error.advised:
        return
    error.advised = True
    found = error.fact.likely_fix(program)
    if isinstance(found, Line):
        error.idea, error.fix = found
    elif found is not None:
        error.fix = found
