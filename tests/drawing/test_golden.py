"""A few pictures byte for byte. After a change that is meant, `python -m tests.drawing.test_golden` writes them anew.

Look at the new ones before you keep them.
"""

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from drawing import (
    Picture,
    draw_collective,
    draw_gallery,
    draw_halo,
    draw_mesh,
    draw_recordings,
    draw_ring,
    draw_step,
    puzzle_map,
)
from drawing.display import picture_of
from drawing.pages.view import step_through
from lib import Trace, review, simulate, why
from lib.schedules.formats.trace import recording_of_order
from lib.schedules.gallery import gallery
from lib.schedules.pipelines.catalogue import SCHEDULES
from lib.schedules.pipelines.generators import zb_h1
from lib.schedules.pipelines.program import program_of
from lib.suite.course.review import Review
from lib.trace.event import Program
from tests.drawing import runs
from tests.drawing.curriculum import CURRICULUM, SOLVED
from tests.drawing.diagrams.exchanges import EXCHANGES
from tests.drawing.diagrams.test_halo import DROPPED, SIXTEEN, UNEVEN
from tests.drawing.diagrams.test_lanes import CUT
from tests.drawing.diagrams.test_mesh import FIVE, SHOWN
from tests.drawing.pages.runs import TRACES
from tests.suite.course.test_review import bound, reviewed

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).with_name("golden")
LISTED = """
overlapped deadlock group verdict gpipe grad_accum map review_ddp review_gpipe allreduce
allgather mesh holdings neighbours stages ring step why zero_bubble recordings halo halo_dropped
"""
NAMES = LISTED.split()


@cache
def pictures() -> dict[str, Picture]:
    """The pictures of `runs`, those of the README (the reference solutions of two puzzles), a map of puzzles, and
    reviews of solutions that keep more than they have to."""
    found = runs.pictures()
    found |= {name: picture_of(runs.solved(name)) for name in ("gpipe", "grad_accum")}
    found["why"] = picture_of(why(on_line_one(runs.solved("gpipe")), 0, 12))
    found |= {name: picture_of(on_line_one(runs.RUNS[name])) for name in ("overlapped", "deadlock")}
    halves = simulate(program_of(zb_h1(4, 4)), ranks=4, layers=4, batches=4)
    found["zero_bubble"] = picture_of(on_line_one(Trace.of(halves)))
    found["map"] = puzzle_map(CURRICULUM, solved=SOLVED)
    found["review_ddp"] = picture_of(replace(wasteful("ddp"), bound=bound(), excuse=None))
    found |= {name: draw_collective(EXCHANGES[name]) for name in ("allreduce", "allgather")}
    found["mesh"] = draw_mesh(EXCHANGES["grid"])
    found["holdings"] = picture_of(SHOWN)
    found["neighbours"] = picture_of(FIVE)
    found["stages"] = picture_of(CUT)
    ring = draw_ring(EXCHANGES["allreduce"], step=2)
    assert isinstance(ring, Picture)
    found |= {"ring": ring, "step": draw_step(runs.RUNS["ddp"], rank=1)}
    found["review_gpipe"] = picture_of(replace(wasteful("gpipe"), bound=None))
    found |= {
        "halo": draw_halo(UNEVEN, 1),
        "halo_dropped": draw_halo(DROPPED, 1),
        "halo_sixteen": draw_halo(SIXTEEN, 1),
    }
    named = [SCHEDULES[name] for name in ("one_f_one_b", "zb_v")]
    found["recordings"] = draw_recordings(*(recording_of_order(row.order(4, 6), row.title) for row in named))
    return found


def wasteful(name: str) -> Review:
    """The review of a solution that keeps more than it has to."""
    found = review(on_line_one(reviewed(name).mine), puzzle=name)
    assert found is not None
    assert found.reference is not None
    return replace(found, reference=on_line_one(found.reference))


def on_line_one(trace: Trace) -> Trace:
    """The same run with every operation on line 1 of one file, so that no edit of its file changes its picture."""
    copies: list[Program] = []
    for program in trace.programs:
        events = [event.copy() for event in program.events]
        for event in events:
            place = trace.place(event)
            event.source = place and place._replace(file="schedule.py", line=1)
        copies.append(Program(program.rank, events, program.values, program.moves))
    return replace(trace, programs=copies)


def digests() -> dict[str, str]:
    """Of all that is drawn and said: every picture, the text of two reviews, and pages to step through."""
    said = {name: picture.words + picture.svg() for name, picture in pictures().items()}
    said |= {f"review of {name}": wasteful(name).text() for name in ("ddp", "gpipe")}
    for names in (["1f1b"], ["deadlock"], ["ddp", "relay"]):
        view = step_through(*(TRACES[name] for name in names), names=None)
        said[repr(view)] = view._repr_mimebundle_()["text/html"]
    said["gallery"] = draw_gallery(gallery(2, 3)).html()
    return {name: hashlib.sha256(text.encode()).hexdigest() for name, text in said.items()}


def test_another_process_with_other_hashes_draws_the_same_and_needs_no_notebook() -> None:
    code = (
        "import json, sys, drawing\n"
        "heavy = [name for name in ('IPython', 'matplotlib', 'numpy') if name in sys.modules]\n"
        "from tests.drawing.test_golden import digests\n"
        "print(json.dumps([heavy, digests()]))"
    )
    seed = "1" if os.environ.get("PYTHONHASHSEED") == "2026" else "2026"
    env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, check=True)
    heavy, found = json.loads(run.stdout)
    assert heavy == []
    assert found == digests()


@pytest.mark.parametrize("name", NAMES)
def test_golden(name: str) -> None:
    assert pictures()[name].svg() == (GOLDEN / f"{name}.svg").read_text("utf-8")


def main() -> None:
    GOLDEN.mkdir(exist_ok=True)
    found = pictures()
    for name in NAMES:
        print(found[name].save(GOLDEN / f"{name}.svg"))


if __name__ == "__main__":
    main()
