"""Who is alike: rare things in common, weighed and never judged."""

from math import log2
from random import Random

import pytest

from lib import PUZZLES, simulate
from lib.suite.grade.gradebook import Asked, Gradebook, Result, Score, Student, schedule_of
from lib.suite.grade.patterns import Alike, Shared, Similarity, Solutions, similar, solutions_of
from lib.suite.submissions.load import function_of
from lib.suite.submissions.locations import home
from lib.suite.submissions.source import Source
from lib.trace.trace import Trace
from tests.support.variants import VARIANTS

NOTHING: Solutions = frozenset(), {}


def score(puzzle: str, schedule: str, source: str, state: str = "passed") -> Score:
    return Score(puzzle, state, Result("", state, schedule=schedule), source=source)


def book(*students: tuple[str, tuple[Score, ...]]) -> Gradebook:
    puzzles = sorted({one.puzzle for _, scores in students for one in scores}, key=list(PUZZLES).index)
    asked = tuple(Asked(puzzle, "", PUZZLES[puzzle].number) for puzzle in puzzles)
    return Gradebook(asked, tuple(Student(name, scores) for name, scores in students))


def crowd(count: int, puzzle: str = "ddp") -> list[tuple[str, tuple[Score, ...]]]:
    return [(f"s{number:03}", (score(puzzle, f"d{number}", f"c{number}"),)) for number in range(count)]


def found(*students: tuple[str, tuple[Score, ...]]) -> Similarity:
    return similar(book(*students), lambda puzzle: NOTHING)


NO_PAIRS: dict[str, list[tuple[str, tuple[Score, ...]]]] = {
    "all equal": [(f"s{n}", (score("ddp", "d", "c"),)) for n in range(30)],
    "all different": crowd(30),
    "code alone, of a common schedule": crowd(8)
    + [(f"x{n}", (score("ddp", "s", "code" if n < 2 else f"other {n}"),)) for n in range(33)],
    "a schedule, from other code": [(name, (score("ddp", "d", name),)) for name in ("Ana", "Ben")] + crowd(30),
    "stubs": [(name, (score("ddp", "", "stub", "unsolved"),)) for name in ("Ana", "Ben")] + crowd(30),
    "what came to no schedule": [(name, (score("ddp", "", "x", "failed"),)) for name in ("Ana", "Ben")] + crowd(30),
}


@pytest.mark.parametrize("what", NO_PAIRS)
def test_what_is_no_pair(what: str) -> None:
    assert found(*NO_PAIRS[what]) == Similarity()


def test_what_two_alone_have_comes_first() -> None:
    most = [(f"m{n:02}", (score("ddp", "common", f"{n % 4}"),)) for n in range(20)]
    two = [(name, (score("ddp", "rare", "odd"),)) for name in ("Ben", "Ana")]
    first, *_ = found(*most, *two, *crowd(10)).alike
    assert first.students == ("Ana", "Ben")
    assert first.shared == (Shared("ddp", "rare", "odd", 2, 32, first.bits),)
    assert first.bits == pytest.approx(log2(31))
    assert "2 of the 32 students who worked on it have it (5.0 bits)" in first.shared[0].words()


def test_the_formula() -> None:
    """Nine have the schedule, three of them the code, of 41."""
    some = [(f"x{n}", (score("ddp", "s", "code" if n < 3 else f"other {n}"),)) for n in range(9)]
    (one,) = found(*some, *crowd(32)).alike
    assert one.students == ("x0", "x1", "x2")
    assert one.bits == pytest.approx(log2(40 / 8) + log2(8 / 2))


def test_a_plain_function_weighs_half() -> None:
    two = [(name, (score("split_layers", "", "same"),)) for name in ("Ana", "Ben")]
    (one,) = found(*two, *crowd(15, "split_layers")[:15]).alike
    assert one.bits == pytest.approx(log2(16) / 2)


def test_several_puzzles_add_up() -> None:
    def both(name: str, one: str, other: str) -> tuple[str, tuple[Score, ...]]:
        return name, (score("ddp", one, one), score("fsdp", other, other))

    others = [both(f"s{n:02}", f"a{n}", f"b{n}") for n in range(30)]
    students = [both("Ana", "x", "y"), both("Ben", "x", "y"), both("Cleo", "v", "z"), both("Dan", "w", "z")]
    first, *rest = found(*others, *students).alike
    assert first.students == ("Ana", "Ben")
    assert [shared.puzzle for shared in first.shared] == ["ddp", "fsdp"]
    assert first.bits == pytest.approx(sum(shared.bits for shared in first.shared))
    assert [one.students for one in rest] == [("Cleo", "Dan")]
    assert first.bits == 2 * rest[0].bits


def test_many_with_the_same_are_one_group() -> None:
    students = [(f"x{n:02}", (score("ddp", "d", "c"), score("fsdp", "e", "f"))) for n in range(20)]
    others = [(f"y{n:03}", (score("ddp", f"{n}", f"{n}"), score("fsdp", f"{n}", f"{n}"))) for n in range(200)]
    (one,) = found(*students, *others).alike
    assert len(one.students) == 20
    assert [(shared.puzzle, shared.have) for shared in one.shared] == [("ddp", 20), ("fsdp", 20)]


def test_the_order_of_students_plays_no_part() -> None:
    rng = Random(3)
    kinds = [(f"{rng.randrange(9)}", f"{rng.randrange(3)}") for _ in range(60)]
    students = [(f"s{n:02}", (score("ddp", d, d + c),)) for n, (d, c) in enumerate(kinds)]
    first = found(*students)
    assert first.alike
    for _ in range(5):
        rng.shuffle(students)
        assert found(*students) == first


def test_a_large_class_has_few_pairs() -> None:
    """There are never more than a few times as many as students: what many share is a group."""
    rng = Random(5)
    puzzles = list(PUZZLES)[:8]
    drawn = {(n, puzzle): f"{min(rng.randrange(400), rng.randrange(400))}" for n in range(500) for puzzle in puzzles}
    students = [
        (f"s{n:03}", tuple(score(puzzle, drawn[n, puzzle], drawn[n, puzzle]) for puzzle in puzzles)) for n in range(500)
    ]
    alike = found(*students).alike
    assert 0 < len(alike) <= 7 * 500 * len(puzzles) / 2
    assert all(isinstance(one, Alike) and len(one.students) >= 2 for one in alike)


def test_our_solutions_weigh_nothing_and_are_shown() -> None:
    path = home() / "solutions" / "alternatives" / "fsdp_one_ahead.py"
    ours = Source.of(path.name, path.read_text("utf-8"))
    copied = Source.of("a.py", path.read_text("utf-8").replace("activations", "acts"))
    digest = schedule_of(Trace.of(simulate(function_of(ours, "fsdp"), puzzle="fsdp"))).digest
    assert digest in solutions_of("fsdp")[0]
    two = [
        ("Ana", (score("fsdp", digest, ours.normalised("fsdp")),)),
        ("Ben", (score("fsdp", digest, copied.normalised("fsdp")),)),
    ]
    same = [(name, (score("fsdp", digest, "of their own"),)) for name in ("Cleo", "Dan")]
    result = similar(book(*two, *same, *crowd(30, "fsdp")))
    assert result.alike == ()
    (one,) = result.ours
    assert (one.puzzle, one.solution, one.students) == ("fsdp", path.name, ("Ana", "Ben"))


def test_a_copy_with_other_names_is_found() -> None:
    """Two notebooks: one is the other with other names, comments and cells."""
    variant = next(one for one in VARIANTS if one.name == "stages as objects")
    cells = [cell for _, cell in variant.source().cells]
    copied = "\n".join(["# all mine", *reversed(cells)])
    for old, new in (("self.acts", "self.values"), ("Stage", "Part"), ("turns", "order_of"), ("ahead", "before")):
        copied = copied.replace(old, new)
    sources = [variant.source(), Source.of("copy.py", copied)]
    runs = [simulate(function_of(one, "one_f_one_b"), ranks=3, layers=6, batches=4) for one in sources]
    digests = [schedule_of(Trace.of(run)).digest for run in runs]
    forms = [one.normalised("one_f_one_b") for one in sources]
    scores = [score("one_f_one_b", digest, form) for digest, form in zip(digests, forms, strict=True)]
    (one,) = found(("Ana", (scores[0],)), ("Ben", (scores[1],)), *crowd(30, "one_f_one_b")).alike
    assert one.students == ("Ana", "Ben")
