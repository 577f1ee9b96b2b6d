"""The same plan at a small size, run by the simulator with real operations: closed forms beside what happens.

Where nothing overlaps they agree; where something does, the difference is what is hidden."""

import pytest

from lib import Mesh, Trace, check, simulate
from lib.analysis import figures
from lib.cluster.costs import Costs
from lib.plan import CLUSTERS, MODELS, Plan
from lib.plan.resources import LayerTime, layer_time, ring
from lib.plan.timing import Stages, bubble, order_of
from lib.schedules.mesh_parallel import tensor_parallel
from lib.schedules.pipelines.program import program_of

NONE = LayerTime(0, 0, 0, 0, 0, 0, 0)
MODEL, CLUSTER = MODELS["llama3-70b"], CLUSTERS["h100"]


@pytest.mark.parametrize(("pp", "v", "dp"), [(2, 1, 1), (4, 1, 1), (2, 2, 1), (4, 1, 2), (2, 2, 2)])
def test_a_pipeline_with_data_parallelism_takes_what_the_closed_form_says(pp: int, v: int, dp: int) -> None:
    """A layer a stage, ms: gradients are summed in the open, after the last microbatch, as with dp_hidden = 0."""
    plan = Plan(dp * pp * 8, 8 * dp, 8192, tp=8, pp=pp, v=v)
    layer, each = layer_time(MODEL, CLUSTER, plan), plan.microbatches
    forward, backward = (round(1e3 * time, 3) for time in (layer.forward + layer.exposed / 3, layer.backward))
    total = round(1e3 * ring(2 * MODEL.layer_weights[0] / 8, dp, 1, CLUSTER), 3) if dp > 1 else 0.0
    costs = Costs(forward=forward, backward=backward, collective=total, update=0, p2p=0)
    mesh = Mesh({"data": dp, "stage": pp})
    run = simulate(program_of(order_of(plan), messages="posted"), layers=pp * v, batches=8 * dp, mesh=mesh, costs=costs)
    assert check(run).correct
    whole = v * (forward + backward)
    stages = Stages(whole, whole, whole, v * forward, v * backward, 0, NONE, 0, 0, 0)
    expected = each * whole + bubble(plan, stages) + v * total
    assert figures.end(Trace.of(run)) == pytest.approx(expected, rel=0.01)


def test_tensor_parallel_is_in_the_open_but_for_what_the_weight_product_hides() -> None:
    """A transformer layer is two pairs of matrices: two all-reduces forward and two backward. The simulated program
    waits for each of them; the closed form says that the product for the weights hides one of the two backward."""
    tp, layers = 4, 3
    plan = Plan(tp, 4, 8192, tp=tp)
    layer = layer_time(MODEL, CLUSTER, plan)
    all_reduce = round(2e3 * ring(2 * 8192 * MODEL.hidden, tp, tp, CLUSTER), 3)
    ends: dict[float, float] = {}
    for collective in (0.0, all_reduce):
        costs = Costs(forward=1, backward=2, collective=collective, update=0)
        mesh = Mesh({"data": 1, "model": tp})
        run = simulate(tensor_parallel(), layers=4 * layers, batches=4, mesh=mesh, costs=costs)
        assert check(run).correct
        ends[collective] = figures.end(Trace.of(run))
    seen = ends[all_reduce] - ends[0.0]
    summed = 4 * layers * all_reduce  # sums of weight gradients along data, which is a group of one rank
    in_open = (4 * layers - 1) * all_reduce  # nobody needs the gradient of the data
    assert seen in (pytest.approx(in_open), pytest.approx(in_open + summed))
    assert 1e3 * layer.tp * layers == pytest.approx(0.75 * 4 * layers * all_reduce, rel=1e-3)
