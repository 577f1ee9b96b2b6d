"""Tensor parallel with three placements of the input: equal gradients, and the collectives that each takes."""

from collections import Counter
from typing import Any

import pytest

from lib import Mesh, Trace, simulate
from lib.replay import replay
from lib.schedules.tensor_parallel import PLACEMENTS, tensor_parallel

pytest.importorskip("torch", reason="a replay needs torch: pip install torch")

MESH = Mesh({"data": 2, "model": 2}, ranks=[3, 0, 2, 1])
"""In no order."""
COUNTED = {"full": {"all_gather": 1, "all_reduce": 8}, "batch": {"all_reduce": 8}, "replicated": {"all_reduce": 8}}
"""For a rank and four layers: two all-reduces forward, two backward, and one for each gradient of a weight."""


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_gradients_are_equal_and_collectives_counted(placement: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from lib.replay.rank.transport import LocalTransport

    made: Counter[tuple[int, str]] = Counter()

    def counted(method: str, real: Any) -> Any:
        def call(self: LocalTransport, *arguments: Any) -> Any:
            made[self.rank, method] += 1
            return real(self, *arguments)

        return call

    for method in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"):
        monkeypatch.setattr(LocalTransport, method, counted(method, getattr(LocalTransport, method)))
    schedule = Trace.of(simulate(tensor_parallel(placement, first_input=True), layers=4, batches=4, mesh=MESH))
    result = replay(schedule, transport="local", hidden=16, length=4)
    assert result.ok, result.text()
    assert all(one.measured == one.simulated for one in result.ranks)
    for rank in range(4):  # once to be compared, once to be measured
        assert {op: count // 2 for (who, op), count in made.items() if who == rank} == COUNTED[placement]
    assert placement != "full" or replay(schedule, hidden=16, length=4, timeout=120, processes=2).ok
