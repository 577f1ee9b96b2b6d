"""Honest solutions as students hand them in: named, ordered and put together in ways of their own. Each is correct, and
reaches all goals that the reference reaches."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from lib.submissions.source import Source

__all__ = ["VARIANTS", "Variant"]


class Variant(NamedTuple):
    """A solution: the cells of a notebook, or the text of a .py (`is_script`), and modules beside it."""

    name: str
    puzzle: str
    cells: tuple[str, ...]
    modules: tuple[tuple[str, str], ...] = ()
    is_script: bool = False

    @property
    def file(self) -> str:
        """What its file is called."""
        return f"{self.puzzle}.py" if self.is_script else f"{self.puzzle}.ipynb"

    def text(self) -> str:
        """What is in its file."""
        if self.is_script:
            return "\n\n".join(self.cells)
        cells = [{"cell_type": "code", "metadata": {}, "outputs": [], "source": cell} for cell in self.cells]
        text = {"cell_type": "markdown", "metadata": {}, "source": ["# My answer\n", f"def {self.puzzle}(model):\n"]}
        raw = {"cell_type": "raw", "metadata": {}, "source": f"def {self.puzzle}(model): raise NotImplementedError"}
        whole = {"cells": [text, *cells, raw], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
        return json.dumps(whole, ensure_ascii=False)

    def source(self) -> Source:
        """It, as what was handed in."""
        return replace(Source.of(self.file, self.text()), modules=self.modules)


def _given(
    name: str, puzzle: str, *cells: str, script: bool = False, beside: Mapping[str, str] | None = None
) -> Variant:
    modules = tuple((f"{module}.py", textwrap.dedent(text)) for module, text in (beside or {}).items())
    return Variant(name, puzzle, tuple(textwrap.dedent(cell).strip("\n") + "\n" for cell in cells), modules, script)


DDP = """
    async def {name}(model):
        weights, opt_states, activations, grad_activations, grad_weights = model.storage()
        for layer in range(model.LAYERS):
            weights[layer], opt_states[layer] = model.load_weights(layer)
        activations[0] = model.get_activation([model.rank])
        for layer in range(model.LAYERS):
            activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
        grad_activations[model.LAYERS] = model.loss(activations.pop(model.LAYERS))
        for layer in reversed(range(model.LAYERS)):
            grad_weights[layer], grad_activations[layer] = model.backward(
                layer, activations.pop(layer), grad_activations.pop(layer + 1), weights[layer]
            )
            grad_weights[layer] = await model.allreduce(grad_weights[layer], layer)
            weights[layer], opt_states[layer] = model.update(
                layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
            )
        del grad_activations[0]
        for layer in range(model.LAYERS):
            model.set_final_weight(layer, weights[layer])
"""
PARTS = """
    def load(model, stores):
        for layer in range(model.LAYERS):
            stores.weights[layer], stores.states[layer] = model.load_weights(layer)

    def ahead(model, stores):
        stores.acts[0] = model.get_activation([model.rank])
        for layer in range(model.LAYERS):
            stores.acts[layer + 1] = model.forward(layer, stores.acts[layer], stores.weights[layer])
        stores.grads[model.LAYERS] = model.loss(stores.acts.pop(model.LAYERS))

    async def back(model, stores, layer):
        sums = stores.sums
        sums[layer], stores.grads[layer] = model.backward(
            layer, stores.acts.pop(layer), stores.grads.pop(layer + 1), stores.weights[layer]
        )
        sums[layer] = await model.allreduce(sums[layer], layer)
        stores.weights[layer], stores.states[layer] = model.update(
            layer, sums.pop(layer), stores.weights[layer], stores.states[layer]
        )

    def finish(model, stores):
        stores.grads.pop(0)
        for layer in range(model.LAYERS):
            model.set_final_weight(layer, stores.weights[layer])
"""
STORES = """
    from typing import Any, NamedTuple

    class Stores(NamedTuple):
        weights: Any
        states: Any
        acts: Any
        grads: Any
        sums: Any
"""
WITH_PARTS = """
    async def ddp(model):
        stores = Stores(*model.storage())
        load(model, stores)
        ahead(model, stores)
        for layer in reversed(range(model.LAYERS)):
            await back(model, stores, layer)
        finish(model, stores)
"""
RUN = """
    out = simulate(ddp, puzzle="ddp")
    draw(out)
"""
CHECK = 'Model.check(out, puzzle="ddp")'
PIPE = """
    async def {name}(model):
        weights, states, acts, grads, sums = model.storage()
        size = model.LAYERS // model.RANKS
        mine = [*range(model.rank * size, (model.rank + 1) * size)]
        for layer in mine:
            weights[layer], states[layer] = model.load_weights(layer)
        for b in range(model.BATCHES):
            acts[b, mine[0]] = await incoming(model, b)
            for layer in mine:
                acts[b, layer + 1] = model.forward(layer, acts[b, layer], weights[layer])
            if model.rank + 1 == model.RANKS:
                grads[b, mine[-1] + 1] = model.loss(acts[b, mine[-1] + 1])
            else:
                await model.pass_to(model.rank + 1, acts[b, mine[-1] + 1])
            del acts[b, mine[-1] + 1]
        for b in range(model.BATCHES):
            if model.rank + 1 < model.RANKS:
                grads[b, mine[-1] + 1] = await model.receive(model.rank + 1)
            for layer in mine[::-1]:
                sums[b, layer], grads[b, layer] = model.backward(
                    layer, acts.pop((b, layer)), grads.pop((b, layer + 1)), weights[layer]
                )
                if b:
                    sums[b, layer] = sums[b, layer] + sums.pop((b - 1, layer))
            if model.rank:
                await model.pass_to(model.rank - 1, grads[b, mine[0]])
            del grads[b, mine[0]]
        for layer in mine:
            weights[layer], states[layer] = model.update(
                layer, sums.pop((model.BATCHES - 1, layer)), weights[layer], states[layer]
            )
            model.set_final_weight(layer, weights[layer])
"""
INCOMING = """
    async def incoming(model, b):
        return model.get_activation([b]) if model.rank == 0 else await model.receive(model.rank - 1)
"""
FSDP = """
    async def fsdp(model):
        held, states, acts, grads, sums = model.storage()
        for layer in range(model.LAYERS):
            held[layer], states[layer] = model.load_weights(layer, model.rank, model.RANKS)

        def ask(layer):
            return model.allgather(held[layer], layer)

        held["whole", 0] = await ask(0)
        for b in range(model.rank, model.BATCHES, model.RANKS):
            acts[0] = model.get_activation([b])
            for layer in range(model.LAYERS):
                on_its_way = ask(layer + 1) if layer + 1 < model.LAYERS else None
                acts[layer + 1] = model.forward(layer, acts[layer], held["whole", layer])
                if on_its_way is not None:
                    del held["whole", layer]
                    held["whole", layer + 1] = await on_its_way
            grads[model.LAYERS] = model.loss(acts.pop(model.LAYERS))
            for layer in range(model.LAYERS - 1, -1, -1):
                on_its_way = ask(layer - 1) if layer else None
                sums["new"], grads[layer] = model.backward(
                    layer, acts.pop(layer), grads.pop(layer + 1), held["whole", layer]
                )
                if on_its_way is not None:
                    del held["whole", layer]
                    held["whole", layer - 1] = await on_its_way
                sums["new"] = await model.scatterreduce(sums["new"], layer)
                sums[layer] = sums[layer] + sums.pop("new") if layer in sums else sums.pop("new")
            del grads[0]
        del held["whole", 0]
        for layer in range(model.LAYERS):
            held[layer], states[layer] = model.update(layer, sums.pop(layer), held[layer], states[layer])
            model.set_final_weight(layer, held[layer])
"""
ONE_F_ONE_B = """
    class Stage:
        def __init__(self, model):
            self.model = model
            self.weights, self.states, self.acts, self.grads, self.sums = model.storage()
            count = model.LAYERS // model.RANKS
            self.layers = list(range(model.rank * count, model.rank * count + count))
            for layer in self.layers:
                self.weights[layer], self.states[layer] = model.load_weights(layer)

        @property
        def begins(self):
            return self.layers[0]

        @property
        def ends(self):
            return self.layers[-1] + 1

        async def forward(self, b):
            model = self.model
            if model.rank == 0:
                self.acts[self.begins, b] = model.get_activation([b])
            else:
                self.acts[self.begins, b] = await model.receive(model.rank - 1)
            for layer in self.layers:
                self.acts[layer + 1, b] = model.forward(layer, self.acts[layer, b], self.weights[layer])
            if model.rank == model.RANKS - 1:
                self.grads[self.ends, b] = model.loss(self.acts[self.ends, b])
            else:
                await model.pass_to(model.rank + 1, self.acts[self.ends, b])
            del self.acts[self.ends, b]

        async def backward(self, b):
            model = self.model
            if model.rank < model.RANKS - 1:
                self.grads[self.ends, b] = await model.receive(model.rank + 1)
            for layer in reversed(self.layers):
                self.sums[layer, b], self.grads[layer, b] = model.backward(
                    layer, self.acts[layer, b], self.grads[layer + 1, b], self.weights[layer]
                )
                del self.acts[layer, b], self.grads[layer + 1, b]
                if b > 0:
                    self.sums[layer, b] = self.sums[layer, b] + self.sums[layer, b - 1]
                    del self.sums[layer, b - 1]
            if model.rank > 0:
                await model.pass_to(model.rank - 1, self.grads[self.begins, b])
            del self.grads[self.begins, b]

        def update(self):
            last = self.model.BATCHES - 1
            for layer in self.layers:
                self.weights[layer], self.states[layer] = self.model.update(
                    layer, self.sums[layer, last], self.weights[layer], self.states[layer]
                )
                del self.sums[layer, last]
                self.model.set_final_weight(layer, self.weights[layer])
"""
TURNS = """
    async def one_f_one_b(model):
        stage = Stage(model)
        async for kind, b in turns(model):
            await getattr(stage, kind)(b)
        stage.update()

    async def turns(model):
        ahead = min(model.BATCHES, model.RANKS - model.rank)
        for b in range(model.BATCHES + ahead):
            if b >= ahead:
                yield "backward", b - ahead
            if b < model.BATCHES:
                yield "forward", b
"""
DEVICES = """
    def local_devices(grid, per_process, process):
        mine = [n for n, row in enumerate(rows_of(grid)) if any(map(is_of(process, per_process), row))]
        return dict(zip(mine, range(len(mine))))
"""

VARIANTS: tuple[Variant, ...] = (
    # -- the cells around ----------------------------------------------------------------------------------------
    _given("as it is given", "ddp", "from lib import *\nfrom drawing import *", DDP.format(name="ddp"), RUN, CHECK),
    _given(
        "a cell that is timed",
        "ddp",
        "%matplotlib inline\n!pip install don't-find-me\nimport torch",
        "%%time\n" + textwrap.dedent(DDP.format(name="ddp")).lstrip(),
        "%time out = simulate(ddp)\nddp?",
    ),
    _given(
        "a cell that is captured, among cells that are broken",
        "ddp",
        "# %%bash is below\nthis is not Python",
        "%%capture out\n" + textwrap.dedent(DDP.format(name="ddp")).lstrip(),
        "%%html\n<b>def ddp</b>",
        "1 / 0",
        "await nothing",
    ),
    _given(
        "magics inside of the function",
        "ddp",
        textwrap.dedent(DDP.format(name="ddp")).replace("del grad", "!date\n    %who\n    del grad"),
    ),
    _given(
        "a form of Colab's",
        "ddp",
        "#@title My answer { display-mode: \"form\" }\nSIZE = 4 #@param {type:'integer'}\n"
        + textwrap.dedent(DDP.format(name="ddp")),
    ),
    _given(
        "a script with marks of cells",
        "ddp",
        "# ---\n# jupyter:\n#   jupytext:\n#     formats: py:percent\n# ---\n# %% [markdown]\n# # Mine",
        "# %%",
        DDP.format(name="ddp"),
        '# %%\nif __name__ == "__main__":\n    raise SystemExit("not here")',
        script=True,
    ),
    _given(
        "a script in which another cell is broken",
        "ddp",
        "# %%\ndef half(:",
        "# %%",
        DDP.format(name="ddp"),
        script=True,
    ),
    _given(
        "a script as nbconvert writes it",
        "ddp",
        "#!/usr/bin/env python\n# coding: utf-8\n# In[1]:\nget_ipython().run_line_magic('matplotlib', 'inline')",
        f"get_ipython().run_cell_magic('time', '', {textwrap.dedent(DDP.format(name='ddp'))!r})",
        script=True,
    ),
    _given("ends of lines of another system", "ddp", textwrap.dedent(DDP.format(name="ddp")).replace("\n", "\r\n")),
    _given("tabs", "ddp", textwrap.dedent(DDP.format(name="ddp")).replace("    ", "\t")),
    _given(
        "a mark at the beginning of the file, and names that are not English",
        "ddp",
        "\ufeff" + textwrap.dedent(DDP.format(name="ddp")).replace("grad_weights", "größe"),
        script=True,
    ),
    # -- several definitions -------------------------------------------------------------------------------------
    _given(
        "three attempts",
        "ddp",
        "async def ddp(model):\n    raise NotSolved('ddp')",
        "async def ddp(model):\n    await model.allreduce(model)\nsimulate(ddp, puzzle='ddp')",
        DDP.format(name="ddp"),
        RUN,
    ),
    _given(
        "a broken attempt above",
        "ddp",
        "async def ddp(model):\n    await (",
        DDP.format(name="ddp"),
    ),
    _given("helpers below, and one defined twice", "ddp", WITH_PARTS, PARTS, STORES, "def load(): ...", PARTS),
    _given(
        "helpers of another puzzle with the same names",
        "ddp",
        STORES + PARTS + WITH_PARTS,
        RUN,
        "def load(): ...\ndef finish(): raise ValueError\nasync def other(model):\n    load()\n    finish()",
        "simulate(other)",
    ),
    _given("the name is used again for what came out", "ddp", DDP.format(name="ddp"), "ddp = simulate(ddp)"),
    _given(
        "one or the other",
        "ddp",
        "FAST = True\nif FAST:\n"
        + textwrap.indent(textwrap.dedent(DDP.format(name="ddp")).lstrip("\n"), "    ")
        + "else:\n    def ddp(model): ...",
    ),
    # -- another name, decorated, made -----------------------------------------------------------------------------
    _given("another name", "ddp", DDP.format(name="mine"), "ddp = mine"),
    _given("a lambda", "ddp", DDP.format(name="_go"), "ddp = lambda model: _go(model)"),
    _given(
        "decorated, with functools",
        "ddp",
        """
        import functools
        import time

        def timed(function):
            @functools.wraps(function)
            async def inside(*args, **kwargs):
                before = time.perf_counter()
                try:
                    return await function(*args, **kwargs)
                finally:
                    spent.append(time.perf_counter() - before)
            return inside

        spent = []
        """,
        "    @timed" + DDP.format(name="ddp"),
    ),
    _given(
        "decorated afterwards",
        "ddp",
        "def traced(f):\n    async def g(model):\n        return await f(model)\n    return g",
        DDP.format(name="ddp"),
        "ddp = traced(ddp)",
        "simulate(ddp)",
    ),
    _given(
        "a factory",
        "ddp",
        "def make(reduce):\n"
        + textwrap.indent(textwrap.dedent(DDP.format(name="step")), "    ").replace("model.allreduce", "reduce(model)")
        + "    return step",
        "ddp = make(lambda model: model.allreduce)",
    ),
    _given(
        "partial",
        "ddp",
        textwrap.dedent(DDP.format(name="_ddp"))
        .replace("_ddp(model)", "_ddp(order, model)")
        .replace("in reversed(", "in order("),
        "from functools import partial\nddp = partial(_ddp, reversed)",
    ),
    _given(
        "an object that is called",
        "ddp",
        "class Strategy:\n    def __init__(self, name): self.name = name\n"
        + textwrap.indent(textwrap.dedent(DDP.format(name="__call__")), "    ").replace("(model):", "(self, model):"),
        "ddp = Strategy('data parallel')",
    ),
    _given(
        "a method",
        "ddp",
        "class Strategy:\n"
        + textwrap.indent(textwrap.dedent(DDP.format(name="run")), "    ").replace("(model):", "(self, model):"),
        "strategy = Strategy()\nddp = strategy.run",
    ),
    # -- put together otherwise ------------------------------------------------------------------------------------
    _given(
        "helpers that share what they need through globals",
        "ddp",
        "ORDER = {}\ndef backwards(n):\n    global COUNT\n    COUNT = n\n    return range(n - 1, -1, -1)\nCOUNT = 0",
        "ORDER['back'] = backwards\nORDER.setdefault('there', range)",
        textwrap.dedent(DDP.format(name="ddp")).replace("reversed(range(model.LAYERS))", "ORDER['back'](model.LAYERS)"),
    ),
    _given(
        "a data class, an enumeration and a match",
        "ddp",
        """
        from dataclasses import dataclass, field
        from enum import Enum, auto

        class Kind(Enum):
            FORWARD = auto()
            BACKWARD = auto()

        @dataclass(frozen=True)
        class Step:
            kind: Kind
            layer: int = 0
            notes: list[str] = field(default_factory=list)

        def plan(layers: int) -> "list[Step]":
            there = [Step(Kind.FORWARD, layer) for layer in range(layers)]
            return there + [Step(Kind.BACKWARD, step.layer) for step in there[::-1]]
        """,
        """
        async def ddp(model: "Model") -> None:
            w, s, a, g, dw = model.storage()
            for layer in range(model.LAYERS):
                w[layer], s[layer] = model.load_weights(layer)
            a[0] = model.get_activation([model.rank])
            for step in plan(model.LAYERS):
                match step:
                    case Step(kind=Kind.FORWARD, layer=layer):
                        a[layer + 1] = model.forward(layer, a[layer], w[layer])
                        if layer + 1 == model.LAYERS:
                            g[layer + 1] = model.loss(a.pop(layer + 1))
                    case Step(Kind.BACKWARD, layer):
                        dw[layer], g[layer] = model.backward(layer, a.pop(layer), g.pop(layer + 1), w[layer])
                        dw[layer] = await model.allreduce(dw[layer], layer)
                        w[layer], s[layer] = model.update(layer, dw.pop(layer), w[layer], s[layer])
            del g[0]
            [model.set_final_weight(layer, w[layer]) for layer in range(model.LAYERS)]
        """,
    ),
    _given(
        "helpers in a module beside it",
        "ddp",
        "from my_parts_of_ddp import load, ahead, back, finish\nfrom my_stores_of_ddp import *",
        WITH_PARTS,
        beside={"my_parts_of_ddp": PARTS, "my_stores_of_ddp": STORES},
    ),
    _given(
        "a package beside it",
        "ddp",
        "import my_package_of_ddp.parts as p",
        "ddp = p.ddp",
        beside={"my_package_of_ddp/__init__": "", "my_package_of_ddp/parts": DDP.format(name="ddp")},
    ),
    _given(
        "as in lib, by another way of importing",
        "ddp",
        "import lib as L\nfrom lib import Model as M\ntry:\n    import torch\nexcept ImportError:\n    torch = None",
        textwrap.dedent(DDP.format(name="ddp")).replace(
            "(model):", "(model: M) -> 'L.Missing':\n    assert isinstance(model, L.Model)"
        ),
    ),
    _given(
        "a context manager and a generator",
        "ddp",
        """
        from contextlib import contextmanager

        log: "list[str]" = []

        @contextmanager
        def phase(name):
            log.append(name)
            yield
            log.pop()

        def layers(model, back=False):
            yield from (reversed(range(model.LAYERS)) if back else range(model.LAYERS))
        """,
        """
        async def ddp(model):
            w, s, a, g, dw = model.storage()
            with phase("load"):
                for i in layers(model):
                    w[i], s[i] = model.load_weights(i)
            with phase("forward"):
                a[0] = model.get_activation({model.rank})
                for i in layers(model):
                    a[i + 1] = model.forward(i, a[i], w[i])
                g[i + 1] = model.loss(a.pop(i + 1))
            with phase("backward"):
                for i in layers(model, back=True):
                    dw[i], g[i] = model.backward(i, a.pop(i), g.pop(i + 1), w[i])
                    dw[i] = await model.allreduce(dw[i], i)
                    w[i], s[i] = model.update(i, dw.pop(i), w[i], s[i])
            g.clear()
            for i in layers(model):
                model.set_final_weight(i, w[i])
        """,
    ),
    _given(
        "recursion",
        "ddp",
        """
        async def ddp(model):
            w, s, a, g, dw = model.storage()
            a[0] = model.get_activation([model.rank])

            async def through(layer):
                if layer == model.LAYERS:
                    g[layer] = model.loss(a.pop(layer))
                    return
                w[layer], s[layer] = model.load_weights(layer)
                a[layer + 1] = model.forward(layer, a[layer], w[layer])
                await through(layer + 1)
                dw[layer], g[layer] = model.backward(layer, a.pop(layer), g.pop(layer + 1), w[layer])
                dw[layer] = await model.allreduce(dw[layer], layer)
                w[layer], s[layer] = model.update(layer, dw.pop(layer), w[layer], s[layer])
                model.set_final_weight(layer, w[layer])

            await through(0)
        """,
    ),
    # -- other puzzles ---------------------------------------------------------------------------------------------
    _given(
        "all batches of the sum in one comprehension",
        "basic",
        """
        def basic(m):
            w, s, a, g, dw = m.storage()
            w |= {l: weight for l in range(m.LAYERS) for weight, s[l] in [m.load_weights(l)]}
            a[0] = m.get_activation(set(range(m.BATCHES)))
            for l in range(m.LAYERS):
                a[l + 1] = m.forward(l, a[l], w[l])
            g[m.LAYERS] = m.loss(a.pop(m.LAYERS))
            for l in range(m.LAYERS)[::-1]:
                dw[l], g[l] = m.backward(l, a.pop(l), g.pop(l + 1), w[l])
                w[l], s[l] = m.update(l, dw.pop(l), w[l], s[l])
            g.clear()
            for l in w:
                m.set_final_weight(l, w[l])
        """,
    ),
    _given(
        "sums under the name of the layer",
        "grad_accum",
        """
        def grad_accum(model):
            w, s, a, g, sums = model.storage()
            for l in range(model.LAYERS):
                w[l], s[l] = model.load_weights(l)
            for b in range(model.BATCHES):
                one_batch(model, b, w, a, g, sums)
            for l in range(model.LAYERS):
                w[l], s[l] = model.update(l, sums.pop(l), w[l], s[l])
                model.set_final_weight(l, w[l])

        def one_batch(model, b, w, a, g, sums):
            a[0] = model.get_activation([b])
            for l in range(model.LAYERS):
                a[l + 1] = model.forward(l, a[l], w[l])
            g[model.LAYERS] = model.loss(a.pop(model.LAYERS))
            for l in range(model.LAYERS)[::-1]:
                sums["one"], g[l] = model.backward(l, a.pop(l), g.pop(l + 1), w[l])
                sums[l] = sums[l] + sums.pop("one") if b else sums.pop("one")
            g.clear()
        """,
    ),
    _given("other keys", "fsdp", FSDP),
    _given(
        "other keys, in a module that somebody else wrote",
        "fsdp",
        "from our_fsdp_step import fsdp",
        "simulate(fsdp)",
        beside={"our_fsdp_step": FSDP},
    ),
    _given("a helper above", "gpipe", INCOMING, PIPE.format(name="gpipe")),
    _given("a helper below, after another answer", "gpipe", PIPE.format(name="gpipe"), INCOMING, "gpipe.seen = True"),
    _given(
        "the name is a picture later",
        "gpipe",
        INCOMING + PIPE.format(name="gpipe"),
        "from lib import Trace, simulate\ngpipe = Trace.of(simulate(gpipe, puzzle='gpipe'))",
    ),
    _given("stages as objects", "one_f_one_b", ONE_F_ONE_B, TURNS),
    _given("stages as objects, below", "one_f_one_b", TURNS + ONE_F_ONE_B),
    _given(
        "an order as a text",
        "breadth_first",
        "from lib import schedule",
        """
        @schedule(messages="posted")
        def breadth_first(rank, ranks, batches):
            mine = [rank, rank + ranks]
            return " ".join(word(s, "F", b) for s in mine for b in range(batches)) + " " + " ".join(
                word(s, "B", b) for s in mine[::-1] for b in range(batches)
            )

        def word(stage, kind, batch):
            return f"{stage}{kind}{batch}"
        """,
    ),
    _given(
        "an order that is given to schedule",
        "breadth_first",
        """
        import lib

        def order(r, n, m):
            there = [(s, b) for s in (r, r + n) for b in range(m)]
            for s, b in there:
                yield f"{s}F{b}"
            for s, b in sorted(there, key=lambda pair: (-pair[0], pair[1])):
                yield f"{s}B{b}"
        """,
        'breadth_first = lib.schedule(messages="posted")(order)',
        "breadth_first.order(4, 8)",
    ),
    _given(
        "an order from two lists",
        "zero_bubble",
        "from lib import schedule as an_order\nfrom collections import deque",
        """
        @an_order(messages="awaited")
        def zero_bubble(rank, ranks, batches):
            forwards = deque(f"F{b}" for b in range(batches))
            weights = deque(f"W{b}" for b in range(batches))
            found = [forwards.popleft() for _ in range(min(batches, ranks - rank))]
            for b in range(batches):
                found.append(f"I{b}")
                if b >= rank:
                    found.append(weights.popleft())
                if forwards:
                    found.append(forwards.popleft())
            return found + [*weights]
        """,
    ),
    _given(
        "counted by hand",
        "uneven",
        "from lib import stages\nfrom lib.schedules.pipelines.generators import one_f_one_b as in_turn",
        "COUNTS = [3] * 3\nCOUNTS += [1]",
        "@stages(in_turn)\ndef uneven(layers, ranks):\n    return tuple(COUNTS)",
    ),
    _given(
        "summed behind, with helpers of its own",
        "zero1",
        """
        async def zero1(model):
            w, s, a, g, dw = model.storage()
            for i in range(model.LAYERS):
                w[i], s[i] = model.load_weights(i)[0], model.load_weights(i, model.rank, model.RANKS)[1]
            a[0] = model.get_activation([model.rank])
            for i in range(model.LAYERS):
                a[i + 1] = model.forward(i, a[i], w[i])
            g[model.LAYERS] = model.loss(a.pop(model.LAYERS))
            summed, gathered = {}, {}
            for i in range(model.LAYERS - 1, -1, -1):
                dw[i], g[i] = model.backward(i, a.pop(i), g.pop(i + 1), w[i])
                w[i] = w[i].shard(model.rank, model.RANKS)
                summed[i] = model.scatterreduce(dw[i], i)
                if i + 1 < model.LAYERS:
                    gathered[i + 1] = await settle(model, i + 1, summed, w, s, dw)
            g.clear()
            gathered[0] = await settle(model, 0, summed, w, s, dw)
            for i, work in sorted(gathered.items(), reverse=True):
                w[i] = await work
            for i in w:
                model.set_final_weight(i, w[i])
        """,
        """
        async def settle(model, i, summed, w, s, dw):
            dw[i] = await summed.pop(i)
            w[i], s[i] = model.update(i, dw.pop(i), w[i], s[i])
            return [model.allgather(w[i], i)][0]
        """,
    ),
    # -- plain functions -------------------------------------------------------------------------------------------
    _given(
        "helpers that give functions",
        "local_devices",
        "from itertools import chain\nrows_of = chain.from_iterable",
        "def is_of(process, per_process):\n    return lambda device: device // per_process == process",
        DEVICES,
        "check_function(local_devices, puzzle='local_devices')",
    ),
    _given(
        "a cache and a method",
        "local_devices",
        """
        from functools import lru_cache

        class Grid:
            def __init__(self, grid, each):
                self.rows = [row for replica in grid for row in replica]
                self.each = each

            def of(self, process):
                return [n for n, row in enumerate(self.rows) if process in map(self.owner, row)]

            def owner(self, device):
                return quotient(device, self.each)

        @lru_cache(maxsize=None)
        def quotient(a, b):
            return a // b
        """,
        "def local_devices(grid, per_process, process):\n"
        "    return {n: place for place, n in enumerate(Grid(grid, per_process).of(process))}",
    ),
    _given(
        "counted from the other side",
        "split_layers",
        "from itertools import accumulate\n%config InlineBackend.figure_format = 'retina'",
        """
        def split_layers(layers, stages):
            if stages < 1 or layers < stages:
                raise ValueError("too many stages")
            sizes = [layers // stages + (0 < s <= layers % stages) for s in range(stages)]
            return [*accumulate(sizes)][:-1]
        """,
    ),
    _given(
        "a table of styles",
        "stage_ids",
        """
        STYLES = {}

        def style(name):
            def keep(f):
                STYLES[name] = f
                return f
            return keep

        @style("loop")
        def loop(rank, ranks, turn):
            return turn * ranks + rank

        @style("v")
        def v(rank, ranks, turn):
            return loop(ranks - 1 - rank if turn % 2 else rank, ranks, turn)
        """,
        """
        def stage_ids(rank, ranks, stages, style):
            if style not in STYLES or stages % ranks:
                raise ValueError(style)
            return [STYLES[style](rank, ranks, turn) for turn in range(stages // ranks)]

        assert stage_ids(0, 2, 4, "v") == [0, 3]
        """,
    ),
)
