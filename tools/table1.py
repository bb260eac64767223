"""Table 1 of Vaswani et al. 2017, computed from graphs of Weft's blocks.

Operations come from the blocks' FLOP formulas, as a polynomial that fits them exactly.  Path
length is measured: an input position is changed, and layers are stacked until the change reaches
the other end; the number of sequential operations in a layer comes from its block.

Axes of the table: n positions, d width, k kernel size, r reach of restricted attention.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.graphs.cost.flops import flops
from weft.graphs.cost.table import part_sequential
from weft.graphs.ir.graph import Graph
from weft.runtime.codegen.build import build
from weft.specs.load import loaded

SMALL_SIGNAL = 1e-4
"""Scale of inputs in path measurements; small, so that no state saturates and hides a change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Sizes that the entries of the table depend on."""

    n: int
    d: int = 4
    k: int = 4
    r: int = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerType:
    """One row of the table."""

    name: str
    paper: tuple[str, str, str]
    """Complexity per layer, sequential operations and maximum path length as printed."""
    use: Callable[[Sizes, int], dict[str, Any]]
    """Block and params of a layer, counted from 0."""
    reads: str = ""
    """`k` or `r` if the layer depends on it."""


def _attention(_: Sizes, __: int) -> dict[str, Any]:
    return {"use": "attention@1", "params": {"heads": 1, "bias": False}}


def _recurrent(sizes: Sizes, _: int) -> dict[str, Any]:
    return {"use": "rnn@1", "params": {"d_hidden": sizes.d, "bias": False}}


def _contiguous(sizes: Sizes, _: int) -> dict[str, Any]:
    params = {"d_out": sizes.d, "kernel": sizes.k, "causal": True}
    return {"use": "convolution@1", "params": params}


def _dilated(sizes: Sizes, layer: int) -> dict[str, Any]:
    params = {"d_out": sizes.d, "kernel": sizes.k, "causal": True, "dilation": sizes.k**layer}
    return {"use": "convolution@1", "params": params}


def _separable(sizes: Sizes, layer: int) -> dict[str, Any]:
    return {**_contiguous(sizes, layer), "use": "separable_convolution@1"}


def _restricted(sizes: Sizes, _: int) -> dict[str, Any]:
    params = {"heads": 1, "bias": False, "block": sizes.r, "window": sizes.r}
    return {"use": "block_sparse_attention@1", "params": params}


LAYERS = (
    LayerType(name="self-attention", paper=("n^2 d", "1", "1"), use=_attention),
    LayerType(name="recurrent", paper=("n d^2", "n", "n"), use=_recurrent),
    LayerType(
        name="convolutional, contiguous",
        paper=("k n d^2", "1", "n/k"),
        use=_contiguous,
        reads="k",
    ),
    LayerType(
        name="convolutional, dilated", paper=("k n d^2", "1", "log_k n"), use=_dilated, reads="k"
    ),
    LayerType(
        name="convolutional, separable",
        paper=("k n d + n d^2", "1", "n/k"),
        use=_separable,
        reads="k",
    ),
    LayerType(
        name="self-attention, restricted", paper=("r n d", "1", "n/r"), use=_restricted, reads="r"
    ),
)


def graph_of_layer(layer: LayerType, sizes: Sizes, index: int = 0) -> Graph:
    """Return a checked graph with only this layer."""
    spec = {
        "format": 1,
        "name": "layer",
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"x": f"f[B T {sizes.d}]"},
        "outputs": {"y": "layer.y"},
        "nodes": {"layer": {"in": {"x": "x"}, **layer.use(sizes, index)}},
    }
    return check(loaded(spec).form, registry())


TERMS: Mapping[str, Mapping[str, int]] = {
    "n^2 d": {"n": 2, "d": 1},
    "r n d": {"r": 1, "n": 1, "d": 1},
    "k n d^2": {"k": 1, "n": 1, "d": 2},
    "n d^2": {"n": 1, "d": 2},
    "k n d": {"k": 1, "n": 1, "d": 1},
    "n d": {"n": 1, "d": 1},
}
"""Terms of the operation counts, with the exponents of their sizes."""
SAMPLES = {"n": (256, 512, 1024), "d": (16, 32, 64), "k": (2, 3, 5), "r": (16, 32, 64)}


def operations(layer: LayerType) -> dict[str, int]:
    """Return the floating-point operations of a layer as a polynomial: term to factor.

    A multiply-add counts as 2.

    Raises:
        ValueError: the operations are not a polynomial of `TERMS`.
    """
    symbols = ("n", "d", *layer.reads)
    terms = {text: powers for text, powers in TERMS.items() if set(powers) <= set(symbols)}
    points = [
        Sizes(**dict(zip(symbols, values, strict=True)))
        for values in product(*(SAMPLES[symbol] for symbol in symbols))
    ]
    measured = [flops(graph_of_layer(layer, point), {"B": 1, "T": point.n}) for point in points]
    rows = [[term(powers, point) for powers in terms.values()] for point in points]
    # Scale each column, so that small terms are not lost next to large ones.
    scale = np.array(rows, dtype=float).max(0)
    solved, *_ = np.linalg.lstsq(
        np.array(rows) / scale, np.array(measured, dtype=float), rcond=None
    )
    factors = [round(value) for value in solved / scale]
    for row, count in zip(rows, measured, strict=True):
        if sum(map(prod, zip(row, factors, strict=True))) != count:
            msg = f"the operations of {layer.name} are not a polynomial of {', '.join(terms)}"
            raise ValueError(msg)
    return {text: factor for text, factor in zip(terms, factors, strict=True) if factor}


def term(powers: Mapping[str, int], sizes: Sizes) -> int:
    """Return the product of sizes raised to these powers."""
    return prod(int(getattr(sizes, symbol)) ** power for symbol, power in powers.items())


def in_sequence(layer: LayerType, sizes: Sizes) -> int:
    """Return the number of sequential operations in one layer, from its block."""
    part = graph_of_layer(layer, sizes).root.nodes[0].part
    if part is None:
        msg = f"{layer.name} is not a block"
        raise ValueError(msg)
    return part_sequential(part, {"B": 1, "T": sizes.n})


def path_length(layer: LayerType, sizes: Sizes) -> int:
    """Return the measured maximum path length: layers times sequential operations per layer."""
    return layers_between_ends(layer, sizes) * in_sequence(layer, sizes)


@torch.inference_mode()
def layers_between_ends(layer: LayerType, sizes: Sizes) -> int:
    """Count the layers after which the last position depends on the first.

    Each layer runs on random inputs twice; the second run has other values at the positions that
    a change has reached so far.  The positions where the outputs differ are reached next.  The
    count equals that of a stack of layers, but no change is lost to rounding on its way.

    Raises:
        ValueError: the change does not reach the end after n layers.
    """
    generator = torch.Generator().manual_seed(0)
    reached_T = torch.zeros(sizes.n, dtype=torch.bool)
    reached_T[0] = True
    module: nn.Module | None = None
    written: dict[str, Any] | None = None
    for index in range(sizes.n):
        if layer.use(sizes, index) != written:
            written = layer.use(sizes, index)
            module = _remembering(build(graph_of_layer(layer, sizes, index)).eval())
        x_TD = torch.randn(sizes.n, sizes.d, generator=generator)
        other_TD = torch.randn(sizes.n, sizes.d, generator=generator)
        changed_TD = torch.where(reached_T[:, None], other_TD, x_TD)
        both_BTD = SMALL_SIGNAL * torch.stack([x_TD, changed_TD])
        y_BTD: Tensor = module(x=both_BTD)["y"] if module is not None else both_BTD
        reached_T = (y_BTD[0] != y_BTD[1]).any(-1)
        if reached_T[-1]:
            return index + 1
    msg = f"{layer.name}: a change does not reach the other end within {sizes.n} layers"
    raise ValueError(msg)


def _remembering(model: nn.Module) -> nn.Module:
    """Set recurrent weights to the identity, so that no change in the state fades away."""
    for name, weight in model.named_parameters():
        if name.endswith("weight_hh"):
            nn.init.eye_(weight)
    return model


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Results for one layer type."""

    name: str
    paper: tuple[str, str, str]
    operations: Mapping[str, int]
    """Term to factor."""
    sequential: Mapping[int, int]
    """n to sequential operations within a layer."""
    path: Mapping[int, int]
    """n to measured path length."""

    def operations_text(self) -> str:
        """Return the polynomial, such as `4 n^2 d + 8 n d^2`."""
        return " + ".join(f"{factor} {term}" for term, factor in self.operations.items())

    def as_json(self) -> dict[str, Any]:
        """Return the row as plain data."""
        return {
            "layer": self.name,
            "paper": dict(zip(("operations", "sequential", "path"), self.paper, strict=True)),
            "operations": dict(self.operations),
            "sequential": {str(n): count for n, count in self.sequential.items()},
            "path": {str(n): count for n, count in self.path.items()},
        }


def table(lengths: Iterable[int], sizes: Sizes | None = None) -> list[Row]:
    """Return every row of the table.

    Args:
        lengths: numbers of positions n at which paths are measured.
        sizes: k and r; n and d are ignored.
    """
    base, rows, lengths = sizes or Sizes(n=1), [], list(lengths)
    for layer in LAYERS:
        at = {n: replace(base, n=n) for n in lengths}
        rows.append(
            Row(
                name=layer.name,
                paper=layer.paper,
                operations=operations(layer),
                sequential={n: in_sequence(layer, point) for n, point in at.items()},
                path={n: path_length(layer, point) for n, point in at.items()},
            )
        )
    return rows
