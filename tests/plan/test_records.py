"""Models, clusters and plans as data: the records, files from elsewhere, and everything that is wrong with them."""

import json
import re
import tomllib
from contextlib import chdir
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from lib.plan import CLUSTERS, MODELS, Plan, Transformer
from lib.plan.files import cluster_named, cluster_text, model_named, torchtitan
from lib.plan.records import Cluster
from tests.support.said import Said

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


def model(name: str, text: str) -> str:
    """Why a file with this text is not a model; of what a parser says, the beginning."""
    with TemporaryDirectory() as folder, chdir(folder):
        Path(name).write_bytes(text.encode("utf-8", "surrogateescape"))
        with pytest.raises(ValueError) as raised:  # noqa: PT011
            model_named(name)
    return re.sub(r"(is not (JSON|TOML)|in UTF-8):.*", r"\1", str(raised.value))


def problems(*sizes: Any, **more: Any) -> str:
    return "\n".join(Plan(*sizes, **more).problems(LLAMA)) or "none"


test_what_cannot_be_says_why = Said(__file__, "records").test(
    lambda: {**globals(), "Cluster": Cluster, "Transformer": Transformer}
)


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
