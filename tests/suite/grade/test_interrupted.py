"""Grading that is killed, started again, or spread over processes and machines gives the same bytes as ever."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, cast

import pytest

from lib.files import child_environment
from lib.suite.grade.results import FORMS, write_results
from tests.suite.grade.classes import (
    ENDLESS,
    HARD_CODED,
    RAISES,
    STUB,
    WRONG,
    alternative,
    asked,
    graded,
    hand_in,
    solution,
)

STUDENTS = 12
GRADER = """
import sys
from pathlib import Path
from tests.suite.grade.classes import asked, graded
print("begun", flush=True)
graded(Path(sys.argv[1]), Path(sys.argv[2]), asked("ddp", hidden=1, seed=3), jobs=int(sys.argv[3]))
"""


def a_class(folder: Path) -> Path:
    """Students who all hand in something else."""
    kinds = [solution("ddp"), alternative("ddp_sharded_update"), HARD_CODED, STUB, WRONG, RAISES]
    files = {f"s{n:02d}/ddp.py": f"{kinds[n % len(kinds)]}\n# {n}\n" for n in range(STUDENTS)}
    return hand_in(folder, files)


def results(folder: Path, out: Path, jobs: int | None = None) -> dict[str, bytes]:
    """The bytes of all files that a grading leaves for others, and of all schedules."""
    book = graded(folder, out, asked("ddp", hidden=1, seed=3), jobs)
    write_results(book, out)
    files = [out / form.file for form in FORMS] + sorted((out / "work" / "traces").iterdir())
    return {path.name: path.read_bytes() for path in files}


def processes_of(out: Path) -> list[int]:
    """Processes that know of a folder, or were begun by one that does."""
    found: list[int] = []
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            status = Path("/proc", name, "stat").read_text("utf-8").rpartition(")")[2].split()
            words = Path("/proc", name, "cmdline").read_bytes()
        except OSError:
            continue
        parents[int(name)] = int(status[1])
        if status[0] != "Z" and str(out).encode() in words:
            found.append(int(name))
    known = set(found)
    while more := {one for one, parent in parents.items() if parent in known} - known:
        known |= more
    return sorted(known)


def lines(out: Path) -> list[dict[str, Any]]:
    """The journal's lines that are whole."""
    text = (out / "work" / "journal.jsonl").read_text("utf-8")
    return [cast("dict[str, Any]", json.loads(line)) for line in text.splitlines() if line.endswith("}")]


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")
def test_who_is_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    folder = a_class(tmp_path / "in")
    whole = results(folder, tmp_path / "whole")
    out = tmp_path / "out"
    program = [sys.executable, "-c", GRADER, str(folder), str(out), "2"]
    with subprocess.Popen(program, env=child_environment(PUZZLES_PROGRESS="off"), stdout=subprocess.PIPE) as grader:
        journal = out / "work" / "journal.jsonl"
        deadline = time.monotonic() + 300
        while grader.poll() is None and time.monotonic() < deadline:
            if journal.exists() and journal.read_bytes().count(b"\n"):
                break
            time.sleep(0.01)
        under_way = processes_of(out)
        grader.kill()
        grader.wait()
    finished = {line["key"] for line in lines(out)}
    assert finished
    deadline = time.monotonic() + 300
    while any(Path("/proc", str(one)).exists() for one in under_way) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [one for one in under_way if Path("/proc", str(one)).exists()] == []
    assert results(folder, out) == whole
    keys = [line["key"] for line in lines(out)]
    assert len(keys) == len(set(keys)) == STUDENTS
    assert not [path for path in out.rglob("*") if path.name.startswith(".")]


def test_one_process_or_two_give_the_same_bytes(tmp_path: Path) -> None:
    folder = a_class(tmp_path / "in")
    assert results(folder, tmp_path / "one") == results(folder, tmp_path / "two", jobs=2)


@pytest.mark.thorough
def test_so_does_a_cluster(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed", reason="a cluster needs dask: pip install distributed")
    joblib = pytest.importorskip("joblib")
    folder = a_class(tmp_path / "in")
    here = results(folder, tmp_path / "here")
    made = distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    with made as cluster, distributed.Client(cluster), joblib.parallel_config(backend="dask"):
        assert results(folder, tmp_path / "there", jobs=-1) == here


def test_what_was_not_handed_in_twice_is_run_once(tmp_path: Path) -> None:
    folder = hand_in(tmp_path / "in", {f"s{n}/ddp.py": solution("ddp") for n in range(5)})
    book = graded(folder, tmp_path / "out", asked("ddp"))
    assert book.passed
    assert len(lines(tmp_path / "out")) == 1


def test_two_do_not_grade_into_one_folder(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    from lib.suite.grade.gradebook import Journal

    journal = Journal(tmp_path / "out" / "work" / "journal.jsonl")
    try:
        with pytest.raises(OSError, match="another process is grading into"):
            graded(a_class(tmp_path / "in"), tmp_path / "out", asked("ddp"))
    finally:
        journal.close()


def test_a_schedule_that_is_gone_is_made_again(tmp_path: Path) -> None:
    folder = hand_in(tmp_path / "in", {"ana/ddp.py": solution("ddp"), "ida/ddp.py": ENDLESS})
    first = graded(folder, tmp_path / "out", asked("ddp", seconds=3.0))
    for path in (tmp_path / "out" / "work" / "traces").iterdir():
        path.unlink()
    assert graded(folder, tmp_path / "out", asked("ddp", seconds=3.0)) == first
    assert list((tmp_path / "out" / "work" / "traces").iterdir())
