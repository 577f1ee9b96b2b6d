"""The interpreter of orders: it turns what each rank is to do into the function that a student would have written."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from typing import Any, NamedTuple, cast

from lib.errors.exceptions import PuzzleError
from lib.errors.source_lines import ORDER, Place
from lib.errors.wording import counted
from lib.schedules.pipelines.action import (
    BEGINS,
    KINDS,
    MESSAGES,
    SENDS,
    WAITS,
    Action,
    Messages,
    Order,
    batches_of,
    places,
    says_messages,
)
from lib.schedules.pipelines.lowering import awaited, posted
from lib.simulator.model import Model
from lib.simulator.recorder import Work, until
from lib.values.values import ActivationGrad, Weight, WeightGrad

MESSAGES_ARE: Mapping[str, Callable[[Order], Order]] = {"awaited": awaited, "posted": posted}
"""How messages are put into an order that has none."""
AT_HAND = frozenset(
    pair
    for kind, row in KINDS.items()
    for pair in ((kind, row.passes), (row.needs, kind), (WAITS.get(row.needs, ""), kind))
    if all(pair)
)
"""Which action sends what the one before it has made, or needs what it has received."""
AXIS = "stage"
"""The axis of a mesh along which a pipeline lies. Along all others there are pipelines like it, with other data."""

Program = Callable[[Model], Coroutine[Any, Any, None]]
Handler = Callable[[int, int, bool, bool], Awaitable[Any] | None]
"""Does what is to be done for a stage and a microbatch (see `Step`). What it returns is awaited at once."""


def program_of(
    order: Order,
    *,
    messages: Messages = "awaited",
    layers_of: Sequence[range] | None = None,
    microbatches: Sequence[Sequence[int]] | None = None,
    by_words: bool = False,
) -> Program:
    """Return the function that does an order, to be run on as many ranks, or on a mesh with an axis "stage" of that
    size.

    Where an order has no messages they are put in: `awaited` at once on both sides, or `posted`, so that they travel
    while their ranks compute. What has a WAIT in an order that has messages is awaited there, and all others at once.

    `layers_of` are the layers of each stage, equal shares where it is left out; `microbatches` the batches of each
    microbatch, one each where it is left out. Along the other axes of a mesh each pipeline takes every n-th batch of
    the step: its batches are numbered for themselves. Of a stage that the order has an UNSHARD for, each of their ranks
    has a shard, and gradients are reduce-scattered; else weights are whole, and gradients all-reduced.

    What happens in a run is at a line of this file, or with `by_words` at the word of the order that it belongs to.
    """
    whole = order if says_messages(order) else MESSAGES_ARE[messages](order)
    place, count = places(order), batches_of(order)
    sharded = {action.stage for actions in order for action in actions if action.kind == "UNSHARD"}
    plans = [*map(_steps, whole)]
    said = [_said(*lists) for lists in zip(order, whole, strict=True)] if by_words else None

    async def run(model: Model) -> None:
        share = share_of(model, len(order))
        batches = share.batches(model, microbatches, count, place[0] == share.rank)
        rank = _Rank(model, share, place, _layers(model, len(place), layers_of), batches, sharded)
        handlers, words, program = rank.handlers(), None if said is None else said[share.rank], model.program
        told = program.placed(0, None) if words else 0
        for kind, stage, microbatch, taken, kept, number in plans[share.rank]:
            work = handlers[kind](stage, microbatch, taken, kept)
            if words is not None:
                told = program.placed(told, words[number])
            if work is not None:
                if (message := await work) is not None:
                    rank.take(kind, stage, microbatch, kept, message)
                if words is not None:  # a wait may have come
                    told = program.placed(told, words[number])
        for stage in rank.layers:
            await rank.update(stage)
        if words is not None:
            program.placed(told, None)

    return run


def _said(order: Sequence[Action], whole: Sequence[Action]) -> list[Place]:
    """Return for each action with its messages the word that it belongs to: a receive is for the next one, a send for
    the one before."""
    words = [Place(ORDER, position, "<module>", str(action)) for position, action in enumerate(order)]
    if len(order) == len(whole):
        return words
    found: list[Place] = []
    before = 0
    for action in whole:
        found.append(words[before - 1 if "SEND" in action.kind else min(before, len(words) - 1)])
        before += action.kind not in MESSAGES and action.kind not in BEGINS
    return found


class Share(NamedTuple):
    """A rank's place: its number in its pipeline, the ranks of that pipeline, and those that have the same stages of
    other pipelines, itself among them."""

    rank: int
    pipeline: tuple[int, ...]
    replicas: tuple[int, ...]
    number: int
    """Which of them it is."""

    def batches(self, model: Model, given: Sequence[Sequence[int]] | None, count: int, reads: bool) -> list[list[int]]:
        """Return the batches of each microbatch of this pipeline by their numbers in the step, where a rank `reads`."""
        each, rest = divmod(model.BATCHES, len(self.replicas))
        given = [(batch,) for batch in range(each)] if given is None else given
        if rest:
            raise PuzzleError(
                f"{counted(model.BATCHES, 'batch')} cannot be shared out to {counted(len(self.replicas), 'pipeline')}",
                expected="as many batches for each pipeline",
            )
        if len(given) != count:
            raise PuzzleError(
                f"this order is for {counted(count, 'microbatch')}",
                expected=f"{counted(len(given), 'microbatch')}, numbered from 0"
                + ("" if len(self.replicas) == 1 else f": the share of each of {len(self.replicas)} pipelines"),
                fix="make the order for as many: it is asked for the number of batches",
            )
        return [[batch * len(self.replicas) + self.number for batch in one] for one in given] if reads else []


def share_of(model: Model, ranks: int | None = None) -> Share:
    """Return where a rank is: in a pipeline of all ranks, or of those along the axis "stage" of the mesh. `ranks` are
    as many as a pipeline has."""
    mesh = model.dist.mesh
    if mesh is not None and AXIS in mesh.axes and ranks in (None, mesh.axes[AXIS]):
        others = [axis for axis in mesh.axes if axis != AXIS]
        replicas = mesh.group(model.rank, *others) if others else (model.rank,)
        number = replicas.index(model.rank)
        return Share(mesh.coordinates(model.rank)[AXIS], mesh.group(model.rank, AXIS), replicas, number)
    if ranks not in (None, model.RANKS):
        raise PuzzleError(
            f"this order is for {counted(ranks or 0, 'rank')}",
            expected=f'as many ranks as the run has, or as its mesh has along "{AXIS}"',
            got=counted(model.RANKS, "rank") if mesh is None else str(mesh),
        )
    return Share(model.rank, tuple(range(model.RANKS)), (model.rank,), 0)


def _layers(model: Model, stages: int, given: Sequence[range] | None) -> list[range]:
    """Return the layers of each stage."""
    if given is None:
        each, rest = divmod(model.LAYERS, stages)
        if rest:
            raise PuzzleError(
                f"{counted(model.LAYERS, 'layer')} cannot be shared out evenly to {counted(stages, 'stage')}",
                expected="as many layers for each stage, or layers_of=, which says the layers of each",
                fix=f"layers_of=[range(0, {each + 1}), range({each + 1}, ...), ...]",
            )
        return [range(stage * each, (stage + 1) * each) for stage in range(stages)]
    found = [one if isinstance(one, range) else range(0) for one in given]  # pyright: ignore[reportUnnecessaryIsInstance]
    if len(found) != stages or not all(found) or [*islice(chain(*found), model.LAYERS + 1)] != [*range(model.LAYERS)]:
        raise PuzzleError(
            "these layers of the stages do not make the model",
            expected=f"{counted(stages, 'range')}, each with a layer at least: all of 0 to {model.LAYERS - 1} in order",
            got=f"layers_of={[*given]}",
        )
    return found


Step = tuple[str, int, int, bool, bool, int]
"""An action of a rank: kind, stage, microbatch; whether its input is what was received right before, and whether what
it makes is sent right after, so that neither has to lie in a store; and its position in the order that is done."""


def _steps(actions: Sequence[Action]) -> list[Step]:
    """Return what a rank does, the parts of a pair one after the other. A message that has a WAIT only begins, and the
    first pass after an UNSHARD waits for it."""
    behind = {(BEGINS[kind], stage, microbatch) for stage, kind, microbatch, _ in actions if kind in BEGINS}
    gathering: set[int] = set()
    found: list[Step] = []
    last, last_step = ("", -1, -1), -1
    for number, one in enumerate(actions):
        for stage, kind, microbatch, _ in one.parts or (one,):
            this = kind, stage, microbatch
            taken = (last[0], kind) in AT_HAND and this[1:] == last[1:]
            begins = this in behind
            if taken:
                found[last_step] = (*found[last_step][:4], True, found[last_step][5])
            if kind == "UNSHARD":
                gathering.add(stage)
            elif stage in gathering and KINDS[kind].computes:
                gathering.remove(stage)
                found.append(("WAIT_UNSHARD", stage, -1, False, False, number))
            if BEGINS.get(kind) not in SENDS:  # such a wait has nothing to do with what is at hand
                last, last_step = ("", -1, -1) if begins and kind not in SENDS else this, len(found)
            found.append((f"BEGIN_{kind}" if begins else kind, stage, microbatch, taken, False, number))
    return found


class _Rank:
    """One rank's part of its stages: activations and their gradients lie in its stores under (layer, microbatch)."""

    def __init__(
        self,
        model: Model,
        share: Share,
        place: Mapping[int, int],
        layers: Sequence[range],
        batches: Sequence[Sequence[int]],
        sharded: set[int],
    ) -> None:
        self.model, self.place, self.batches = model, place, batches
        self.peers = {stage: share.pipeline[rank] for stage, rank in place.items()}  # ranks of this pipeline
        self.replicas = share.replicas if len(share.replicas) > 1 else None
        self.sharded = sharded if self.replicas else set[int]()
        self.weights, self.states, self.activations, self.grads, self.sums = model.storage()
        self.layers = {stage: (*layers[stage],) for stage in sorted(place) if place[stage] == share.rank}
        self.message: Any = None  # what was made right before it is sent, or came right before it is used
        self.under_way: dict[tuple[str, int, int], Work[Any]] = {}  # sends and receives
        self.gathers: dict[int, list[tuple[int, Work[Weight]]]] = {}  # by stage
        self.reduces: dict[int, list[Work[WeightGrad]]] = {}  # by layer
        self.updated: set[int] = set()
        for stage, own in self.layers.items():
            for layer in own:
                if stage in self.sharded:
                    weight = model.load_weights(layer, share.number, len(share.replicas))
                    self.weights["shard", layer], self.states[layer] = weight
                else:
                    self.weights[layer], self.states[layer] = model.load_weights(layer)

    def handlers(self) -> dict[str, Handler]:
        """Return what does each kind of step."""
        found: dict[str, Handler] = {
            "F": self.forward,
            "B": self.backward,
            "I": self.input_half,
            "W": self.weight_half,
            "UPDATE": self.update,
            "UNSHARD": self.unshard,
            "WAIT_UNSHARD": self.gathered,
            "RESHARD": self.reshard,
            "REDUCE_GRAD": self.reduce,
        }
        for kind, wait in WAITS.items():
            found[kind] = self.messenger(kind, at_once=self.model.dist.engine.driving)
            found[f"BEGIN_{kind}"] = partial(self.begin, kind, self.messenger(kind, at_once=False))
            found[wait] = partial(self.over, kind)
        return found

    # -- passes -----------------------------------------------------------------------------------------------------

    def forward(self, stage: int, microbatch: int, taken: bool, kept: bool) -> None:
        """Take a microbatch forward through all layers of a stage. Their inputs stay until the backward."""
        model, layers, weights, activations = self.model, self.layers[stage], self.weights, self.activations
        first = layers[0]
        if taken:
            x = activations[first, microbatch] = self.message
        elif stage == 0:
            x = activations[first, microbatch] = model.get_activation(self.batches[microbatch])
        else:
            x = activations[first, microbatch]
        for layer in layers:
            if layer != first:
                activations[layer, microbatch] = x
            x = model.forward(layer, x, weights[layer])
        if kept:
            self.message = x
        else:
            activations[layers[-1] + 1, microbatch] = x

    def backward(self, stage: int, microbatch: int, taken: bool, kept: bool) -> None:
        model, activations, weights = self.model, self.activations, self.weights
        grad = self.gradient(stage, microbatch, taken)
        for layer in reversed(self.layers[stage]):
            made, grad = model.backward(layer, activations.pop((layer, microbatch)), grad, weights[layer])
            self.add(layer, made)
        self.hand_on(stage, microbatch, kept, grad)

    def input_half(self, stage: int, microbatch: int, taken: bool, kept: bool) -> None:
        """Do the input half of the backward of all layers. What the weight half needs stays: the gradient of each
        layer's output, and its input. The gradient of the stage's input goes."""
        half, layers, weights = self.model.backward_input, self.layers[stage], self.weights
        grad = self.gradient(stage, microbatch, taken)
        for layer in reversed(layers):
            self.grads[layer + 1, microbatch] = grad
            grad = half(layer, self.activations[layer, microbatch], grad, weights[layer])
        self.hand_on(stage, microbatch, kept, grad)

    def weight_half(self, stage: int, microbatch: int, *_: object) -> None:
        """Do the weight half of it, at any time after the input half."""
        half, activations, grads = self.model.backward_weight, self.activations, self.grads
        for layer in reversed(self.layers[stage]):
            self.add(layer, half(layer, activations.pop((layer, microbatch)), grads.pop((layer + 1, microbatch))))

    def gradient(self, stage: int, microbatch: int, taken: bool) -> ActivationGrad:
        """Return the gradient of a stage's output: received, made here, or that of the loss."""
        if taken:
            return self.message
        last = self.layers[stage][-1] + 1, microbatch
        return self.grads.pop(last) if stage + 1 in self.place else self.model.loss(self.activations.pop(last))

    def hand_on(self, stage: int, microbatch: int, kept: bool, grad: ActivationGrad) -> None:
        """Hand the gradient of a stage's input to where it is needed; that of the data nowhere."""
        if kept:
            self.message = grad
        elif stage:
            self.grads[self.layers[stage][0], microbatch] = grad

    def add(self, layer: int, grad: WeightGrad) -> None:
        sums = self.sums
        sums[layer] = sums[layer] + grad if layer in sums else grad

    # -- weights ----------------------------------------------------------------------------------------------------

    def unshard(self, stage: int, *_: object) -> None:
        if stage in self.sharded:
            shards, gather = self.weights, self.model.allgather
            works = [(layer, gather(shards["shard", layer], layer, self.replicas)) for layer in self.layers[stage]]
            self.gathers[stage] = works

    async def gathered(self, stage: int, *_: object) -> None:
        """Wait until the whole weights of a stage are there."""
        for layer, work in self.gathers.pop(stage, ()):
            self.weights[layer] = await work

    def reshard(self, stage: int, *_: object) -> None:
        """Free the weights of a stage but for this rank's shard."""
        if stage in self.sharded:
            for layer in self.layers[stage]:
                self.weights.pop(layer, None)  # an update may have come before

    def reduce(self, stage: int, *_: object) -> None:
        """Begin to add up the gradients of a stage over the pipelines: each rank gets its shard, or all of it."""
        for layer in self.layers[stage]:
            self.reduce_layer(layer, stage in self.sharded)

    def reduce_layer(self, layer: int, sharded: bool) -> None:
        if self.replicas and layer in self.sums:
            add_up = self.model.scatterreduce if sharded else self.model.allreduce
            self.reduces.setdefault(layer, []).append(add_up(self.sums.pop(layer), layer, self.replicas))

    async def update(self, stage: int, *_: object) -> None:
        """Update a stage, unless that was done, after what is left to do before."""
        if stage in self.updated:
            return
        self.updated.add(stage)
        sharded = stage in self.sharded
        for layer in self.layers[stage]:
            key: Any = ("shard", layer) if sharded else layer
            if sharded:
                self.weights.pop(layer, None)
            self.reduce_layer(layer, sharded)
            for work in self.reduces.pop(layer, ()):
                self.add(layer, await work)
            grad, weight, state = self.sums.pop(layer), self.weights.pop(key), self.states.pop(layer)
            self.weights[key], self.states[layer] = self.model.update(layer, grad, weight, state)
            self.model.set_final_weight(layer, self.weights[key])

    # -- messages ---------------------------------------------------------------------------------------------------

    def take(self, kind: str, stage: int, microbatch: int, kept: bool, message: Any) -> None:
        """Put what was received where its stage finds it: at hand, if it is used right after, else in a store."""
        if kept:
            self.message = message
        elif kind[-1] == "F":
            self.activations[self.layers[stage][0], microbatch] = message
        else:
            self.grads[self.layers[stage][-1] + 1, microbatch] = message

    def messenger(self, kind: str, at_once: bool) -> Handler:
        """Return what sends or receives. If its messages are awaited `at_once`, under our own driver, they need no
        Work, and what has happened by then need not be awaited. So a run of 1F1B takes a tenth less time."""
        # They are functions, as Python calls a partial by way of C.
        program, peers, towards = self.model.program, self.peers, KINDS[kind].towards
        store: Any = self.activations if kind == "SEND_F" else self.grads
        waiting = until if at_once else Work[Any]

        def send(stage: int, microbatch: int, taken: bool, kept: bool) -> Awaitable[None] | None:
            if taken:
                message = self.message
            else:
                edge = self.layers[stage][-1] + 1 if kind == "SEND_F" else self.layers[stage][0]
                message = store.pop((edge, microbatch))
            call, signal = program.send(peers[stage + towards], message)
            return program.finish(call, None) if at_once and signal.fired else waiting(program, call, signal)

        def receive(stage: int, microbatch: int, taken: bool, kept: bool) -> Awaitable[Any] | None:
            call, signal = program.receive(peers[stage + towards])
            if not (at_once and signal.fired):
                return waiting(program, call, signal)
            return self.take(kind, stage, microbatch, kept, program.finish(call, signal.value))

        return send if kind in SENDS else receive

    def begin(self, kind: str, do: Handler, stage: int, microbatch: int, taken: bool, kept: bool) -> None:
        """Let a message travel beside what the rank does meanwhile."""
        self.under_way[kind, stage, microbatch] = cast("Work[Any]", do(stage, microbatch, taken, kept))

    def over(self, kind: str, stage: int, microbatch: int, *_: object) -> Work[Any]:
        return self.under_way.pop((kind, stage, microbatch))
