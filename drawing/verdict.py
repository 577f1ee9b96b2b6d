"""The picture of a verdict: bars against every goal, and something to be proud of where it is passed."""

from __future__ import annotations

from collections.abc import Iterator
from math import cos, pi, sin
from typing import Final
from zlib import crc32

from drawing.canvas.palette import ALARM, ALARM_PALE, EDGE, GOLD, GOOD, INK, KINDS, PAPER, SHINE, SOFT, TRACK, WOOD, mix
from drawing.canvas.picture import Picture
from drawing.canvas.scene import TEXT, Mark, Poly, Rect, Scene, Text, fit
from lib.checker.verdict import Verdict
from lib.errors.wording import amount, exact
from lib.puzzles.records import Goal

__all__ = ["goal_name", "picture_of_verdict"]

WIDTH: Final = 800
LIMITLESS: Final = 2.0**60
"""Limits from here on are none: the caller asked for time only, or for memory only."""


def picture_of_verdict(verdict: Verdict) -> Picture:
    """A verdict with its figures; a trophy and confetti where the goal is reached."""
    scene = Scene(WIDTH, max(96 + 26 * len(verdict.goals), 190 if verdict.passed else 0))
    left = 24.0
    if verdict.passed:
        scene.add(*_confetti(verdict, scene.height))
        scene.add(*_trophy(100, 34, sum(goal.reached for goal in verdict.goals) or 1))
        left = 216
    scene.add(Text(left, 32, fit(_headline(verdict), WIDTH - left - 10, 18), 18, INK, bold=True))
    y = 58.0
    if verdict.correct:
        words = f"Time {exact(verdict.time)}, memory {amount(verdict.memory)} elements (rank {verdict.rank})"
        scene.add(Text(left, y, words, 12, SOFT))
        y += 22
    for fault in verdict.faults[:4]:
        scene.add(Text(left, y, fit(" ".join(fault.split()), WIDTH - left - 16, 12), 12, ALARM))
        y += 20
    for goal in verdict.goals:
        _goal(scene, goal, verdict, left, y + 10)
        y += 26
    scene.height = max(y + 12, 190 if verdict.passed else 0)
    return Picture(scene, _headline(verdict))


def _headline(verdict: Verdict) -> str:
    name = f"{verdict.puzzle}: " if verdict.puzzle else ""
    if not verdict.correct:
        return f"{name}not one correct training step yet"
    if not verdict.passed:
        return f"{name}correct, but not within the goal yet"
    return f"{name}correct!" + (f" Reached: {verdict.best}" if verdict.best else "")


def goal_name(scene: Scene, name: str, reached: bool, left: float, y: float) -> None:
    """The name of a goal, bold and with a tick where it is reached, else with a dash."""
    scene.add(Text(left + 18, y, fit(name, 172, 12), 12, INK if reached else SOFT, bold=reached))
    if reached:
        scene.add(Poly(((left, y), (left + 4, y + 5), (left + 12, y - 6)), stroke=GOOD, line=2.2))
    else:
        scene.add(Poly(((left + 2, y), (left + 10, y)), stroke=SOFT, line=2))


def _goal(scene: Scene, goal: Goal, verdict: Verdict, left: float, y: float) -> None:
    """One line: the name of the goal, whether it is reached, and a bar each for time and memory."""
    goal_name(scene, goal.name, verdict.correct and goal.reached, left, y)
    start, room = left + 196, WIDTH - left - 208
    for name, share, mine, limit in (
        ("time", 0.38, verdict.time, goal.time),
        ("memory", 0.62, verdict.memory, goal.memory),
    ):
        if limit < LIMITLESS:
            _bar(scene, name, mine, float(limit), start, y, share * room - 10)
        start += share * room


def _bar(scene: Scene, name: str, mine: float, limit: float, x: float, y: float, width: float) -> None:
    """How much of a limit is used: a full bar is exactly at the limit, a red one is over it."""
    share = mine / limit if limit > 0 else 1.0
    colour = GOOD if mine <= limit else ALARM
    scene.add(Rect(x, y - 8, width, 16, TRACK if mine <= limit else ALARM_PALE, EDGE, radius=3))
    scene.add(Rect(x, y - 8, max(2.0, width * min(1.0, share)), 16, mix(colour, PAPER, 0.55), radius=3))
    figure = f"{amount(mine)} of {amount(limit)}"
    words = f"{name} {figure}" if mine <= limit else f"{name} over: {figure}"
    scene.add(Text(x + 7, y, fit(words, width - 8, TEXT), TEXT, INK))


def _star(x: float, y: float, size: float) -> list[tuple[float, float]]:
    points: list[tuple[float, float]] = []
    for corner in range(10):
        reach = size if corner % 2 == 0 else size * 0.42
        angle = pi * corner / 5 - pi / 2
        points.append((x + reach * cos(angle), y + reach * sin(angle)))
    return points


def _trophy(x: float, y: float, stars: int) -> Iterator[Mark]:
    """A cup with handles on a base, and a star for each goal that was reached."""
    dark = mix(GOLD, WOOD, 0.4)
    for side in (-1, 1):
        handle = [(x + side * (30 + 17 * sin(pi * t / 12)), y + 8 + 30 * t / 12) for t in range(13)]
        yield Poly([*handle, (x + side * 22, y + 42)], stroke=dark, line=5)
    bowl = [(34 * (1 - (t / 10) ** 2.6) + 5, 62 * t / 10) for t in range(11)]
    cup = [(x - dx, y + dy) for dx, dy in bowl] + [(x + dx, y + dy) for dx, dy in reversed(bowl)]
    yield Poly(cup, fill=GOLD, stroke=dark, line=1.5)
    shine = [(x - dx * 0.8, y + dy) for dx, dy in bowl[1:8]] + [(x - dx * 0.6, y + dy) for dx, dy in bowl[7:0:-1]]
    yield Poly(shine, fill=mix(GOLD, SHINE, 0.6))
    yield Poly(((x - 5, y + 62), (x + 5, y + 62), (x + 9, y + 82), (x - 9, y + 82)), fill=dark)
    yield Rect(x - 26, y + 82, 52, 9, GOLD, dark, 1.5, radius=2)
    yield Rect(x - 34, y + 91, 68, 13, WOOD, radius=2)
    yield Poly(_star(x + 6, y + 26, 13), fill=SHINE, stroke=dark)
    for number in range(stars):
        yield Poly(_star(x + (number - (stars - 1) / 2) * 30, y + 124, 12), fill=GOLD, stroke=dark)


def _confetti(verdict: Verdict, height: float) -> Iterator[Mark]:
    """Scraps of paper, thrown by arithmetic: the same for the same puzzle, whoever solves it."""
    colours = (*KINDS.values(), GOOD, GOLD)
    state = crc32((verdict.puzzle or "").encode())
    for scrap in range(70):
        state = (state * 1103515245 + 12345) % 2**31
        x, turn = 8 + state % 184, pi * (state // 256 % 64) / 64
        state = (state * 1103515245 + 12345) % 2**31
        y = 8 + state // 16 % max(1, int(height - 16))
        long, short = 4 + scrap % 3, 1.6 + scrap % 2
        corners = [(long, short), (-long, short), (-long, -short), (long, -short)]
        yield Poly(
            [(x + a * cos(turn) - b * sin(turn), y + a * sin(turn) + b * cos(turn)) for a, b in corners],
            fill=mix(colours[scrap % len(colours)], PAPER, 0.25),
        )
