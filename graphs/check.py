"""Check: a spec and a registry become a graph, or all that is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..specs.findings import Finding, SpecError, did_you_mean, pointer
from ..specs.form import Spec
from .decode import find_obstacles
from .graph import Graph
from .infer import infer_scope, type_of_text
from .params import Report, check_requirements, evaluate_params, make_report
from .ports import Checker
from .shapes import ValueType, free_names
from .signature import Registry


def check(
    spec: Spec, registry: Registry, overrides: Mapping[str, Any] | None = None, *, source: str = ""
) -> Graph:
    """Turn a spec into a graph.

    Args:
        spec: the spec as written.
        registry: the blocks that it may name.
        overrides: values of params that win over the spec's own.
        source: the file's name, for findings.

    Raises:
        SpecError: everything that is wrong, in one run.
    """
    graph, findings = analyse(spec, registry, overrides, source=source)
    if graph is None:
        raise SpecError(findings)
    return graph


def analyse(
    spec: Spec, registry: Registry, overrides: Mapping[str, Any] | None = None, *, source: str = ""
) -> tuple[Graph | None, list[Finding]]:
    """Return the graph of a spec, or None and every finding."""
    findings: list[Finding] = []
    report = make_report(findings, source)
    params, values = evaluate_params(spec, overrides or {}, report)
    check_requirements(spec, values, report)
    checker = Checker(registry, values, spec.axes, spec.blocks, report)
    inputs = _inputs(checker, spec)
    root = infer_scope(checker, spec.name, spec.nodes, spec.outputs, inputs, "", doc=spec.doc)
    for name in spec.blocks:
        if name not in checker.used_templates:
            report(
                code="W03",
                at=pointer("blocks", name),
                problem=f"nothing uses template '{name}'",
                help="use it in a node, or remove it",
            )
    for name in params:
        if name not in values.read:
            report(
                code="W08",
                at=pointer("params", name),
                problem=f"nothing reads param '{name}'",
                help=f"use it as '={name}', or remove it",
            )
    if spec.step is not None and spec.step.axis not in spec.axes:
        report(
            code="N05",
            at="/step/axis",
            problem=f"unknown axis '{spec.step.axis}'",
            help=did_you_mean(spec.step.axis, spec.axes),
        )
    if findings:
        return None, findings
    graph = Graph(
        name=spec.name,
        doc=spec.doc,
        spec=spec.model_copy(update={"params": {**spec.params, **(overrides or {})}}),
        source=source,
        params=params,
        root=root,
        ties=spec.tie,
        step_axis=spec.step.axis if spec.step else None,
        inputs=root.inputs,
        outputs={port: root.type_of(value) for port, value in root.outputs.items()},
    )
    _check_ties(graph, report)
    if graph.step_axis is not None:
        for obstacle in find_obstacles(graph):
            report(
                code="D01",
                at=obstacle.at,
                problem=f"the graph cannot be decoded along {graph.step_axis}: {obstacle.problem}",
                help=obstacle.help,
            )
    return (None, findings) if findings else (graph, findings)


def _inputs(checker: Checker, spec: Spec) -> dict[str, ValueType | None]:
    """Return the types of a spec's inputs; they may hold no free names."""
    types: dict[str, ValueType | None] = {}
    for name, text in spec.inputs.items():
        at = pointer("inputs", name)
        read = type_of_text(checker, text, at)
        types[name] = None if read is None else read[0]
        free = free_names(read[0]) if read else set()
        if free:
            word = min(free)
            checker.report(
                code="E02",
                at=at,
                problem=f"size '{word}' is not a param of the spec",
                help=did_you_mean(word, spec.params),
            )
            types[name] = None
    return types


def _check_ties(graph: Graph, report: Report) -> None:
    """Report tied paths that do not exist or have not one shape."""
    shapes = graph.root.weights() if graph.ties else {}
    for index, group in enumerate(graph.ties):
        at = pointer("tie", index)
        for place, path in enumerate(group):
            if path not in shapes:
                report(
                    code="N07",
                    at=at + pointer(place),
                    problem=f"unknown parameter '{path}'",
                    help=did_you_mean(path, shapes),
                )
        found = {path: shapes[path] for path in group if path in shapes}
        if len(set(found.values())) > 1:
            report(
                code="T06",
                at=at,
                problem="tied parameters have different shapes",
                evidence=tuple(f"{path}  {list(shape)}" for path, shape in found.items()),
                help="make the sizes equal, or untie them",
            )
