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


@st.composite
def tensor_plans(draw: st.DrawFn) -> Plan:
    """A correct training step with parts of weights."""
    return tensor_step(Random(draw(seeds)))


@st.composite
def tensor_runs(draw: st.DrawFn) -> Program:
    """A correct program of one."""
    seed = draw(seeds)
    return programs(draw(tensor_plans()), Random(seed) if seed else None)


@st.composite
def runs(draw: st.DrawFn, ranks: int | None = None) -> Program:
    """A correct program: moved about, or (seed 0) as plain as can be."""
    seed = draw(seeds)
    return programs(draw(plans(ranks)), Random(seed) if seed else None)
