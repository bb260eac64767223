"""Conversion of another library's weights to those of a spec, as described by a table.

In this file, "target" weights are the parameters of the spec and "source" tensors those of
the imported folder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from ....plugin import Finding, SpecError, did_you_mean, pointer
from ....specs.expressions import ExpressionError
from .config import Configuration
from .names import matcher
from .plan import Origin, assigned
from .table import ImportTable
from .tensors import Tensors

MOST_NAMED = 12
"""Maximum number of names in a finding."""


def converted(
    table: ImportTable,
    source: str,
    shapes: Mapping[str, tuple[int, ...]],
    theirs: Tensors,
    config: Configuration,
    ties: Iterable[Sequence[str]] = (),
) -> dict[str, Tensor]:
    """Return every target weight, in float32.

    Args:
        table: origin of each weight.
        source: file of the table, for findings.
        shapes: shape of each target weight by path, each weight once.
        theirs: source tensors.
        config: configuration read by the table's expressions.
        ties: groups of paths of one weight, of which the first is in `shapes`; the source may have
            a tensor for each path, and these must be equal.

    Raises:
        SpecError: target weights without a source, unused source tensors or elements, tensors
            that should be equal but differ, or shapes that do not match.
    """
    stored = {path: group[0] for group in ties for path in group[1:] if group[0] in shapes}
    plan, without = assigned(table, source, [*shapes, *stored])
    reader = _Reader(source, theirs, config)
    names = {path: reader.names(path, origin) for path, origin in plan.items()}
    if not reader.findings:
        origins = {path: (plan[path], tensors) for path, tensors in names.items()}
        _check_names(table, source, origins, [p for p in without if p in shapes], stored, theirs)
    weights: dict[str, Tensor] = {}
    sources: dict[str, str] = {}
    read = {name for path in shapes for tensors in names.get(path, ()) for name in tensors}
    for path, origin in plan.items():
        first, present = stored.get(path, path), reader.present(names[path])
        if path in stored and (not present or (present in read and first in sources)):
            continue
        weight = reader.weight(path, origin, names[path], shapes[first])
        if first not in sources:
            weights[first] = weight
            sources |= {first: present} if present else {}
        elif not torch.equal(weight, weights[first]):
            reader.report_difference(origin, sources[first], present, first)
    reader.check_all_read()
    if reader.findings:
        raise SpecError(reader.findings)
    return {path: weights[path] for path in shapes}


class _Reader:
    """Reads weights one after another and collects what is wrong as findings."""

    def __init__(self, source: str, theirs: Tensors, config: Configuration) -> None:
        self.source, self.theirs, self.config = source, theirs, config
        self.findings: list[Finding] = []
        self.read: Counter[str] = Counter()
        """Number of elements read of each source tensor."""
        self.partly: set[str] = set()
        """Source tensors of which elements may be unread."""

    def report(self, origin: Origin, problem: str, *evidence: str) -> None:
        """Add a finding about a line of the table."""
        at = pointer("weights", origin.pattern)
        finding = Finding(code="I05", at=at, problem=problem, evidence=evidence, source=self.source)
        self.findings.append(finding)

    def names(self, path: str, origin: Origin) -> list[tuple[str, ...]]:
        """Return the alternative names of each source tensor of a weight."""
        try:
            return origin.names(self.config)
        except ExpressionError as error:
            self.report(origin, f"the number of tensors of '{path}' is unknown: {error}")
            return []

    def present(self, names: Sequence[tuple[str, ...]]) -> str:
        """Return the first of the names that the folder has; empty if it has none."""
        every = (name for alternatives in names for name in alternatives)
        return next((name for name in every if name in self.theirs), "")

    def report_difference(self, origin: Origin, name: str, other: str, path: str) -> None:
        """Add a finding about two tensors of one weight that differ."""
        finding = Finding(
            code="I05",
            at=pointer("weights", origin.pattern),
            problem=f"'{name}' and '{other}' should be equal, but differ",
            evidence=(f"wanted for {path}, which both of them are",),
            help="if they are weights of their own, correct what ties them in config.json "
            "(tie_word_embeddings), or import with a table whose spec does not tie them",
            source=self.source,
        )
        self.findings.append(finding)

    def weight(
        self,
        path: str,
        origin: Origin,
        names: Sequence[tuple[str, ...]],
        shape: tuple[int, ...],
    ) -> Tensor:
        """Return a weight; an empty one after a finding."""
        weight = origin.weight
        if not self.present(names):
            return torch.full(shape, weight.fill or 0.0)
        if weight.stack is None:
            return self.piece(path, origin, names[0], shape)
        if len(names) != shape[0]:
            evidence = f"given  {len(names)} tensors", f"wanted {list(shape)}"
            self.report(origin, f"'{path}' is stacked from a wrong number of tensors", *evidence)
        pieces = [self.piece(path, origin, tensor_names, shape[1:]) for tensor_names in names]
        return torch.stack([piece for piece in pieces if piece.shape == shape[1:]] or pieces[:1])

    def piece(
        self, path: str, origin: Origin, names: Sequence[str], shape: tuple[int, ...]
    ) -> Tensor:
        """Return what a source tensor gives to a weight."""
        weight = origin.weight
        first, *others = [name for name in names if name in self.theirs]
        tensor = self.theirs[first]
        for other in others:
            if not torch.equal(tensor, self.theirs[other]):
                self.report_difference(origin, first, other, path)
        try:
            result = origin.layout(self.config).result(tensor, shape)
            if weight.times is not None:
                result = result * origin.number(weight.times, self.config)
            if weight.add is not None:
                result = result + origin.number(weight.add, self.config)
        except (ExpressionError, ValueError, RuntimeError) as error:
            problem = f"'{first}' cannot be converted to '{path}': {error}"
            self.report(origin, problem, f"given  {list(tensor.shape)}")
            return torch.empty(0)
        for name in (first, *others):
            self.read[name] += result.numel()
            if weight.unread is not None:
                self.partly.add(name)
        if result.shape != shape:
            evidence = f"given  {list(result.shape)}  of '{first}', {list(tensor.shape)}"
            self.report(origin, f"'{path}' has the wrong shape", evidence, f"wanted {list(shape)}")
        return result.contiguous()

    def check_all_read(self) -> None:
        """Add a finding for each source tensor of which elements are not read."""
        for name, count in self.read.items() if not self.findings else ():
            size = self.theirs.numel(name)
            if count < size and name not in self.partly:
                self.findings.append(
                    Finding(
                        code="I05",
                        at="/weights",
                        problem=f"{size - count} of the {size} elements of '{name}' are not read",
                        evidence=(f"given  {list(self.theirs.shape(name))}",),
                        help='read them, or write "unread": 0 in a line that reads the tensor',
                        source=self.source,
                    )
                )


def _check_names(
    table: ImportTable,
    source: str,
    plan: Mapping[str, tuple[Origin, Sequence[tuple[str, ...]]]],
    without: Sequence[str],
    stored: Mapping[str, str],
    theirs: Tensors,
) -> None:
    """Raise one finding for all target weights without a source and all unused source tensors.

    Args:
        table: the table.
        source: its file.
        plan: line and names of the tensors of each path.
        without: paths that match no line.
        stored: path of a tied weight to the path under which it is stored.
        theirs: source tensors.
    """
    tied = {
        first
        for path, first in stored.items()
        if path in plan and any(name in theirs for names in plan[path][1] for name in names)
    }
    without = [path for path in without if path not in tied]
    missing = dict[str, tuple[str, ...]]()
    for path, (origin, tensors) in plan.items():
        if path in tied or path in stored:
            continue
        absent = [names for names in tensors if not any(name in theirs for name in names)]
        if absent and (origin.weight.fill is None or len(absent) < len(tensors)):
            missing[path] = absent[0]
    used = {name for _, tensors in plan.values() for names in tensors for name in names}
    rules = [matcher(pattern) for pattern in table.ignore]
    unused = [n for n in theirs if n not in used and not any(rule.fullmatch(n) for rule in rules)]
    if not (without or missing or unused):
        return
    empty = [f"{path}  no pattern of the table matches it" for path in without]
    empty += [f"{path}  from {' or '.join(names)}" for path, names in missing.items()]
    evidence = (
        *_some(empty, "empty  "),
        *_some([f"{name}  {list(theirs.shape(name))}" for name in unused], "unused "),
    )
    near = ""
    if unused:
        near = next((did_you_mean(names[0], unused) for names in missing.values()), "")
    problem = f"{len(empty)} of the spec's weights have no source, {len(unused)} tensors are unused"
    raise SpecError(
        [
            Finding(
                code="I04",
                at="/weights",
                problem=f"{problem}: the table does not match this model",
                evidence=evidence,
                help=near if near.startswith("did") else "choose another table with --as",
                source=f"{source} for {theirs.folder}",
            )
        ]
    )


def _some(lines: Sequence[str], mark: str) -> list[str]:
    more = len(lines) - MOST_NAMED
    shown = [f"{mark}{line}" for line in lines[:MOST_NAMED]]
    return [*shown, f"{mark}and {more} more"] if more > 0 else shown
