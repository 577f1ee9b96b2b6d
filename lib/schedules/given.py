"""What notebooks give the learner: a layer forward, back and updated, passes that take turns, rows that ranks share.

A message about what a learner does with these shows the learner's line; so it does with what a notebook marks `given`.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Iterable, Iterator, Sequence
from functools import reduce, wraps
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE
from itertools import pairwise
from types import AsyncGeneratorType, CodeType, FunctionType
from typing import Any, TypeVar, cast

from lib.errors.exceptions import PuzzleError, forgotten_await
from lib.errors.source_lines import MARK, is_students
from lib.simulator.model import Model
from lib.simulator.simulator import simulate
from lib.trace.event import Source
from lib.values.values import Weight, WeightGrad

Block = tuple[int, int]
"""Some rows: the first, and the one after the last."""
Pass = AsyncGenerator[Any, None] | Coroutine[Any, Any, Any]
OVER = object()
"""What a pass gives that has no further turn."""
V_PASSES = ("Fd", "Fu", "Bu", "Bd")
"""Forward and backward, on the way down a V and up."""
F = TypeVar("F", bound=Callable[..., Any])


def given(function: F) -> F:
    """Mark a helper that a notebook gives, and the functions in it: what it does has the line that calls it, and so has
    an error there."""
    marked = cast(FunctionType, function)
    marked.__code__ = _marked(marked.__code__)
    if marked.__code__.co_flags & (CO_COROUTINE | CO_ASYNC_GENERATOR):
        return function

    @wraps(function)
    def called(*args: Any, **named: Any) -> Any:
        program = args[0].program if args and isinstance(args[0], Model) else None
        since = 0 if program is None else len(program.rows)
        result = function(*args, **named)
        if program is not None:
            program.placed(since, _calling())
        return result

    return cast(F, called)


def _marked(code: CodeType) -> CodeType:
    inner = tuple(_marked(one) if isinstance(one, CodeType) else one for one in code.co_consts)
    return code.replace(co_filename=MARK + code.co_filename.removeprefix(MARK), co_consts=inner)


def _calling() -> Source:
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None and not is_students(frame.f_code):
        if frame.f_globals.get("__name__") == simulate.__module__:  # a task of its own: nobody on this rank calls it
            return None
        frame = frame.f_back
    return None if frame is None else (frame.f_code, frame.f_lasti)


@given
def accumulate(model: Model, layer: int, grad: WeightGrad) -> None:
    """Add a gradient to the sum of its layer, or begin that sum."""
    if layer in model.grad_weights:
        grad = model.grad_weights[layer] + grad
    model.grad_weights[layer] = grad


@given
def forward(model: Model, layer: int, i: int | None = None, weight: Weight | None = None) -> None:
    """Take a layer forward: activations[layer] gives activations[layer + 1], and stays for backward. With an i it is
    a part of the batch, activations[layer, i]. `weight` is used instead of the stored one."""
    x = model.activations[_key(layer, i)]
    model.activations[_key(layer + 1, i)] = model.forward(layer, x, weight or model.weights[layer])


@given
def backward(model: Model, layer: int, i: int | None = None, weight: Weight | None = None) -> None:
    """Take a layer back: it uses up activations[layer] and grad_activations[layer + 1], adds the gradient of the weight
    to grad_weights[layer], and gives grad_activations[layer], but for layer 0: nothing needs the data's gradient."""
    weight = weight or model.weights[layer]  # the first thing that a layer without one lacks
    x, grad = model.activations.pop(_key(layer, i)), model.grad_activations.pop(_key(layer + 1, i))
    of_weight, before = model.backward(layer, x, grad, weight)
    del x, grad
    if layer > 0:
        model.grad_activations[_key(layer, i)] = before
    accumulate(model, layer, of_weight)


def _key(layer: int, i: int | None) -> int | tuple[int, int]:
    return layer if i is None else (layer, i)


@given
def update(model: Model, layer: int) -> None:
    """Exchange a weight and its optimizer state for the new ones; the gradient is used up."""
    grad, weight, state = model.grad_weights.pop(layer), model.weights.pop(layer), model.opt_states.pop(layer)
    model.weights[layer], model.opt_states[layer] = model.update(layer, grad, weight, state)


class _Call:
    """A call that has to be awaited: before that it is neither true nor false."""

    def __init__(self, coroutine: Coroutine[Any, Any, bool]) -> None:
        self.coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, bool]:
        return self.coroutine.__await__()

    def __bool__(self) -> bool:
        raise forgotten_await("without `await` no pass moves, and none is ever over", "True or False", self.coroutine)


def _to_be_awaited(function: Callable[[Pass], Coroutine[Any, Any, bool]]) -> Callable[[Pass], Awaitable[bool]]:
    return lambda one: _Call(function(one))


@_to_be_awaited
async def goes_on(one: Pass) -> bool:
    """Run a pass up to its next `yield`; False once it is over."""
    if isinstance(one, Coroutine):
        await one
        return False
    return await anext(one, OVER) is not OVER


async def alone(one: Pass) -> None:
    """Run a pass to its end: it waits for each of its exchanges."""
    while await goes_on(one):
        pass


async def in_turn(*passes: Pass | Iterable[Pass]) -> None:
    """Run passes, or lists of them, that take turns: each goes on to its next `yield`, one after the other, until all
    are over. One that has no `yield` runs to its end in its first turn."""
    going = [one for some in passes for one in ([some] if isinstance(some, AsyncGenerator | Coroutine) else some)]
    while going:
        going = [one for one in going if await goes_on(one)]


def in_phases(rank: int, ranks: int, batches: int, phases: Iterable[tuple[int, str]]) -> list[str]:
    """Return the list of a rank that has a stage on the way down of a V, and one on the way up. Phases say how often
    what is done: (3, "Fu Iu Wu") is three times these words. Each takes the next microbatch, as long as there is one.

    >>> in_phases(0, 2, batches=2, phases=[(2, "Fd"), (3, "Fu Iu")])
    ['0F0', '0F1', '3F0', '3I0', '3F1', '3I1']
    """
    if {*map(type, numbers := (rank, ranks, batches))} != {int} or not 0 <= rank < ranks:
        what = f"in_phases({', '.join(map(repr, numbers))}, ...): the arguments are in a different order"
        raise PuzzleError(what, fix="write in_phases(rank, ranks, batches, phases)").here()
    stage, done, order = {"d": rank, "u": 2 * ranks - 1 - rank}, Counter[str](), list[str]()
    for word, _ in _words(rank, phases):
        kind, way = word[:-1], word[-1]
        if kind not in ("F", "B", "I", "W") or way not in stage:
            expected = "a pass (F, I or W) and its way, d for down or u for up: Fd, Iu"
            fix = 'only blanks stand between words: "Fd Fu"' if word[1:] else f"name the way, too: {word}d or {word}u"
            raise PuzzleError(f"{word!r} is not a word of a phase", expected=expected, fix=fix).here()
        if done[word] < batches:
            order.append(f"{stage[way]}{kind}{done[word]}")
        done[word] += 1
    return order


def _words(rank: int, phases: Any) -> Iterator[tuple[str, str]]:
    """Yield the words of phases in their order, each with those of its phase."""
    each = cast("Iterable[Any]", phases) if isinstance(phases, Iterable) and not isinstance(phases, str) else [phases]
    for phase in each:
        pair = isinstance(phase, list | tuple) and len(cast("Sequence[Any]", phase)) == 2
        times, words = cast("tuple[object, object]", phase if pair else (None, phase))
        if not isinstance(times, int) or not isinstance(words, str):
            fix = "the number stands before the words, and is a whole one"
            fix = f"say how often, too: (1, {phase!r})" if isinstance(phase, str) else fix
            fix = "a phase that is alone is in a list, too: [(3, ...)]" if isinstance(phase, int) else fix
            fix = 'the words of a phase are one text: "Fd Fu"' if isinstance(words, list | tuple) else fix
            expected = 'how often, and then what: (3, "Fu Iu Wu")'
            raise PuzzleError(f"rank {rank}: {phase!r} is not a phase", expected=expected, fix=fix).here()
        yield from ((word, words) for word in words.split() * times)


def by_chunk(size: int, ranks: int) -> list[int]:
    """Return how many of so many rows, or columns, each rank has, as torch.chunk deals them out."""
    most = -(-size // ranks)  # rounded up
    return [max(0, min(most, size - rank * most)) for rank in range(ranks)]


def joined(pieces: Sequence[Any]) -> Any:
    """Return the pieces as one value."""
    return reduce(lambda whole, piece: whole.combine(piece), pieces)


@given
def exchange(
    model: Model, value: Any, blocks: Sequence[Block], layer: int, group: Sequence[int] | str, dim: str = "rows"
) -> Awaitable[list[Any]]:
    """Start a halo exchange in a group: each neighbour gets one of these blocks of a value, along a dim. Awaited, it
    gives the list of what the neighbours hand in. A rank without neighbours hands in nothing, and gets nothing."""
    return model.halo([value.cut(dim, *block) for block in blocks], layer, group) if blocks else _Nothing()


class _Nothing:
    """What an exchange without neighbours brings; unlike a coroutine it may stay unawaited where a rank fails."""

    def __await__(self) -> Generator[Any, Any, list[Any]]:
        return []
        yield


def summed(
    low: int, high: int, gradient: Any, edges: Sequence[Block], arrived: Sequence[Any], dim: str = "rows"
) -> Any:
    """Return the gradient of the rows from low to high: the halo is cut off, and what has arrived is added at the
    edges, along a dim. Where few rows are left, edges may overlap."""
    ends = sorted({low, high, *(end for edge in edges for end in edge)})
    pieces = [gradient.cut(dim, low, low)] if low == high else []
    for first, after in pairwise(ends):
        piece = gradient.cut(dim, first, after)
        for edge, more in zip(edges, arrived, strict=True):
            if edge[0] <= first and after <= edge[1] and piece.place.open:  # else no output needs any of it
                piece = piece + more.cut(dim, first, after)
        pieces.append(piece)
    return joined(pieces)


# -- a V of two places or more, each of several ranks that share its experts ---------------------------------------


@given
def start_exchange(model: Model, value: Any, dim: str, layer: int) -> Awaitable[list[Any]]:
    """Cut a value along a dim, and start to send a part to each rank along "expert"."""
    ranks = len(model.group("expert"))
    return model.alltoall([model.shard(value, dim, rank, ranks) for rank in range(ranks)], layer, group="expert")


@given
def _called(model: Model, operation: str, *values: Any, **named: Any) -> Awaitable[Any]:
    """Call what given code awaits: it has the learner's line."""
    return getattr(model, operation)(*values, **named)


def mail_of(model: Model) -> Sequence[Callable[..., Awaitable[None]]]:
    """Return three functions: hand a value on to a stage, take what has come from one, and wait until all is sent.
    Messages of both ways share a link, so they come in the order in which they were sent."""
    ranks, sent = model.group("place"), list[Awaitable[None]]()
    at = [*ranks, *reversed(ranks), ranks[0]]  # the rank of each stage, and of the loss

    async def hand_on(stage: int, store: str, key: Block, value: Any) -> None:
        if stage < 0:
            return  # nobody needs the gradient of the data
        if stage == len(at) - 1:
            store, value = "grad_activations", model.loss(value)
        getattr(model, store)[key] = value
        del value
        if at[stage] == model.rank:
            return  # it lies where that stage takes it from
        if len(sent) == 4:  # no more than four in flight
            await sent.pop(0)
        sent.append(_called(model, "pass_to", at[stage], (store, key, getattr(model, store).pop(key))))

    async def take(stage: int, store: str, key: Block) -> None:
        if stage < 0:  # before the first one come the data
            model.activations[key] = model.get_activation([key[1]])
        while key not in getattr(model, store):
            if at[stage] == model.rank:
                made = "F" if store == "activations" or stage == len(at) - 1 else "B"
                made += "d" if stage == model.coord["place"] else "u"
                raise PuzzleError(
                    f"rank {model.rank}: {store}[{key[0]}, {key[1]}] is not there yet",
                    expected=f"that the {made} of microbatch {key[1]} is over, which makes it",
                    fix="look at your phases: run that before the pass that needs it",
                ).here()
            name, of, value = await _called(model, "receive", at[stage])
            getattr(model, name)[of] = value

    async def all_sent() -> None:
        for one in sent:
            await one

    return hand_on, take, all_sent


@given
def load_v(model: Model) -> None:
    """Load the weights of the two stages of a rank: dense layers whole, and its experts."""
    for stage in (model.coord["place"], model.LAYERS // 4 - 1 - model.coord["place"]):
        for layer, which, of in ((4 * stage, 0, 1), (4 * stage + 2, model.coord["expert"], len(model.group("expert")))):
            model.weights[layer], model.opt_states[layer] = model.load_weights(layer, which, of)


async def update_v(model: Model) -> None:
    """Sum the gradients of the dense layers, which all ranks of a place have, and update all."""
    dense = [layer for layer in model.weights if layer % 4 == 0]
    grads = [model.grad_weights.pop(layer) for layer in dense]
    sums = await _called(model, "allreduce_bucket", grads, group="expert")
    del grads
    model.grad_weights.update(zip(dense, sums, strict=True))
    for layer in [*dense, *(layer + 2 for layer in dense)]:
        update(model, layer)
        model.set_final_weight(layer, model.weights[layer])


async def run_phases(model: Model, passes_of: Any, phases: Iterable[tuple[int, str]], together: Any) -> None:
    """Run the phases of a rank; (3, "Fd Fu+Bd") is three times these words. `together` runs a pair."""
    forward, backward, finish = passes_of(model)
    place, done = model.coord["place"], Counter[str]()
    stages = {"d": place, "u": model.LAYERS // 4 - 1 - place}
    mine = range(model.coord["expert"], model.BATCHES, len(model.group("expert")))
    for word, words in _words(model.rank, phases):
        passes, parts = list[AsyncGeneratorType[None, None]](), word.split("+")
        for part in parts:
            if part not in V_PASSES:
                expected = "Fd, Fu, Bu and Bd, where B is a whole backward"
                what = f"rank {model.rank}: {part!r} is not a pass, in {words!r}"
                fix = "write a pair of them without blanks, such as Fd+Bu"
                raise PuzzleError(what, expected=expected, fix=fix).here()
            if done[part] < len(mine):
                passes.append((forward if part[0] == "F" else backward)(stages[part[1]], mine[done[part]]))
            done[part] += 1
        if len(passes) == len({*parts}) == 2 and done[parts[0]] == done[parts[1]]:
            what = f"{word} in {words!r}: both are of microbatch {mine[done[parts[0]] - 1]}, and one needs the other"
            fix = f"a pair is of two microbatches: run these one after the other, {' '.join(parts)!r}"
            raise PuzzleError(f"rank {model.rank}: {what}", fix=fix).here()
        try:
            await (together if len(passes) == 2 else in_turn)(*passes)
        except PuzzleError as error:  # the passes are given: only their order can be wrong
            error.got = error.got or f"{word} of the phase {words!r}"
            raise
        if any(one.ag_frame for one in passes):  # the frame of a pass is gone once it is over
            what, expected = f"rank {model.rank}: a pass of {word!r} is not over", "`together` runs both to their end"
            raise PuzzleError(what, expected=expected, fix="let each go on until `goes_on` says False of it").here()
    for part in (part for part in V_PASSES if done[part] < len(mine)):
        what, fix = f"runs {part} {done[part]} times", f"add a phase to the end, such as (batches, {part!r})"
        expected = f"{len(mine)} times: it has {len(mine)} microbatches"
        raise PuzzleError(f"rank {model.rank}, of place {place}, {what}", expected=expected, fix=fix).here()
    await finish()
