"""Weights: each of ours from theirs, as a table says, and all of theirs accounted for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from ...specs.expressions import ExpressionError
from ...specs.findings import Finding, SpecError, did_you_mean, pointer
from .config import Configuration
from .table import Table, Weight, filled, matcher
from .tensors import Tensors

MOST_NAMED = 12
"""Names that a finding lists."""


def assigned(
    table: Table, source: str, paths: Iterable[str]
) -> tuple[dict[str, tuple[str, Weight]], list[str]]:
    """Return for each path of ours the pattern that fits it, and the weight with names filled in.

    Args:
        table: patterns and what they stand for.
        source: its file, for findings.
        paths: parameters of ours.

    Returns:
        Path to pattern and weight, and the paths that no pattern fits.

    Raises:
        SpecError: two patterns fit one path.
    """
    patterns = [(path, matcher(path), weight) for path, weight in table.weights.items()]
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
            problem = f"'{path}' fits '{pattern}' and '{fits[1][0]}'"
            at, help_ = pointer("weights", fits[1][0]), "let one of them fit fewer paths"
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
    """Return every weight of ours, in float32.

    Args:
        table: where each comes from.
        source: its file, for findings.
        shapes: our parameters by path, each once.
        theirs: their tensors.
        config: what the table's expressions read.

    Raises:
        SpecError: ours that nothing fills, theirs that nothing uses, tensors that
            should be equal and are not, and shapes that do not fit.
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
                problem = f"'{names[0]}' and '{other}' are one tensor here, and differ there"
                report(problem, f"wanted for {path}")
        try:
            made = changed(tensor, weight, config)
        except (ExpressionError, TypeError, ValueError, RuntimeError) as error:
            report(f"'{names[0]}' cannot become '{path}': {error}", f"given  {list(tensor.shape)}")
            continue
        if tuple(made.shape) != shapes[path]:
            evidence = f"given  {list(made.shape)}  of '{names[0]}', {list(tensor.shape)}"
            report(f"'{path}' has another shape", evidence, f"wanted {list(shapes[path])}")
        weights[path] = made.contiguous()
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
    """Refuse weights of ours that stay empty together with tensors of theirs that are left."""
    missing = {
        path: weight.names
        for path, (_, weight) in plan.items()
        if weight.fill is None and not any(name in theirs for name in weight.names)
    }
    used = {name for _, weight in plan.values() for name in weight.names}
    rules = [matcher(pattern) for pattern in table.ignore]
    left = [n for n in theirs if n not in used and not any(rule.fullmatch(n) for rule in rules)]
    if not (without or missing or left):
        return
    empty = [f"{path}  no line of the table fits it" for path in without]
    empty += [f"{path}  from {' or '.join(names)}" for path, names in missing.items()]
    evidence = (
        *_some(empty, "empty  "),
        *_some([f"{name}  {list(theirs.shape(name))}" for name in left], "unused "),
    )
    near = next((did_you_mean(names[0], left) for names in missing.values()), "") if left else ""
    problem = f"{len(empty)} weights of ours stay empty, and {len(left)} of theirs are unused"
    raise SpecError(
        [
            Finding(
                code="I04",
                at="/weights",
                problem=f"{problem}: the table is not for this model",
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
    """Return a tensor after what a table does to it.

    Args:
        tensor: theirs.
        weight: what is done, in the order of its keys.
        config: what its expressions read.

    Raises:
        ExpressionError: an expression has no value.
        TypeError: a value is not of the wanted kind.
        ValueError: it cannot be done to a tensor of this shape.
    """
    number = config.value_of
    if weight.permute is not None:
        if sorted(weight.permute) != list(range(tensor.dim())):
            msg = f"{list(weight.permute)} is no order of its {tensor.dim()} axes"
            raise ValueError(msg)
        tensor = tensor.permute(weight.permute)
    if weight.rows is not None:
        first, last = number(weight.rows[0]), number(weight.rows[1])
        last = tensor.size(0) if last is None else last
        if not 0 <= first < last <= tensor.size(0):
            msg = f"rows {first} to {last} do not lie in its {tensor.size(0)}"
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
    """Return rows in the order in which rotary positions turn neighbours.

    Args:
        tensor: [heads * K, ...], where rows i and i + K/2 of a head are one pair.
        heads: how many heads the rows are of.

    Raises:
        ValueError: the rows do not divide into heads of an even width.
    """
    if tensor.size(0) % (2 * heads):
        msg = f"its {tensor.size(0)} rows do not divide among {heads} heads of an even width"
        raise ValueError(msg)
    halves: Tensor = tensor.unflatten(0, (heads, 2, -1))
    return halves.transpose(1, 2).flatten(0, 2)
