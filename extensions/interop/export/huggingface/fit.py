"""Fit: whether a table describes a graph, with which configuration, and what stands in the way."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from .....plugin import Graph, InputError, SpecError, graph_of
from .....runtime.spec.check import Source
from .....specs.load import load
from .....specs.reader import shipped_names
from ...importing.config import Configuration, settle
from ...importing.hf import graph_from, spec_of
from ...importing.inherit import FOLDER, LIBRARY
from ...importing.table import ImportTable, load_table
from .alignment import GraphAlignment, align
from .config import configuration_for
from .equations import params_for

_COPY = re.compile(r"\.\d+(?=[./'])")
"""The number of a copy in a path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A table and the configuration with which it comes nearest to a graph."""

    table: ImportTable
    source: str
    """File of the table."""
    spec: str
    """The spec that the table imports with that configuration."""
    params: Mapping[str, Any]
    """Params of the spec."""
    config: Mapping[str, Any]
    """Content of `config.json`."""
    graph: Graph
    """The graph that an import gives; of a table with obstacles, the nearest one."""
    alignment: GraphAlignment
    """What corresponds in `graph` and the graph that was fitted."""
    obstacles: tuple[str, ...]
    """What the table cannot express; empty if the model can be exported."""

    @property
    def name(self) -> str:
        """Name of the table as `--as` takes it."""
        return self.table.name.removeprefix(f"{LIBRARY}-")

    @property
    def notes(self) -> list[str]:
        """What an export changes."""
        lines = []
        if self.alignment.lacking:
            count, some = len(self.alignment.lacking), ", ".join(self.alignment.lacking[:2])
            lines.append(f"biases are added, and are zero: {some} ({count} in all)")
        if self.alignment.positions:
            mine, theirs = self.alignment.positions[0]
            lines.append(f"features are reordered: sinusoidal positions are {mine}, not {theirs}")
        if self.alignment.small:
            count = len(self.alignment.small)
            lines.append(f"outputs differ a little: {self.alignment.small[0]} ({count} places)")
        return lines

    def lines(self, most: int = 12) -> list[str]:
        """Return the table, the params, and what differs or changes, as lines of text.

        Args:
            most: maximum number of differences to list.
        """
        shown = ", ".join(
            f"{name} {value}" for name, value in self.params.items() if not isinstance(value, dict)
        )
        if not self.obstacles:
            head = f"{self.name}  fits: {self.spec} with {shown}"
            return [head, *(f"  note: {note}" for note in self.notes)]
        count = len(self.obstacles)
        head = f"{self.name}  {count} difference{'s' * (count != 1)} from {self.spec}"
        more = [f"  and {count - most} more"] if count > most else []
        return [head, *(f"  {obstacle}" for obstacle in self.obstacles[:most]), *more]

    def as_json(self) -> dict[str, Any]:
        """Return the fit as plain data."""
        return {
            "table": self.name,
            "spec": self.spec,
            "fits": not self.obstacles,
            "params": dict(self.params),
            "differences": list(self.obstacles),
            "notes": self.notes if not self.obstacles else [],
        }

    def covered(self, graph: Graph) -> int:
        """Return the number of parameters of a graph that have a counterpart of their shape."""
        mine, theirs = self.graph.root.weights(), graph.weights()
        pairs = self.alignment.weights.items()
        return sum(prod(theirs[b]) for a, b in pairs if b in theirs and mine[a] == theirs[b])

    def configuration(self) -> Configuration:
        """Return the configuration as an import reads it."""
        return Configuration(self.config, self.table.defaults, "config.json")


def fit(
    table: ImportTable,
    source: str,
    graph: Graph,
    tokens: Mapping[str, Any],
    original: Mapping[str, Any] | None = None,
) -> Fit:
    """Return the configuration with which a table comes nearest to a graph.

    Args:
        table: the table.
        source: its file.
        graph: the graph of a model.
        tokens: begin, end and padding ids of the model, as far as they are known.
        original: keys of the configuration that the model was imported with.

    Raises:
        InputError: the table names a spec that does not exist.
    """
    every = [
        _fit(table, source, spec, graph, tokens, original or {}) for spec in specs_of(table.spec)
    ]
    return min(every, key=lambda fitted: len(fitted.obstacles))


def _fit(
    table: ImportTable,
    source: str,
    spec: str,
    graph: Graph,
    tokens: Mapping[str, Any],
    original: Mapping[str, Any],
) -> Fit:
    file = spec_of(spec, source)
    source_graph = graph_of(load(file))
    params = params_for(source_graph, graph, align(source_graph, graph))
    config: dict[str, Any] = {}
    problems: tuple[str, ...] = ()
    try:
        source_graph = graph_of(load(file, params))
        config, missing = configuration_for(
            table, spec, source_graph, {**source_graph.params, **params}, tokens, original
        )
        problems = (
            *missing,
            *(
                f"'{key}' would be {value}, which is no token"
                for key, value in config.items()
                if key.endswith("_token_id") and isinstance(value, int) and value < 0
            ),
        )
        read = settle(table, source, Configuration(config, table.defaults, "config.json"))
        source_graph = graph_from(read, source)
        params = read["params"]
    except SpecError as error:
        unique = dict.fromkeys(finding.problem for finding in error.findings)
        problems = problems or tuple(unique)
    alignment = align(source_graph, graph)
    if len(set(alignment.positions)) > 1 or (
        alignment.positions and len(alignment.positions) != _tables(alignment)
    ):
        alignment.differences.append("its sinusoidal positions have several forms")
    return Fit(
        table=table,
        source=source,
        spec=spec,
        params=params,
        config=config,
        graph=source_graph,
        alignment=alignment,
        obstacles=(*problems, *folded(alignment.differences)),
    )


def folded(lines: Iterable[str]) -> tuple[str, ...]:
    """Return lines of which those about several copies of a repeat are one.

    >>> folded(["'encoder.0.f' has scale 1", "'encoder.1.f' has scale 1"])
    ("'encoder.*.f' has scale 1 (2 places)",)
    """
    count = Counter(_COPY.sub(".*", line) for line in lines)
    return tuple(f"{line} ({n} places)" if n > 1 else line for line, n in count.items())


def _tables(alignment: GraphAlignment) -> int:
    """Return the number of position tables that have a form."""
    return sum("form" in pair.reference.arguments for pair in alignment.pairs)


def specs_of(written: Any) -> Iterator[str]:
    """Yield the specs that a table may name."""
    if isinstance(written, Mapping):
        for case in written.get("cases", {}).values():
            yield from specs_of(case)
    elif isinstance(written, str):
        yield written


def fits(
    model: Source | Graph,
    tokens: Mapping[str, Any] | None = None,
    original: Mapping[str, Any] | None = None,
) -> list[Fit]:
    """Return the shipped tables with the configurations that come nearest to a model, best first.

    Tables without obstacles come first, then those that have a counterpart of the most parameters.

    Args:
        model: a loaded spec, a path, a shipped name, or a graph.
        tokens: begin, end and padding ids of the model, as far as they are known; without them,
            they are not considered.
        original: keys of the configuration that the model was imported with.

    Raises:
        InputError: the file does not exist.
        SpecError: the spec has mistakes; all of them are listed.
    """
    graph = graph_of(model)
    ids = dict.fromkeys(("begin", "end", "pad"), 0) if tokens is None else tokens
    candidates = [fit(*load_table(name), graph, ids, original) for name in shipped_names(FOLDER)]
    return sorted(
        candidates,
        key=lambda candidate: (
            bool(candidate.obstacles),
            -candidate.covered(graph),
            len(candidate.obstacles),
            candidate.name,
        ),
    )


class NoFitError(InputError):
    """No table describes the model."""


def chosen(
    graph: Graph,
    tokens: Mapping[str, Any],
    table: str | Path | None,
    original: Mapping[str, Any] | None = None,
) -> Fit:
    """Return the fit by which a model is exported.

    Args:
        graph: the graph of the model.
        tokens: its begin, end and padding ids, as far as they are known.
        table: name or path of the table; default: the first one without obstacles.
        original: keys of the configuration that the model was imported with.

    Raises:
        NoFitError: the table, or every table, lacks a counterpart of something.
    """
    if table is None:
        ranked = fits(graph, tokens, original)
    else:
        ranked = [fit(*load_table(table), graph, tokens, original)]
    best = ranked[0]
    if not best.obstacles:
        return best
    more = f"; and {len(best.obstacles) - 6} more" if best.obstacles[6:] else ""
    raise NoFitError(
        f"the model is not a {best.name} of Hugging Face's library: "
        f"{'; '.join(best.obstacles[:6])}{more}",
        location=graph.source,
        help="weft fits lists the nearest architectures and what differs",
    )
