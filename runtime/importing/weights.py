"""Conversion of another library's weights to those of a spec, as described by a table.

In this file, "target" weights are the parameters of the spec and "source" tensors those of
the imported folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from ...blocks.registry import registry
from ...specs.expressions import ExpressionError
from ...specs.findings import Finding, SpecError, did_you_mean, pointer
from ...specs.upgrade import moved_path
from .config import Configuration
from .table import Table, Weight, filled, matcher
from .tensors import Tensors

MOST_NAMED = 12
"""Maximum number of names in a finding."""


def assigned(
    table: Table, source: str, paths: Iterable[str]
) -> tuple[dict[str, tuple[str, Weight]], list[str]]:
    """Match each target path with a pattern of the table.

    Args:
        table: patterns and their weights.
        source: file of the table, for findings.
        paths: paths of the target weights.

    Returns:
        The pattern and the weight, with placeholders replaced, of each path; and the paths
        that match no pattern.

    Raises:
        SpecError: a path matches two patterns.
    """
    paths = tuple(paths)
    moved = {k: v for block in registry().later_majors() for k, v in block.moved_weights.items()}

    def current(pattern: str) -> str:
        """Return the pattern with the name that a weight of an older block has now."""
        now = moved_path(pattern, moved)
        return pattern if now == pattern or any(map(matcher(pattern).fullmatch, paths)) else now

    patterns = [(path, matcher(current(path)), weight) for path, weight in table.weights.items()]
    found: dict[str, tuple[str, Weight]] = {}
    without: list[str] = []
    twice: list[Finding] = []
    for path in paths:
        fits = [
            (pattern, fit.groupdict(), weight)
            for pattern, rule, weight in patterns
            if (fit := rule.fullmatch(path))
        ]
        if not fits:
            without.append(path)
            continue
        pattern, holes, weight = fits[0]
        names = tuple(filled(name, holes) for name in weight.names)
        found[path] = pattern, weight.model_copy(update={"names": names})
        if fits[1:]:
            problem = f"'{path}' matches both '{pattern}' and '{fits[1][0]}'"
            at, help_ = pointer("weights", fits[1][0]), "make one of the patterns more specific"
            twice.append(Finding(code="I01", at=at, problem=problem, help=help_, source=source))
    if twice:
        raise SpecError(twice)
    return found, without


def converted(
    table: Table,
    source: str,
    shapes: Mapping[str, tuple[int, ...]],
    theirs: Tensors,
    config: Configuration,
) -> dict[str, Tensor]:
    """Return every target weight, in float32.

    Args:
        table: origin of each weight.
        source: file of the table, for findings.
        shapes: shape of each target weight by path, each weight once.
        theirs: source tensors.
        config: configuration read by the table's expressions.

    Raises:
        SpecError: target weights without a source, unused source tensors, tensors that
            should be equal but differ, or shapes that do not match.
    """
    plan, without = assigned(table, source, shapes)
    _check_names(table, source, plan, without, theirs)
    weights: dict[str, Tensor] = {}
    found: list[Finding] = []
    for path, (pattern, weight) in plan.items():
        at = pointer("weights", pattern)

        def report(problem: str, *evidence: str, at: str = at) -> None:
            finding = Finding(code="I05", at=at, problem=problem, evidence=evidence, source=source)
            found.append(finding)

        names = [name for name in weight.names if name in theirs]
        if not names:
            weights[path] = torch.full(shapes[path], weight.fill or 0.0)
            continue
        tensor = theirs[names[0]]
        for other in names[1:]:
            if not torch.equal(tensor, theirs[other]):
                problem = f"'{names[0]}' and '{other}' should be equal, but differ"
                report(problem, f"wanted for {path}")
        try:
            result = changed(tensor, weight, config)
        except (ExpressionError, TypeError, ValueError, RuntimeError) as error:
            problem = f"'{names[0]}' cannot be converted to '{path}': {error}"
            report(problem, f"given  {list(tensor.shape)}")
            continue
        if tuple(result.shape) != shapes[path]:
            evidence = f"given  {list(result.shape)}  of '{names[0]}', {list(tensor.shape)}"
            report(f"'{path}' has the wrong shape", evidence, f"wanted {list(shapes[path])}")
        weights[path] = result.contiguous()
    if found:
        raise SpecError(found)
    return weights


def _check_names(
    table: Table,
    source: str,
    plan: Mapping[str, tuple[str, Weight]],
    without: Sequence[str],
    theirs: Tensors,
) -> None:
    """Raise one finding for all target weights without a source and all unused source tensors."""
    missing = {
        path: weight.names
        for path, (_, weight) in plan.items()
        if weight.fill is None and not any(name in theirs for name in weight.names)
    }
    used = {name for _, weight in plan.values() for name in weight.names}
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


def changed(tensor: Tensor, weight: Weight, config: Configuration) -> Tensor:
    """Apply the operations of a table's weight to a source tensor.

    Args:
        tensor: source tensor.
        weight: operations, applied in the order of its keys.
        config: configuration read by the expressions.

    Raises:
        ExpressionError: an expression cannot be evaluated.
        TypeError: a value has the wrong type.
        ValueError: an operation does not fit the shape of the tensor.
    """
    number = config.value_of
    if weight.permute is not None:
        if sorted(weight.permute) != list(range(tensor.dim())):
            msg = f"{list(weight.permute)} is not a permutation of its {tensor.dim()} axes"
            raise ValueError(msg)
        tensor = tensor.permute(weight.permute)
    if weight.rows is not None:
        first, last = number(weight.rows[0]), number(weight.rows[1])
        last = tensor.size(0) if last is None else last
        if not 0 <= first < last <= tensor.size(0):
            msg = f"rows {first} to {last} are out of range for its {tensor.size(0)} rows"
            raise ValueError(msg)
        tensor = tensor[first:last]
    if weight.rotary_pairs is not None:
        tensor = neighbours(tensor, number(weight.rotary_pairs))
    if weight.reshape is not None:
        tensor = tensor.reshape([number(size) for size in weight.reshape])
    if weight.times is not None:
        tensor = tensor * number(weight.times)
    if weight.add is not None:
        tensor = tensor + number(weight.add)
    return tensor


def neighbours(tensor: Tensor, heads: int) -> Tensor:
    """Reorder rows so that each rotary pair becomes adjacent.

    Args:
        tensor: [heads * K, ...], where rows i and i + K/2 of a head are one pair.
        heads: number of heads.

    Raises:
        ValueError: the rows cannot be divided into heads of an even width.
    """
    if tensor.size(0) % (2 * heads):
        msg = f"its {tensor.size(0)} rows cannot be divided into {heads} heads of an even width"
        raise ValueError(msg)
    pairs: Tensor = tensor.unflatten(0, (heads, 2, -1))
    return pairs.transpose(1, 2).flatten(0, 2)
