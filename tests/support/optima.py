"""Proved optima of 2 to 4 stages of 1 or 2 layers and 1 to 4 batches: those of lib, and those that only tests need."""

import json
from functools import cache
from pathlib import Path

from lib.analysis.bounds.optima import Aim, Optimum, Size
from lib.schedules.pipelines.action import parse
from lib.schedules.pipelines.program import Program, program_of
from tests.support.drivers import ROOT

FILES = (ROOT / "lib" / "analysis" / "bounds" / "optima.json", Path(__file__).parent / "data" / "optima.json")


@cache
def optima() -> tuple[Optimum, ...]:
    """All of them, by size, the fastest of a size first."""
    records = [record for file in FILES for record in json.loads(file.read_text("utf-8"))["optima"]]
    return tuple(sorted(map(Optimum.of, records), key=lambda optimum: (optimum.size, optimum.end)))


def witness(optimum: Optimum) -> Program:
    """The schedule that reaches it: each of its stages is one layer."""
    return program_of(tuple(map(parse, optimum.orders)))


def front(size: Size) -> tuple[Optimum, ...]:
    return tuple(optimum for optimum in optima() if optimum.size == size)


def find(size: Size, aim: Aim) -> Optimum:
    return next(optimum for optimum in front(size) if optimum.aim == aim)
