"""The parts of a plan, as data: a transformer, a cluster, the software stack, and the plan itself.

Units are bytes, seconds and FLOP; a link counts in one direction. Ranks are numbered along tp first, then cp, dp, pp.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from functools import cache, cached_property
from typing import Any, Final, TypeVar

from lib.errors.wording import written
from lib.files import table
from lib.record import Lazy

GIB: Final = 2**30
MOST: Final = 10**9
"""The largest size in a record: no model or cluster goes beyond it, so a larger one is a typing slip."""
Matrix = tuple[float, float]
"""The width of a matrix's output (N) and of its input (K): a GEMM of M tokens has 2·M·N·K FLOP."""


@dataclass(frozen=True)
class Transformer:
    """The shape of a decoder.

    `ffn` is the inner width of a dense MLP, which has three matrices where it is `gated` and two otherwise; `tied`
    embeddings are one matrix at both ends. `dropout` keeps masks, as GPT-3 did. A token uses `experts_per_token` of the
    `experts` and all `shared_experts`, each `expert_ffn` wide; the first `dense_layers` have none; routing reaches at
    most `hosts_per_token` hosts. `q_lora`, `kv_lora` and `rope_dim` belong to latent attention (MLA, DeepSeek-V2,
    arXiv 2405.04434). `source` says where the shape is from.
    """

    layers: int
    hidden: int
    heads: int
    ffn: int
    vocab: int
    kv_heads: int = 0
    head_dim: int = 0
    gated: bool = False
    tied: bool = True
    dropout: bool = False
    experts: int = 0
    experts_per_token: int = 0
    shared_experts: int = 0
    expert_ffn: int = 0
    dense_layers: int = 0
    hosts_per_token: int = 0
    q_lora: int = 0
    kv_lora: int = 0
    rope_dim: int = 0
    source: str = ""

    def __post_init__(self) -> None:
        _whole_numbers(self, at_least_one=("layers", "hidden", "heads", "ffn", "vocab"))
        if not self.head_dim and self.hidden % self.heads:
            raise ValueError(f"{self.heads} heads do not divide a hidden size of {self.hidden}: say head_dim")
        if self.heads % self.groups:
            raise ValueError(f"{self.groups} kv_heads do not divide {self.heads} heads")
        if self.experts and not (0 < self.experts_per_token <= self.experts and self.expert_ffn):
            raise ValueError(
                f"with {self.experts} experts a token uses 1 to {self.experts} of them, each of an expert_ffn; got "
                f"experts_per_token={self.experts_per_token}, expert_ffn={self.expert_ffn}"
            )
        if self.dense_layers > self.layers:
            raise ValueError(f"{self.dense_layers} dense_layers are more than its {self.layers} layers")

    @cached_property
    def d(self) -> int:
        """The width of a head."""
        return self.head_dim or self.hidden // self.heads

    @cached_property
    def groups(self) -> int:
        """The number of heads of keys and values: fewer than heads where several share one (GQA, arXiv 2305.13245)."""
        return self.kv_heads or self.heads

    @cached_property
    def sparse(self) -> float:
        """The share of layers that have experts."""
        return (self.layers - self.dense_layers) / self.layers if self.experts else 0.0

    @cached_property
    def width(self) -> float:
        """The inner width of the MLP that a token uses in a mean layer."""
        used = (self.experts_per_token + self.shared_experts) * self.expert_ffn
        return (1 - self.sparse) * self.ffn + self.sparse * used

    def attention(self, tp: int = 1) -> tuple[Matrix, ...]:
        """Return the matrices of attention on one of `tp` ranks: into heads, and back."""
        h, a, d = self.hidden, self.heads, self.d
        if self.kv_lora:
            return (
                (self.q_lora, h),
                (a * (d + self.rope_dim) / tp, self.q_lora),
                (self.kv_lora + self.rope_dim, h),
                (2 * a * d / tp, self.kv_lora),
                (h, a * d / tp),
            )
        return ((a + 2 * self.groups) * d / tp, h), (h, a * d / tp)

    def mlp(self, width: float, tp: int = 1) -> tuple[Matrix, ...]:
        """Return the matrices of an MLP of this inner width on one of `tp` ranks."""
        return (width * (1 + self.gated) / tp, self.hidden), (self.hidden, width / tp)

    @cached_property
    def layer_weights(self) -> tuple[float, float, float]:
        """The weights of a mean layer: outside routed experts, in all of them, and in those that a token uses."""
        expert = _entries(self.mlp(self.expert_ffn))
        dense = (1 - self.sparse) * _entries(self.mlp(self.ffn)) + self.sparse * self.shared_experts * expert
        routed = self.sparse * expert
        return _entries(self.attention()) + dense, routed * self.experts, routed * self.experts_per_token

    @cached_property
    def weights(self) -> float:
        """All weights but norms and biases."""
        common, routed, _ = self.layer_weights
        return self.layers * (common + routed) + self.vocab * self.hidden * (1 if self.tied else 2)

    def flops(self, sequence: int, *, causal: bool = False) -> float:
        """Count the FLOP of a token, forward and backward, that MFU counts: the whole square of attention, as Megatron
        does (arXiv 2104.04473), or the half that a causal mask leaves, as DeepSeek does."""
        common, _, used = self.layer_weights
        square = 2 * sequence * self.heads * (2 * self.d + self.rope_dim) * (0.5 if causal else 1)
        return 3 * (self.layers * (2 * (common + used) + square) + 2 * self.vocab * self.hidden)


def _entries(matrices: tuple[Matrix, ...]) -> float:
    return sum(n * k for n, k in matrices)


@dataclass(frozen=True)
class Cluster:
    """The figures of a cluster, per GPU: peak `flops` (bf16, dense), `hbm`, `nvlink` and `nic` in bytes a second,
    `memory` in bytes; `host_size` GPUs share a host.

    The others are fitted to measurements (`python -m tools.fit_plan`): `gemm` is the best share of the peak in a
    matrix product, and `half_size` says how large M, N and K must be: the time is 1 + half_size·(1/M + 1/N + 1/K) times
    as long. `hbm_share` is the share of HBM that other kernels reach, `link_share` that of NVLink in a ring.
    `collective` is what an awaited collective takes besides its bytes, and `hop` what each host adds to a ring of FSDP,
    in seconds. `attention` is the share of the peak in flash attention. A hidden collective slows the work beside it by
    `interference` times its own length.
    """

    flops: float
    hbm: float
    memory: float
    nvlink: float
    nic: float
    host_size: int = 8
    gemm: float = 0.84
    half_size: float = 190.0
    hbm_share: float = 0.9
    link_share: float = 0.88
    collective: float = 270e-6
    attention: float = 0.5
    interference: float = 0.3
    hop: float = 30e-6
    source: str = ""

    def __post_init__(self) -> None:
        _whole_numbers(self, at_least_one=("host_size",))
        for name in ("flops", "hbm", "memory", "nvlink", "nic", "gemm", "hbm_share", "link_share", "attention"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"{name} of a cluster is a number above 0; got {getattr(self, name)!r}")


@dataclass(frozen=True)
class Stack:
    """The features of the software that no plan chooses: whether attention is `flash`, how much faster its `fp8`
    products are, the bytes of a `gradient`, the share of activations' bytes that is `stored` (less where they wait in
    fp8), and the share of each kind of communication that work hides, from 0 (none) to 1 (all)."""

    flash: bool = True
    fp8: float = 1.0
    gradient: int = 4
    stored: float = 1.0
    tp_hidden: float = 0.0
    cp_hidden: float = 0.0
    ep_hidden: float = 0.0
    pp_hidden: float = 1.0
    dp_hidden: float = 1.0


SCHEDULES: Final = {
    "1f1b": "one_f_one_b",
    "gpipe": "gpipe",
    "zb-h1": "zb_h1",
    "zb-h2": "zb_h2",
    "dualpipe": "dualpipe_v",
}
"""Pipeline schedules, and their names in our catalogue. 1F1B is interleaved where a rank has more than one stage
(v > 1). DualPipe is drawn as its half, DualPipe-V, which has the same bubble."""
CHOSEN: Final = ("tp", "cp", "pp", "ep", "micro", "v", "schedule", "zero", "recompute", "sp")
"""The choices of a plan, beside its given sizes; dp is what is left."""
RECOMPUTE: Final = ("none", "selective", "half", "full")
"""What backward recomputes: nothing; the square of attention (with flash attention the cheap parts: norms, the SwiGLU
product, MLA's up-projections); every other matrix product, as torchtitan does; the whole layer."""


@dataclass(frozen=True)
class Plan:
    """A plan: how `gpus` share steps of `batch` sequences of `sequence` tokens.

    `tp`, `cp`, `pp` and `ep` are the sizes of tensor, context, pipeline and expert parallelism; what is left is data
    parallel (`dp`). A microbatch has `micro` sequences; each rank has `v` stages of the pipeline. `zero` is 0 for DDP,
    1 and 2 for sharded optimizer states and gradients, 3 for FSDP. `sp` cuts rows where tensor parallelism cuts
    nothing (sequence parallelism, arXiv 2205.05198).
    """

    gpus: int
    batch: int
    sequence: int = 2048
    tp: int = 1
    cp: int = 1
    pp: int = 1
    ep: int = 1
    micro: int = 1
    v: int = 1
    schedule: str = "1f1b"
    zero: int = 1
    recompute: str = "none"
    sp: bool = True
    stack: Stack = field(default=Stack())

    @property
    def dp(self) -> int:
        """The number of copies of the model that share the batch."""
        return self.gpus // (self.tp * self.cp * self.pp)

    @property
    def microbatches(self) -> int:
        """The number of microbatches that a copy takes in a step."""
        return self.batch // (self.dp * self.micro) if self.dp else 0

    @property
    def tokens(self) -> float:
        """The number of tokens of a microbatch on a rank."""
        return self.micro * self.sequence / self.cp

    def as_answer(self) -> dict[str, Any]:
        """Return the plan's choices, in the form of an answer to a puzzle: all but the given sizes."""
        return {name: getattr(self, name) for name in CHOSEN}

    @property
    def mesh(self) -> str:
        """The plan in one line, without the sizes that are 1."""
        sizes = (f"{axis}{size}" for axis in ("dp", "tp", "cp", "pp", "ep", "v") if (size := getattr(self, axis)) > 1)
        rest = [f"micro {self.micro}", f"zero{self.zero}"]
        rest += [self.schedule] if self.pp > 1 else []
        rest += [] if self.recompute == "none" else [f"recompute {self.recompute}"]
        rest += [] if self.sp or self.tp == 1 else ["no sp"]
        return " ".join([*sizes, *rest])

    def problems(self, model: Transformer) -> Iterator[str]:
        """Yield the reasons why the plan is impossible for this model, each a sentence with its numbers."""
        sizes = {name: getattr(self, name) for name in ("gpus", "batch", "sequence", *CHOSEN[:6])}
        wrong = [name for name, size in sizes.items() if type(size) is not int or not 1 <= size <= MOST]
        rules = dict.fromkeys(wrong, f"a whole number from 1 to {MOST:,}")
        if self.schedule not in tuple(SCHEDULES):  # it can be anything, even unhashable
            rules["schedule"] = f"one of {', '.join(SCHEDULES)}"
        if self.recompute not in RECOMPUTE:
            rules["recompute"] = f"one of {', '.join(RECOMPUTE)}"
        if type(self.zero) is not int or not 0 <= self.zero <= 3:
            rules["zero"] = "0, 1, 2 or 3"
        for name, rule in rules.items():  # one is enough: the other checks would compute with it
            yield f"{name} is {rule}; got {written(getattr(self, name))[:60]}"
            return
        each = self.tp * self.cp * self.pp
        if self.gpus % each:
            yield f"tp {self.tp} x cp {self.cp} x pp {self.pp} make {each:,}, which does not divide {self.gpus:,} GPUs"
            return
        if self.batch % (self.dp * self.micro):
            yield (
                f"a batch of {self.batch:,} does not divide into microbatches of {self.micro} for dp {self.dp:,}: "
                f"it is not a multiple of {self.dp * self.micro:,}"
            )
        if model.heads % self.tp:
            yield f"{model.heads} heads do not divide among tp {self.tp}"
        if self.sequence % (2 * self.cp * self.tp):
            yield f"a sequence of {self.sequence:,} does not divide into 2 x cp {self.cp} x tp {self.tp} parts"
        stages = self.pp * self.v
        free = -model.layers % stages
        if self.pp > 1 and (free > self.pp or (free > 2 and stages > model.layers)):
            if stages > model.layers:
                lack, why = "are too few for", f"{free} would have none, and only the first and the last may"
            else:
                lack, why = "do not divide among", f"{free} would have one less, and only {self.pp} may, one a rank"
            yield f"{model.layers} layers {lack} pp {self.pp} x v {self.v} = {stages} stages: {why}"
        ranks = self.dp * self.cp * self.tp
        if self.ep > 1 and not model.experts:
            yield f"ep {self.ep} shares out experts, and the model has none"
        elif self.ep > 1 and (model.experts % self.ep or ranks % self.ep):
            yield f"ep {self.ep} has to divide the {model.experts} experts, and the {ranks:,} ranks of a stage"
        if self.pp == 1 and (self.v > 1 or self.schedule != "1f1b"):
            keys = f"v {self.v}" if self.schedule == "1f1b" else f"schedule {self.schedule}"
            yield f"{keys} needs a pipeline, and pp is 1"
        elif self.v > 1 and self.schedule != "1f1b":
            yield f"{self.schedule} has its own stages: v is 1; got {self.v}"
        elif self.v > 1 and (over := self.microbatches % self.pp):
            groups = f"interleaving takes microbatches in groups of pp {self.pp}"
            yield f"{groups}; there are {self.microbatches}, so {over} are left over"
        if self.schedule == "dualpipe" and self.pp > 1 and (self.pp % 2 or self.microbatches < 2 * self.pp):
            yield f"dualpipe needs an even pp and {2 * self.pp} microbatches; got {self.microbatches} and pp {self.pp}"
        if self.zero == 3 and self.pp > 1:
            yield "zero 3 gathers the weights of a stage again for each microbatch: with a pipeline take zero 1 or 2"

    def warnings(self, cluster: Cluster) -> Iterator[str]:
        """Yield the reasons why a possible plan is unwise."""
        if self.tp > cluster.host_size:
            far = "its all-reduces go over the network, in the open, four times a layer"
            yield f"tp {self.tp} leaves the host of {cluster.host_size} GPUs: {far}"
        if self.pp > 1 and self.microbatches < self.pp:
            yield f"{self.microbatches} microbatches cannot fill {self.pp} stages: most ranks wait most of the time"


T = TypeVar("T", Transformer, Cluster, Stack)
WORDS: Final = {"int": "whole number", "float": "number", "bool": "truth value", "str": "text"}


def record_from(kind: type[T], data: Mapping[str, Any], name: str, base: T | None = None) -> T:
    """Make a record from a table, such as TOML. ValueError for an unknown, wrong or missing field.

    A `base` gives the fields that the table leaves out.
    """
    known = {one.name: one for one in fields(kind)}
    for key, value in data.items():
        if key not in known:
            raise ValueError(f"{name}: there is no {key!r}{_nearest(key, known)}; there are {', '.join(known)}")
        wanted = str(known[key].type)
        right = isinstance(value, str) if wanted == "str" else isinstance(value, bool) == (wanted == "bool")
        if not right or (wanted != "str" and not isinstance(value, bool | int | float)):
            raise ValueError(f"{name}: {key} is a {WORDS[wanted]}; got {value!r}")
    try:
        return kind(**data) if base is None else replace(base, **data)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: {str(error).removeprefix(f'{kind.__name__}.__init__() ')}") from None


def _nearest(name: str, among: Mapping[str, Any]) -> str:
    close = get_close_matches(str(name).lower(), among, n=3, cutoff=0.4)
    return f" (did you mean {' or '.join(close)}?)" if close else ""


def _whole_numbers(record: Transformer | Cluster, at_least_one: tuple[str, ...]) -> None:
    for one in fields(record):
        value, least = getattr(record, one.name), 1 if one.name in at_least_one else 0
        if one.type == "int" and (type(value) is not int or not least <= value <= MOST):
            raise ValueError(f"{one.name} is a whole number from {least} to {MOST:,}; got {value!r}")


def _records(kind: type[T], file: str, what: str) -> Mapping[str, T]:

    @cache
    def read() -> dict[str, T]:
        return {name: record_from(kind, data, name) for name, data in table("lib.plan", file).items()}

    return Lazy(read, lambda key, rows: f"there is no {what} {key!r}{_nearest(key, rows)}; there are {', '.join(rows)}")


MODELS: Final = _records(Transformer, "models", "model")
CLUSTERS: Final = _records(Cluster, "clusters", "GPU")
STACKS: Final = _records(Stack, "stacks", "stack")
