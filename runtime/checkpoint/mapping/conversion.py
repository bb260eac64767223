"""Conversion of source tensors to target weights, as the lines of a table say.

It works on tensors without data too (of the device `meta`), which shows mistakes of shapes before
anything is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from ....specs.expressions import ExpressionError
from ....specs.findings import Finding, pointer
from .origin import LinePart, Origin
from .values import ConfigValues


class Tensors(Protocol):
    """Source tensors by name."""

    def __contains__(self, name: object) -> bool:
        """Return whether there is a tensor with a name."""

    def __getitem__(self, name: str) -> Tensor:
        """Return a tensor."""


class Conversion:
    """Fills weights one after another, and collects what is wrong as findings."""

    def __init__(
        self,
        source: str,
        tensors: Tensors,
        values: ConfigValues,
        code: str = "I05",
        at: str = "/weights",
    ) -> None:
        """Begin without findings.

        Args:
            source: file of the table, for findings.
            tensors: source tensors.
            values: names that the expressions of the table read.
            code: code of the findings.
            at: JSON Pointer to the lines in the file.
        """
        self.source, self.tensors, self.values = source, tensors, values
        self.code, self.at = code, at
        self.findings: list[Finding] = []
        self.read: Counter[str] = Counter()
        """Number of elements read of each source tensor."""
        self.partly: set[str] = set()
        """Source tensors of which elements may be unread."""

    def report(self, origin: Origin, problem: str, *evidence: str, help_: str = "") -> None:
        """Add a finding about a line of the table."""
        at = self.at + pointer(origin.pattern)
        finding = Finding(
            code=self.code,
            at=at,
            problem=problem,
            evidence=evidence,
            help=help_,
            source=self.source,
        )
        self.findings.append(finding)

    def names(self, path: str, origin: Origin) -> list[tuple[str, ...]]:
        """Return the alternative names of each source tensor of a weight."""
        try:
            return [names for part in origin.reads() for names in part.names(self.values)]
        except ExpressionError as error:
            self.report(origin, f"the number of tensors of '{path}' is unknown: {error}")
            return []

    def present(self, names: Sequence[tuple[str, ...]]) -> str:
        """Return the first of the names that a tensor has; empty if there is none."""
        every = (name for alternatives in names for name in alternatives)
        return next((name for name in every if name in self.tensors), "")

    def report_difference(self, origin: Origin, name: str, other: str, path: str) -> None:
        """Add a finding about two tensors of one weight that differ."""
        self.report(
            origin,
            f"'{name}' and '{other}' should be equal, but differ",
            f"wanted for {path}, which both of them are",
            help_="if they are weights of their own, correct what ties them in config.json "
            "(tie_word_embeddings), or import with a table whose spec does not tie them",
        )

    def fill(self, path: str, origin: Origin, weight: Tensor) -> int:
        """Fill a weight in place; return the number of its elements that were filled.

        Args:
            path: path of the weight.
            origin: lines of the table for it.
            weight: the weight; what no line fills is not changed.
        """
        if len(origin.parts) == 1 and not origin.parts[0].line.into:
            return weight.numel() if self._fill(path, origin, origin.parts[0], weight) else 0
        filled = torch.zeros(weight.shape, dtype=torch.bool)
        for part in sorted(origin.parts, key=lambda part: not part.line.names):
            try:
                region = part.region(weight, self.values)
                covered = part.region(filled, self.values)
            except (ExpressionError, ValueError) as error:
                self.report(origin, f"'{path}' has no such part: {error}", _shape(weight))
                continue
            if not part.line.names and not part.line.into:
                if not weight.is_meta:
                    weight[~filled] = part.line.fill or 0.0
                filled.fill_(value=True)
            elif bool(covered.any()):
                self.report(origin, f"two lines fill the same entries of '{path}'", _shape(weight))
            elif self._fill(path, origin, part, region):
                covered.fill_(value=True)
        return int(filled.sum())

    def _fill(self, path: str, origin: Origin, part: LinePart, weight: Tensor) -> bool:
        """Fill what a line fills; return whether it fits."""
        try:
            names = part.names(self.values)
        except ExpressionError as error:
            self.report(origin, f"the number of tensors of '{path}' is unknown: {error}")
            return False
        if not self.present(names):
            weight.fill_(part.line.fill or 0.0)
            return True
        shape, stacked = tuple(weight.shape), part.line.stack is not None
        if stacked and len(names) != shape[0]:
            evidence = f"given  {len(names)} tensors", f"wanted {list(shape)}"
            self.report(origin, f"'{path}' is stacked from a wrong number of tensors", *evidence)
            return False
        targets = weight.unbind(0) if stacked else (weight,)
        pairs = zip(names, targets, strict=True)
        return all(self._piece(path, origin, part, *pair) for pair in pairs)

    def _piece(
        self, path: str, origin: Origin, part: LinePart, names: Sequence[str], target: Tensor
    ) -> bool:
        """Fill a target with what a source tensor gives to it; return whether it fits."""
        first, shape = self.present([tuple(names)]), tuple(target.shape)
        if not first:
            self.report(origin, f"'{path}' needs the tensor {' or '.join(names)}, which is missing")
            return False
        size = list(self.tensors[first].shape)
        try:
            result = self._value(path, origin, part, names, shape)
        except (ExpressionError, ValueError, RuntimeError) as error:
            problem = f"'{first}' cannot be converted to '{path}': {error}"
            self.report(origin, problem, f"given  {size}")
            return False
        if tuple(result.shape) != shape:
            evidence = f"given  {list(result.shape)}  of '{first}', {size}"
            self.report(origin, f"'{path}' has the wrong shape", evidence, f"wanted {list(shape)}")
            return False
        target.copy_(result)
        return True

    def _value(
        self,
        path: str,
        origin: Origin,
        part: LinePart,
        names: Sequence[str],
        shape: tuple[int, ...],
    ) -> Tensor:
        """Return what a line makes of a source tensor.

        Raises:
            ExpressionError: an expression cannot be evaluated.
            ValueError: the tensor or its factor is missing or has another shape.
            RuntimeError: the tensor has another shape.
        """
        line, factor = part.line, part.factor
        result = self._read(path, origin, part, names, shape)
        if line.normalize:
            if max(line.normalize) >= result.dim():
                msg = f"it has {result.dim()} axes, and axis {max(line.normalize)} is normalized"
                raise ValueError(msg)
            norm: Tensor | float = result.norm(dim=line.normalize, keepdim=True)
        else:
            norm = 1.0
        if factor is not None:
            scale = self._read(path, origin, factor, factor.line.names, None)
            if scale.dim() != result.dim():
                msg = f"its factor has the shape {list(scale.shape)}, with other axes"
                raise ValueError(msg)
            result = result * (scale / norm)  # as torch does: exact if the factor is the norm
        elif line.normalize:
            result = result / norm
        if isinstance(line.times, float | str):
            result = result * part.number(line.times, self.values)
        if line.add is not None:
            result = result + part.number(line.add, self.values)
        return result

    def _read(
        self,
        path: str,
        origin: Origin,
        part: LinePart,
        names: Sequence[str],
        shape: tuple[int, ...] | None,
    ) -> Tensor:
        """Return what the layout of a line selects of a source tensor.

        Args:
            path: path of the weight.
            origin: its lines.
            part: the line, or its factor.
            names: alternative names of the tensor.
            shape: shape to which axes are joined; None leaves them as they are.

        Raises:
            ExpressionError: an expression cannot be evaluated.
            ValueError: the tensor is missing or has another shape.
            RuntimeError: the tensor has another shape.
        """
        present = [name for name in names if name in self.tensors]
        if not present:
            msg = f"there is no tensor {' or '.join(names)}"
            raise ValueError(msg)
        first, *others = present
        tensor = self.tensors[first]
        for other in others:
            if not tensor.is_meta and not torch.equal(tensor, self.tensors[other]):
                self.report_difference(origin, first, other, path)
        layout = part.layout(self.values)
        count = layout.view(tensor).numel()
        for name in present:
            self.read[name] += count
            if part.line.unread is not None:
                self.partly.add(name)
        return layout.result(tensor, shape)


def _shape(weight: Tensor) -> str:
    return f"wanted {list(weight.shape)}"
