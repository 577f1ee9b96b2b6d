"""The digest of a function and of what it uses, in which names of variables, layout and comments play no part."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Sequence

from lib.submissions.reading.cells import Cell, SourceError
from lib.submissions.reading.needed import Program

__all__ = ["normal_form"]


def normal_form(program: Program, name: str, modules: Sequence[Cell] = ()) -> str:
    """The digest; "" where there is no such function."""
    for needed in program.needed(name):
        try:
            text = "\n".join(ast.dump(one.node) for one in needed.statements)
        except (RecursionError, ValueError, MemoryError):
            raise SourceError("this code is nested too deep to be read") from None
        return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
    return ""
