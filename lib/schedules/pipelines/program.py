"""The interpreter of orders: it turns what each rank is to do into the function that a student would have written."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from itertools import pairwise
from typing import Any

from lib.schedules.pipelines.action import KINDS, MESSAGES, Order, places
from lib.schedules.pipelines.lowering import with_messages
from lib.schedules.steps import load, step
from lib.simulator.model import Model
from lib.simulator.work import Work

__all__ = ["program_of"]

Handler = Callable[[int, int], Work[Any] | None]
"""Does what is to be done for a stage and a microbatch. What it returns is awaited at once."""


def program_of(order: Order, *, overlap: bool = False) -> Callable[[Model], Coroutine[Any, Any, None]]:
    """The function that does an order, to be run on as many ranks. The layers are shared out equally to the stages, and
    each batch is a microbatch.

    Where an order has no messages they are put in. Each is awaited at once; with `overlap` it travels while its ranks
    go on, and the order has a WAIT for it.
    """
    if not any(action.kind in MESSAGES for actions in order for action in actions):
        order = with_messages(order)
    place, direct = places(order), not overlap and _direct(order)
    plans = [[(stage, kind, microbatch) for stage, kind, microbatch, _ in actions] for actions in order]

    async def run(model: Model) -> None:
        rank = _Rank(model, place, overlap, direct)
        load(model, (layer for layers in rank.layers.values() for layer in layers))
        handlers = rank.handlers()
        for stage, kind, microbatch in plans[model.rank]:
            work = handlers[kind](stage, microbatch)
            if work is not None and (message := await work) is not None:
                rank.take(kind[-1], stage, microbatch, message)
        for stage in rank.layers:
            rank.update(stage)

    return run


def _direct(order: Order) -> bool:
    """Whether every message is sent right after it was made and used right after it came, so that none has to lie."""
    return all(
        after[:3] == (before.stage, before.kind[-1], before.microbatch)
        if before.kind.startswith("RECV")
        else not after.kind.startswith("SEND") or before[:3] == (after.stage, after.kind[-1], after.microbatch)
        for actions in order
        for before, after in pairwise(actions)
    )


class _Rank:
    """What one rank has of its stages: activations and their gradients lie in its stores under (layer, microbatch)."""

    def __init__(self, model: Model, place: Mapping[int, int], overlap: bool, direct: bool) -> None:
        self.model, self.place, self.overlap = model, place, overlap
        self.weights, _, self.activations, self.grads, self.sums = model.storage()
        each = model.LAYERS // len(place)
        self.layers = {s: range(s * each, (s + 1) * each) for s in sorted(place) if place[s] == model.rank}
        """The layers of its stages."""
        self.passing = place.keys() - self.layers.keys() if direct else set[int]()
        """Stages of other ranks, if nothing lies between what is done for a message and the message."""
        self.message: Any = None
        """What was made right before it is sent, or came right before it is used."""
        self.under_way: dict[tuple[str, int, int], Work[Any]] = {}
        """Sends and receives by kind, stage and microbatch."""
        self.updated: set[int] = set()

    def handlers(self) -> dict[str, Handler]:
        """Who does the actions of a kind."""
        found: dict[str, Handler] = {"F": self.forward, "B": self.backward, "UPDATE": self.update}
        for kind, row in KINDS.items():
            if towards := row.towards:
                do = self.sending(kind[-1], towards) if kind.startswith("SEND") else self.receiving(towards)
                found[kind] = self.behind(kind, do) if self.overlap else do
                found[f"WAIT_{kind}"] = lambda stage, m, kind=kind: self.under_way.pop((kind, stage, m))
        return found

    def forward(self, stage: int, microbatch: int) -> None:
        """All layers of a stage forward. Their inputs stay until the backward."""
        forward, layers, weights, activations = self.model.forward, self.layers[stage], self.weights, self.activations
        if stage == 0:
            x = self.model.get_activation([microbatch])
        else:
            x = self.message if stage - 1 in self.passing else activations.pop((layers[0], microbatch))
        for layer in layers:
            activations[layer, microbatch] = x
            x = forward(layer, x, weights[layer])
        if stage + 1 in self.passing:
            self.message = x
        else:
            activations[layers[-1] + 1, microbatch] = x

    def backward(self, stage: int, microbatch: int) -> None:
        """All layers of a stage backward; the loss before the last one. Gradients are summed up."""
        backward, layers, activations, sums = self.model.backward, self.layers[stage], self.activations, self.sums
        if stage + 1 in self.passing:
            grad = self.message
        elif stage + 1 in self.place:
            grad = self.grads.pop((layers[-1] + 1, microbatch))
        else:
            grad = self.model.loss(activations.pop((layers[-1] + 1, microbatch)))
        for layer in reversed(layers):
            made, grad = backward(layer, activations.pop((layer, microbatch)), grad, self.weights[layer])
            sums[layer] = sums[layer] + made if layer in sums else made
        if stage - 1 in self.passing:
            self.message = grad
        elif stage:
            self.grads[layers[0], microbatch] = grad

    def update(self, stage: int, _: int = -1) -> None:
        """The updates of a stage, unless they were done."""
        if stage not in self.updated:
            self.updated.add(stage)
            for layer in self.layers[stage]:
                step(self.model, layer)

    def take(self, what: str, stage: int, microbatch: int, message: Any) -> None:
        """Puts what was received where its stage finds it."""
        if self.passing:
            self.message = message
        elif what == "F":
            self.activations[self.layers[stage][0], microbatch] = message
        else:
            self.grads[self.layers[stage][-1] + 1, microbatch] = message

    def sending(self, what: str, towards: int) -> Handler:
        """How this rank sends what is for a stage of another one."""
        pass_to, place, activations, grads = self.model.pass_to, self.place, self.activations, self.grads

        def send(stage: int, microbatch: int) -> Work[None]:
            if self.passing:
                value: Any = self.message
            elif what == "F":
                value = activations.pop((self.layers[stage][-1] + 1, microbatch))
            else:
                value = grads.pop((self.layers[stage][0], microbatch))
            return pass_to(place[stage + towards], value)

        return send

    def receiving(self, towards: int) -> Handler:
        """How this rank receives from a stage of another one."""
        receive, place = self.model.receive, self.place
        return lambda stage, _: receive(place[stage + towards])

    def behind(self, kind: str, do: Handler) -> Handler:
        """The same beside what the rank does meanwhile."""

        def begin(stage: int, microbatch: int) -> None:
            work = do(stage, microbatch)
            assert work is not None, "a message is under way"
            self.under_way[kind, stage, microbatch] = work

        return begin
