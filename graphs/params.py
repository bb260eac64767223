"""Params: the values that a spec's expressions stand for, overrides applied."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import networkx as nx

from ..specs.expressions import (
    ExpressionError,
    UnknownNameError,
    evaluate,
    is_expression,
    names_in,
)
from ..specs.findings import Finding, did_you_mean, pointer
from ..specs.form import Spec

Report = Callable[..., None]
"""Called with the fields of a Finding; the source is filled in by the checker."""


class Values:
    """The values of a spec's params, and which of them something reads."""

    def __init__(self, known: Mapping[str, Any], report: Report) -> None:
        """Start from resolved values; findings go to `report`."""
        self.known, self.read = dict(known), set[str]()
        self._report = report

    def resolve(self, value: Any, at: str) -> Any:
        """Return a JSON value with every expression inside it evaluated.

        A value that cannot be evaluated is reported and becomes `MISSING`.
        """
        if isinstance(value, dict):
            return {key: self.resolve(v, at + pointer(key)) for key, v in value.items()}
        if isinstance(value, list | tuple):
            return [self.resolve(v, at + pointer(i)) for i, v in enumerate(value)]
        if not is_expression(value):
            return value
        try:
            self.read.update(names_in(value[1:]))
            return evaluate(value[1:], self.known)
        except UnknownNameError as error:
            if error.name not in self.known:
                self._unknown(error.name, value, at)
        except ExpressionError as error:
            self._report(code="E01", at=at, problem=f"'{value}' has no value: {error}")
        return MISSING

    def _unknown(self, name: str, text: str, at: str) -> None:
        self._report(
            code="E02",
            at=at,
            problem=f"'{text}' reads '{name}', which is not a param of the spec",
            help=did_you_mean(name, self.known),
        )


class _Missing:
    """Stands for a value that could not be evaluated; its finding is already made."""

    def __repr__(self) -> str:
        return "?"


MISSING: Any = _Missing()


def holds_missing(value: Any) -> bool:
    """Say whether a value, or anything inside it, could not be evaluated."""
    if isinstance(value, dict):
        return any(map(holds_missing, value.values()))
    if isinstance(value, list | tuple):
        return any(map(holds_missing, value))
    return value is MISSING


def evaluate_params(
    spec: Spec, overrides: Mapping[str, Any], report: Report
) -> tuple[dict[str, Any], Values]:
    """Return the value of every param.

    Args:
        spec: the spec as written.
        overrides: values from outside, which win over the spec's own.
        report: takes findings: unknown overrides, cycles, expressions without value.

    Returns:
        The values, and the reader with which the rest of the spec is resolved.
    """
    for name in overrides:
        if name not in spec.params:
            report(
                code="P04",
                at=pointer("params", name),
                problem=f"override '{name}' is not a param of the spec",
                help=did_you_mean(name, spec.params),
            )
    written = {**spec.params, **{k: v for k, v in overrides.items() if k in spec.params}}
    order = _order(written, report)
    values = Values({}, report)
    for name in order:
        values.known[name] = values.resolve(written[name], pointer("params", name))
    for name in written:
        values.known.setdefault(name, MISSING)
    return values.known, values


def _order(written: Mapping[str, Any], report: Report) -> list[str]:
    """Return the params so that each comes after those it reads."""
    reads = nx.DiGraph()
    reads.add_nodes_from(written)
    for name, value in written.items():
        if is_expression(value):
            try:
                used = names_in(value[1:])
            except ExpressionError:
                continue
            reads.add_edges_from((other, name) for other in used if other in written)
    for knot in nx.strongly_connected_components(reads):
        first = min(knot)
        if len(knot) > 1 or reads.has_edge(first, first):
            report(
                code="E04",
                at=pointer("params", first),
                problem=f"params read each other in a circle: {', '.join(sorted(knot))}",
                help="give one of them a plain value",
            )
            reads.remove_nodes_from(knot)
    return list(nx.lexicographical_topological_sort(reads))


def check_requirements(spec: Spec, values: Values, report: Report) -> None:
    """Report every requirement of a spec that does not hold."""
    for index, text in enumerate(spec.require):
        at = pointer("require", index)
        holds = values.resolve(f"={text}", at)
        if holds is MISSING or holds is True:
            continue
        if holds is not False:
            report(
                code="E01",
                at=at,
                problem=f"'{text}' is {holds}, not a comparison",
                help="write what must hold, such as 'd_model % heads == 0'",
            )
            continue
        given = ", ".join(f"{name} = {values.known[name]}" for name in names_in(text))
        report(
            code="E05",
            at=at,
            problem=f"'{text}' does not hold",
            evidence=(f"given  {given}",),
            help="change one of these params",
        )


def make_report(findings: list[Finding], source: str) -> Report:
    """Return a reporter that adds findings of one file, each once."""

    def report(**fields: Any) -> None:
        finding = Finding(source=source, **fields)
        if finding not in findings:
            findings.append(finding)

    return report
