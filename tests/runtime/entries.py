"""Shipped specs and published examples at small sizes, for the tests that run on all of them."""

from __future__ import annotations

import functools
import runpy
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from weft.graphs.ir.graph import Graph, Part, TemplatePart
from weft.runtime.spec.check import graph_of
from weft.specs.load import load

MODELS: dict[str, dict[str, Any]] = {}
VARIANTS: dict[str, dict[str, Any]] = {}
for _file in sorted((Path(__file__).parent / "models").glob("*.py")):
    _names = runpy.run_path(str(_file))
    MODELS |= _names.get("MODELS", {})
    VARIANTS |= _names.get("VARIANTS", {})
ENTRIES = MODELS | VARIANTS
"""What tests know of the specs of `specs/models` and `specs/variants`; see `test_shipped.py`."""

PUBLISHED_FOLDER = Path(__file__).parents[2] / "examples" / "published"
ONE = {"d_model": 16, "heads": 2, "d_ff": 24, "layers": 1, "vocab": 12}
TWO = {**ONE, "layers": 2}
PUBLISHED: dict[str, dict[str, Any]] = {
    "biaffine": {"d_model": 8, "d_arc": 6, "d_relation": 4, "d_word": 6, "layers": 2, "vocab": 20},
    "branchformer": TWO,
    "canon-layers": ONE,
    "confident-translator": ONE,
    "conformer": TWO,
    "cpc-encoder": {"d_model": 8, "d_context": 6},
    "cross-layer-attention": {"d_model": 16, "heads": 4, "kv_heads": 2, "pairs": 2, "vocab": 12},
    "deepnet": TWO,
    "deliberation": TWO,
    "differential": TWO,
    "dynamic-tanh": ONE,
    "e-branchformer": {"d_model": 16, "heads": 2, "layers": 2, "vocab": 12},
    "forgetting": TWO,
    "funnel": {**TWO, "decoder_layers": 1},
    "gated-attention": ONE,
    "gated-attention-unit": {"d_model": 24, "layers": 1, "d_shared": 8, "n": 5, "vocab": 12},
    "griffin": {**ONE, "layers": 3},
    "guided-alignment": TWO,
    "hyena": {"d_model": 8, "layers": 1, "d_filter": 6, "bands": 3, "longest": 16, "vocab": 12},
    "hyper-connections": {**TWO, "streams": 3},
    "last-four-layers": {**ONE, "layers": 4},
    "latent-attention": {**TWO, "d_head": 8, "d_latent": 6},
    "layer-wise-coordination": TWO,
    "learned-mix": ONE,
    "macaron": ONE,
    "megabyte": {
        "patch": 3,
        "d_byte": 4,
        "heads": 2,
        "layers": 1,
        "vocab": 12,
        "d_local": 8,
        "local_heads": 2,
        "local_layers": 1,
    },
    "mixture-of-depths": {"d_model": 16, "heads": 2, "layers": 2, "capacity": 0.5, "vocab": 12},
    "mixture-of-recursions": {**ONE, "layers": 3},
    "multi-source": TWO,
    "multi-token": ONE,
    "ngpt": {"d_model": 8, "heads": 2, "layers": 2, "vocab": 12},
    "nystrom": {**ONE, "landmarks": 4, "kernel": 3},
    "perceiver": {"d_model": 16, "heads": 2, "depth": 2, "latents": 4, "vocab": 20},
    "primer": {**ONE, "max_length": 16},
    "realformer": ONE,
    "resformer": {**ONE, "layers": 3},
    "retnet": TWO,
    "sink-token": ONE,
    "softmax-off-by-one": ONE,
    "ssru": ONE,
    "streaming": {**ONE, "sinks": 2, "window": 3},
    "talking-heads": {**TWO, "heads": 4},
    "transformer-xl": {**TWO, "heads": 4},
    "transparent-attention": TWO,
    "ttt-linear": {"d_model": 8, "heads": 2, "d_ff": 12, "layers": 1, "batch": 3, "vocab": 12},
    "xlstm": {"d_model": 8, "heads": 2, "layers": 2, "vocab": 12},
}
"""Examples of `examples/published` to params that make them small."""


@functools.cache
def small(name: str) -> Graph:
    """Return the graph of a shipped spec, or of the file of an example, at its small size."""
    params = ENTRIES[name]["small"] if name in ENTRIES else PUBLISHED.get(Path(name).stem, {})
    return graph_of(load(name, params))


def _blocks(part: Part | TemplatePart) -> Iterator[str]:
    """Yield the blocks of a part and of its slots."""
    if isinstance(part, TemplatePart):
        yield from _constructs(part.body.nodes)
        return
    yield part.block.name
    for filled in part.fill.values():
        yield from _blocks(filled)


def _constructs(nodes: Iterable[Any]) -> Iterator[str]:
    """Yield the blocks, the kinds of nodes and the keys of nodes and their templates."""
    for node in nodes:
        yield type(node).__name__
        if hasattr(node, "part"):
            yield from _blocks(node.part)
        keys = ("carry", "collect", "share", "shares", "instead", "frozen")
        yield from (key for key in keys if getattr(node, key, None))
        if hasattr(node, "body"):
            yield from _constructs(node.body.nodes)


@functools.cache
def contents_of(name: str) -> frozenset[str]:
    """Return what occurs in a spec: blocks, keys, kinds of ports, ties and steps."""
    graph = small(name)
    types = (*graph.inputs.values(), *graph.outputs.values())
    ports = {f"{type_.kind} of a port" for type_ in types}
    about = {"ties" if graph.ties else "", "steps" if graph.step_axis else ""}
    return frozenset((*_constructs(graph.root.nodes), *ports, *about))


def attention_of(name: str) -> frozenset[str]:
    """Return the blocks of attention in a spec, and what fills their slots."""

    def within(part: Part | TemplatePart) -> Iterator[str]:
        if isinstance(part, TemplatePart):
            yield from below(part.body.nodes)
        elif "attention" in part.block.name:
            yield from _blocks(part)
        else:
            for filled in part.fill.values():
                yield from within(filled)

    def below(nodes: Iterable[Any]) -> Iterator[str]:
        for node in nodes:
            if hasattr(node, "part"):
                yield from within(node.part)
            if hasattr(node, "body"):
                yield from below(node.body.nodes)

    return frozenset(below(small(name).root.nodes))


def representative(
    names: Iterable[str], what: Callable[[str], frozenset[str]] = contents_of
) -> set[str]:
    """Return few specs that have together all that occurs in any: a greedy cover."""
    contents = {name: what(name) for name in names}
    missing: set[str] = set().union(*contents.values())
    chosen = set()
    while missing:
        name = max(contents, key=lambda name: len(contents[name] & missing))
        chosen.add(name)
        missing -= contents[name]
    return chosen


def few_fast(
    names: Iterable[str] = ENTRIES,
    others: pytest.MarkDecorator = pytest.mark.slow,
    what: Callable[[str], frozenset[str]] = contents_of,
) -> pytest.MarkDecorator:
    """Parametrize with specs, of which those that are not representative get a mark."""
    names = [*names]
    fast = representative(names, what)
    values = [n if n in fast else pytest.param(n, marks=others) for n in names]
    return pytest.mark.parametrize("name", values, ids=[Path(name).stem for name in names])
