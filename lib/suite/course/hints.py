"""hint: three hints for each puzzle (a question, an idea, nearly the code), opened one after the other."""

from __future__ import annotations

from dataclasses import dataclass

from lib.errors.wording import with_article
from lib.puzzles.records import HINTS, PUZZLES

__all__ = ["Hints", "hint", "next_hint"]


@dataclass(frozen=True, slots=True)
class Hints:
    """The first `opened` hints of a puzzle, as Markdown: a notebook renders it, elsewhere it prints as it is."""

    puzzle: str
    opened: int

    @property
    def body(self) -> str:
        """The hints that are open, each under its number. Empty where none is."""
        texts = PUZZLES[self.puzzle].hints[: self.opened]
        return "\n\n".join(
            f"**Hint {number}, {kind}**\n\n{text}"
            for number, (kind, text) in enumerate(zip(HINTS, texts, strict=False), 1)
        )

    @property
    def kind_of_next(self) -> str | None:
        """What the next hint is; None where all are open."""
        return HINTS[self.opened] if self.opened < len(HINTS) else None

    @property
    def markdown(self) -> str:
        """The hints that are open, and how to open the next one."""
        if not self.opened:
            count, kinds = len(PUZZLES[self.puzzle].hints), ", ".join(HINTS)
            return f"{count} hints for this puzzle: {kinds}. To open the first: `{_call(self.puzzle, 1)}`"
        if self.kind_of_next is None:
            return f"{self.body}\n\nThese were all the hints."
        return f"{self.body}\n\nThe next hint is {self.kind_of_next}: `{_call(self.puzzle, self.opened + 1)}`"

    def _repr_markdown_(self) -> str:
        return self.markdown

    def __repr__(self) -> str:
        return self.markdown if self.opened else self.markdown.replace("`", "")


def hint(puzzle: str, opened: int = 0) -> Hints:
    """Hints for a puzzle: the first `opened` of them, or with 0 only how to open them. Opening counts as progress.

    ValueError for a puzzle or a number that there is not.
    """
    if not isinstance(puzzle, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        got = f"the function {puzzle.__name__}" if callable(puzzle) else with_article(type(puzzle).__name__)
        raise ValueError(f"hint takes the name of a puzzle in quotes, such as {_call('ddp', 1)}; got {got}")
    count = len(PUZZLES[puzzle].hints)
    if type(opened) is not int or not 0 <= opened <= count:
        raise ValueError(f"{puzzle} has hints 1 to {count}: {_call(puzzle, 1)} opens the first; got {opened!r}")
    if opened:
        from lib.suite.course.progress import hinted  # here and not above: `import lib` should be quick

        hinted(puzzle, opened)
    return Hints(puzzle, opened)


def next_hint(puzzle: str, seen: int = 0) -> Hints:
    """The hints of a puzzle with one more open than before: than recorded, or than were `seen` already."""
    from lib.suite.course.progress import known  # here and not above: `import lib` should be quick

    found = known().get(puzzle)
    opened = max(seen, 0 if found is None else found.hints)
    return hint(puzzle, min(opened + 1, len(PUZZLES[puzzle].hints)))


def _call(puzzle: str, opened: int) -> str:
    return f'hint("{puzzle}", {opened})'
