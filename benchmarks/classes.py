"""A class to be graded: notebooks, each with the eight classic puzzles.

Of a hundred answers 55 are our own solution and 20 another one that is correct, each with names and comments of the
student's own, 10 are unsolved, 10 raise an error on some line, and 5 are right at the puzzle's size only; and one
student of a hundred hands in a loop that never ends.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from lib import PUZZLES
from lib.suite.grade.assignment import Config
from lib.suite.grade.gradebook import STATES
from lib.suite.grade.grading import grade
from lib.suite.grade.intake.collecting import collect
from lib.suite.grade.judging import own_ways
from lib.suite.grade.results import write_results

CLASSIC = ("basic", "grad_accum", "ddp", "wsdp", "fsdp", "pipeline", "gpipe", "pipeline_fsdp")
PROCESSES = 2
HIDDEN, SEED = 2, 7
SECONDS = 2.0
"""Of one run, of which only those that never end take more than a few hundredths."""
ENDLESS = 100
"""One student of so many hands in a loop that never ends."""
MIX = (("reference", 55), ("alternative", 20), ("unsolved", 10), ("raises", 10), ("hard-coded", 5))
SIZES = {"LAYERS": "layers", "BATCHES": "batches", "RANKS": "ranks"}


def function_in(path: Path, puzzle: str) -> str:
    """The text of the function of a puzzle, with what its file defines before it and is no cell of text."""
    cells = re.split(r"(?m)^# %%.*\n", path.read_text("utf-8"))
    return next(cell for cell in cells if re.search(rf"(?m)^(async )?def {puzzle}\(", cell)).strip() + "\n"


def answer(puzzle: str, kind: str, student: str, random: Random) -> str:
    """What a student hands in for a puzzle."""
    ways = own_ways(puzzle)
    text = function_in(random.choice(ways[1:]) if kind == "alternative" and ways[1:] else ways[0], puzzle)
    text = re.sub(r"\blayer\b(?!\s*=)", f"layer_{random.choice('abcdefgh')}", text) if kind == "reference" else text
    lines = text.splitlines()
    first = next(number for number, line in enumerate(lines) if re.match(rf"(async )?def {puzzle}\(", line))
    lines.insert(first + 1, f"    # {student}, {kind}")
    if kind == "unsolved":
        lines[first + 1 :] = [f'    raise NotSolved("{puzzle}")']
    if kind == "raises":
        lines.insert(random.randint(first + 2, len(lines) - 1), f'    raise KeyError("{student}")')
    text = "\n".join(lines) + "\n"
    if kind == "hard-coded":
        for name, field in SIZES.items():
            text = text.replace(f"model.{name}", str(getattr(PUZZLES[puzzle], field)))
    if kind == "endless":
        text = f"async def {puzzle}(model):\n    while True:  # {student}\n        pass\n"
    return text


def notebook(number: int) -> str:
    """The notebook of a student."""
    student, random = f"student {number:03d}", Random(number)
    cells = [f"# {student}\nfrom lib import Model, NotSolved, simulate", "import asyncio"]
    kinds, weights = zip(*MIX, strict=True)
    for puzzle in CLASSIC:
        (kind,) = random.choices(kinds, weights)
        if number % ENDLESS == ENDLESS - 1 and puzzle == CLASSIC[number // ENDLESS % len(CLASSIC)]:
            kind = "endless"
        cells += [answer(puzzle, kind, student, random), f'models = simulate({puzzle}, puzzle="{puzzle}")\nmodels']
    output = {"output_type": "stream", "name": "stdout", "text": ["Correct!\n"] * 40}
    code = {"cell_type": "code", "metadata": {}, "execution_count": 1, "outputs": [output]}
    made = [{**code, "source": cell} for cell in cells]
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1)


def grade_class(students: int) -> tuple[float, str]:
    """Grade a class, each answer at its own size and at two hidden ones; return the seconds that all processes compute,
    and how many answers are in which state."""
    with TemporaryDirectory() as folder:
        for number in range(students):
            path = Path(folder, "in", f"student_{number:03d}", "puzzles.ipynb")
            path.parent.mkdir(parents=True)
            path.write_text(notebook(number), "utf-8")
        out, before = Path(folder, "out"), os.times()
        assignment = Config().with_options(puzzles=CLASSIC, hidden=HIDDEN, seed=SEED, seconds=SECONDS).assignment()
        book = grade(collect([Path(folder, "in")]), assignment, out, jobs=PROCESSES)
        write_results(book, out)
        after = os.times()
    states = [score.state for student in book.students for score in student.scores]
    return sum(after[:4]) - sum(before[:4]), ", ".join(f"{states.count(one)} {one}" for one in STATES if one in states)
