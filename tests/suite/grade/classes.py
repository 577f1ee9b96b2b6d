"""Small classes to be graded: folders of submissions, and what is asked of them."""

import json
from pathlib import Path

from msgspec import convert

from lib.suite.grade.assignment import Assignment, Config
from lib.suite.grade.gradebook import Gradebook, Score
from lib.suite.grade.grading import grade
from lib.suite.grade.intake.collecting import collect
from lib.suite.submissions.locations import home, reference


def read_back(text: str) -> Gradebook:
    """The gradebook of a gradebook.json."""
    return convert(json.loads(text), Gradebook)


HARD_CODED = """\
from lib import Model


def ddp(model: Model):
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    activations[0] = model.get_activation([model.rank])
    for layer in range(2):
        weights[layer], opt_states[layer] = model.load_weights(layer)
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
    grad_activations[2] = model.loss(activations[2])
    del activations[2]
    for layer in (1, 0):
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations[layer], grad_activations[layer + 1], weights[layer]
        )
        del grad_activations[layer + 1], activations[layer]
        grad_weights[layer] = await model.allreduce(grad_weights[layer], layer)
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        model.set_final_weight(layer, weights[layer])
""".replace("\ndef ddp", "\nasync def ddp")
"""Correct at the size of the puzzle `ddp`, and nowhere else."""
STUB = """\
from lib import Model, NotSolved


async def ddp(model: Model) -> None:
    # --- your code (about 3 lines) ---
    raise NotSolved("ddp")
    # --- end of your code ---
"""
WRONG = """\
async def ddp(model):
    model.get_activation([model.rank])
"""
RAISES = """\
async def ddp(model):
    model.get_activation([model.rank])
    raise KeyError("mine")
"""
ENDLESS = """\
async def ddp(model):
    while True:
        pass
"""


def solution(puzzle: str) -> str:
    """The text of our own solution."""
    return reference(puzzle).read_text("utf-8")


def alternative(name: str) -> str:
    """The text of another solution of ours."""
    return (home() / "solutions" / "alternatives" / f"{name}.py").read_text("utf-8")


def asked(*puzzles: str, **options: object) -> Assignment:
    """What is asked, by options."""
    return Config().with_options(puzzles=puzzles, **options).assignment()  # pyright: ignore[reportArgumentType]


def graded(folder: Path, out: Path, assignment: Assignment, jobs: int | None = None) -> Gradebook:
    """The gradebook of a folder."""
    return grade(collect([folder]), assignment, out, jobs=jobs)


def scores(book: Gradebook, puzzle: str) -> dict[str, Score]:
    """The scores of one puzzle by student, also of those who did not hand it in."""
    return {student.name: score for student in book.students for score in student.scores if score.puzzle == puzzle}
