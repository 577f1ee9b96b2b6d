"""What the puzzle notebooks say: formulas that are true, every part, and no answer before the gap."""

import ast
import inspect
import json
import re
import tomllib
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from lib import HIDDEN, LENGTH, PUZZLES, Mesh, Trace, Verdict, check, simulate
from lib.analysis.figures import traffic
from lib.errors.wording import amount
from lib.schedules.data_parallel import checkpointed, zero
from lib.suite.course.solutions import answer
from lib.suite.submissions.gap import parse
from lib.suite.submissions.load import load_function
from lib.suite.submissions.locations import home, notebook_in, reference
from tests.support.puzzles import SCHEDULES, way
from tools.notebooks.build import Source, read_sources
from tools.notebooks.shared_cells import LIST, cited

FORMULA = re.compile(r"^# (?:[a-z ]+ {3,})?(time|peak) += (\S.*?)(?:\s{3,}.*)?$", re.MULTILINE)
SIZES = tomllib.loads(Path(__file__).with_name("formulas.toml").read_text("utf-8"))
PARTS = ("## The puzzle", "### Predict first", "### The goal", "## What you built", "## On real GPUs")
PARTS += ("## What is simplified here", "## Questions to think about")
LAST = re.compile(r"^# ## Where (this leads|to go from here)$", re.MULTILINE)


def source(puzzle: str) -> str:
    return reference(puzzle).read_text("utf-8")


def value_of(formula: str, **sizes: int) -> Fraction:
    """What a formula as the notebooks print it comes to, exactly."""
    names = {"W": HIDDEN * HIDDEN, "A": LENGTH * HIDDEN} | sizes

    def of(node: ast.expr) -> Fraction:
        match node:
            case ast.Name(name):
                return Fraction(names[name])
            case ast.Constant(value):
                return Fraction(str(value))
            case ast.BinOp(left, operation, right):
                a, b = of(left), of(right)
                match operation:
                    case ast.Add():
                        return a + b
                    case ast.Sub():
                        return a - b
                    case ast.Mult():
                        return a * b
                    case ast.Div():
                        return a / b
        raise AssertionError(f"{ast.unparse(node)} is not a part of a formula")

    return of(ast.parse(formula.replace("·", "*"), mode="eval").body)


def holds(verdict: Verdict, time: str | None, peak: str, **sizes: int) -> None:
    """Asserts that a run is correct, and that formulas say its time, if that is asked, and its peak."""
    assert verdict.correct
    assert time is None or float(value_of(time, **sizes)) == pytest.approx(verdict.time, rel=1e-12)
    assert value_of(peak, **sizes) == verdict.memory


@pytest.mark.parametrize("puzzle", SIZES)
def test_the_formulas_are_those_of_the_reference(puzzle: str) -> None:
    found = FORMULA.findall(source(puzzle))
    assert len(found) == 2 or PUZZLES[puzzle].part_of  # whose notebook has more, of another
    formulas = dict(found[:2])
    assert formulas.keys() == {"time", "peak"}
    function = way(puzzle)
    assert PUZZLES[puzzle].size == tuple(SIZES[puzzle][0])
    for ranks, layers, batches in SIZES[puzzle]:
        sizes = {"ranks": ranks, "layers": layers, "batches": batches}
        verdict = check(Trace.of(simulate(function, **sizes, costs=PUZZLES[puzzle].costs)))
        holds(verdict, **formulas, R=ranks, L=layers, B=batches, V=2)


def both(puzzle: str, other: str) -> Iterator[tuple[Any, str, str]]:
    """The two ways of a puzzle whose notebook has formulas for both: an alternative, then the reference."""
    texts = [formula for _, formula in FORMULA.findall(source(puzzle))]
    assert [name for name, _ in FORMULA.findall(source(puzzle))] == ["time", "peak"] * 2
    yield load_function(home() / "solutions" / "alternatives" / f"{other}.py", puzzle), texts[0], texts[1]
    yield way(puzzle), texts[2], texts[3]


def test_the_formulas_of_fsdp() -> None:
    formulas = dict(FORMULA.findall(source("fsdp")))
    function = way("fsdp")
    for ranks, layers, each in ((4, 6, 2), (2, 3, 3), (8, 4, 2)):
        verdict = check(Trace.of(simulate(function, ranks=ranks, layers=layers, batches=each * ranks)))
        holds(verdict, **formulas, R=ranks, L=layers, m=each)


def test_the_formulas_of_checkpointing() -> None:
    formulas = dict(FORMULA.findall(source("checkpointing")))
    for layers, batches, k in ((8, 4, 2), (8, 4, 4), (9, 2, 3), (16, 3, 4), (6, 2, 1), (6, 2, 6)):
        verdict = check(Trace.of(simulate(checkpointed(k), ranks=1, layers=layers, batches=batches)))
        holds(verdict, **formulas, L=layers, B=batches, k=k)
        whole = check(Trace.of(simulate(checkpointed(k, whole=True), ranks=1, layers=layers, batches=batches)))
        again = (whole.time - verdict.time, whole.memory)
        assert (whole.correct, *again) == (True, (k - 1) * batches, verdict.memory)


def test_the_formulas_of_a_pipeline_with_fsdp() -> None:
    for function, time, peak in both("pipeline_fsdp", "pipeline_fsdp_together"):
        for stages, ranks, each in ((4, 4, 4), (3, 2, 3), (5, 4, 6)):
            mesh = Mesh({"data": ranks, "stage": stages})
            verdict = check(Trace.of(simulate(function, layers=stages, batches=each * ranks, mesh=mesh)))
            holds(verdict, time, peak, S=stages, D=ranks, m=each)


def test_the_formulas_of_the_ladder_of_zero() -> None:
    """The second stage is the puzzle's reference; of all four, awaited at once, there are the peaks."""
    formulas = FORMULA.findall(source("zero2"))[2:]  # the first two are those of the first stage
    assert [name for name, _ in formulas] == ["time", "peak"] + ["peak"] * 4
    schedules = [way("zero2"), *map(zero, range(4))]
    for ranks, layers in ((4, 6), (4, 8), (8, 9)):
        for schedule, (_, peak) in zip(schedules, formulas[1:], strict=True):
            verdict = check(Trace.of(simulate(schedule, ranks=ranks, layers=layers, batches=2 * ranks)))
            time = formulas[0][1] if schedule is schedules[0] else None
            holds(verdict, time, peak, R=ranks, L=layers, m=2)


def test_what_the_ladder_sends() -> None:
    """The table of that notebook, in layers a rank."""
    for ranks, layers, each in ((4, 6, 2), (2, 3, 3), (8, 4, 2)):
        share = Fraction(ranks - 1, ranks) * layers * HIDDEN * HIDDEN
        for stage, times in enumerate((2, 2, each + 1, 3 * each)):
            run = Trace.of(simulate(zero(stage), ranks=ranks, layers=layers, batches=each * ranks))
            assert {sent for sent, _ in traffic(run)} == {times * share}


def test_when_accumulation_is_worth_it() -> None:
    """The inequality in the answer to a question of that notebook."""
    together, in_turn = (way(puzzle) for puzzle in ("basic", "grad_accum"))
    for layers in (1, 2, 3, 6):
        for batches in (2, 3, 4, 5):
            peaks = [
                check(Trace.of(simulate(function, ranks=1, layers=layers, batches=batches))).memory
                for function in (together, in_turn)
            ]
            assert (peaks[1] < peaks[0]) == ((batches - 1) * (layers + 1) > 2 * layers)


def questions_of(puzzle: str) -> str:
    text = source(puzzle)
    end = LAST.search(text)
    assert end is not None
    return text[text.index("## Questions to think about") : end.start()]


@pytest.mark.parametrize("puzzle", PUZZLES)
def test_every_notebook_has_its_parts_in_order(puzzle: str) -> None:
    lines = source(puzzle).splitlines()
    places = [lines.index(f"# {part}") for part in PARTS]
    assert places == sorted(places)


@pytest.mark.parametrize("source", read_sources(home() / "solutions"), ids=lambda source: source.id)
def test_no_code_is_cut_off_beside_the_sidebar_and_no_picture_is_lost(source: Source) -> None:
    for cell in source.solved()["cells"] + source.student()["cells"]:
        wide = [line for line in cell["source"].splitlines() if len(line) > 88]
        unseen = cell["cell_type"] == "markdown" or "source_hidden" in cell["metadata"].get("jupyter", {})
        assert unseen or not wide, wide
        code = [ast.unparse(one) for one in ast.parse(cell["source"] if cell["cell_type"] == "code" else "").body]
        lost = [line for line in code[:-1] if line.startswith(("draw(", "draw_"))]  # a cell shows its last value alone
        assert not lost, lost


@pytest.mark.parametrize("puzzle", PUZZLES)
def test_every_question_has_an_answer_that_is_folded(puzzle: str) -> None:
    first, *numbered = re.split(r"^# \*\*(\d)\.\*\*", questions_of(puzzle), flags=re.MULTILINE)
    assert "<details>" not in first
    assert numbered[::2] == [str(number) for number in range(1, len(numbered) // 2 + 1)]
    assert len(numbered[::2]) >= 3
    for question in numbered[1::2]:
        assert question.count("<details><summary>Answer</summary>") == question.count("</details>") == 1


@pytest.mark.parametrize("puzzle", SCHEDULES)
def test_a_prediction_is_explained(puzzle: str) -> None:
    text = source(puzzle)
    after = text[text.index("guess.against(out)") :]
    assert after.index("<details>") < after.index("draw(out)")
    assert [amount(figure) for _, figure in PUZZLES[puzzle].predicts if amount(figure) not in after] == []


@pytest.mark.parametrize("puzzle", [puzzle for puzzle in PUZZLES if PUZZLES[puzzle].kind == "function"])
def test_a_table_says_how_many_inputs_there_are(puzzle: str) -> None:
    inputs: Any = load_function(reference(puzzle), f"{puzzle}_inputs")
    if inspect.isgeneratorfunction(inputs):
        assert PUZZLES[puzzle].draws == len([*inputs()])


@pytest.mark.parametrize("puzzle", PUZZLES)
def test_claims_have_a_reference(puzzle: str) -> None:
    text = source(puzzle)
    box = text[text.index("## On real GPUs") : text.index("## What is simplified here")]
    assert cited(box)
    assert LIST in box.splitlines()


@pytest.mark.parametrize("puzzle", PUZZLES)
def test_there_is_a_sentence_to_tell_a_friend(puzzle: str) -> None:
    text = source(puzzle)
    assert text.count("# > **To tell a friend:** ") == 1
    assert text.index("To tell a friend") < text.index("from drawing import") < text.index("## The ")


Key = tuple[tuple[str, ...], bool, str, tuple[str, ...]]
"""A call of the Model without its keys: stores on the left, awaited or not, the operation, the stores it is given."""


def store(node: ast.expr) -> str:
    return node.value.id if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) else "_"


def key(statement: ast.stmt) -> Key | None:
    """The Key of a statement; None where it calls no operation."""
    match statement:
        case ast.Assign([ast.Tuple(targets)], value):
            left = tuple(map(store, targets))
        case ast.Assign(targets, value):
            left = tuple(map(store, targets))
        case ast.Expr(value) | ast.Return(value):
            left = ()
        case _:
            return None
    awaited = isinstance(value, ast.Await)
    call = value.value if isinstance(value, ast.Await) else value
    match call:
        case ast.Call(ast.Attribute(ast.Name("model"), name), given):
            return left, awaited, name, tuple(map(store, given))
    return None


def keys(code: str) -> set[Key]:
    nodes = ast.walk(parse(code, "a cell"))
    return {found for node in nodes if isinstance(node, ast.stmt) and (found := key(node)) is not None}


def printed(outputs: list[Any]) -> Iterator[str]:
    """Whatever in the outputs of a cell may be a line of Python: a message says `fix: x = await ...`."""
    for output in outputs:
        whole = output.get("text") or output.get("data", {}).get("text/plain") or ""
        for line in "".join(whole).splitlines():
            yield line.strip()
            yield line.partition(": ")[2].strip()


def code_before_the_gap(puzzle: str) -> Iterator[str]:
    """The cells of a student's notebook up to the function with the gap, and what they put out."""
    path = notebook_in(home() / "puzzles", puzzle)
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            code = "".join(cell["source"])
            if f'raise NotSolved("{puzzle}")' in code:
                return
            yield code
            yield from printed(cell["outputs"])
    raise AssertionError("there is a gap in every puzzle")


def known_before(puzzle: str) -> set[Key]:
    """What a student has written already, in the puzzles that come before this one."""
    known: set[Key] = set()
    for need in PUZZLES[puzzle].needs:
        known |= keys(answer(need)) | known_before(need)
    return known


WITHOUT_NEW_CALLS = ("gpipe", "checkpointing", "ulysses", "neighborhood_attention", "zero_bubble", "zb_v")
"""Puzzles whose answers put known calls, and those of given helpers, into another order, or write words for them; but
for those that ask for no call at all."""


@pytest.mark.parametrize("puzzle", SCHEDULES)
def test_no_key_line_of_the_answer_stands_before_the_gap(puzzle: str) -> None:
    new = keys(answer(puzzle)) - known_before(puzzle)
    assert new or puzzle in WITHOUT_NEW_CALLS or not PUZZLES[puzzle].asks
    for code in code_before_the_gap(puzzle):
        try:
            assert not keys(code) & new
        except SyntaxError:
            continue  # what was printed and is not Python
