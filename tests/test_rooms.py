"""The house: how large a room may be, and what a run is: the modules that the map lists, the steps of a call."""

import ast
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Generator
from pathlib import Path
from types import FrameType

import pytest

from lib import Model, Work, simulate
from lib.simulator.engine import Engine

ROOT = Path(__file__).parents[1]
MOST_MODULES = 10
MOST_LINES = 7000
"""Lines of code that a run and its check load, and that docs/architecture.md lists to be read."""
MOST_FUNCTIONS, MOST_PLACES = 28, 10
"""Functions that an all-reduce goes through, and the modules that they are in."""
BUDGETS = {
    "drawing": 9_000,
    "lib/analysis": 3_310,
    "lib/checker": 2_130,
    "lib/cluster": 1_630,
    "lib/diagnosis": 3_460,
    "lib/errors": 900,
    "lib/puzzles": 450,
    "lib/replay": 4_010,
    "lib/schedules": 4_680,
    "lib/plan": 1_490,
    "lib/simulator": 3_350,
    "lib/suite/cli": 3_010,
    "lib/suite/course": 1_660,
    "lib/suite/grade": 3_350,
    "lib/suite/isolation": 1_110,
    "lib/suite/submissions": 2_140,
    "lib/trace": 3_270,
    "lib/values": 3_990,
    "tests": 44_460,
}
"""Lines of Python in a room, at most. A room that needs a tenth less gets a smaller budget."""
SPACE = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
ROOMS = sorted(path.parent for top in ("lib", "drawing") for path in (ROOT / top).rglob("__init__.py"))
CORE = re.findall(r"^\d+\. `(lib/.*?\.py)`", (ROOT / "docs/architecture.md").read_text("utf-8"), re.MULTILINE)


def modules(room: Path) -> list[str]:
    return sorted(path.name for path in room.glob("*.py") if not path.name.startswith("__"))


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.relative_to(ROOT).as_posix())
def test_a_room_is_seen_at_a_glance(room: Path) -> None:
    assert len(modules(room)) <= MOST_MODULES, modules(room)


@pytest.mark.parametrize("room", BUDGETS)
def test_a_room_keeps_to_its_budget(room: str) -> None:
    lines = sum(len(path.read_text("utf-8").splitlines()) for path in (ROOT / room).rglob("*.py"))
    assert 0.9 * BUDGETS[room] <= lines <= BUDGETS[room]


def test_every_room_has_its_line_in_the_contract_and_on_the_map() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    (rooms,) = (contract for contract in contracts if contract.get("containers") == ["lib"])
    listed = {name.strip() for layer in rooms["layers"] for name in layer.split("|")}
    here = {path.stem for path in (ROOT / "lib").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert listed == here - {"__init__"}
    text = (ROOT / "docs/architecture.md").read_text("utf-8")
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


RUN = """
import sys
from lib import Model, simulate

async def data_parallel(model):
    model.weights[0], model.opt_states[0] = model.load_weights(0)
    model.activations[0] = model.get_activation([model.rank])
    model.activations[1] = model.forward(0, model.activations[0], model.weights[0])
    model.grad_activations[1] = model.loss(model.activations.pop(1))
    inp, grad = model.activations.pop(0), model.grad_activations.pop(1)
    model.grad_weights[0], _ = model.backward(0, inp, grad, model.weights[0])
    model.grad_weights[0] = await model.allreduce(model.grad_weights.pop(0), 0)
    weight, state = model.weights.pop(0), model.opt_states.pop(0)
    model.weights[0], model.opt_states[0] = model.update(0, model.grad_weights.pop(0), weight, state)
    model.set_final_weight(0, model.weights[0])
    if model.rank == 0:
        await model.pass_to(1, "done")
    elif model.rank == 1:
        await model.receive(0)

Model.check(simulate(data_parallel, ranks=4, layers=1, batches=4))
loaded = [module for name, module in sys.modules.items() if name.partition(".")[0] in ("lib", "drawing")]
print("\\n".join(module.__file__ for module in loaded))
"""


def test_the_core_is_what_a_run_and_its_check_load_and_nothing_less() -> None:
    said = subprocess.run([sys.executable, "-c", RUN], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert said.startswith("Correct!\n")
    loaded = [Path(line) for line in said.splitlines() if line.endswith(".py")]
    with_code = {path.relative_to(ROOT).as_posix() for path in loaded if lines_of_code(path)}
    assert with_code == set(CORE)
    assert len(CORE) == len(set(CORE))
    assert sum(lines_of_code(ROOT / name) for name in CORE) <= MOST_LINES


class _Turn:
    """What a rank awaits to let the others go on."""

    def __await__(self) -> Generator[None]:
        yield


def test_an_all_reduce_goes_through_few_functions() -> None:
    """Those that are called from the call of all ranks to their results, and what steps the ranks meanwhile."""
    codes = {Engine._step.__code__}
    ours = str(ROOT / "lib")

    def note(frame: FrameType, event: str, _: object) -> None:
        above: FrameType | None = frame
        while above is not None and above.f_code not in (Model.allreduce.__code__, Work.__await__.__code__):
            above = above.f_back
        if event == "call" and above is not None and frame.f_code.co_filename.startswith(ours):
            codes.add(frame.f_code)

    async def reduce(model: Model) -> None:
        await model.allreduce(model.fake_grad(0, [model.rank]), 0)  # what is worked out once is not counted
        grad = model.fake_grad(0, [model.rank])
        await _Turn()  # all have theirs: from here on they do nothing else
        sys.setprofile(note)
        await model.allreduce(grad, 0)
        sys.setprofile(None)

    simulate(reduce, ranks=2, layers=1, batches=2)
    functions = sorted(f"{Path(code.co_filename).stem}.{code.co_qualname}" for code in codes if code.co_name[0] != "<")
    assert len(functions) <= MOST_FUNCTIONS, functions
    assert len({name.partition(".")[0] for name in functions}) <= MOST_PLACES, functions
