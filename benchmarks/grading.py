"""How long it takes to grade a class, and how much memory the grading process takes.

`python benchmarks/grading.py [STUDENTS...]` makes notebooks, each with the eight classic puzzles, and grades them with
two hidden sizes each in two processes. Of a hundred answers 55 are our own solution and 20 another one that is correct,
each with names and comments of the student's own, 10 are unsolved, 10 raise an error on some line, and 5 are right at
the puzzle's size only; and five students hand in a loop that never ends. `peak` is what the process that grades holds.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import resource
import sys
import time
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parent.parent))

from lib.suite.cli.grading.report import write_report
from lib.suite.grade.assignment import Config
from lib.suite.grade.gradebook import STATES, Traces
from lib.suite.grade.grading import TRACES, grade
from lib.suite.grade.intake.collecting import collect
from lib.suite.grade.judging import own_ways
from lib.suite.grade.results import write_results

CLASSIC = ("basic", "grad_accum", "ddp", "wsdp", "fsdp", "pipeline", "gpipe", "pipeline_fsdp")
STUDENTS = (50, 500)
PROCESSES = 2
HIDDEN, SEED = 2, 7
SECONDS = 2.0
"""Of one run, of which only those that never end take more than a few hundredths."""
ENDLESS = 5
MIX = (("reference", 55), ("alternative", 20), ("unsolved", 10), ("raises", 10), ("hard-coded", 5))
SIZES = {"LAYERS": "layers", "BATCHES": "batches", "RANKS": "ranks"}


def function_in(path: Path, puzzle: str) -> str:
    """The text of the function of a puzzle, with what its file defines before it and is no cell of text."""
    cells = re.split(r"(?m)^# %%.*\n", path.read_text("utf-8"))
    return next(cell for cell in cells if re.search(rf"(?m)^(async )?def {puzzle}\(", cell)).strip() + "\n"


def answer(puzzle: str, kind: str, student: str, random: Random) -> str:
    """What a student hands in for a puzzle."""
    from lib import PUZZLES

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
        if number < ENDLESS and puzzle == CLASSIC[number]:
            kind = "endless"
        cells += [answer(puzzle, kind, student, random), f'models = simulate({puzzle}, puzzle="{puzzle}")\nmodels']
    output = {"output_type": "stream", "name": "stdout", "text": ["Correct!\n"] * 40}
    code = {"cell_type": "code", "metadata": {}, "execution_count": 1, "outputs": [output]}
    made = [{**code, "source": cell} for cell in cells]
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1)


def measure(students: int, report: bool) -> None:
    """Grades a class in this process, and prints a line."""
    with TemporaryDirectory() as folder:
        for number in range(students):
            path = Path(folder, "in", f"student_{number:03d}", "puzzles.ipynb")
            path.parent.mkdir(parents=True)
            path.write_text(notebook(number), "utf-8")
        begun, out = time.perf_counter(), Path(folder, "out")
        assignment = Config().with_options(puzzles=CLASSIC, hidden=HIDDEN, seed=SEED, seconds=SECONDS).assignment()
        ready = time.perf_counter() - begun
        book = grade(collect([Path(folder, "in")]), assignment, out, jobs=PROCESSES)
        write_results(book, out)
        wall = time.perf_counter() - begun
        if report:
            write_report(book, Traces(out / TRACES), out, jobs=PROCESSES)
        with_report = time.perf_counter() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    own = resource.getrusage(resource.RUSAGE_SELF)
    cpu = children.ru_utime + children.ru_stime + own.ru_utime + own.ru_stime
    states = [score.state for student in book.students for score in student.scores]
    counts = ", ".join(f"{states.count(state)} {state}" for state in STATES if state in states)
    line = f"{students:>8} {ready:>9.1f} {wall:>8.1f} {cpu:>8.1f} {peak:>9.0f}"
    print(line + (f" {with_report:>12.1f}" if report else f" {'':>12}") + f"  {counts}", flush=True)


def main(sizes: list[int], report: bool) -> None:
    """Prints a line for each size of class, each measured in a process of its own."""
    print(f"{len(CLASSIC)} puzzles, {HIDDEN} hidden sizes each, {PROCESSES} processes, {os.cpu_count()} cores")
    print(f"{'students':>8} {'prepare s':>9} {'wall s':>8} {'CPU s':>8} {'peak MB':>9} {'report too s':>12}  answers")
    for students in sizes:
        process = multiprocessing.get_context("spawn").Process(target=measure, args=(students, report))
        process.start()
        process.join()


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:] if word.isdigit()]
    main(given or list(STUDENTS), "--report" in sys.argv)
