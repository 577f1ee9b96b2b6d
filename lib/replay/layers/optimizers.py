"""The optimizers, as torch.optim has them, on flat tensors and in place.

SGD with momentum keeps one number a weight: the simulated optimizer state exactly. Adam keeps two, side by side, so
its state takes twice the memory that the simulator shows; everything else stays. Training is under way when a replay
starts: states are not zero, and Adam has made AGE steps, so that a wrong gradient is seen (the very first step of
Adam has nearly the same size whatever the scale of the gradient).
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.sgd import sgd

__all__ = ["AGE", "go_on", "made_of", "reference", "state_of", "step", "torch_step"]

RATE = 0.05
MOMENTUM = 0.9
BETAS = (0.9, 0.999)
EPS = 1e-8
AGE = 10


def step(name: str, grad: Tensor, weight: Tensor, state: Tensor) -> None:
    """One step of optimizer `name`, written over the weight and the state (flat; Adam's moments lie side by side)."""
    if name == "sgd":
        state.mul_(MOMENTUM).add_(grad)
        weight.add_(state, alpha=-RATE)
        return
    first, second = state.view(-1, 2).unbind(1)
    first.lerp_(grad, 1 - BETAS[0])
    second.mul_(BETAS[1]).addcmul_(grad, grad, value=1 - BETAS[1])
    age = AGE + 1
    spread = second.sqrt().div_(math.sqrt(1 - BETAS[1] ** age)).add_(EPS)
    weight.addcdiv_(first, spread, value=-RATE / (1 - BETAS[0] ** age))


def torch_step(name: str, grads: list[Tensor], weights: list[Tensor], states: list[Tensor]) -> list[Tensor]:
    """The same step by the code of torch.optim, on weights in place; gives the new states.

    By its functions, as its classes import torch's compiler first, which takes longer than most replays.
    """
    if name == "sgd":
        buffers: list[Tensor | None] = [state.clone() for state in states]
        sgd(
            weights,
            grads,
            buffers,
            weight_decay=0.0,
            momentum=MOMENTUM,
            lr=RATE,
            dampening=0.0,
            nesterov=False,
            maximize=False,
        )
        return [buffer for buffer in buffers if buffer is not None]
    firsts = [state.view(-1, 2)[:, 0].clone() for state in states]
    seconds = [state.view(-1, 2)[:, 1].clone() for state in states]
    adam(
        weights,
        grads,
        firsts,
        seconds,
        [],
        [torch.tensor(float(AGE)) for _ in states],
        amsgrad=False,
        beta1=BETAS[0],
        beta2=BETAS[1],
        lr=RATE,
        weight_decay=0.0,
        eps=EPS,
        maximize=False,
    )
    return [torch.stack(moments, 1).view(-1) for moments in zip(firsts, seconds, strict=True)]


def _like(parameter: torch.nn.Parameter, flat: Tensor) -> Tensor:
    return flat.clone().view_as(parameter)


def made_of(name: str) -> tuple[type[torch.optim.Optimizer], dict[str, Any]]:
    """Torch's own optimizer, and what it is told."""
    if name == "sgd":
        return torch.optim.SGD, {"lr": RATE, "momentum": MOMENTUM}
    return torch.optim.Adam, {"lr": RATE, "betas": BETAS, "eps": EPS}


def reference(
    name: str,
    parameters: Sequence[torch.nn.Parameter],
    states: Sequence[Tensor],
    like: Callable[[torch.nn.Parameter, Tensor], Tensor] = _like,
) -> torch.optim.Optimizer:
    """Torch's own optimizer, with these states (flat, as `step` has them; `like` puts one into a parameter's form)."""
    kind, told = made_of(name)
    made = kind(parameters, **told)
    go_on(name, made, parameters, states, like)
    return made


def go_on(
    name: str,
    optimizer: torch.optim.Optimizer,
    parameters: Sequence[torch.nn.Parameter],
    states: Sequence[Tensor],
    like: Callable[[torch.nn.Parameter, Tensor], Tensor] = _like,
) -> None:
    """Puts an optimizer into the middle of training."""
    for parameter, state in zip(parameters, states, strict=True):
        if name == "sgd":
            optimizer.state[parameter] = {"momentum_buffer": like(parameter, state)}
        else:
            first, second = state.view(-1, 2).unbind(1)
            optimizer.state[parameter] = {
                "step": torch.tensor(float(AGE)),
                "exp_avg": like(parameter, first),
                "exp_avg_sq": like(parameter, second),
            }


def state_of(
    name: str,
    optimizer: torch.optim.Optimizer,
    parameter: torch.nn.Parameter,
    whole: Callable[[Tensor], Tensor] = Tensor.detach,
) -> Tensor:
    """Return what torch's optimizer keeps for a parameter, flat, as `step` has it. `whole` gathers what is sharded."""
    kept = optimizer.state[parameter]
    if name == "sgd":
        return whole(kept["momentum_buffer"]).reshape(-1)
    moments = [whole(kept[key]).reshape(-1) for key in ("exp_avg", "exp_avg_sq")]
    return torch.stack(moments, 1).view(-1)
