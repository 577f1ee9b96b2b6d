"""What students get wrong in the puzzles whose answer is a plain function: what they thought, what they wrote, and what
they are told. The texts are in mistakes.txt."""

import textwrap
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from lib.suite.submissions.load import load_function
from lib.suite.submissions.locations import reference

__all__ = ["MISTAKES", "Mistake", "given_in", "histories", "written"]

RIGHT = """
from math import prod
sizes = dict(sizes)
if sizes["dp_shard"] == -1:
    sizes["dp_shard"] = world // prod(size for axis, size in sizes.items() if axis != "dp_shard")
if min(sizes.values()) < 1 or prod(sizes.values()) != world:
    raise ValueError("no")
place, groups, left, stride = {}, {}, rank, 1
for axis in reversed(sizes):
    left, place[axis] = divmod(left, sizes[axis])
    first = rank - place[axis] * stride
    groups[axis] = [first + stride * i for i in range(sizes[axis])]
    stride *= sizes[axis]
return {"sizes": sizes, "place": place, "groups": groups}
"""
"""An answer to parallel_dims, of which each mistake changes a line."""
MENDED = {
    "axes_of": 'return ["dp_shard", "cp"], ["dp_replicate"]',
    "training_step": "loss = mean_loss(weight, batch) / calls\nloss.backward()\nreturn loss",
    "pipeline_step": "for batch in microbatches:\n    (mean_loss(weight, batch) / len(microbatches)).backward()",
}
ARGUMENTS = {"axes_of": "sizes", "training_step": "weight, batch, calls", "pipeline_step": "weight, microbatches"}
TAIL = """
if bug == 1:
    return groups(given[0], given[1], axes_of)
if bug == 3:
    return after_each_call(given, pipeline_step)
weight = Weight()
logged = sum(training_step(weight, batch, len(given)).value for batch in given)
return {"logged": logged, "grad": weight.grad}
"""


class Mistake(NamedTuple):
    """A wrong answer to a puzzle, by name; `parts` is the code, a change of RIGHT, or functions that are not mended."""

    puzzle: str
    name: str
    thought: str
    parts: Mapping[str, str]
    message: str

    def function(self) -> Callable[..., Any]:
        """The function that the student wrote, in the notebook of the puzzle."""
        if "change" in self.parts:
            old, new = (line[1:] for line in self.parts["change"].splitlines())
            assert RIGHT.count(f"{old}\n") == 1, old
            return written(self.puzzle, RIGHT.replace(f"{old}\n", f"{new}\n"), self.name)
        return written(self.puzzle, self.parts.get("code") or histories(self.parts), self.name)


def histories(changed: Mapping[str, str]) -> str:
    """The body of find_the_bug: all mended but those functions that are given otherwise."""
    parts = [f"def {name}({ARGUMENTS[name]}):\n{_indented(code)}\n" for name, code in (MENDED | dict(changed)).items()]
    return "\n".join([*parts, TAIL])


@cache
def given_in(puzzle: str, name: str) -> Callable[..., Any]:
    """A function that stands in the notebook of a puzzle."""
    return load_function(reference(puzzle), name)


def written(puzzle: str, body: str, name: str = "mine") -> Callable[..., Any]:
    """The function of a puzzle with this body, in the notebook of the puzzle."""
    solved = given_in(puzzle, puzzle)
    arguments = solved.__code__.co_varnames[: solved.__code__.co_argcount]
    namespace: dict[str, Any] = dict(solved.__globals__)
    code = f"def {puzzle}({', '.join(arguments)}):\n{_indented(body)}\n"
    exec(compile(code, f"/tmp/ipykernel_1/{name}.py", "exec", dont_inherit=True), namespace)
    return namespace[puzzle]


def _indented(code: str) -> str:
    return textwrap.indent(code.strip(), "    ")


def _mistake(text: str) -> Mistake:
    head, *sections = text.split("\n### ")
    title, thought = head.strip().split("\n")
    puzzle, name = title.split(": ")
    parts = {name: body.strip("\n") for name, _, body in (section.partition("\n") for section in sections)}
    return Mistake(puzzle, name, thought, parts, parts.pop("message"))


MISTAKES = [*map(_mistake, Path(__file__).with_suffix(".txt").read_text("utf-8").split("=== ")[1:])]
