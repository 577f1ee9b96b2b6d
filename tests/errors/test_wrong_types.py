"""Public functions are given anything, from a seed: whatever they refuse they refuse in words of their own."""

import dis
import inspect
from pathlib import Path
from random import Random
from typing import Any

import pytest

import drawing
import lib

ANYTHING: list[Any] = [None, 5, -1, 1.5, "x", b"x", [], [1], {}, {1: 2}, object(), range(3), True, float("nan"), len]
FUNCTIONS = [
    name
    for room in (lib, drawing)
    for name in room.__all__
    if callable(thing := getattr(room, name)) and not (inspect.isclass(thing) and issubclass(thing, BaseException))
]


def calls(function: Any, seed: str) -> list[tuple[list[Any], dict[str, Any]]]:
    """Arguments for some calls, drawn by the parameters that there are."""
    random, found = Random(seed), []
    for _ in range(20):
        some = [
            p for p in inspect.signature(function).parameters.values() if p.default is p.empty or random.random() < 0.5
        ]
        args = [random.choice(ANYTHING) for p in some if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        found.append((args, {p.name: random.choice(ANYTHING) for p in some if p.kind is p.KEYWORD_ONLY}))
    return found


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_refused_is_refused_by_us(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PUZZLES_PROGRESS", "off")
    function, not_ours = getattr(lib, name, None) or getattr(drawing, name), list[str]()
    for args, named in calls(function, name):
        try:
            inspect.signature(function).bind(*args, **named)
        except TypeError:
            continue  # an optional parameter before another was left out
        try:
            function(*args, **named)
        except (lib.PuzzleError, ValueError, TypeError) as error:
            last = error.__traceback__
            assert last is not None
            while last.tb_next is not None:
                last = last.tb_next
            code = last.tb_frame.f_code.co_code
            if code[last.tb_lasti] != dis.opmap["RAISE_VARARGS"]:
                not_ours.append(f"{name}(*{args}, **{named}): {error!r}")
    assert not_ours == []
