"""Pruning of attention heads from a checkpoint and its spec.

A head consists of rows of the query, key and value maps and of columns of the output map, so a
model without the head computes the same as the model with its output set to zero.  The
gradients of head gates show which heads are unimportant.

Source: Michel et al. 2019, sections 2.3 and 4.1.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from ...blocks.registry import registry
from ...graphs.checker.check import check
from ...graphs.ir.canonical import canonical, fingerprint
from ...graphs.ir.graph import Filling, Part
from ...graphs.ir.traverse import owned_parts
from ...specs.findings import InputError, did_you_mean
from ...specs.form import FORMAT
from ...specs.load import load_child, loaded
from ..codegen.generated import program_of

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ...graphs.ir.graph import Graph
    from .checkpoint import Checkpoint


@dataclass(frozen=True, slots=True)
class PrunedAttention:
    """One attention of a graph, and the heads that remain."""

    path: str
    """Path of its module, such as `encoder.0.self_attention.f`."""
    select: str
    """Selection for a patch, such as `encoder.0.self_attention/f`."""
    part: Part
    heads: tuple[int, ...] = ()
    """Heads that remain, counted from 0."""

    @property
    def kept_groups(self) -> tuple[int, ...]:
        """Key-value heads that remain."""
        group_size = self.part.arguments["heads"] // self.part.arguments["kv_heads"]
        return tuple(dict.fromkeys(head // group_size for head in self.heads))


def pruned(checkpoint: Checkpoint, heads: Mapping[str, Collection[int]]) -> Checkpoint:
    """Return a checkpoint of the same model without some heads.

    Args:
        checkpoint: checkpoint to prune; not changed.
        heads: heads to remove, counted from 0, by the path of their attention, such as
            `encoder.0.self_attention.f`.

    Raises:
        InputError: a path is not an attention, has no such head, or would have no head left.
        SpecError: the spec is invalid without these heads, for example because of tied weights.
    """
    by_path = {attention.path: attention for attention in attentions(checkpoint.graph)}
    places = [
        _place(by_path, path, set(removed), str(checkpoint.folder))
        for path, removed in heads.items()
        if removed
    ]
    graph = _graph_without(checkpoint.graph, places) if places else checkpoint.graph
    weights = dict(checkpoint.weights)
    for attention in places:
        weights |= _rows(attention, weights)
    run = {key: value for key, value in checkpoint.run.items() if key not in ("spec", "params")}
    state = {"pruned_from": fingerprint(checkpoint.graph), "update": 0}
    return replace(checkpoint, graph=graph, weights=weights, run=run, state=state)


def head_importance(model: nn.Module, losses: Iterable[Callable[[], Tensor]]) -> dict[str, Tensor]:
    """Return the importance of each head: the mean absolute gradient of the loss by its gate.

    Prune the heads with the least importance first.  Weights and their gradients are not
    changed.

    Args:
        model: model whose attentions have `head_gates@1` in their slot `output`.
        losses: functions that each return the loss of one batch as a scalar.

    Returns:
        One number per head, by the path of the attention, such as `encoder.0.self_attention.f`.

    Raises:
        InputError: no attention has gates, or there is no batch.
    """
    gates = {
        attention.path: model.get_parameter(f"{attention.path}.output.{name}")
        for attention in attentions(program_of(model).graph)
        for name in _by_head(attention.part.fill.get("output"))
    }
    if not gates:
        raise InputError(
            "no attention of the model has gates",
            help="adapt the checkpoint to a spec whose attentions have 'head_gates@1' in 'output'",
        )
    sums, count = {path: torch.zeros_like(gate) for path, gate in gates.items()}, 0
    for loss in losses:
        with torch.enable_grad():
            gradients = torch.autograd.grad(loss(), [*gates.values()])
        for path, gradient in zip(gates, gradients, strict=True):
            sums[path] += gradient.abs()
        count += 1
    if not count:
        raise InputError("no batch to measure head importance on", help="give at least one batch")
    return {path: total / count for path, total in sums.items()}


def attentions(graph: Graph) -> list[PrunedAttention]:
    """Return every attention of a graph whose heads can be pruned, with all its heads."""
    return [
        PrunedAttention(path, select, part, tuple(range(part.arguments["heads"])))
        for path, select, part in owned_parts(graph.root)
        if part.block.prunable is not None and part.block.prunable.rows
    ]


def _place(
    by_path: Mapping[str, PrunedAttention], path: str, removed: set[int], source: str
) -> PrunedAttention:
    """Return an attention with the heads that remain.

    Raises:
        InputError: as for `pruned`.
    """
    if path not in by_path:
        listed = ", ".join([*by_path][:4])
        paths = (
            f"use a path such as {listed}" if by_path else "no attention of this model supports it"
        )
        help_ = did_you_mean(path, by_path) or paths
        raise InputError(
            f"'{path}' is not an attention whose heads can be pruned", location=source, help=help_
        )
    attention = by_path[path]
    arguments = attention.part.arguments
    count, groups = arguments["heads"], arguments["kv_heads"]
    unknown = sorted(removed - {*attention.heads})
    if unknown:
        raise InputError(
            f"'{path}' has no head {unknown[0]}",
            location=source,
            help=f"its heads are 0 to {count - 1}",
        )
    remaining = replace(
        attention, heads=tuple(head for head in attention.heads if head not in removed)
    )
    if not remaining.heads:
        help_ = "keep one head, or adapt the checkpoint to a spec without this attention"
        raise InputError(f"no head of '{path}' would remain", location=source, help=help_)
    if attention.part.lora is not None:
        help_ = "merge it into the weights first, with 'weft merge'"
        raise InputError(f"'{path}' has LoRA", location=source, help=help_)
    for slot, filling in attention.part.fill.items():
        if not _shrinks(filling):
            raise InputError(
                f"{filling.key} in '{path}/{slot}' depends on the number of its heads",
                location=source,
                help="do not remove heads of this attention",
            )
    if len(remaining.heads) * groups != len(remaining.kept_groups) * count:
        group_size = count // groups
        raise InputError(
            f"heads of '{path}' share keys in groups of {group_size}, which can only be removed"
            " together",
            location=source,
            help=f"remove a complete group, such as heads {', '.join(map(str, range(group_size)))}",
        )
    return remaining


def _by_head(filling: Filling | None) -> tuple[str, ...]:
    """Return the weights of a block that have one entry for each head."""
    prunable = filling.block.prunable if isinstance(filling, Part) else None
    return prunable.last_axis if prunable is not None else ()


def _shrinks(filling: Filling) -> bool:
    """Return whether heads can be removed from a block in a slot of attention."""
    if not isinstance(filling, Part):
        return False
    by_head = bool({"heads", "groups"}.intersection(filling.signature.sized))
    prunable = filling.block.prunable is not None or not by_head
    return prunable and all(map(_shrinks, filling.fill.values()))


def _graph_without(graph: Graph, places: list[PrunedAttention]) -> Graph:
    """Return the graph with the remaining heads, with explicit head widths."""
    patches: list[dict[str, Any]] = []
    for attention in places:
        arguments = attention.part.arguments
        sizes = {"heads": len(attention.heads), "d_k": arguments["d_k"], "d_v": arguments["d_v"]}
        if getattr(attention.part.params, "kv_heads", None) is not None:
            sizes["kv_heads"] = len(attention.kept_groups)
        keys = {f"params.{name}": size for name, size in sizes.items()}
        patches.append({"select": attention.select, "expect": 1, "set": keys})
    child = {"format": FORMAT, "extends": graph.name, "name": graph.name, "patch": patches}
    spec = load_child(loaded(canonical(graph)), child, graph.source)
    return check(
        spec.form, registry(graph.blocks), spec.overrides, source=graph.source, checked=True
    )


def _rows(attention: PrunedAttention, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of a block without the rows and columns of the removed heads."""
    arguments, axes = attention.part.arguments, attention.part.block.prunable
    if axes is None:
        return {}
    remaining = {
        "heads": torch.tensor(attention.heads),
        "kv_heads": torch.tensor(attention.kept_groups),
    }
    pruned_weights: dict[str, Tensor] = {}
    for name in attention.part.block.weights(arguments):
        path = f"{attention.path}.{name}"
        if path not in weights:
            continue  # tied to another parameter, under whose path it is stored
        owner, tensor = name.partition(".")[0], weights[path]
        if owner in axes.rows:
            kind = axes.rows[owner]
            pruned_weights[path] = tensor.unflatten(0, (arguments[kind], -1))[
                remaining[kind]
            ].flatten(0, 1)
        elif name in axes.columns:
            by_head = tensor.unflatten(1, (arguments["heads"], -1))
            pruned_weights[path] = by_head[:, remaining["heads"]].flatten(1, 2)
        elif name in axes.last_axis:
            pruned_weights[path] = tensor[..., remaining["heads"]]
    for slot, filling in attention.part.fill.items():
        for name in _by_head(filling):
            path = f"{attention.path}.{slot}.{name}"
            if path in weights:
                pruned_weights[path] = weights[path][..., remaining["heads"]]
    return {path: tensor.contiguous() for path, tensor in pruned_weights.items()}
