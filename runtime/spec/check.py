"""Checking: load a spec and build its graph; no torch."""

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
        spec: a loaded spec, a path, or a shipped name.

    Raises:
        InputError: the file does not exist.
        SpecError: the spec has mistakes; all of them are listed.
    """
    graph, findings = analysed(spec)
    if graph is None:
        raise SpecError(findings)
    return graph


def analysed(spec: LoadedSpec | str | Path) -> tuple[Graph | None, list[Finding]]:
    """Return the graph of a spec, or None, and all findings with their files.

    Args:
        spec: a loaded spec, a path, or a shipped name.

    Raises:
        InputError: the file does not exist.
        SpecError: the file is not valid JSON or does not have the form of a spec.
    """
    loaded = spec if isinstance(spec, LoadedSpec) else load(spec)
    graph, findings = analyse(loaded.form, registry(), loaded.overrides, source=loaded.source)
    return graph, loaded.place_all(findings)
