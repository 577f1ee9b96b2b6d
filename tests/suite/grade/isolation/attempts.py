"""Attempts to score without a training step, or to do harm: they stand in attempts.txt."""

import inspect
import re
import textwrap
from pathlib import Path
from typing import NamedTuple

from lib.puzzles.puzzle import AtSize
from tests.support import functions
from tests.support.profiles import sample

HEAD = f"""
import ctypes, gc, json, os, signal, sys, threading, time
from lib import Model, NotSolved, PuzzleError, Trace, simulate

{inspect.getsource(functions.step)}

def good(model): step(model, keep=False)

def fat(model): step(model, keep=True)

def forge(text):
    for fd in range(3, 256):
        try: os.write(fd, (text if isinstance(text, bytes) else text.encode()) + b"\\n")
        except OSError: pass
    os._exit(0)

def whole(trace, **changes):
    rest = dict(outcome="trace", text="", printed="", answers=[], places=[], lines=[])
    for p in trace["programs"] if isinstance(trace, dict) else ():
        calls = p["calls"]  # or the rank that has the same ones
        rest["lines"].append(rest["lines"][calls] if isinstance(calls, int) else [-1] * len(calls))
    return json.dumps(trace) + "\\n" + json.dumps({{**rest, **changes}})

def data(function, puzzle="basic", **size):
    from lib.trace.json_format import encode
    return encode(Trace.of(simulate(function, puzzle=puzzle, **size)), lines=False)

def reached(): print("REACHED")

def tried(what):
    try: result = what()
    except BaseException: return
    if result is None or result is False or result == -1: return
    print("REACHED", result)
"""

OTHER = AtSize(1, 3, 2)
"""Another size of `basic`."""
TITLE = re.compile(r"^=== (\w+): (.*?)( \[1 3 2\])?(?: \[needs (.*)\])?$", re.MULTILINE)


class Attempt(NamedTuple):
    """A name, and the body of `basic(model)`, or all that makes it. `needs` are the features without which nothing
    may stop it."""

    name: str
    body: str
    size: AtSize | None = None
    needs: tuple[str, ...] = ()
    modules: tuple[tuple[str, str], ...] = ()

    @property
    def text(self) -> str:
        body = textwrap.dedent(self.body).strip("\n")
        if "def basic" in body:
            return f"{HEAD}\n{body}\n"
        return f"{HEAD}\ndef basic(model):\n{textwrap.indent(body, '    ')}\n"


def attempts(kind: str) -> list[Attempt]:
    """Those of a kind."""
    _, *parts = TITLE.split(Path(__file__).with_suffix(".txt").read_text("utf-8"))
    found: list[Attempt] = []
    for which, name, size, needs, text in zip(*(parts[place::5] for place in range(5)), strict=True):
        body, *modules = text.strip("\n").split("\n--- ")
        beside = tuple((path, content) for path, _, content in (module.partition("\n") for module in modules))
        if which == kind:
            found.append(Attempt(name, body, OTHER if size else None, tuple((needs or "").split()), beside))
    return found


KINDS = {kind: attempts(kind) for kind in ("patched", "forged", "ended", "endless", "hungry", "outside")}
_, _, ENDED, ENDLESS, HUNGRY, OUTSIDE = KINDS.values()
SLOW = ("endless", "hungry")
EVERY = [
    (f"{kind}: {one.name}", one) for kind, all_ in KINDS.items() for one in (sample(all_) if kind in SLOW else all_)
]
