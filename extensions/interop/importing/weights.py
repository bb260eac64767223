"""Conversion of another library's weights to those of a spec, as described by a table.

In this file, "target" weights are the parameters of the spec and "source" tensors those of
the imported folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ....plugin import Finding, SpecError, did_you_mean
from ....runtime.checkpoint.mapping.conversion import Conversion
from ....runtime.checkpoint.mapping.names import matcher
from ....runtime.checkpoint.mapping.origin import Origin, assigned
from .config import Configuration
from .table import ImportTable
from .tensors import FolderTensors

MOST_NAMED = 12
"""Maximum number of names in a finding."""


@dataclass(frozen=True, slots=True)
class Converted:
    """The weights of an import, and the names of the tensors that it read."""

    weights: dict[str, Tensor]
    """Every target weight once, in float32."""
    names: dict[str, list[str]]
    """Names that a tensor has in the folder, by the name that an export gives it; only where they
    differ, so that an export of the model has the tensors that its folder had."""


def converted(
    table: ImportTable,
    source: str,
    shapes: Mapping[str, tuple[int, ...]],
    theirs: FolderTensors,
    config: Configuration,
    ties: Iterable[Sequence[str]] = (),
) -> Converted:
    """Return every target weight, and the names of its tensors.

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
    plan, without = assigned(table.weights, source, [*shapes, *stored])
    reader = Conversion(source, theirs, config)
    names = {path: reader.names(path, origin) for path, origin in plan.items()}
    if not reader.findings:
        _check_names(table, reader, plan, [p for p in without if p in shapes], stored, theirs)
    weights: dict[str, Tensor] = {}
    sources: dict[str, str] = {}
    read = {name for path in shapes for tensors in names.get(path, ()) for name in tensors}
    for path, origin in plan.items():
        first, present = stored.get(path, path), reader.present(names[path])
        if path in stored and (not present or (present in read and first in sources)):
            continue
        weight = torch.empty(shapes[first])
        problems = len(reader.findings)
        empty = weight.numel() - reader.fill(path, origin, weight)
        if empty and len(reader.findings) == problems:
            help_ = 'fill them with further lines, or with {"fill": 0}'
            reader.report(origin, f"no line fills {empty} elements of '{path}'", help_=help_)
        if first not in sources:
            weights[first] = weight
            sources |= {first: present} if present else {}
        elif not torch.equal(weight, weights[first]):
            reader.report_difference(origin, sources[first], present, first)
    if findings := reader.findings or _unread(reader, theirs):
        raise SpecError(findings)
    return Converted({path: weights[path] for path in shapes}, _stored_names(names, stored, theirs))


def _stored_names(
    names: Mapping[str, Sequence[tuple[str, ...]]], stored: Mapping[str, str], theirs: FolderTensors
) -> dict[str, list[str]]:
    """Return the names that tensors have, by the name that an export writes by default.

    An export writes the first name of each line, and no line of the further paths of a tied weight.

    Args:
        names: alternative names of the tensors of each path.
        stored: further path of a tied weight to its first path.
        theirs: source tensors.
    """
    every = {path: [_present(tensor, theirs) for tensor in names[path]] for path in names}
    further = {first for path, first in stored.items() if any(every.get(path, ()))}
    result: dict[str, list[str]] = {}
    for path, tensors in every.items():
        for (default, *_), present in zip(names[path], tensors, strict=True):
            needed = path not in stored and path not in further  # else a fill, or another line
            if present != ([] if path in stored else [default]) and (present or not needed):
                result[default] = present
    return result


def _present(names: Sequence[str], theirs: FolderTensors) -> list[str]:
    return [name for name in names if name in theirs]


def _unread(conversion: Conversion, theirs: FolderTensors) -> list[Finding]:
    """Return a finding for each source tensor of which elements are not read."""
    return [
        Finding(
            code="I05",
            at="/weights",
            problem=f"{size - count} of the {size} elements of '{name}' are not read",
            evidence=(f"given  {list(theirs.shape(name))}",),
            help='read them, or write "unread": 0 in a line that reads the tensor',
            source=conversion.source,
        )
        for name, count in conversion.read.items()
        if count < (size := theirs.numel(name)) and name not in conversion.partly
    ]


def _check_names(
    table: ImportTable,
    reader: Conversion,
    plan: Mapping[str, Origin],
    without: Sequence[str],
    stored: Mapping[str, str],
    theirs: FolderTensors,
) -> None:
    """Raise one finding for all target weights without a source and all unused source tensors.

    Args:
        table: the table.
        reader: reads its lines.
        plan: lines of each path.
        without: paths that match no line.
        stored: path of a tied weight to the path under which it is stored.
        theirs: source tensors.
    """
    read = {path: reader.names(path, origin) for path, origin in plan.items()}
    tied = {first for path, first in stored.items() if reader.present(read.get(path, ()))}
    without = [path for path in without if path not in tied]
    missing = dict[str, tuple[str, ...]]()
    for path, origin in plan.items():
        for part in () if path in tied or path in stored else origin.reads():
            names = part.names(reader.values)
            absent = [alternatives for alternatives in names if not reader.present([alternatives])]
            if absent and (part.line.fill is None or len(absent) < len(names)):
                missing.setdefault(path, absent[0])
    used = {name for tensors in read.values() for names in tensors for name in names}
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
                source=f"{reader.source} for {theirs.folder}",
            )
        ]
    )


def _some(lines: Sequence[str], mark: str) -> list[str]:
    more = len(lines) - MOST_NAMED
    shown = [f"{mark}{line}" for line in lines[:MOST_NAMED]]
    return [*shown, f"{mark}and {more} more"] if more > 0 else shown
