"""Constants of a generated module: what initialization and training read from its graph."""

from __future__ import annotations

from ...graphs.ir.graph import Graph
from ...graphs.ir.traverse import init_rules


def constants(graph: Graph) -> list[str]:
    """Return the lines of the constants, if any.

    Graphs with the same source have the same classes, and a class knows only one graph.
    """
    lines = []
    if graph.losses and graph.deploy:
        lines.append(f"_DEPLOY = {graph.deploy!r}")
        lines.append(f"_LOSSES = {dict(graph.losses)!r}")
    rules: list[str] = []
    for action, value, paths in init_table(graph):
        rules += [f"    ({action!r}, {value!r}, ["]
        rules += [*(f"        {path!r}," for path in paths), "    ]),"]
    lines += ["_INIT = [", *rules, "]"] if rules else []
    return ["\n".join(lines)] if lines else []


def init_table(graph: Graph) -> list[tuple[str, float, list[str]]]:
    """Return the action, value and parameter paths of each rule for initial weights, in order."""
    return [
        (rule.action, rule.value, [prefix + path for path in rule.paths])
        for prefix, rule in init_rules(graph.root)
    ]
