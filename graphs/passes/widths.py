"""How each weight of a graph grows with its width, from the contracts of its blocks.

A wide model and its base model are two graphs of one spec with different sizes.  The maximal
update parametrization (muP) scales the initial weights and their rates by what differs, so that
values and their updates keep their size.

Source: Yang et al. 2022, table 3 and appendix B, https://arxiv.org/abs/2203.03466
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from ...specs.findings import InputError
from ..ir.graph import Graph, Part
from ..ir.traverse import visits


@dataclass(frozen=True, slots=True)
class WidthGrowth:
    """How many times larger a weight is than in the base model."""

    fan_in: float
    """Inputs of the map, by those in the base model."""
    fan_out: float
    """Outputs of the map, by those in the base model."""
    multiplier: float
    """The number by which the module multiplies the weight, by that in the base model."""

    @property
    def size(self) -> float:
        """Size of the initial entries that keeps values and their updates as large as in the base.

        A map from few to many values keeps it; in a map of many values it falls with the root of
        their number, and with their number if its outputs stay as many.
        """
        if self.fan_in == 1:
            falls = 1.0
        else:
            falls = self.fan_in if self.fan_out == 1 else self.fan_in**0.5
        return 1.0 / falls / self.multiplier


@dataclass(frozen=True, slots=True)
class _Use:
    """A weight where it belongs."""

    shape: tuple[int, ...]
    words: tuple[str, ...]
    """What its axes count."""
    multiplier: float


def growth(graph: Graph, base: Graph) -> dict[str, WidthGrowth]:
    """Return how each weight of a graph grows with its width.

    Args:
        graph: the graph.
        base: the graph of the same spec with the sizes of the base model.

    Raises:
        InputError: the graphs have other weights, what the axes of a growing weight count is
            unknown, or a weight is tied to one that grows in another way.
    """
    now, before = _uses(graph), _uses(base)
    if now.keys() != before.keys():
        other = min(now.keys() ^ before.keys())
        raise InputError(
            f"the base model has other weights, such as '{other}'",
            help="give the base sizes such as 'd_model' and 'heads', and the layers of the run",
        )
    grown = {path: _growth(path, now[path], before[path]) for path in now}
    for first, *others in graph.ties:
        for path in others:
            if grown[path] != grown[first]:
                raise InputError(
                    f"'{first}' is tied to '{path}', but a wider model needs other rates of both:"
                    " one grows by its inputs, the other by its outputs",
                    help='untie them with "tie": [], as the variant transformer-untied does',
                )
    return grown


def wider_heads(graph: Graph, base: Graph) -> Iterator[str]:
    """Yield the paths of attention whose heads are wider than in the base model."""
    widths = [
        {
            visit.module: visit.part.arguments["d_k"]
            for visit in visits(checked.root, "weights")
            if isinstance(visit.part, Part) and "d_k" in visit.part.arguments
        }
        for checked in (graph, base)
    ]
    now, before = widths
    yield from (path for path in now if path in before and now[path] != before[path])


def _uses(graph: Graph) -> dict[str, _Use]:
    """Return every weight of a graph by its path."""
    uses: dict[str, _Use] = {}
    for visit in visits(graph.root, "weights"):
        if not isinstance(visit.part, Part):
            continue
        block = visit.part.block
        for name, shape in visit.part.own_weights().items():
            words = tuple(block.fans.get(name, "").split()) or ("out", *["in"] * (len(shape) - 1))
            multiplier = block.multiplier(visit.part.arguments)
            uses[f"{visit.module}.{name}"] = _Use(shape, words, multiplier)
    return {path: uses[path] for path in graph.root.weights()}


def _growth(path: str, now: _Use, before: _Use) -> WidthGrowth:
    """Return how a weight grows.

    Raises:
        InputError: what its axes count is unknown, and more than one of them grows.
    """
    ratios = [size / base for size, base in zip(now.shape, before.shape, strict=True)]
    words = now.words
    if words == ("?",):
        if sum(ratio != 1 for ratio in ratios) > 1:
            raise InputError(
                f"'{path}' grows in several axes, and its block does not say which count inputs",
                help="compute with 'linear@1' in place of this array, or fix its sizes",
            )
        words = ("out",) * len(ratios)
    by_word = {
        word: prod(ratio for kind, ratio in zip(words, ratios, strict=True) if kind == word)
        for word in ("in", "out")
    }
    return WidthGrowth(by_word["in"], by_word["out"], now.multiplier / before.multiplier)
