"""What a replay can be told: sizes, numbers, transport, how often. Checked when it is made."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from lib.trace.event import Event
from lib.values.values import HIDDEN, LENGTH

__all__ = ["DTYPES", "LIBRARIES", "OPTIMIZERS", "TRANSPORTS", "DType", "Hook", "ReplayOptions"]


Hook = Callable[[int, int, Event, dict[int, Any]], None]
"""For tests: is called after each event with rank, number of the event, event, and the tensors by value."""


@dataclass(frozen=True, slots=True)
class DType:
    """A floating-point type: bytes a number, and how far a replay may be from the truth, relative to the largest entry.

    The truth is computed in float64 from the same initial numbers, rounded to the type. A few thousand summands and
    a handful of layers lie between them. float64: eps is 2e-16, and 1e-12 leaves 4 500 eps. float32: eps is 1.2e-7,
    and 2e-5 leaves 170. bfloat16 has eps 8e-3 and rounds gradients anew with every sum over batches: 6e-2 leaves 8,
    still less than what a dropped batch out of eight or a wrong factor changes.
    """

    name: str
    bytes: int
    tolerance: float


DTYPES: Final = {
    dtype.name: dtype for dtype in (DType("float64", 8, 1e-12), DType("float32", 4, 2e-5), DType("bfloat16", 2, 6e-2))
}
TRANSPORTS: Final = ("local", "gloo", "nccl")
OPTIMIZERS: Final = {"sgd": 1, "adam": 2}
"""The optimizers, with the numbers that each keeps for one weight. The simulated state is as large as the weight."""
LIBRARIES: Final = ("ddp", "ddp_by_layer", "fsdp", "hsdp", "gpipe", "1f1b")
STARTS: Final = ("auto", "fork", "forkserver")


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """How a Trace is to be run.

    `transport`: "local" runs all ranks in this process, "gloo" as processes on CPU or GPU, "nccl" with one GPU a
    rank. `dtype`: float64, float32 or bfloat16. `optimizer`: "sgd" (with momentum: the state has the simulated size)
    or "adam" (two moments: the state takes twice the simulated memory). `warmup` and `steps`: the training step is
    run once to be compared with ordinary training, then `warmup` times unmeasured, then `steps` times measured; every
    time from the same initial weights. `hidden` and `length`: a weight has hidden x hidden elements, an activation
    length x hidden a batch. `timeout`: seconds in which some rank must get on. `threads`: of torch, a rank.
    `backward`: "explicit" kernels or "autograd". `verify`: compare with ordinary training. `against`: libraries to run
    beside it, out of ddp, ddp_by_layer,
    fsdp, hsdp, gpipe, 1f1b. `memory_limit`: bytes that may be used (default: what is free).
    `start`: "fork", "forkserver" (a fresh Python that forks the ranks), or "auto". `rendezvous`: where processes meet,
    "tcp://host:port" or "file:///path"; default a fresh file, without any port.
    """

    transport: str = "gloo"
    dtype: str = "float64"
    optimizer: str = "sgd"
    steps: int = 1
    warmup: int = 0
    hidden: int = HIDDEN
    length: int = LENGTH
    device: str | None = None
    timeout: float = 60.0
    threads: int = 1
    seed: int = 0
    backward: str = "explicit"
    verify: bool = True
    against: tuple[str, ...] = ()
    memory_limit: int | None = None
    start: str = "auto"
    rendezvous: str | None = None

    def __post_init__(self) -> None:
        self._one_of("transport", self.transport, TRANSPORTS)
        self._one_of("dtype", self.dtype, DTYPES)
        self._one_of("optimizer", self.optimizer, OPTIMIZERS)
        self._one_of("backward", self.backward, ("explicit", "autograd"))
        self._one_of("start", self.start, STARTS)
        self._one_of("device", self.device or "cpu", ("cpu", "cuda"))
        for library in self.against:
            self._one_of("against", library, LIBRARIES)
        for name, low in (("steps", 1), ("warmup", 0), ("hidden", 1), ("length", 1), ("threads", 1), ("seed", 0)):
            number = getattr(self, name)
            if type(number) is not int or number < low:
                raise ValueError(f"{name} is a whole number from {low} up; got {number!r}")
        if not 0 < self.timeout < 10**6:
            raise ValueError(f"timeout is in seconds, more than 0; got {self.timeout!r}")
        if self.transport == "nccl" and self.device == "cpu":
            raise ValueError("nccl moves tensors between GPUs only; use transport='gloo' on the CPU")
        if self.against and self.transport == "local":
            raise ValueError("the libraries need processes: transport='gloo' or 'nccl'")
        if self.rendezvous is not None and not self.rendezvous.startswith(("tcp://", "file://")):
            raise ValueError(f"rendezvous is tcp://host:port or file:///path; got {self.rendezvous!r}")

    @staticmethod
    def _one_of(name: str, value: str, allowed: Any) -> None:
        if value not in allowed:
            raise ValueError(f"{name} is one of {', '.join(allowed)}; got {value!r}")

    @property
    def number(self) -> DType:
        """The type of all numbers."""
        return DTYPES[self.dtype]

    @property
    def moments(self) -> int:
        """Numbers that the optimizer keeps for each weight."""
        return OPTIMIZERS[self.optimizer]

    @property
    def on_gpu(self) -> bool:
        """Whether tensors live on a GPU."""
        return self.device == "cuda" or (self.device is None and self.transport == "nccl")

    def to_json(self) -> dict[str, Any]:
        """The fields as plain data."""
        return {**asdict(self), "against": list(self.against)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ReplayOptions:
        """The options that `to_json` gave. ValueError where a field is unknown or has a wrong value."""
        unknown = set(data) - {field.name for field in fields(cls)}
        if unknown:
            raise ValueError(f"replay has no options {sorted(unknown)}")
        fields_: dict[str, Any] = {**data, "against": tuple(data.get("against", ()))}
        return cls(**fields_)


def can_fork() -> bool:
    """Whether processes can be forked at all on this system. (On macOS they can, but its libraries do not stand it.)"""
    return sys.platform not in ("win32", "emscripten", "wasi")
