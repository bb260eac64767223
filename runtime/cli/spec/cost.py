"""The command `weft cost`: parameters, FLOPs and memory of a spec by node."""

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
    """Print the costs of a spec by node, or the projected cost of a run; optionally plot them.

    Raises:
        InputError: no spec is given, or an option is given that `--project` does not use.
    """
    if options.spec is None:
        raise InputError(
            "no spec is named", help="name a spec, such as 'weft cost transformer-base'"
        )
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
        report = {**costs.as_json(), "precision": options.precision}
        report |= {"cache_bytes": sum(cache.values()), "cache": cache}
        if options.measure:
            report["measured"] = measure(graph, sizes, options.precision).as_json()
        print(json.dumps(report, indent=2, ensure_ascii=False))
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
        cache: path of a node to the bytes of its decoding state.
        precision: dtype that the bytes are counted for.
        step_axis: axis along which the model decodes.
    """
    head = ("node", "block", "parameters", "FLOPs", "activations", "decoding", "sequential", "path")
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
        (path, "constant in decoding", "", "", "", f"{count:,}", "", "")
        for path, count in cache.items()
        if path not in known and count
    ]
    paths = ", ".join(f"{axis} {length:,}" for axis, length in table.path_length.items())
    totals = (table.parameters, table.flops, table.activation_bytes, sum(cache.values()))
    rows.append(("total", "", *(f"{count:,}" for count in totals), f"{table.sequential:,}", paths))
    sizes = " ".join(f"{axis}={size}" for axis, size in table.sizes.items())
    state = (
        f"decoding     bytes of the decoding state after {table.sizes[step_axis]} steps along "
        f"{step_axis}, one hypothesis per sentence"
        if step_axis
        else "decoding     none: the spec names no axis in 'step'"
    )
    foot = [
        f"sizes        {sizes}, {precision}",
        "FLOPs        of matrix products in one forward pass; a multiply-add counts as 2",
        "activations  bytes of the outputs of all blocks, those in slots included",
        state,
        "sequential   operations that must run one after another; total: longest chain",
        "path         longest path between two positions, in operations; total: by axis",
    ]
    *lines, total = columns(rows, 2)
    return "\n".join([*lines, lines[1], total, "", *foot])


def render_measured(table: CostTable, profile: Profile) -> str:
    """Return measured time and memory by node next to the formulas' values, as text.

    Args:
        table: costs by the formulas.
        profile: measurement at the same sizes.
    """
    rows: list[tuple[str, ...]] = [
        ("node", "FLOPs", "forward ms", "backward ms", "GFLOP/s", "activations", "memory kept")
    ]
    found = by_row(profile, [node.path for node in table.nodes])
    formulas = {node.path: node for node in table.nodes}
    for path in [*formulas, *(path for path in found if path not in formulas)]:
        spent, node = found.get(path, Spent()), formulas.get(path)
        # Backward computes each product twice: the weights' gradient and the inputs'.
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
        f"measured     {profile.device}, mean of {profile.updates} runs, {clock:,.1f} ms wall time",
        "GFLOP/s      3 times the FLOPs (forward once, backward twice) per total time",
        "activations  block outputs, by formula; memory kept: bytes measured after a forward pass",
    ]
    return "\n".join([*columns(rows, 1), "", *foot])
