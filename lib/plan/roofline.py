"""From how many tokens a GPU on does each kind of parallelism hide what it sends? Work over communication of a layer.

Data parallelism sends weights, so more tokens help; tensor and expert parallelism send tokens, so they do not: what
counts is the width of what is multiplied (Austin and others, How to Scale Your Model, 2025, chapters on training and on
GPUs).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import exp, log
from typing import Any, Final

from lib.plan.records import Cluster, Plan, Transformer
from lib.plan.timing import LayerTime, layer_time, ring

Curve = list[tuple[int, float]]
HOSTS: Final = 64
"""Over so many hosts weights are gathered."""
SEQUENCE: Final = 4096
"""Tokens of a sequence: the square of attention is as wide, however many tokens a GPU has."""


def roofline(
    model: Transformer,
    cluster: Cluster,
    tokens: Sequence[int],
    tp: Sequence[int] = (4, 8, 16),
    ep: Sequence[int] = (64,),
) -> dict[str, Curve]:
    """Return for each kind of parallelism the forward of a layer over what it sends, for so many tokens a GPU. Above 1
    the work takes longer, so that it can hide what is sent; below 1 it cannot."""
    gpus = HOSTS * cluster.host_size
    base, common = Plan(gpus, gpus, SEQUENCE), model.layer_weights[0]

    def layer_of(count: int, **sizes: int) -> LayerTime:
        shares: dict[str, Any] = {"micro": count / SEQUENCE, **sizes}  # a part of a sequence will do for a layer
        return layer_time(model, cluster, replace(base, **shares))

    gather = ring(2 * common, gpus, cluster.host_size, cluster)
    curves: dict[str, Curve] = {"data": [(count, layer_of(count).forward / gather) for count in tokens]}
    for size in (size for size in tp if model.heads % size == 0):  # the ranks share `size` times the tokens
        layers = [(count, layer_of(size * count, tp=size)) for count in tokens]
        curves[f"tensor {size}"] = [(count, layer.forward / (2 * layer.tp / 3)) for count, layer in layers]
    for size in ep if model.experts else ():
        layers = [(count, layer_of(count, ep=size)) for count in tokens]
        curves[f"expert {size}"] = [(count, layer.forward / (layer.ep / 2)) for count, layer in layers]
    return curves


def hides_from(curve: Curve) -> int | None:
    """Return from how many tokens on a curve is at least 1, between its points by logarithms; None where it never is.

    >>> hides_from([(512, 0.5), (1024, 1.0), (2048, 2.0)])
    1024
    """
    if curve[0][1] >= 1:
        return curve[0][0]
    for (low, below), (high, above) in pairwise(curve):
        if below < 1 <= above:
            share = log(1 / below) / log(above / below)
            return round(exp(log(low) + share * (log(high) - log(low))))
    return None
