"""Merging of LoRA: adds the low-rank products of a checkpoint to its weights.

The merged model has the spec and the paths of the model that was adapted, and computes the same
as the adapted one.

Source: Hu et al. 2022, section 4.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from ...blocks.registry import registry
from ...graphs.checker.check import check
from ...graphs.ir.canonical import canonical, fingerprint
from ...graphs.ir.lora import A, B, prefix_of
from ...graphs.ir.traverse import owned_parts
from ...specs.findings import InputError
from ...specs.load import loaded

if TYPE_CHECKING:
    from torch import Tensor

    from ...graphs.ir.graph import Graph
    from .checkpoint import Checkpoint


def lora_factors(graph: Graph) -> dict[str, float]:
    """Return the factor alpha / rank of each linear map with LoRA, by the prefix of its paths."""
    return {
        f"{path}.{prefix_of(name)}": part.lora.factor
        for path, _, part in owned_parts(graph.root)
        if part.lora is not None
        for name in part.lora.chosen(part.block.maps)
    }


def merged(weights: Mapping[str, Tensor], graph: Graph) -> dict[str, Tensor]:
    """Return the weights of a model without LoRA that computes the same as one with it.

    Args:
        weights: weights by path, each once; not changed.
        graph: graph of the model with LoRA.

    Raises:
        InputError: a weight with LoRA is tied to another one.
    """
    factors = lora_factors(graph)
    tied = {path for group in graph.ties for path in group}
    merged_weights = dict(weights)
    for prefix, factor in factors.items():
        path = f"{prefix}weight"
        wrong = sorted(tied & {path, f"{prefix}{A}", f"{prefix}{B}"})
        if wrong:
            raise InputError(
                f"'{wrong[0]}' is tied to another weight, so LoRA cannot be merged into it",
                help="remove the tie or the LoRA of this block",
            )
        a, b = merged_weights.pop(f"{prefix}{A}"), merged_weights.pop(f"{prefix}{B}")
        weight = merged_weights[path]
        # In float64, so that the sum is rounded once.
        total = weight.double() + factor * (b.double() @ a.double())
        merged_weights[path] = total.to(weight.dtype)
    return merged_weights


def graph_without_lora(graph: Graph) -> Graph:
    """Return the graph of the model that was adapted."""
    keys = {part.block.key for _, _, part in owned_parts(graph.root) if part.lora is not None}
    spec = loaded(_without(canonical(graph), keys))
    return check(
        spec.form, registry(graph.blocks), spec.overrides, source=graph.source, checked=True
    )


def merged_checkpoint(checkpoint: Checkpoint) -> Checkpoint:
    """Return a checkpoint with LoRA merged into its weights; itself if it has none.

    Raises:
        InputError: a weight with LoRA is tied to another one.
    """
    if not lora_factors(checkpoint.graph):
        return checkpoint
    weights = merged(checkpoint.weights, checkpoint.graph)
    with torch.no_grad():
        weights = {path: weight.contiguous() for path, weight in weights.items()}
    run = {key: value for key, value in checkpoint.run.items() if key not in ("spec", "params")}
    state = {"merged_from": fingerprint(checkpoint.graph), "update": 0}
    graph = graph_without_lora(checkpoint.graph)
    return replace(checkpoint, graph=graph, weights=weights, run=run, state=state)


def _without(value: Any, keys: set[str]) -> Any:
    """Return a canonical form in which blocks with these keys have no params of LoRA."""
    if isinstance(value, list):
        return [_without(element, keys) for element in value]
    if not isinstance(value, dict):
        return value
    cleaned = {key: _without(entry, keys) for key, entry in value.items()}
    if cleaned.get("use") in keys and "params" in cleaned:
        cleaned["params"] = {k: v for k, v in cleaned["params"].items() if k != "lora"}
    return cleaned
