"""Cost command: what a spec costs by node, and table 1 of the Transformer's paper."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path

from ...graphs.cost_table import CostTable, cost_table
from ...specs.findings import InputError
from ...specs.load import load, parse_overrides
from ..checked import graph_of
from ..cost import cache_by_node
from ..cost_plot import check_png, plot_costs, plot_table1
from ..measure import measure
from ..profiling.summary import Profile, Spent, by_row
from ..table1 import Sizes, table
from .columns import columns, read_sizes
from .project_command import projected

BYTES = {"float32": 4, "bfloat16": 2}
SHORTEST = 16
"""Positions for which paths are measured first; then twice as many, and so on."""


def cost(options: Namespace) -> None:
    """Print the costs of a spec, or table 1; draw them when a file is named.

    Raises:
        InputError: neither a spec nor --table1 is given, or both are; or what is for specs
            alone is given for table 1.
    """
    if (options.spec is None) == (not options.table1):
        raise InputError(
            "name either a spec or --table1",
            help="such as 'weft cost transformer-base', or 'weft cost --table1'",
        )
    if options.table1 and (options.set or options.axes):
        raise InputError(
            "--table1 has sizes of its own", help="leave out --set and --axes, or name a spec"
        )
    if options.project is not None:
        if options.table1 or options.measure or options.out:
            raise InputError(
                "--project tells of a run and of nothing else",
                help="leave out --table1, --measure and --out",
            )
        projected(options)
        return
    if options.table1 and options.measure:
        raise InputError("--table1 measures nothing", help="leave out --measure, or name a spec")
    if options.out:
        check_png(Path(options.out))
    if options.table1:
        _table1(options)
    else:
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


def _table1(options: Namespace) -> None:
    sizes = Sizes(n=1)
    lengths = [2**power for power in range(30) if SHORTEST <= 2**power <= options.longest]
    if not lengths:
        raise InputError(
            f"no path is measured up to {options.longest} positions",
            help=f"give --longest {SHORTEST} or more; 4,096 is usual",
        )
    rows = table(lengths, sizes)
    if options.out:
        plot_table1(rows, sizes, Path(options.out))
    if options.json:
        print(
            json.dumps({"k": sizes.k, "r": sizes.r, "rows": [r.as_json() for r in rows]}, indent=2)
        )
        return
    found = [("layer", "operations", "printed", "in a row", "printed", "path", "printed")]
    for row in rows:
        last = lengths[-1]
        found.append(
            (
                row.name,
                row.operations_text(),
                f"O({row.paper[0]})",
                f"{row.sequential[last]:,}",
                f"O({row.paper[1]})",
                f"{row.path[last]:,}",
                f"O({row.paper[2]})",
            )
        )
    print("\n".join(columns(found, 3)))
    print(f"\nmeasured path length, k = {sizes.k}, r = {sizes.r}\n")
    grown = [("n", *(f"{n:,}" for n in lengths))]
    grown += [(row.name, *(f"{count:,}" for count in row.path.values())) for row in rows]
    print("\n".join(columns(grown, 1)))
    print(f"\nin a row and path: for n = {lengths[-1]:,}, and as the paper prints them")
    if options.out:
        print(f"plotted: {options.out}")
