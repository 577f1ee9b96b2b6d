"""How long operations take, in exact ticks: the classic unit costs, and links with a bandwidth.

Simulated time is in ticks, whole billionths of a time unit. Floats would make 0.3 + 0.3 + 0.3 differ from 0.9, and
equal moments unequal. A tick is small enough that every cost in use is a whole number of ticks, so sums and comparisons
are exact. Fractions would be exact too, but dozens of times slower.

UNIT has the constants of the classic puzzles. `Links` prices communication by the elements that move: a link inside a
host moves one batch of activations (131 072 elements) in 0.2, so the ring all-gather of one weight over 4 ranks takes
3/4 x 262 144 x 0.2 / 131 072 = 0.3: the classic constants are this bandwidth. Between hosts a link is `ratio` times
slower. `latency` is the alpha of the alpha-beta model (Thakur, Rabenseifner, Gropp 2005), once a message. Simultaneous
communications share a link (see `network`). `Uneven` is for layers and ranks that differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, cast

from lib.errors.wording import exact, plural
from lib.record import record, replace
from lib.values.collectives import Collective
from lib.values.kinds.kind import PRICED
from lib.values.operations import Operation
from lib.values.values import Elements

if TYPE_CHECKING:
    from lib.cluster.mesh import Mesh
    from lib.cluster.network import Shares

# -- time ---------------------------------------------------------------------------------------------------------

TICKS = 10**9
MAX_TICKS = 2**60
"""The latest time, and the longest length, that a Trace may have."""


def ticks(time: float | Fraction) -> int:
    """Return a time in units as a whole number of ticks."""
    # Costs are whole ticks, so this only removes the error of binary floats: 0.3 is not exactly three tenths.
    return round(time * TICKS)


def as_written(number: float | Fraction) -> Fraction:
    """Return the decimal that was written, not the binary float nearest to it."""
    # str gives the shortest decimal that reads back as this float, so what was typed.
    return Fraction(str(number))


def units(time: int) -> float:
    """Return a time in ticks as time units: 19900000000 -> 19.9."""
    return time / TICKS


def in_units(time: int) -> str:
    """Return a time in ticks in words: "1 time unit", "1.4 time units"."""
    figure = exact(units(time))
    return f"{figure} {plural('time unit', float(figure))}"


class Stream:
    """A communication stream, and when it is `free`. There is one for each set of ranks that forms a process group, in
    any order, and one for each end of what goes from a rank to another.

    A rank computes on its own clock; its communication runs beside that on these streams, one operation after the other
    in each, as early as possible. The only copy of this timing (`network` has that of shared links): the simulator and
    `retime` both ask here.
    """

    __slots__ = ("free",)

    def __init__(self) -> None:
        self.free = 0

    # As in torch's NCCL backend: one CUDA stream for each communicator, in the order of calls. Simplified: on a real
    # GPU communication takes multiprocessors from kernels; here it slows no computation.
    def carry(self, issued: int, length: int, sent: int = 0) -> int:
        """Occupy the stream with a collective that all have issued, or with one end of a message; return when it
        starts: a receive not before it was `sent`."""
        # Two comparisons instead of max(): this runs for every message.
        start = issued if issued > sent else sent
        if self.free > start:
            start = self.free
        self.free = start + length
        return start


# -- costs --------------------------------------------------------------------------------------------------------

MOST_TIME = 10**9
"""The bound below which every cost is: the times of a Trace are whole billionths of a time unit, below 2^60."""
HALVES = ("backward_input", "backward_weight")
LISTS = ("layers", "ranks")
LATER = ("read", "to_device", "cards", "ranks")
"""Costs that files leave out if 0 or None (and HALVES if half of backward), so that older versions read them too."""


COUNTS = {"host_size": "a whole number of ranks", "cards": "a whole number of network cards"}
"""Fields that are not times, in words. None stands for as many as there are ranks."""


@record(slots=False)
class Costs:
    """The classic costs, in time units: compute a batch and layer, an update, any collective, each side of a pass.

    By default each half of backward takes half of it, and input data is free: `read` is the time in which the reader of
    a process reads a batch, `to_device` that of copying a batch from its memory to a device.

    >>> async def work(model):
    ...     model.forward(0, model.get_activation([0, 1]), model.load_weights(0)[0])
    >>> check(simulate(work, layers=1, batches=2, costs=Costs(forward=3))).time
    6.0
    """

    shared: ClassVar[bool] = False
    """Whether simultaneous communications share links, and so may take longer."""

    forward: float = 1.0
    backward: float = 1.0
    update: float = 0.5
    loss: float = 0.0
    collective: float = 0.3
    p2p: float = 0.2
    read: float = 0.0
    to_device: float = 0.0
    backward_input: float = None  # pyright: ignore[reportAssignmentType]
    backward_weight: float = None  # pyright: ignore[reportAssignmentType]

    def __post_init__(self) -> None:
        for name in HALVES:
            if getattr(self, name) is None and _is_number(self.backward):
                # Halves of one length and a free split, as zero bubble schedules assume at first (Qi et al. 2023).
                object.__setattr__(self, name, self.backward / 2)
        for name in cast("tuple[str, ...]", self.__match_args__):  # subclasses have more
            value = getattr(self, name)
            if (name in COUNTS and value is None) or name in LISTS:
                continue
            kinds = int if name in COUNTS else int | float
            if not isinstance(value, kinds) or isinstance(value, bool):
                wanted = "a number, such as 10" if name == "ratio" else "a time, such as 1 or 0.3"
                raise ValueError(f"{name} is {COUNTS.get(name, wanted)}; got {name}={value!r}")
            if name == "cards" and value < 1:
                raise ValueError(f"a host has at least one network card; got cards={value}")
            if not (1 if name == "host_size" else 0) <= value < float("inf"):
                raise ValueError(f"costs are times, so at least 0, and a host has a rank; got {name}={value}")
            if value >= MOST_TIME:
                raise ValueError(
                    f"a cost is less than {MOST_TIME} time units, so that times can be counted; got {name}={value}"
                )

    @cached_property
    def _known(self) -> dict[str | float | None, int]:
        return {}

    def compute(self, op: Operation, rank: int, layer: int | None, work: Elements) -> int:
        """Return the ticks of an operation of `work` times its price. Here all ranks and layers are alike."""
        cost = self._known.get(op.cost)
        if cost is None:
            assert op.cost is not None, f"{op.name} takes no time"
            cost = self._known[op.cost] = ticks(getattr(self, op.cost) if isinstance(op.cost, str) else op.cost)
        # Only the product is rounded: else a price with a half tick would lose it for each batch.
        return cost * work if type(work) is int else round(cost * work)

    def refuse(self, op: Operation) -> bool:
        """Tell whether an operation is free here although its result has a price, such as data that is read."""
        return op.free_of is not None and bool(getattr(self, op.free_of))

    def factor(self, layer: int) -> Fraction:
        """Return the factor by which a layer computes longer than the costs say. Here all layers are alike."""
        return Fraction(1)

    def slowness(self, rank: int) -> Fraction:
        """Return the factor by which a rank computes longer than the costs say. Here all ranks are alike."""
        return Fraction(1)

    def least(self, elements: Elements, outside: bool = False) -> Fraction:
        """Return the least time in which a rank gets elements from others, perhaps all `outside` its host."""
        # A message takes its price at both ends. These costs do not depend on size, so neither does the bound.
        return min(as_written(self.collective), 2 * as_written(self.p2p))

    def communicate(self, row: Collective, whole: Elements, members: Sequence[int]) -> int:
        """Return the ticks of a collective of `whole` elements over `members` (ranks)."""
        return self._flat[0]

    def message(self, elements: Elements, source: int, target: int) -> int:
        """Return the ticks for which a message occupies each of its ends."""
        return self._flat[1]

    @cached_property
    def _flat(self) -> tuple[int, int]:
        return ticks(self.collective), ticks(self.p2p)

    def passes(self, members: Sequence[int]) -> Shares:
        """Return the shared links that a collective over `members` uses, and the share that it needs of each."""
        return {}

    def passes_at(self, way: str, rank: int, other: int) -> Shares:
        """Return the links that a message uses at a rank that sends it "out" to another, or takes it "in"."""
        return {}

    def on(self, mesh: Mesh | None) -> Costs:
        """Return these costs for ranks on a mesh. Here nothing depends on where a rank is."""
        return self

    def to_json(self) -> dict[str, Any]:
        """Return the fields, with the name of the model: what `costs_from` reads."""
        said = {name: getattr(self, name) for name in self.__match_args__}
        given = {name: value for name, value in said.items() if value or name not in LATER}
        for name in HALVES:
            if given[name] == self.backward / 2:
                del given[name]
        model = next((name for name, cls in MODELS.items() if cls is type(self)), None)
        if model is None:
            raise ValueError(
                f"costs of the class {type(self).__name__} can be in no file and in no puzzle: nobody else knows it; "
                "give numbers of your own to Costs, Links or Uneven"
            )
        return {"model": model, **given}


@record(slots=False)
class Links(Costs):
    """Communication priced by bandwidth: `p2p` time units for one batch of activations over a link inside a host.

    `host_size` ranks share a host (None: all do); a ring that leaves a host runs at `ratio` times the price. The host
    size of a mesh, if it has one, takes precedence (see `Mesh.host`).

    Each rank has a link inside its host, and a network card to the others. A collective that leaves its host is one
    ring, through one card of each host. If a host has a number of `cards`, its ranks share them evenly, in order, and
    the collective is a ring through each card that its members on a host have, all at once, as in NCCL.

    A collective inside a host needs all of the inside link of each member, both ways. One that leaves the host needs
    all of their cards, and of the inside links of members that share a host the part that keeps up with the cards.

    A gradient is as large as two batches of activations, and half of it goes to the other rank twice:

    >>> async def pair(model):
    ...     await model.allreduce(model.fake_grad(0, [model.rank]), 0)
    >>> check(simulate(pair, ranks=2, layers=1, batches=2, costs=Links(p2p=0.5))).time
    1.0
    """

    shared: ClassVar[bool] = True

    host_size: int | None = None
    ratio: float = 10.0
    latency: float = 0.0
    cards: int | None = None

    def communicate(self, row: Collective, whole: Elements, members: Sequence[int]) -> int:
        travel, count = row.travel, len(members)
        if travel.straight:
            moving = self._straight(Fraction(whole) / count, members)
        else:
            moving = travel.share(count) * whole * self._beta(members)
        # Alpha-beta: a latency for each message on the critical path, and the rest by bandwidth.
        one = ticks(moving) + ticks(self.latency) * travel.messages(count)
        return travel.rounds * one  # so that all-reduce = reduce-scatter + all-gather to the tick

    def message(self, elements: Elements, source: int, target: int) -> int:
        return ticks(elements * self._beta((source, target))) + ticks(self.latency)

    def least(self, elements: Elements, outside: bool = False) -> Fraction:
        pace = self._through(self.cards or 1) if outside else min(1, as_written(self.ratio))
        return elements * pace * as_written(self.p2p) / PRICED.batch

    def passes(self, members: Sequence[int]) -> Shares:
        hosts = Counter(map(self._host, members))
        if len(members) == 1 or len(hosts) == 1:
            return _both_ways(("inside", rank) for rank in members if len(members) > 1)
        beside = [("inside", rank) for rank in members if hosts[self._host(rank)] > 1]
        return _both_ways(beside, 1 / max(Fraction(1), self._pace(members))) | _both_ways(map(self._card, members))

    def passes_at(self, way: str, rank: int, other: int) -> Shares:
        link = ("inside", rank) if self._host(rank) == self._host(other) else self._card(rank)
        return {(way, *link): 1}

    def _card(self, rank: int) -> tuple[Hashable, ...]:
        size = self.host_size
        # Enough cards: each rank has its own.
        if size is None or self.cards is None or self.cards >= size:
            return "card", rank
        # Neighbours share a card: 8 ranks on 4 cards are 0-1, 2-3, and so on.
        return "card", self._host(rank), rank % size * self.cards // size

    def on(self, mesh: Mesh | None) -> Costs:
        return self if mesh is None or mesh.host_size is None else replace(self, host_size=mesh.host_size)

    def _host(self, rank: int) -> int:
        return 0 if self.host_size is None else rank // self.host_size

    def _straight(self, part: Fraction, members: Sequence[int]) -> Fraction:
        """Return the time in which each member sends a part to each other: that of the busiest inside link, or card."""
        hosts = Counter(map(self._host, members))
        outside = Counter[tuple[Hashable, ...]]()
        for rank in members:
            outside[self._card(rank)] += len(members) - hosts[self._host(rank)]
        # Both at once: cards carry what leaves a host while the links inside are busy.
        busiest = max(max(hosts.values()) - 1, max(outside.values()) * as_written(self.ratio))
        return busiest * part * as_written(self.p2p) / PRICED.batch

    def _beta(self, members: Sequence[int]) -> Fraction:
        """Return the time of an element on the slowest link of the ring."""
        one_host = len({self._host(rank) for rank in members}) == 1
        return as_written(self.p2p) / PRICED.batch * (1 if one_host else self._pace(members))

    def _pace(self, members: Sequence[int]) -> Fraction:
        """Return how much slower a ring between hosts is than one inside: several cards share it."""
        if self.cards is None:
            return as_written(self.ratio)
        cards = Counter(host for host, _ in {(self._host(rank), self._card(rank)) for rank in members})
        # Each ring needs a card of its own on every host, so the host with the fewest cards limits the rings.
        return self._through(min(cards.values()))

    def _through(self, cards: int) -> Fraction:
        ratio = as_written(self.ratio)
        # The inside links carry every ring, and limit the pace unless a single card is faster.
        return max(ratio / cards, min(Fraction(1), ratio))


@record(slots=False)
class Uneven(Costs):
    """Layers and ranks that differ. `layers` has a factor for each layer, starting over after the last, and `ranks` one
    of at least 1 for each rank. Further ranks are as fast as the costs say.

    With Uneven(layers=(2, 0.5)) the layers 0, 2, 4 take twice as long forward and backward as the costs say, and the
    others half as long. With Uneven(ranks=(1, 1, 1.2)) rank 2 computes a fifth longer. Sizes stay the same, so
    collectives, messages and updates of all layers do too.

    >>> print(Uneven(ranks=(1, 1, 1.2)).slowness(2))
    6/5
    """

    layers: tuple[float, ...] = (1.0,)
    ranks: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not _are_numbers(self.layers) or not self.layers or min(self.layers) <= 0:
            raise ValueError(f"layers= says how heavy each layer is, such as (2, 0.5, 0.5); got {self.layers!r}")
        if not _are_numbers(self.ranks) or min(self.ranks, default=1) < 1:
            raise ValueError(f"ranks= says how slow each rank is, at least 1, such as (1, 1, 1.2); got {self.ranks!r}")
        for name in LISTS:
            object.__setattr__(self, name, tuple(getattr(self, name)))

    @cached_property
    def _factors(self) -> list[Fraction]:
        return [*map(as_written, self.layers)]

    @cached_property
    def _slow(self) -> dict[int, Fraction]:
        return {rank: as_written(slow) for rank, slow in enumerate(self.ranks) if slow != 1}

    def factor(self, layer: int) -> Fraction:
        return self._factors[layer % len(self._factors)]

    def slowness(self, rank: int) -> Fraction:
        return self._slow.get(rank, Fraction(1))

    def compute(self, op: Operation, rank: int, layer: int | None, work: Elements) -> int:
        cost = super().compute(op, rank, layer, work)
        if op.loads:
            return cost
        # An update reads and writes a weight of the same size, however heavy the layer.
        factor = self.factor(layer) if op.per_batch and layer is not None else 1
        return round(cost * factor * self.slowness(rank))


def _both_ways(links: Iterable[tuple[Hashable, ...]], share: Fraction | int = 1) -> dict[Hashable, Fraction | int]:
    # In a ring each member receives from one side while it sends to the other.
    return {(way, *link): share for link in links for way in ("in", "out")}


def _are_numbers(values: object) -> bool:
    return isinstance(values, list | tuple) and all(map(_is_number, cast("Sequence[object]", values)))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < MOST_TIME


UNIT = Costs()
LINKS = Links(host_size=4)
MODELS = {"unit": Costs, "links": Links, "uneven": Uneven}
"""The cost models by their names in files."""


# By name, not by class: a file may choose numbers, but never code.
def costs_from(data: dict[str, Any]) -> Costs:
    """Return the cost model that `to_json` wrote. ValueError if a field is unknown or not a number.

    A missing field has its default, so that older files stay readable.
    """
    given = dict(data)
    model = given.pop("model", None)
    cls = MODELS.get(model) if isinstance(model, str) else None
    if cls is None:
        raise ValueError(f"unknown cost model {model!r}")
    names: tuple[str, ...] = cls.__match_args__
    if not {*names} >= given.keys():
        raise ValueError(f"the {model} costs have the fields {sorted(names)}; got {sorted(given)}")
    for name, value in given.items():
        if name not in LISTS and not _is_number(value) and not (name in COUNTS and value is None):
            raise ValueError(f"cost {name} must be a number from 0 up; got {value!r}")
    return cls(**given)
