"""What people are told, to the letter: each text in a file beside its tests, under `### the expression it answers`.

After a change that is meant, `TEXTS=write pytest FILE` writes the texts anew. Read the difference.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


class Said:
    """The texts of a file, by expression, in its order: of a path, or of the name of one beside a test's `__file__`.
    `kinds`: with the names of the errors."""

    def __init__(self, here: str | Path, name: str = "", *, kinds: bool = False) -> None:
        path = Path(here).parent / "said" / f"{name}.txt" if name else Path(here)
        self.path, self.kinds = path, kinds
        self.texts: dict[str, str] = {}
        for part in path.read_text("utf-8").split("### ")[1:]:
            expression, _, text = part.partition("\n")
            assert expression not in self.texts, f"{path.name} has it twice: {expression}"
            self.texts[expression] = text.strip("\n")

    def by(self, expression: str, names: dict[str, Any]) -> str:
        """What an expression is answered with: an error, or a text that it gives."""
        try:
            answer = eval(expression, names)
        except (NameError, SyntaxError):
            raise  # nobody's answer
        except Exception as error:
            if type(error) is AssertionError:
                raise  # something is wrong with the test
            return f"{type(error).__name__}: {error}" if self.kinds else str(error)
        if isinstance(answer, str):
            return answer
        raise AssertionError(f"nothing was wrong with {expression}")

    def check(self, expression: str, names: dict[str, Any]) -> None:
        """That an expression is answered as the file says; with TEXTS=write, the file says it from now on."""
        text = self.by(expression, names)
        if os.environ.get("TEXTS") == "write":
            self.texts[expression] = text
            self.path.write_text("\n".join(f"### {asked}\n{told}\n" for asked, told in self.texts.items()), "utf-8")
        asked = self.texts[expression]
        assert text == asked, (
            f"{expression}\n-- says:\n{text}\n-- {self.path.name} has:\n{asked}\n(TEXTS=write: see said.py)"
        )

    def test(self, names: Callable[[], dict[str, Any]]) -> Callable[[str], None]:
        """The test of a file: that each expression, in which these names are known, is answered as it says."""

        @pytest.mark.parametrize("expression", self.texts)
        def test_what_is_said(expression: str) -> None:
            self.check(expression, names())

        return test_what_is_said
