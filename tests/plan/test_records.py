"""Models, clusters and plans as data: the records, files from elsewhere, and everything that is wrong with them."""

import json
import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lib.plan import CLUSTERS, MODELS, Plan, Transformer
from lib.plan.files import cluster_named, cluster_text, model_named, torchtitan
from lib.plan.records import MOST, Cluster

LLAMA = MODELS["llama3-8b"]
CONFIG: dict[str, Any] = {
    "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "hidden_act": "silu",
    "tie_word_embeddings": False,
}  # fmt: skip
DEEPSEEK: dict[str, Any] = {
    "model_type": "deepseek_v3", "num_hidden_layers": 61, "hidden_size": 7168, "num_attention_heads": 128,
    "num_key_value_heads": 128, "v_head_dim": 128, "intermediate_size": 18432, "moe_intermediate_size": 2048,
    "n_routed_experts": 256, "num_experts_per_tok": 8, "n_shared_experts": 1, "first_k_dense_replace": 3,
    "topk_group": 4, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "vocab_size": 129280,
    "hidden_act": "silu", "tie_word_embeddings": False,
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "billions"),
    [("gpt3-175b", 175), ("megatron-1t", 1008), ("llama3-8b", 8.03), ("llama3-70b", 70.6), ("llama3-405b", 405.8),
     ("deepseek-v3", 671), ("mpt-7b", 6.65), ("mpt-70b", 64.3)],
)  # fmt: skip
def test_the_weights_are_those_that_were_published(name: str, billions: float) -> None:
    assert MODELS[name].weights / 1e9 == pytest.approx(billions, rel=0.01)


def test_every_record_says_where_it_is_from() -> None:
    assert all(one.source for one in (*MODELS.values(), *CLUSTERS.values()))


def test_a_config_of_hugging_face_is_a_model(tmp_path: Path) -> None:
    for config, name in ((CONFIG, "llama3-8b"), (DEEPSEEK, "deepseek-v3"), ({"text_config": CONFIG}, "llama3-8b")):
        path = tmp_path / "config.json"
        path.write_text(json.dumps(config))
        found, known = model_named(str(path)), replace(MODELS[name], source="")
        assert replace(found, kv_heads=known.kv_heads) == known
        assert found.groups == known.groups


def test_a_model_of_ones_own_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('like = "llama3-8b"\nlayers = 40\n')
    assert model_named(str(path)) == replace(LLAMA, layers=40)
    path.write_text(cluster_text(CLUSTERS["h100"]))
    assert cluster_named(str(path)) == CLUSTERS["h100"]


def changed(**fields: Any) -> str:
    return json.dumps(CONFIG | fields)


WRONG_MODELS = {
    "nothing at all": ("config.json", "", "is no JSON"),
    "a list": ("config.json", "[]", "it holds a list"),
    "deep": ("config.json", "[" * 100_000, "is no JSON"),
    "an encoder": ("config.json", changed(model_type="bert"), "only decoders are planned"),
    "two halves": ("config.json", changed(is_encoder_decoder=True), "only decoders are planned"),
    "a tokenizer": ("config.json", '{"model_max_length": 512}', "has no layers (num_hidden_layers), hidden"),
    "a word": ("config.json", changed(num_hidden_layers="32"), "layers is a whole number; got '32'"),
    "true": ("config.json", changed(num_hidden_layers=True), "layers is a whole number; got True"),
    "a part": ("config.json", changed(hidden_size=4096.5), f"hidden is a whole number from 1 to {MOST:,}; got 4096.5"),
    "none": ("config.json", changed(num_hidden_layers=0), f"layers is a whole number from 1 to {MOST:,}; got 0"),
    "too many": ("config.json", changed(vocab_size=10**12), "vocab is a whole number"),
    "heads": ("config.json", changed(num_attention_heads=33, num_key_value_heads=33), "33 heads do not divide"),
    "groups": ("config.json", changed(num_key_value_heads=5), "5 kv_heads do not divide 32 heads"),
    "experts": ("config.json", changed(num_experts=8, num_experts_per_tok=9), "a token uses 1 to 8 of them"),
    "no TOML": ("mine.toml", "layers = ", "is no TOML"),
    "a key": ("mine.toml", 'like = "llama3-8b"\nlayer = 3', "there is no 'layer' (did you mean layers"),
    "another": ("mine.toml", 'like = "lama"', "there is no model 'lama' (did you mean llama3-8b"),
    "incomplete": ("mine.toml", "layers = 4", "missing 4 required positional arguments"),
    "bytes": ("mine.toml", "\udcff", "is no text in UTF-8"),
    "long": ("mine.toml", "#" * (1 << 21), "more than 1,048,576 bytes"),
}


@pytest.mark.parametrize("case", WRONG_MODELS)
def test_what_is_no_model_says_why(tmp_path: Path, case: str) -> None:
    name, text, said = WRONG_MODELS[case]
    path = tmp_path / name
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ValueError, match=re.escape(said)):
        model_named(str(path))


def test_names_that_there_are_not() -> None:
    with pytest.raises(ValueError, match=r"there is no GPU 'h1000' \(did you mean h100"):
        cluster_named("h1000")
    with pytest.raises(ValueError, match=r"missing\.toml cannot be read: No such file"):
        cluster_named("missing.toml")
    with pytest.raises(ValueError, match="flops of a cluster is a number above 0; got 0"):
        replace(CLUSTERS["h100"], flops=0)
    with pytest.raises(ValueError, match="host_size is a whole number from 1"):
        Cluster(1.0, 1.0, 1.0, 1.0, 1.0, host_size=0)
    with pytest.raises(ValueError, match="5 dense_layers are more than its 2 layers"):
        Transformer(2, 64, 2, 64, 64, dense_layers=5)


PROBLEMS = {
    "nothing": (Plan(8, 8), []),
    "sizes": (Plan(8, 8, tp=3), ["tp 3 x cp 1 x pp 1 make 3, which does not divide 8 GPUs"]),
    "huge": (Plan(8, 8, tp=10**12), [f"tp is a whole number from 1 to {MOST:,}; got 1000000000000"]),
    "a float": (Plan(8, 8, micro=1.0), [f"micro is a whole number from 1 to {MOST:,}; got 1.0"]),  # pyright: ignore[reportArgumentType]
    "batch": (Plan(8, 12, micro=1), ["a batch of 12 does not divide into microbatches of 1 on 8 copies: 8 at a time"]),
    "heads": (Plan(64, 64, 8192, tp=64), ["32 heads do not divide among tp 64"]),
    "text": (Plan(8, 8, 100, tp=8), ["a sequence of 100 does not divide into 2 x cp 1 x tp 8 parts"]),
    "left over": (
        Plan(8, 10, pp=4, v=2),
        ["interleaving takes microbatches in groups of pp 4; there are 5, so 1 are left over"],
    ),
    "experts": (Plan(8, 8, ep=4), ["ep 4 shares out experts, and the model has none"]),
    "no pipeline": (Plan(8, 8, v=2), ["without a pipeline there is no schedule 1f1b of v 2"]),
    "two ways": (Plan(8, 8, pp=2, v=2, schedule="gpipe"), ["gpipe has its own stages: v is 1; got 2"]),
    "few": (Plan(8, 8, pp=8, schedule="dualpipe"), ["dualpipe needs an even pp and 16 microbatches; got 8 and pp 8"]),
    "zero": (Plan(8, 8, zero=4), ["zero is 0, 1, 2 or 3; got 4"]),
    "order": (Plan(8, 8, schedule="1F1B"), ["schedule is one of 1f1b, gpipe, zb-h1, zb-h2, dualpipe; got '1F1B'"]),
    "again": (Plan(8, 8, recompute="all"), ["recompute is one of none, selective, half, full; got 'all'"]),
}


@pytest.mark.parametrize("case", PROBLEMS)
def test_what_cannot_be_says_why(case: str) -> None:
    plan, said = PROBLEMS[case]
    found = [*plan.problems(LLAMA)]
    if case in ("sizes", "huge", "a float", "zero", "order", "again", "nothing"):
        assert found == said
    else:
        assert said[0] in found


def test_what_is_unwise_is_a_warning() -> None:
    assert [*Plan(64, 64, tp=8, pp=8).warnings(CLUSTERS["h100"])] == []
    far, few = Plan(64, 4, tp=16, pp=4).warnings(CLUSTERS["h100"]), Plan(64, 8, pp=8, tp=4).warnings(CLUSTERS["h100"])
    assert next(iter(far)).startswith("tp 16 leaves the host of 8 GPUs")
    assert next(iter(few)).startswith("4 microbatches cannot fill 8 stages")


def test_torchtitan_gets_its_sizes() -> None:
    told = tomllib.loads(torchtitan(Plan(512, 1024, 8192, tp=8, pp=8, v=2, zero=2, recompute="selective")))
    assert told["parallelism"] == {
        "data_parallel_replicate_degree": 1, "data_parallel_shard_degree": 8, "fsdp_reshard_after_forward": "never",
        "tensor_parallel_degree": 8, "context_parallel_degree": 1, "pipeline_parallel_degree": 8,
        "expert_parallel_degree": 1, "pipeline_parallel_schedule": "Interleaved1F1B",
        "pipeline_parallel_microbatch_size": 1,
    }  # fmt: skip
    assert told["training"] == {"local_batch_size": 128, "global_batch_size": 1024, "seq_len": 8192}
    assert told["activation_checkpoint"] == {"mode": "selective", "selective_ac_option": "op"}
    with pytest.raises(ValueError, match="torchtitan has no zb-h1; it has 1f1b, gpipe, dualpipe"):
        torchtitan(Plan(8, 8, pp=8, schedule="zb-h1"))
