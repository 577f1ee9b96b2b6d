"""Models, clusters and plans in files: our TOML, Hugging Face's `config.json`, torchtitan's configuration."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from lib.files import packaged, table
from lib.plan.records import CLUSTERS, MODELS, Cluster, Plan, Transformer, record_from

LARGEST_FILE: Final = 1 << 20
"""The most bytes of a file that describes a model or a cluster."""
T = TypeVar("T", Transformer, Cluster)


def model_named(name: str) -> Transformer:
    """Return a model by its name, or from a TOML file or `config.json`. ValueError if there is none, or no model."""
    if name not in MODELS and Path(name).suffix == ".json":
        return _from_config(name)
    return _named(Transformer, MODELS, name)


def cluster_named(name: str) -> Cluster:
    """Return a cluster by its GPU's name, or from a TOML file of its fields, where `like` names one for the rest."""
    return _named(Cluster, CLUSTERS, name)


def _named(kind: type[T], known: Mapping[str, T], name: str) -> T:
    if name in known or Path(name).suffix not in (".toml", ".json"):  # a missing file is not an unknown name
        return known[name]
    try:
        data = tomllib.loads(_text(name))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{name} is not TOML: {error}") from None
    like = data.pop("like", None)
    return record_from(kind, data, name, None if like is None else known[str(like)])


def _text(name: str) -> str:
    path = Path(name)
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise ValueError(f"{name} cannot be read: {error.strerror}") from None
    if len(content) > LARGEST_FILE:
        raise ValueError(f"{name} has more than {LARGEST_FILE:,} bytes: it describes no model and no cluster")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{name} is not text in UTF-8") from None


def _from_config(name: str) -> Transformer:
    text = _text(name)
    try:
        data: Any = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(f"{name} is not JSON") from None
    if not isinstance(data, dict):
        raise ValueError(f"{name} is not the config.json of a model: it holds a {type(data).__name__}")
    told = cast("dict[str, Any]", data)
    if isinstance(inner := told.get("text_config"), dict):  # a multimodal model
        told = cast("dict[str, Any]", inner)
    kind = told.get("model_type", "unknown")
    if told.get("is_encoder_decoder") or kind in ("bert", "roberta", "vit", "t5"):
        raise ValueError(f"{name} is of a model of type {kind!r}: only decoders are planned")
    names_of: dict[str, list[str]] = table("lib.plan", "files")["sizes"]
    found = {
        field: value
        for field, names in names_of.items()
        if (value := next((told[key] for key in names if told.get(key) is not None), None)) is not None
    }
    if missing := [field for field in ("layers", "hidden", "heads", "vocab") if field not in found]:
        lacks = ", ".join(f"{field} ({names_of[field][0]})" for field in missing)
        raise ValueError(f"{name} has no {lacks}: it is not the config.json of a decoder")
    found.setdefault("ffn", 4 * found["hidden"] if isinstance(found["hidden"], int) else found["hidden"])
    if "experts" in found:
        found.setdefault("expert_ffn", found["ffn"])
    activation = str(told.get("hidden_act", told.get("activation_function", ""))).lower()
    found["gated"] = activation in table("lib.plan", "files")["activations"]["gated"]
    found["tied"] = bool(told.get("tie_word_embeddings", True))
    return record_from(Transformer, found, name)


def cluster_text(cluster: Cluster) -> str:
    """Return a cluster as TOML that `cluster_named` can read."""
    told = {one.name: getattr(cluster, one.name) for one in fields(Cluster)}
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in told.items() if value != "")


def torchtitan(plan: Plan) -> str:
    """Return a plan as the `[parallelism]`, `[training]` and `[activation_checkpoint]` of torchtitan's configuration.

    ValueError for a schedule that torchtitan does not have.
    """
    schedules = {"1f1b": "Interleaved1F1B" if plan.v > 1 else "1F1B", "gpipe": "GPipe", "dualpipe": "DualPipeV"}
    if plan.pp > 1 and plan.schedule not in schedules:
        raise ValueError(f"torchtitan has no {plan.schedule}; it has {', '.join(schedules)}")
    checkpoint = {"selective": 'mode = "selective"\nselective_ac_option = "op"'}
    checkpoint["half"] = 'mode = "selective"\nselective_ac_option = "2"'
    pipeline = f"""pipeline_parallel_schedule = "{schedules.get(plan.schedule)}"
pipeline_parallel_microbatch_size = {plan.micro}
"""
    return packaged("lib.plan", "torchtitan.txt").format(
        plan=plan,
        replicas=1 if plan.zero else plan.dp,
        shards=plan.dp if plan.zero else 1,
        reshard="always" if plan.zero == 3 else "never",
        pipeline=pipeline if plan.pp > 1 else "",
        local_batch=plan.micro * (plan.microbatches if plan.pp > 1 else 1),
        checkpoint=checkpoint.get(plan.recompute, f'mode = "{plan.recompute}"'),
    )
