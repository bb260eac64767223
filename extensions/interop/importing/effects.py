"""Lines and patterns of an import table that have no effect on a folder."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from ....plugin import Finding, Graph, did_you_mean, pointer
from ....specs.reader import read_file, shipped_names
from .config import Configuration
from .inherit import FOLDER
from .names import matcher
from .plan import assigned
from .table import Table


def without_effect(
    table: Table,
    source: str,
    graph: Graph,
    tensors: Collection[str],
    config: Configuration,
) -> Iterator[Finding]:
    """Yield a warning for each part of a table that changes nothing.

    These are lines that fit no weight, patterns that ignore no tensor, and params that are null
    and that the spec lacks.

    Only what the file itself has is examined, since a table inherits lines for other specs.
    Shipped tables are for files of several versions of the library, and are not examined.

    Args:
        table: the table.
        source: its file.
        graph: graph of the spec with the params of the table.
        tensors: names of the source tensors.
        config: configuration read by the table's expressions.
    """
    if Path(source).resolve() in {path.resolve() for path in shipped_names(FOLDER).values()}:
        return
    paths = {*graph.weights(), *(path for group in graph.ties for path in group)}
    written, _ = read_file(Path(source))
    plan, _ = assigned(table, source, paths)
    used = {origin.pattern for origin in plan.values()}
    for line, weight in (written.get("weights") or {}).items():
        if weight is not None and line not in used:
            yield Finding(
                code="I06",
                at=pointer("weights", line),
                level="warning",
                problem=f"no weight of the spec fits '{line}'",
                help=_near(line, paths) or "remove the line, if no other configuration needs it",
                source=source,
            )
    params = (written.get("params") or {}) if "extends" not in written else {}
    for name, value in params.items():
        if value is None and name not in graph.spec.params:
            yield Finding(
                code="I06",
                at=pointer("params", name),
                level="warning",
                problem=f"the spec has no param '{name}'",
                help=_near(name, graph.spec.params) or "remove it",
                source=source,
            )
    read = {name for at in plan.values() for names in at.names(config) for name in names}
    ignored = set(tensors) - read
    for index, pattern in enumerate(written.get("ignore") or ()):
        fits = {name for name in ignored if matcher(pattern).fullmatch(name)}
        ignored -= fits
        if fits:
            continue
        help_ = _near(pattern, tensors) or "remove it, if no other folder needs it"
        if table.prefix and pattern.startswith(table.prefix):
            help_ = f"names have no prefix: write '{pattern.removeprefix(table.prefix)}'"
        yield Finding(
            code="I06",
            at=pointer("ignore", index),
            level="warning",
            problem=f"'{pattern}' ignores no tensor that is not read or ignored already",
            help=help_,
            source=source,
        )


def _near(name: str, names: Collection[str]) -> str:
    """Return a help that names the most similar name; empty if none is similar."""
    help_ = did_you_mean(name, names)
    return help_ if help_.startswith("did you mean") and f"'{name}'" not in help_ else ""
