"""LoRA: a variant of a spec whose linear maps get low-rank matrices, written as a patch."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from ...blocks.registry import registry
from ...graphs.checker.check import analyse
from ...graphs.ir.graph import Graph
from ...graphs.ir.lora import A, B
from ...specs.findings import SpecError
from ...specs.form import FORMAT
from ...specs.load import LoadedSpec, load_child


@dataclass(frozen=True, slots=True)
class LoraVariant:
    """A variant with LoRA."""

    child: Mapping[str, Any]
    """The variant as file contents; it extends the spec."""
    spec: LoadedSpec
    graph: Graph

    @property
    def matrices(self) -> dict[str, tuple[int, ...]]:
        """Shape of each low-rank matrix by its path."""
        weights = self.graph.weights()
        return {path: weights[path] for path in weights if path.endswith((A, B))}

    @property
    def added(self) -> int:
        """Number of their elements."""
        return sum(map(prod, self.matrices.values()))


def lora(
    spec: LoadedSpec,
    select: str,
    rank: int,
    alpha: float,
    maps: Collection[str] = (),
    *,
    names: tuple[str, str] | None = None,
    source: str = "<lora>",
) -> LoraVariant:
    """Return a variant of a spec with low-rank matrices in the selected blocks.

    Args:
        spec: the spec to vary.
        select: blocks with linear maps, selected as in a patch.
        rank: rank of the matrices.
        alpha: scale; their product is multiplied by alpha / rank.
        maps: linear maps of these blocks, such as `query`; all by default.
        names: name of the spec, as the variant extends it, and name of the variant.
        source: the variant's file, for findings.

    Raises:
        SpecError: the selection matches nothing, or the variant is invalid.
    """
    value = {"rank": rank, "alpha": alpha, **({"maps": [*maps]} if maps else {})}
    extends, name = names or (spec.form.name, spec.form.name)
    patch = [{"select": select, "set": {"params.lora": value}}]
    child = {"format": FORMAT, "extends": extends, "name": name, "patch": patch}
    variant = load_child(spec, child, source)
    blocks = registry(variant.blocks)
    graph, findings = analyse(variant.form, blocks, variant.overrides, source=source)
    if graph is None:
        raise SpecError(variant.place_all(findings))
    return LoraVariant(child, variant, graph)
