"""The options of a replay: sizes, numbers, transport, how often. They are checked when made."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from typing import Any, Final, NamedTuple

from lib.errors.wording import written
from lib.trace.event import Event
from lib.values.kinds.kind import PRICED

Hook = Callable[[int, int, Event, dict[int, Any]], None]
"""A hook for tests, called after each event with the rank, the event's number, the event and the tensors by value."""


class DType(NamedTuple):
    """A floating-point type: bytes a number, and how far off a replay may be, relative to the largest entry.

    Ordinary training is done in float64, from the same initial numbers rounded to the type. A few thousand summands and
    a handful of layers lie between them: 1e-12 leaves 4 500 eps of float64, and 2e-5 leaves 170 of float32. bfloat16
    (eps 8e-3) rounds gradients anew with every sum over batches: 6e-2 leaves 8 eps, still less than what a dropped
    batch out of eight or a wrong factor changes.
    """

    bytes: int
    tolerance: float


DTYPES: Final = {"float64": DType(8, 1e-12), "float32": DType(4, 2e-5), "bfloat16": DType(2, 6e-2)}
OPTIMIZERS: Final = {"sgd": 1, "adam": 2}
"""By optimizer, how many numbers it keeps for each weight. The simulated state is as large as the weight."""
LIBRARIES: Final = ("ddp", "fsdp", "torch-pipelining")
"""Torch's own training steps that a replay can be compared with."""


def _option(default: Any, help: str, choices: Iterable[str] = (), kind: type = str, **bounds: int) -> Any:
    """Make an option: its default, its meaning and its allowed values; several where the default is a tuple."""
    allowed = {"choices": tuple(choices), "kind": kind, "several": default == (), "least": None, "most": None}
    return field(default=default, metadata={"help": help, **allowed, **bounds})


def _whole(default: int, help: str, least: int = 1, most: int = 10**6) -> Any:
    """Make an option that is a whole number: a larger one is a typing slip, or more than any machine has."""
    return _option(default, help, kind=int, least=least, most=most)


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """The options of a replay, as in `python -m lib.replay` and `puzzles replay`. The step runs once for comparison
    with ordinary training, then `warmup` times unmeasured, then `steps` times measured; always from the same initial
    weights. ValueError where an option has a wrong value."""

    transport: str = _option(
        "gloo",
        "local runs all ranks in this process, gloo as processes on CPU or GPU, nccl with one GPU a rank",
        ("local", "gloo", "nccl"),
    )
    dtype: str = _option("float64", "type of all numbers", DTYPES)
    optimizer: str = _option(
        "sgd", "sgd with momentum keeps a state of the simulated size, adam two moments: twice as much", OPTIMIZERS
    )
    steps: int = _whole(1, "measured steps; medians are shown", most=10_000)
    warmup: int = _whole(0, "unmeasured steps before them", least=0, most=10_000)
    hidden: int = _whole(PRICED.inputs, "a weight has hidden x hidden elements")
    length: int = _whole(PRICED.rows, "a batch of activations has length x hidden elements")
    device: str | None = _option(None, "default: cuda for nccl, else cpu", ("cpu", "cuda"))
    timeout: float = _option(60.0, "seconds in which some rank must get on", kind=float)
    threads: int = _whole(1, "of torch, for each rank", most=1024)
    seed: int = _whole(0, "of the numbers that training starts from", least=0, most=2**32)
    backward: str = _option("explicit", "who differentiates: kernels of ours, or torch", ("explicit", "autograd"))
    verify: bool = _option(True, "compare with ordinary training", kind=bool)
    against: tuple[str, ...] = _option((), "run these libraries beside it", LIBRARIES)

    def __post_init__(self) -> None:
        object.__setattr__(self, "against", tuple(self.against))
        for option in fields(self):
            value: Any = getattr(self, option.name)
            allowed, choices = option.metadata, option.metadata["choices"]
            least, most = allowed["least"], allowed["most"]
            if (value, option.default) == (None, None):
                continue
            for one in value if allowed["several"] else (value,):
                if choices and one not in choices:
                    raise ValueError(f"{option.name}= is one of {', '.join(choices)}; got {one!r}")
            if least is not None and not (type(value) is int and least <= value <= most):
                raise ValueError(f"{option.name}= is a whole number from {least} to {most}; got {written(value)}")
        if not 0 < self.timeout < 10**6:
            raise ValueError(f"timeout= is in seconds, more than 0; got {self.timeout!r}")
        if self.transport == "nccl" and self.device == "cpu":
            raise ValueError("nccl moves tensors between GPUs only; use transport='gloo' on the CPU")
        if self.against and self.transport == "local":
            raise ValueError("the libraries need processes: transport='gloo' or transport='nccl'")

    @property
    def number(self) -> DType:
        """The type of all numbers."""
        return DTYPES[self.dtype]

    @property
    def moments(self) -> int:
        """How many numbers the optimizer keeps for each weight."""
        return OPTIMIZERS[self.optimizer]

    @property
    def on_gpu(self) -> bool:
        """Tell whether tensors live on a GPU."""
        return self.device == "cuda" or (self.device is None and self.transport == "nccl")
