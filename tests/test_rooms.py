"""The house: how large a room may be, and that the core can be read in the order in which CONTRIBUTING has it."""

import ast
import io
import re
import tokenize
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MOST_MODULES = 10
MOST_LINES = 2600
SPACE = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
ROOMS = sorted(path.parent for top in ("lib", "drawing") for path in (ROOT / top).rglob("__init__.py"))
CORE = re.findall(r"^\d+\. `(lib/.*?\.py)`", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.MULTILINE)


def modules(room: Path) -> list[str]:
    return sorted(path.name for path in room.glob("*.py") if not path.name.startswith("__"))


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.relative_to(ROOT).as_posix())
def test_a_room_is_seen_at_a_glance(room: Path) -> None:
    assert len(modules(room)) <= MOST_MODULES, modules(room)


def test_every_room_has_its_line_in_the_contract_and_in_contributing() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    (rooms,) = (contract for contract in contracts if contract.get("containers") == ["lib"])
    listed = {name.strip() for layer in rooms["layers"] for name in layer.split("|")}
    here = {path.stem for path in (ROOT / "lib").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert listed == here - {"__init__"}
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    assert [name for name in listed if f"`{name}/`" not in text and f"`{name}.py`" not in text] == []
    assert "ignore_imports" not in rooms


def imported(path: Path) -> set[str]:
    """The modules of lib that a module needs to be imported, as paths."""
    found: set[str] = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lib"):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found.update(f"{name.replace('.', '/')}.py" for name in [f"{node.module}", *names])
    return found


def test_the_core_is_read_in_the_order_of_its_imports() -> None:
    assert len(CORE) > 10
    for number, name in enumerate(CORE):
        later = imported(ROOT / name).intersection(CORE[number:])
        assert later == set(), f"{name} needs {later}"


def lines_of_code(path: Path) -> int:
    """Lines that are neither blank nor comment nor docstring."""
    text = path.read_text("utf-8")
    strings: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            strings.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    code = {line for token in tokens if token.type not in SPACE for line in range(token.start[0], token.end[0] + 1)}
    return len(code - strings)


def test_the_core_is_read_in_an_hour() -> None:
    assert sum(lines_of_code(ROOT / name) for name in CORE) <= MOST_LINES
