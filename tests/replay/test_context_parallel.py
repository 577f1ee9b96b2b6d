"""Attention over ranks with real tensors: beside attention on one, and beside torch's own ring on equal numbers.

Torch's context_parallel deals out the text as zigzag does, unless it is told not to. On a CPU that context refuses to
run, for the attention of a CPU has no rule there; the ring behind it runs.
"""

from dataclasses import replace
from typing import Any

import pytest

from lib import PUZZLES, Layer, Trace, simulate
from lib.replay import replay
from tests.replay.hooks import hooked
from tests.support.puzzles import way

torch = pytest.importorskip("torch", reason="a replay needs torch: pip install torch")

RANKS, ROWS, HEADS = 4, 32, 4
SEEN = {("forward", 0): (0, -1), ("forward", 2): (0,), ("backward", 2): (-1,), ("backward", 0): (1,)}
"""Queries, keys with values, result, its gradient, and that of the keys: which input, or the last output by -1."""


def small(puzzle: str) -> list[Layer]:
    """The layers of a puzzle, with short texts and few features."""
    last = PUZZLES[puzzle].last
    return [replace(layer, inputs=layer.inputs // 8, outputs=layer.outputs // 8, rows=ROWS) for layer in last]


@pytest.mark.parametrize("puzzle", ["ring_attention", "zigzag", "ulysses"])
@pytest.mark.parametrize("transport", ["local", pytest.param("gloo", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("ranks", [*(pytest.param(few, marks=pytest.mark.thorough) for few in (2, 4)), 8])
def test_attention_over_ranks_is_attention_on_one(puzzle: str, transport: str, ranks: int) -> None:
    models = simulate(way(puzzle), layers=small(puzzle), ranks=ranks, batches=2)
    result = replay(models, transport=transport, timeout=120)
    assert result.ok, result.text()
    assert all(error.relative <= 1e-12 for error in result.errors)
    assert all(one.sent == one.simulated_sent for one in result.ranks)


def seen(puzzle: str, name: str) -> list[list[Any]]:
    """What a replay has of attention, by rank, each with all heads: batch, head, row, number."""
    trace = Trace.of(simulate(way(puzzle, name), layers=small(puzzle), ranks=RANKS, batches=1))
    found: list[list[Any]] = [[] for _ in range(RANKS)]

    def look(rank: int, index: int, event: Any, tensors: dict[int, Any]) -> None:
        for place in SEEN.get((event.op, event.layer), ()):
            number = event.outputs[-1] if place < 0 else event.inputs[place]
            found[rank].append(tensors[number].clone().view(1, ROWS // RANKS, HEADS, -1).transpose(1, 2).contiguous())

    assert hooked(trace, look, transport="local").ok
    return [of[:5] for of in found]  # of the first step


def torchs(rank: int, address: str, even: bool, of: list[list[Any]], results: Any) -> None:
    """One rank of torch's ring, forward and backward."""
    ring = torch.distributed.tensor.experimental._context_parallel._attention
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=RANKS)
    ring._cp_options.enable_load_balance, ring._cp_options.convert_to_f32 = even, False
    kernels = torch.ops.aten
    q, both, _, g, _ = of[rank]
    k, v = (part.contiguous() for part in both.chunk(2, -1))
    forward = kernels._scaled_dot_product_flash_attention_for_cpu.default
    out, lse, *_ = ring._templated_ring_attention(torch.distributed.group.WORLD, 2, forward, q, k, v, is_causal=True)

    def backward(**given: Any) -> Any:
        order = ("grad_out", "query", "key", "value", "out", "logsumexp")
        return kernels._scaled_dot_product_flash_attention_for_cpu_backward.default(
            *[given[name] for name in order], 0.0, given["is_causal"]
        )

    values = {"query": q, "key": k, "value": v, "out": out, "logsumexp": lse}
    _, dk, dv, *_ = ring._templated_ring_attention_backward(
        torch.distributed.group.WORLD, 2, backward, grad_out=g, grad_out_name="grad_out", is_causal=True, **values
    )
    results[rank].copy_(torch.cat([out, dk, dv], -1))
    torch.distributed.destroy_process_group()


@pytest.mark.thorough
@pytest.mark.usefixtures("cache_of_torch")
@pytest.mark.parametrize(("puzzle", "name"), [("ring_attention", ""), ("zigzag", "own_block_last")])
def test_torchs_own_ring_gives_the_same(puzzle: str, name: str, tmp_path: Any) -> None:
    import torch.distributed.tensor.experimental._context_parallel._attention  # before the fork: it takes seconds
    from torch.multiprocessing.spawn import start_processes

    mine = seen(puzzle, name)
    wanted = torch.stack([torch.cat([out, by_keys], -1) for _, _, out, _, by_keys in mine])
    results = torch.zeros_like(wanted).share_memory_()
    start_processes(
        torchs, (f"file://{tmp_path}/meet", puzzle == "zigzag", mine, results), nprocs=RANKS, start_method="fork"
    )
    assert (results - wanted).abs().max() <= 1e-12 * wanted.abs().max()
