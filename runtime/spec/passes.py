"""Passes over specs and graphs: how the model that `build` makes is computed in training.

The passes themselves, from graph to graph, are in `graphs/passes/`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

from ...graphs.ir.execution import LowPrecision
from ...graphs.ir.graph import Graph
from ...graphs.passes import checkpoint, fuse, pipeline
from ...graphs.passes import unpad as unpadding
from ...specs.findings import InputError, did_you_mean
from .check import Source, graph_of


def unpad(spec: Source | Graph, *, pad: int = 0) -> Graph:
    """Return a graph whose model computes non-padding tokens only while it trains.

    Inputs, outputs, names of weights, evaluation and decoding do not change; `weft train` unpads
    where it makes training faster.

    >>> import weft
    >>> weft.unpad("transformer-tiny").execution.unpad.axes
    ('S', 'T')

    Args:
        spec: the result of `load`, a path, a shipped name, or a graph; of an objective, its
            models are unpadded.
        pad: the padding id at the ends of rows, for inputs without a corresponding input of kind
            `mask`.

    Raises:
        InputError: the graph is already unpadded, or cannot be; the message gives the reason.
        SpecError: the spec has mistakes.
    """
    return unpadding.unpad(graph_of(spec), pad=pad)


def fuse_losses(spec: Source | Graph) -> Graph:
    """Return the graph of an objective whose losses compute the output projections of its models.

    The losses then never hold the logits of all tokens.

    Raises:
        InputError: it has no loss over a linear map that nothing else reads.
        SpecError: the spec has mistakes.
    """
    return fuse.fuse(graph_of(spec))


def cast_weights(spec: Source | Graph, dtype: LowPrecision) -> Graph:
    """Return a graph whose products read weights that are cast once an update, in training.

    Linear maps, experts and recurrent networks read copies of their weights, which are written
    before the first forward pass after an optimizer step.  Train its model inside
    `torch.autocast` with the same dtype, which casts the activations; without autocast the copies
    are not used.  Results are bitwise those of autocast alone.

    Args:
        spec: the result of `load`, a path, a shipped name, or a graph.
        dtype: `bfloat16` or `float16`.

    Raises:
        InputError: the dtype is another one.
        SpecError: the spec has mistakes.
    """
    if dtype not in get_args(LowPrecision):
        help_ = did_you_mean(str(dtype), get_args(LowPrecision)) or "use 'bfloat16'"
        raise InputError(f"weights cannot be cast to '{dtype}'", location="dtype", help=help_)
    return pipeline.cast_weights(graph_of(spec), dtype)


def checkpoint_activations(spec: Source | Graph, selections: Iterable[str]) -> Graph:
    """Return a graph with activation checkpointing, in training, of the selected modules.

    Args:
        spec: the result of `load`, a path, a shipped name, or a graph.
        selections: as in patches, such as `encoder.*` or `**/f[use=attention@1]`.

    Raises:
        InputError: a selection is invalid or selects nothing.
        SpecError: the spec has mistakes.
    """
    return checkpoint.checkpoint_activations(graph_of(spec), selections)
