"""Outputs of cells, as they are compared."""

from typing import Any


def joined(outputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Outputs with their texts whole, and what stands for the number of a cell left out."""
    whole: list[dict[str, Any]] = []
    for output in outputs:
        one = {key: value for key, value in output.items() if key not in ("execution_count", "metadata")}
        if "data" in one:
            one["data"] = {kind: "".join(text) for kind, text in one["data"].items()}
        if "text" in one:
            one["text"] = "".join(one["text"])
        if whole and "text" in one and whole[-1].get("name") == one["name"]:
            whole[-1]["text"] += one["text"]
        else:
            whole.append(one)
    return whole
