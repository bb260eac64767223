"""Prune: a checkpoint without some of its attention heads, and the spec that goes with it.

A head is the rows of query, key and value that make it and the columns of the output map
that read it, so a model without it computes what the model computes when that head gives
zeros.  Which heads count little, the gradients of `head_gates` say.

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
from ...graphs.ir.traverse import owned_parts
from ...specs.findings import InputError, did_you_mean
from ...specs.form import FORMAT
from ...specs.load import load_child, loaded

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ...graphs.ir.graph import Graph, Part
    from .checkpoint import Checkpoint

PRUNED = ("attention@1", "grouped_query_attention@1")
"""Blocks whose heads can be taken out."""


@dataclass(frozen=True, slots=True)
class Place:
    """One attention of a graph, and what is left of it."""

    path: str
    """Of its parameters, such as `encoder.0.self_attention.f`."""
    select: str
    """As a patch selects it, such as `encoder.0.self_attention/f`."""
    part: Part
    kept: tuple[int, ...] = ()
    """Heads that stay, counted from 0."""

    @property
    def kept_groups(self) -> tuple[int, ...]:
        """Heads of keys and values that stay."""
        each = self.part.arguments["heads"] // self.part.arguments["kv_heads"]
        return tuple(dict.fromkeys(head // each for head in self.kept))


def pruned(held: Checkpoint, heads: Mapping[str, Collection[int]]) -> Checkpoint:
    """Return a checkpoint of the same model without some heads.

    Args:
        held: has the weights; it is not changed.
        heads: path of an attention, such as `encoder.0.self_attention.f`, to the heads to
            take out, counted from 0.

    Raises:
        InputError: a path is no attention, it has no such head, or none would be left.
        SpecError: the spec does not check without these heads, such as where they are tied.
    """
    known = {place.path: place for place in attentions(held.graph)}
    places = [
        _place(known, path, set(gone), str(held.folder)) for path, gone in heads.items() if gone
    ]
    graph = _graph_without(held.graph, places) if places else held.graph
    weights = dict(held.weights)
    for place in places:
        weights |= _rows(place, weights)
    run = {key: value for key, value in held.run.items() if key not in ("spec", "params")}
    state = {"pruned_from": fingerprint(held.graph), "update": 0}
    return replace(held, graph=graph, weights=weights, run=run, state=state)


def head_importance(model: nn.Module, losses: Iterable[Callable[[], Tensor]]) -> dict[str, Tensor]:
    """Return how much each head counts: the mean absolute gradient of the loss by its gate.

    Heads with the least are those to take out first.  Weights and their gradients stay as
    they are.

    Args:
        model: its attentions have `head_gates`.
        losses: each gives the loss of one batch, a single number, when it is called.

    Returns:
        Path of each attention, such as `encoder.0.self_attention.f`, to a number for each head.

    Raises:
        InputError: no attention has gates, or there is no batch.
    """
    gates = {
        path.removesuffix(".head_gate"): gate
        for path, gate in model.named_parameters()
        if path.endswith(".head_gate")
    }
    if not gates:
        raise InputError(
            "no attention of the model has gates",
            help="adapt the checkpoint to a spec whose attentions have 'head_gates': true",
        )
    sums, count = {path: torch.zeros_like(gate) for path, gate in gates.items()}, 0
    for loss in losses:
        with torch.enable_grad():
            gradients = torch.autograd.grad(loss(), [*gates.values()])
        for path, gradient in zip(gates, gradients, strict=True):
            sums[path] += gradient.abs()
        count += 1
    if not count:
        raise InputError("there is no batch to measure heads on", help="give at least one")
    return {path: total / count for path, total in sums.items()}


def attentions(graph: Graph) -> list[Place]:
    """Return every attention of a graph whose heads can be taken out, with all of them."""
    return [
        Place(path, select, part, tuple(range(part.arguments["heads"])))
        for path, select, part in owned_parts(graph.root)
        if part.block.key in PRUNED
    ]


def _place(known: Mapping[str, Place], path: str, gone: set[int], source: str) -> Place:
    """Return an attention with the heads that stay.

    Raises:
        InputError: as of `pruned`.
    """
    if path not in known:
        listed = ", ".join([*known][:4]) or "none of this model"
        help_ = did_you_mean(path, known) or f"paths of attentions are such as {listed}"
        raise InputError(f"'{path}' is no attention whose heads can go", place=source, help=help_)
    place = known[path]
    arguments = place.part.arguments
    count, groups = arguments["heads"], arguments["kv_heads"]
    strange = sorted(gone - {*place.kept})
    if strange:
        raise InputError(
            f"'{path}' has no head {strange[0]}",
            place=source,
            help=f"its heads are 0 to {count - 1}",
        )
    left = replace(place, kept=tuple(head for head in place.kept if head not in gone))
    if not left.kept:
        help_ = "keep one, or make a spec without this attention and adapt the checkpoint to it"
        raise InputError(f"no head of '{path}' would be left", place=source, help=help_)
    if arguments["position"] == "alibi":
        raise InputError(
            f"the gradients of '{path}' follow from the number of its heads (alibi)",
            place=source,
            help="leave the heads of this attention as they are",
        )
    if len(left.kept) * groups != len(left.kept_groups) * count:
        each = count // groups
        raise InputError(
            f"heads of '{path}' share keys in groups of {each}, and a group goes as a whole",
            place=source,
            help=f"take out heads such as {', '.join(map(str, range(each)))} together",
        )
    return left


def _graph_without(graph: Graph, places: list[Place]) -> Graph:
    """Return the graph whose attentions have the heads that stay, their widths written out."""
    patches: list[dict[str, Any]] = []
    for place in places:
        arguments = place.part.arguments
        sizes = {"heads": len(place.kept), "d_k": arguments["d_k"], "d_v": arguments["d_v"]}
        if "kv_heads" in type(place.part.params).model_fields:
            sizes["kv_heads"] = len(place.kept_groups)
        keys = {f"params.{name}": size for name, size in sizes.items()}
        patches.append({"select": place.select, "expect": 1, "set": keys})
    child = {"format": FORMAT, "extends": graph.name, "name": graph.name, "patch": patches}
    held = load_child(loaded(canonical(graph)), child, graph.source)
    return check(held.form, registry(), held.overrides, source=graph.source)


def _rows(place: Place, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of an attention that stay: those of heads, by rows or by columns."""
    heads, groups = torch.tensor(place.kept), torch.tensor(place.kept_groups)
    arguments = place.part.arguments
    all_, shared = arguments["heads"], arguments["kv_heads"]
    rows = {"query": (heads, all_), "key": (groups, shared), "value": (groups, shared)}
    found: dict[str, Tensor] = {}
    for name in place.part.block.weights(arguments):
        path = f"{place.path}.{name}"
        if path not in weights:
            continue  # tied to another, under whose path it stands
        owner, tensor = name.partition(".")[0], weights[path]
        if owner in rows:
            chosen, count = rows[owner]
            found[path] = tensor.unflatten(0, (count, -1))[chosen].flatten(0, 1)
        elif name == "out.weight":
            found[path] = tensor.unflatten(1, (all_, -1))[:, heads].flatten(1, 2)
        elif name in ("head_gate", "relative_bias.weight"):
            found[path] = tensor[..., heads]
    return {path: tensor.contiguous() for path, tensor in found.items()}
