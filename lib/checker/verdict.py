"""The verdict of a check, as plain data: is it one correct training step, how long, how big, and how good is that?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lib.errors.wording import amount, counted

if TYPE_CHECKING:
    from lib.puzzles.goals import Goal


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a check.

    `time` is the true end, `printed` the time that the original prints, `memory` the peak in elements on
    rank `rank`. `faults` say why the run is not one correct training step (none: it is). `notes` are remarks that
    fail nothing: hidden locals, messages nobody received, pretended gradients of a sandbox. `sent` is what the rank
    sends that sends most, in elements. `elsewhere`: at how many other sizes the function was tried, and is right.
    """

    correct: bool
    time: float
    printed: float
    memory: float
    rank: int
    faults: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    goals: tuple[Goal, ...] = ()
    puzzle: str | None = None
    sent: float = 0.0
    elsewhere: int = 0

    @property
    def passed(self) -> bool:
        """Correct, and within the easiest goal where there are goals."""
        return self.correct and (not self.goals or self.goals[0].reached)

    @property
    def best(self) -> str | None:
        """The name of the best goal reached."""
        return next((goal.name for goal in reversed(self.goals) if goal.reached), None)

    def __str__(self) -> str:
        return self.text()

    def text(self, width: int = 24) -> str:
        """Return the verdict in words, with a bar for each figure of each goal: full means exactly at the limit."""
        here = self.faults and self.faults[0].startswith("right at ")  # and wrong at the size that it goes on to name
        head = "Right at the size on the page, and wrong at another." if here else "Not one correct training step."
        if self.correct:
            head = "Correct!" if self.passed else "Correct, but not within the goal yet."
            head += f" Also right at {counted(self.elsewhere, 'other size')}." if self.elsewhere else ""
        lines = [head, *(f"  {fault}" for fault in self.faults), *(f"Note: {note}" for note in self.notes)]
        if self.correct:
            lines.append(f"Time {self.time:g}, memory {self.memory:,.0f} elements (rank {self.rank}).")
        for goal in self.goals:
            mark = "reached" if self.correct and goal.reached else "missed"
            # Within its limits and yet not reached: memory was hidden, or the puzzle was made easier.
            if self.correct and not goal.reached and goal.allows(self.time, self.memory):
                mark = "does not count: see the note above"
            lines.append(f"  {goal.name} - {mark}")
            limits = {"time": (self.time, goal.time), "memory": (self.memory, goal.memory)}
            if goal.sent is not None:
                limits["sent"] = self.sent, goal.sent
            for name, (mine, limit) in limits.items():
                filled = min(width, round((mine / limit if limit else 0.0) * width))
                bar = "#" * filled + "." * (width - filled)
                lines.append(f"    {name:<7}[{bar}] {amount(mine):>11} of {amount(limit)}{' over' * (mine > limit)}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, repr=False)
class FunctionVerdict:
    """The result of asking a plain function. `asked` counts the inputs, `faults` show one that is wrong, in words;
    and `shown` is what it looks like, where the puzzle says (`import drawing` makes a picture of it). A plan has
    `goals`, and `worth` says its seconds and GiB."""

    puzzle: str
    asked: int
    faults: tuple[str, ...] = ()
    shown: Any = None
    goals: tuple[Goal, ...] = ()
    worth: str = ""

    @property
    def correct(self) -> bool:
        """Right on every input."""
        return not self.faults

    passed = correct  # there are no goals to be reached

    def __repr__(self) -> str:
        """Short: who asks for it has the text."""
        if self.worth and self.correct:
            return f"<{self.puzzle}: {self.worth}>"
        return f"<{self.puzzle}: {'right' if self.correct else 'wrong'}, of {counted(self.asked, 'input')}>"

    def __str__(self) -> str:
        return self.text()

    def text(self) -> str:
        """Return the verdict in words."""
        if self.correct and self.worth:
            marks = (f"  {one.name} - {'reached' if one.reached else 'missed'}: {one.time:g} s" for one in self.goals)
            return "\n".join([f"Correct! {self.worth}", *marks])
        if self.correct:
            return f"Correct! Right on all of {counted(self.asked, 'input', ',')}."
        return "\n".join(["Not right yet.", *("  " + fault.replace("\n", "\n  ") for fault in self.faults)])
