"""Checked: from anything that names a spec to its graph; no torch."""

from __future__ import annotations

from pathlib import Path

from ...blocks.registry import registry
from ...graphs.checker.check import analyse
from ...graphs.ir.graph import Graph
from ...specs.findings import Finding, SpecError
from ...specs.load import LoadedSpec, load


def graph_of(spec: LoadedSpec | str | Path) -> Graph:
    """Return the graph of a spec.

    Args:
        spec: what `load` gave, a path, or a shipped name.

    Raises:
        InputError: no such file.
        SpecError: everything that is wrong with it.
    """
    graph, findings = analysed(spec)
    if graph is None:
        raise SpecError(findings)
    return graph


def analysed(spec: LoadedSpec | str | Path) -> tuple[Graph | None, list[Finding]]:
    """Return the graph of a spec, or None and every finding, each in its own file.

    Args:
        spec: what `load` gave, a path, or a shipped name.

    Raises:
        InputError: no such file.
        SpecError: the text or its form is wrong.
    """
    held = spec if isinstance(spec, LoadedSpec) else load(spec)
    graph, findings = analyse(held.form, registry(), held.overrides, source=held.source)
    return graph, held.place_all(findings)
