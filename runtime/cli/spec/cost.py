"""The command `weft cost`: what a spec costs by node."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path

from ....graphs.cost.table import CostTable, cost_table
from ....specs.findings import InputError
from ....specs.load import load, parse_overrides
from ...analysis.cost_plot import check_png, plot_costs
from ...analysis.measure import measure
from ...analysis.memory_cost import cache_by_node
from ...profiling.summary import Profile, Spent, by_row
from ...spec.check import graph_of
from ..columns import columns, read_sizes
from .project import projected

BYTES = {"float32": 4, "bfloat16": 2}


def cost(options: Namespace) -> None:
    """Print the costs of a spec by node, or what a run will cost; plot them when a file is named.

    Raises:
        InputError: no spec is given, or an option is given that `--project` does not use.
    """
    if options.spec is None:
        raise InputError("no spec is named", help="such as 'weft cost transformer-base'")
    if options.project is not None:
        if options.measure or options.out:
            raise InputError(
                "--project does not use --measure or --out", help="leave out --measure and --out"
            )
        projected(options)
        return
    if options.out:
        check_png(Path(options.out))
    _spec(options)


def _spec(options: Namespace) -> None:
    graph = graph_of(load(options.spec, parse_overrides(options.set)))
    sizes = read_sizes(graph, options.axes)
    costs = cost_table(graph, sizes, BYTES[options.precision])
    cache = cache_by_node(graph, sizes, options.precision)
    if options.out:
        plot_costs(costs, cache, Path(options.out))
    if options.json:
        said = {**costs.as_json(), "precision": options.precision}
        said |= {"cache_bytes": sum(cache.values()), "cache": cache}
        if options.measure:
            said["measured"] = measure(graph, sizes, options.precision).as_json()
        print(json.dumps(said, indent=2, ensure_ascii=False))
    else:
        print(render(costs, cache, options.precision, graph.step_axis))
        if options.measure:
            print(f"\n{render_measured(costs, measure(graph, sizes, options.precision))}")
        if options.out:
            print(f"plotted  {options.out}")


def render(
    table: CostTable, cache: Mapping[str, int], precision: str, step_axis: str | None
) -> str:
    """Return costs as text in columns.

    Args:
        table: costs that need no module.
        cache: path to the bytes that decoding keeps.
        precision: that of the bytes.
        step_axis: along which is decoded.
    """
    head = ("node", "block", "parameters", "FLOPs", "activations", "decoding", "in a row", "path")
    rows: list[tuple[str, ...]] = [head]
    known = {node.path for node in table.nodes}
    for node in table.nodes:
        times = f" × {node.runs}" if node.runs > 1 else ""
        rows.append(
            (
                node.path + times,
                node.use,
                *(
                    f"{count:,}" if count else ""
                    for count in (
                        node.parameters,
                        node.flops,
                        node.activation_bytes,
                        cache.get(node.path, 0),
                        node.sequential,
                        node.path_length,
                    )
                ),
            )
        )
    rows += [
        (path, "kept as it is", "", "", "", f"{count:,}", "", "")
        for path, count in cache.items()
        if path not in known and count
    ]
    paths = ", ".join(f"{axis} {length:,}" for axis, length in table.path_length.items())
    totals = (table.parameters, table.flops, table.activation_bytes, sum(cache.values()))
    rows.append(("total", "", *(f"{count:,}" for count in totals), f"{table.sequential:,}", paths))
    sizes = " ".join(f"{axis}={size}" for axis, size in table.sizes.items())
    keeps = (
        f"decoding     bytes that {table.sizes[step_axis]} steps along {step_axis} keep, one "
        "hypothesis a sentence"
        if step_axis
        else "decoding     none: the spec names no axis in 'step'"
    )
    foot = [
        f"sizes        {sizes}, {precision}",
        "FLOPs        of matrix products in one forward pass; to multiply and add is 2",
        "activations  bytes of what blocks and those in their slots give",
        keeps,
        "in a row     operations that wait for one another; below, in the longest chain",
        "path         operations between the two positions farthest apart; below, by axis",
    ]
    *lines, total = columns(rows, 2)
    return "\n".join([*lines, lines[1], total, "", *foot])


def render_measured(table: CostTable, profile: Profile) -> str:
    """Return what was measured by node beside what the formulas say, as text in columns.

    Args:
        table: what the formulas say.
        profile: what was measured at the same sizes.
    """
    rows: list[tuple[str, ...]] = [
        ("node", "FLOPs", "forward ms", "backward ms", "GFLOP/s", "activations", "memory kept")
    ]
    found = by_row(profile, [node.path for node in table.nodes])
    formulas = {node.path: node for node in table.nodes}
    for path in [*formulas, *(path for path in found if path not in formulas)]:
        spent, node = found.get(path, Spent()), formulas.get(path)
        # The backward pass does each product twice: for the weights and for the inputs.
        speed = 3 * node.flops / spent.total / 1e9 if node and spent.total else 0.0
        rows.append(
            (
                path,
                f"{node.flops:,}" if node and node.flops else "",
                f"{spent.forward * 1e3:.2f}",
                f"{spent.backward * 1e3:.2f}",
                f"{speed:,.1f}" if speed else "",
                f"{node.activation_bytes:,}" if node else "",
                f"{spent.memory:,}" if spent.memory else "",
            )
        )
    rows += [
        (name, "", f"{seconds * 1e3:.2f}", "", "", "", "")
        for name, seconds in profile.other.items()
    ]
    clock = profile.seconds * 1e3
    foot = [
        f"measured     {profile.device}, mean of {profile.updates}, {clock:,.1f} ms by the clock",
        "GFLOP/s      3 times the FLOPs (forward once, backward twice) in the time of both",
        "activations  by the formula: what blocks give; memory kept: what was measured to stay",
    ]
    return "\n".join([*columns(rows, 1), "", *foot])
