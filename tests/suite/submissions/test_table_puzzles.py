"""Meshes of five axes, stages, and three old bugs: their figures, what is accepted, and what each mistake is told."""

from itertools import combinations, pairwise, product
from math import prod
from typing import Any

import pytest

from drawing import draw_collective, picture_of
from lib import LINKS, PUZZLES, Layer, Mesh, Trace, check, simulate
from lib.analysis.figures import end, traffic
from lib.cluster.layouts import Stages
from lib.errors.exceptions import RuleError
from lib.schedules.data_parallel import fully_sharded
from lib.suite.submissions.function_check import judge_answers, judge_of, solution_of
from lib.suite.submissions.locations import reference
from lib.suite.submissions.table import Answer, ask_here
from tests.suite.submissions.mistakes import MISTAKES, given_in, histories, written

AS_IT_WAS = next(one for one in MISTAKES if one.name == "all_as_it_was").parts
TABLES = ("scatter_rows", "parallel_dims", "split_layers", "stage_ids", "find_the_bug")
DIMS = ("pp", "dp_replicate", "dp_shard", "cp", "tp")


def dims(world: int, *sizes: int, rank: int = 0) -> Any:
    return solution_of("parallel_dims")(world, dict(zip(DIMS, sizes, strict=True)), rank)


@pytest.mark.parametrize("sizes", [(2, 2, 2, 1, 2), (1, 3, 2, 2, 1), (3, 1, 1, 2, 4)])
def test_a_mesh_of_ours_is_the_same(sizes: tuple[int, ...]) -> None:
    mesh = Mesh(zip(DIMS, sizes, strict=True))
    for rank in mesh.ranks:
        answer = dims(len(mesh), *sizes, rank=rank)
        assert answer["place"] == mesh.coordinates(rank)
        assert answer["groups"] == {axis: list(mesh.group(rank, axis)) for axis in DIMS}


def test_how_many_hosts_a_rank_has_to_do_with() -> None:
    """The answer to the third question: a host of eight has one line along each axis but tp."""
    sizes = (16, 1, 8, 16, 8)
    hosts = set[int]()
    for rank in range(8):
        groups = dims(prod(sizes), *sizes, rank=rank)["groups"]
        hosts |= {member // 8 for group in groups.values() for member in group}
    assert len(hosts) - 1 == 15 + 7 + 0 + 15 == 37


def sizes_of(layers: int, stages: int) -> list[int]:
    points = [0, *solution_of("split_layers")(layers, stages), layers]
    return [end - begin for begin, end in pairwise(points)]


def test_no_split_is_better_if_both_ends_weigh_a_layer() -> None:
    for stages in range(2, 6):
        for layers in range(stages, 12):
            mine = sizes_of(layers, stages)
            heaviest = max(mine[0] + 1, mine[-1] + 1, *mine)
            every = [
                [end - begin for begin, end in pairwise((0, *points, layers))]
                for points in combinations(range(1, layers), stages - 1)
            ]
            least = min(max(split[0] + 1, split[-1] + 1, *split) for split in every)
            assert heaviest == least
            assert given_in("split_layers", "best")(layers, stages, 1, 1) == least


def test_what_a_heavy_head_costs() -> None:
    found: list[float] = []
    for layers, stages in ((32, 4), (32, 8), (32, 16)):
        sizes = sizes_of(layers, stages)
        found.append(max(*sizes, sizes[-1] + 2.4) / given_in("split_layers", "best")(layers, stages, 0, 2.4) - 1)
    assert [f"{one:.0%}" for one in found] == ["16%", "28%", "47%"]
    assert sizes_of(127, 16) == [7] + [8] * 15  # the fourth question: the last one carries the head, too
    assert given_in("split_layers", "best")(127, 16, 0, 0.66) == 8


@pytest.mark.parametrize(("ranks", "rounds"), list(product(range(2, 7), range(1, 6))))
def test_messages_and_waits(ranks: int, rounds: int) -> None:
    """The formulas of the notebook, and that a V of two rounds is level."""
    stages = ranks * rounds
    for style, messages in (("loop", stages - 1), ("v", stages - rounds)):
        mine = [solution_of("stage_ids")(rank, ranks, stages, style) for rank in range(ranks)]
        assert Stages(mine).messages() == messages
        waits = {sum(2 * (stages - 1 - stage) for stage in own) for own in mine}
        assert (len(waits) == 1) == (style == "v" and rounds % 2 == 0)


def test_the_gradient_that_forgets() -> None:
    after, as_it_was = given_in("find_the_bug", "after_each_call"), given_in("find_the_bug", "pipeline_step")
    calls = [[[1], [1], [1], [1]]] * 100
    assert after(calls[:3], as_it_was) == [1, 1.25, 1.3125]
    assert after(calls, as_it_was)[-1] == pytest.approx(4 / 3)
    assert solution_of("find_the_bug")(3, calls[:3]) == [1, 2, 3]


def test_the_copies_that_were_not_there() -> None:
    sizes = {"dp_replicate": 2, "dp_shard": 2, "cp": 2}
    mesh = Mesh(sizes, host_size=4)

    def trained(shards: Any, copies: Any) -> tuple[bool, float, float]:
        verdict = check(Trace.of(simulate(fully_sharded(shards, copies), layers=6, batches=8, mesh=mesh, costs=LINKS)))
        return verdict.correct, verdict.time, verdict.memory

    was, _ = given_in("find_the_bug", "axes_of")(sizes)
    assert trained(was, None) == (True, 78, 1_572_864)
    assert trained(["dp_shard", "cp"], ["dp_replicate"]) == (True, 26.4, 1_966_080)
    with pytest.raises(RuleError, match="the gradient of layer 0 does not have all batches yet"):
        trained(["dp_shard"], ["dp_replicate"])


def test_padding_takes_no_time() -> None:
    grid = [Layer(rows=10, inputs=2048, outputs=2048)]
    parts = solution_of("scatter_rows")(10, 4, "chunk")["parts"]
    for program, gather, sent, time in (
        ("put_together", ("unequal",), [14_336, 14_336, 18_432, 14_336], 0.028125),
        ("put_together", ("padded",), [18_432] * 4, 0.028125),
    ):
        run = given_in("scatter_rows", program)(parts, *gather)
        trace = Trace.of(simulate(run, ranks=4, layers=grid, batches=1, costs=LINKS))
        assert (end(trace), [elements for elements, _ in traffic(trace)]) == (time, sent)
        assert gather != ("padded",) or "18,432 elements (9/10 of a whole activation)" in repr(draw_collective(trace))


def test_rows_lie_where_pytorch_puts_them() -> None:
    """By DTensor's own parts and padding, and by torch.tensor_split."""
    torch = pytest.importorskip("torch")
    shard: Any = pytest.importorskip("torch.distributed.tensor").Shard(0)
    for rows, ranks in [*product(range(1, 22), range(1, 9)), (721, 64)]:
        chunk, even = (solution_of("scatter_rows")(rows, ranks, rule) for rule in ("chunk", "tensor_split"))
        found = [shard.local_shard_size_and_offset(rows, ranks, rank) for rank in range(ranks)]
        assert chunk["parts"] == [[begin, begin + size] for size, begin in found]
        image = torch.arange(1, rows + 1)
        split = torch.tensor_split(image, ranks)
        assert [image[first:last].tolist() for first, last in even["parts"]] == [part.tolist() for part in split]
        assert torch.equal(torch.cat(shard._split_tensor(image, ranks)[0])[chunk["slots"]], image)
        padded = torch.nn.utils.rnn.pad_sequence(split, batch_first=True)
        assert torch.equal(padded.flatten()[even["slots"]], image)


def test_stages_lie_where_pytorch_puts_them() -> None:
    pipelining = pytest.importorskip("torch.distributed.pipelining._utils", reason="it is PyTorch that is asked")
    for style, ranks, rounds in product(("loop", "v"), range(1, 7), range(1, 5)):
        homes = pipelining.generate_stage_to_rank_mapping(ranks, ranks * rounds, style)
        for rank in range(ranks):
            mine = [stage for stage, home in homes.items() if home == rank]
            assert solution_of("stage_ids")(rank, ranks, ranks * rounds, style) == mine


def test_a_stage_of_pytorch_divides_again_with_every_call() -> None:
    """The third history, on the method that was called once too often."""
    torch = pytest.importorskip("torch")
    base: Any = pytest.importorskip("torch.distributed.pipelining.stage")._PipelineStageBase
    layer = torch.nn.Linear(1, 1, bias=False)
    stage: Any = type("Stage", (), {"submod": layer, "scale_grads": base.scale_grads})()
    found: list[float] = []
    for _ in range(3):
        for _ in range(4):
            layer(torch.ones(1, 1)).sum().backward()
        stage.scale_grads(4)
        found.append(layer.weight.grad.item())
    assert found == [1, 1.25, 1.3125]


@pytest.mark.parametrize(
    "changed",
    [
        {"pipeline_step": "weight.grad *= len(microbatches)\n" + AS_IT_WAS["pipeline_step"]},
        {"axes_of": "return ['cp', 'dp_shard'][::-1], ['dp_replicate'] if sizes['dp_replicate'] > 1 else []"},
        {"training_step": "loss = mean_loss(weight, batch)\nloss = loss / calls\nloss.backward()\nreturn loss"},
    ],
    ids=["undone", "no_copies_of_one", "step_by_step"],
)
def test_other_repairs_will_do(changed: dict[str, str]) -> None:
    mended = written("find_the_bug", histories(changed))
    assert judge_answers("find_the_bug", ask_here(mended)).correct


@pytest.mark.parametrize("puzzle", TABLES)
@pytest.mark.parametrize("answer", [None, [], {}, [0, 1], "x", {"sizes": 1}, [[1]], {"shards": 3, "copies": None}])
def test_what_is_no_answer_is_told_and_has_a_picture_all_the_same(puzzle: str, answer: Any) -> None:
    judge = judge_of(puzzle, reference(puzzle))
    for row in PUZZLES[puzzle].table:
        failure = judge.failure(row.given, Answer(answer), row)
        if failure is not None and not row.raises:
            picture_of(judge.shown(failure))
