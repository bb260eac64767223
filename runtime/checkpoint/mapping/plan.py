"""Plan of a transfer: which lines fill which weights of one graph from those of another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from ....graphs.diff.weight_transfer import WeightTransfer
from ....graphs.ir.graph import Graph
from ....specs.expressions import ExpressionError
from ....specs.findings import Finding, SpecError, did_you_mean, pointer
from .conversion import Conversion
from .line import Line, mistakes
from .names import help_for
from .origin import Origin, assigned
from .values import ConfigValues

if TYPE_CHECKING:
    from torch import Tensor

OptionalLines = Mapping[str, tuple[Line, ...] | None]
"""Pattern of paths of weights to the lines that fill them; null draws them anew."""
_CODE = "R10"


@dataclass(frozen=True, slots=True)
class TransferPlan:
    """What lines do with the weights of a graph, given those of another one."""

    new: Graph
    values: ConfigValues
    """Names that the expressions of lines read: params of the new graph."""
    origins: Mapping[str, Origin]
    """Lines of each weight that lines fill, by the path under which it is stored."""
    drawn: frozenset[str]
    """Paths of the weights that are drawn although the other graph may have them."""
    complete: frozenset[str]
    """Paths of the weights whose every element comes from weights of the other graph."""
    sources: Mapping[str, tuple[str, ...]]
    """Path of a weight to those of the other graph's weights that it comes from, as stored."""
    ties: Mapping[str, str]
    """Other paths of tied weights of the other graph to those under which they are stored."""

    @property
    def paths(self) -> frozenset[str]:
        """Paths of the weights that have lines."""
        return self.drawn | self.origins.keys()

    def fill(self, parameters: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> int:
        """Fill parameters in place; return the number of elements of weights that were read.

        Args:
            parameters: parameters of the new graph, drawn already.
            weights: weights of the other graph.

        Raises:
            SpecError: several tensors of one weight differ.
        """
        tensors = {**weights, **{path: weights[first] for path, first in self.ties.items()}}
        conversion = Conversion("", tensors, self.values, _CODE)
        with torch.no_grad():
            filled = {
                path: conversion.fill(path, origin, parameters[path])
                for path, origin in self.origins.items()
            }
        if conversion.findings:
            raise SpecError(conversion.findings)
        return sum(count for path, count in filled.items() if path in self.sources)

    def applied(self, transfer: WeightTransfer, old: Graph) -> WeightTransfer:
        """Return a transfer of weights with equal paths, changed by the lines.

        Args:
            transfer: the transfer of the weights that have no lines.
            old: the other graph.
        """
        shapes, before, paths = self.new.weights(), old.weights(), self.paths
        partly = {path: names for path, names in self.sources.items() if path not in self.complete}
        sources = {path: name for path, name in transfer.sources.items() if path not in paths}
        sources |= {path: self.sources[path][0] for path in self.complete}
        reshaped = {path: pair for path, pair in transfer.reshaped.items() if path not in paths}
        reshaped |= {path: (before[names[0]], shapes[path]) for path, names in partly.items()}
        read = {
            *sources.values(),
            *reshaped,
            *(n for names in self.sources.values() for n in names),
        }
        return replace(
            transfer,
            carried={path: shape for path, shape in shapes.items() if path in sources},
            sources={path: sources[path] for path in shapes if path in sources},
            reshaped=reshaped,
            new={p: s for p, s in shapes.items() if p not in sources and p not in reshaped},
            lost={path: shape for path, shape in before.items() if path not in read},
        )


def planned(
    lines: OptionalLines,
    old: Graph,
    new: Graph,
    source: str,
    at: str = "/weights",
    *,
    sized: bool = True,
) -> TransferPlan:
    """Return what lines do with the weights of a graph.

    Args:
        lines: the lines.
        old: graph of the weights that are read.
        new: graph of the weights that are filled.
        source: file of the lines, for findings.
        at: JSON Pointer to the lines in the file.
        sized: whether the shapes of the new weights are known; otherwise they are not compared.

    Raises:
        SpecError: a line is wrong, fits no weight, reads a weight that the other graph lacks or of
            another shape, or a weight has two lines; with every mistake.
    """
    filling = {pattern: parts for pattern, parts in lines.items() if parts is not None}
    planner = _Planner(old, new, source, at)
    for pattern, problem, help_ in mistakes(filling):
        planner.report(pattern, problem, help_)
    planner.refuse()
    by_weight = planner.by_weight(lines)
    sources = planner.sources_of(by_weight)
    planner.refuse()
    complete = planner.complete_among(by_weight) & sources.keys() if sized else set[str]()
    return TransferPlan(
        new=new,
        values=planner.values,
        origins={path: origin for path, origin in by_weight.items() if origin.parts},
        drawn=frozenset(path for path, origin in by_weight.items() if not origin.parts),
        complete=frozenset(complete),
        sources=sources,
        ties=planner.ties,
    )


class _Planner:
    """Matches lines with the weights of two graphs, and collects mistakes."""

    def __init__(self, old: Graph, new: Graph, source: str, at: str) -> None:
        """Begin without findings."""
        self.old, self.new, self.source, self.at = old, new, source, at
        self.before, self.shapes = old.weights(), new.weights()
        self.values = ConfigValues(new.params, {}, source)
        self.ties = {
            path: group[0] for group in old.ties for path in group if group[0] in self.before
        }
        self._findings: list[Finding] = []

    def report(self, pattern: str, problem: str, help_: str = "") -> None:
        """Add a finding about a line."""
        at = self.at + pointer(pattern)
        finding = Finding(code=_CODE, at=at, problem=problem, help=help_, source=self.source)
        self._findings.append(finding)

    def refuse(self) -> None:
        """Raise the findings.

        Raises:
            SpecError: there are some.
        """
        if self._findings:
            raise SpecError(dict.fromkeys(self._findings))

    def by_weight(self, lines: OptionalLines) -> dict[str, Origin]:
        """Return the lines of each weight by the path under which it is stored.

        Raises:
            SpecError: a weight has two lines.
        """
        stored = {path: group[0] for group in self.new.ties for path in group}
        paths = dict.fromkeys([*self.shapes, *stored])
        parts_of = {pattern: parts or () for pattern, parts in lines.items()}
        origins, _ = assigned(parts_of, self.source, paths, _CODE, self.at)
        for pattern in lines.keys() - {origin.pattern for origin in origins.values()}:
            help_ = help_for(pattern, paths) or "weft show --weights lists the paths"
            self.report(pattern, f"no weight of '{self.new.name}' fits '{pattern}'", help_)
        by_weight: dict[str, Origin] = {}
        for path, origin in origins.items():
            first = stored.get(path, path)
            other = by_weight.setdefault(first, origin)
            if other.pattern != origin.pattern:
                problem = f"'{path}' is tied to '{first}', which has the line '{other.pattern}'"
                self.report(origin.pattern, problem, "write one line for both")
        return by_weight

    def sources_of(self, origins: Mapping[str, Origin]) -> dict[str, tuple[str, ...]]:
        """Return the weights of the other graph that each weight reads, as they are stored."""
        names = dict.fromkeys([*self.before, *self.ties])
        sources: dict[str, tuple[str, ...]] = {}
        for path, origin in origins.items():
            read: list[str] = []
            try:
                for part in origin.reads():
                    for alternatives in part.names(self.values):
                        present = [name for name in alternatives if name in names]
                        read += [self.ties.get(name, name) for name in present]
                        if not present and part.line.fill is None:
                            listed = " or ".join(f"'{name}'" for name in alternatives)
                            help_ = did_you_mean(alternatives[0], names)
                            problem = f"'{self.old.name}' has no weight {listed}"
                            self.report(origin.pattern, problem, help_)
            except ExpressionError as error:
                problem = f"the number of tensors of '{path}' is unknown: {error}"
                self.report(origin.pattern, problem)
            sources |= {path: tuple(dict.fromkeys(read))} if read else {}
        return sources

    def complete_among(self, origins: Mapping[str, Origin]) -> set[str]:
        """Return the paths of the weights that lines fill completely, by shapes alone.

        Raises:
            SpecError: shapes do not fit.
        """
        names = [*self.before, *self.ties]
        shapes = {name: self.before[self.ties.get(name, name)] for name in names}
        tensors = {name: torch.empty(shape, device="meta") for name, shape in shapes.items()}
        conversion = Conversion(self.source, tensors, self.values, _CODE, self.at)
        complete = set[str]()
        for path, origin in origins.items():
            weight = torch.empty(self.shapes[path], device="meta")
            if conversion.fill(path, origin, weight) == weight.numel():
                complete.add(path)
        if conversion.findings:
            raise SpecError(dict.fromkeys(conversion.findings))
        return complete
