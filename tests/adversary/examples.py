"""How the adversary draws: sizes by hypothesis, so that a failure shrinks; what is done and where, from seeds."""

from random import Random

from hypothesis import strategies as st

from tests.adversary.plans import SIZES, Plan, training_step
from tests.adversary.programs import Program, programs
from tests.adversary.tensor_plans import tensor_step

seeds = st.integers(0, 2**40)
randoms = seeds.map(Random)


@st.composite
def plans(draw: st.DrawFn, ranks: int | None = None) -> Plan:
    """A correct training step, on so many ranks or on any number of them."""
    sizes = {name: draw(st.sampled_from(found)) for name, found in SIZES.items()}
    return training_step(Random(draw(seeds)), **(sizes if ranks is None else sizes | {"ranks": ranks}))


def tensor_plans() -> st.SearchStrategy[Plan]:
    return randoms.map(tensor_step)


@st.composite
def _run(draw: st.DrawFn, plans: st.SearchStrategy[Plan]) -> Program:
    """A correct program: moved about, or (seed 0) as plain as can be."""
    seed = draw(seeds)
    return programs(draw(plans), Random(seed) if seed else None)


def runs(ranks: int | None = None) -> st.SearchStrategy[Program]:
    """Programs of steps on so many ranks or on any number of them."""
    return _run(plans(ranks))


def tensor_runs() -> st.SearchStrategy[Program]:
    return _run(tensor_plans())
