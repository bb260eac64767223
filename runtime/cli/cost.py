"""The command `weft cost`: parameters, FLOPs and memory of a spec, or the duration of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from pydantic import Field

from ...graphs.cost.decode_state import blocks_without_formula, state_by_node
from ...graphs.cost.flops import default_sizes
from ...graphs.cost.table import CostTable, cost_table
from ...graphs.ir.graph import Graph
from ...specs.load import load
from ..spec.check import graph_of
from .common.command import SPECS, command, wrong
from .common.parameters import (
    Json,
    Overrides,
    axes_option,
    complete_runs,
    complete_specs,
    option,
    out_option,
    overridden,
    sizes_given,
)
from .common.terminal import columns

if TYPE_CHECKING:
    from ..analysis.profile_summary import Profile

BYTES = {"float32": 4, "bfloat16": 2}
HOUR = 3600.0
_PROJECT = "Duration of a run"


@command(
    SPECS,
    "weft cost transformer-base --axes S=40,T=40",
    "weft cost wmt14-en-de-base --project --devices 8 --peak 700",
)
def cost(
    spec: Annotated[
        str,
        typer.Argument(
            metavar="SPEC",
            help="A spec file or the name of a shipped spec; with --project, a run.",
            autocompletion=lambda incomplete: [
                *complete_specs(incomplete),
                *complete_runs(incomplete),
            ],
            show_default=False,
        ),
    ],
    *,
    overrides: Overrides = None,
    axes: Annotated[list[str] | None, axes_option("one sequence of 32 tokens")] = None,
    precision: Annotated[
        Literal["float32", "bfloat16"],
        typer.Option("--precision", help="Precision of activations and of the decoding state."),
    ] = "float32",
    measured: Annotated[
        bool,
        typer.Option(
            "--measure",
            help="Also run the model forward and backward here, and print measured time and memory "
            "by node.",
        ),
    ] = False,
    out: Annotated[str | None, out_option("Also plot the costs into this .png file.")] = None,
    json_: Json = False,
    project: Annotated[
        bool,
        typer.Option(
            "--project",
            help="Instead, estimate how long a run takes at several MFU values.",
            rich_help_panel=_PROJECT,
        ),
    ] = False,
    speed: Annotated[
        list[float] | None,
        Field(gt=0),
        option(
            "--speed",
            "Also at this speed, in source and target tokens per second. Repeat the option "
            "for several.",
            metavar="TOKENS_PER_SECOND",
            panel=_PROJECT,
        ),
    ] = None,
    devices: Annotated[
        int | None,
        Field(ge=1),
        option("--devices", "Number of devices. [default: 1]", panel=_PROJECT),
    ] = None,
    peak: Annotated[
        float | None,
        Field(gt=0),
        option("--peak", "Peak TFLOP/s of one device. [default: measured here]", panel=_PROJECT),
    ] = None,
) -> None:
    """Print the cost of each node: parameters, FLOPs, memory and sequential operations."""
    if not project:
        for flag, value in (("--speed", speed), ("--devices", devices), ("--peak", peak)):
            if value:
                raise wrong(flag, "it has an effect only with --project")
        _of_a_spec(spec, overridden(overrides), axes or [], precision, measured, out, json_)
        return
    for flag, is_set in (
        ("--measure", measured),
        ("--out", out),
        ("--precision", precision != "float32"),
    ):
        if is_set:
            raise wrong(flag, "it has no effect with --project")
    _of_a_run(spec, overridden(overrides), axes or [], speed or [], devices or 1, peak, json_)


def _of_a_spec(
    spec: str,
    overrides: Mapping[str, Any],
    axes: Sequence[str],
    precision: str,
    measured: bool,  # noqa: FBT001 - as above
    out: str | None,
    json_: bool,  # noqa: FBT001 - as above
) -> None:
    """Print the costs of a spec by node, and plot them if a file is named."""
    if out:
        from ..analysis.cost_plot import check_png, plot_costs

        check_png(Path(out))
    graph = graph_of(load(spec, overrides))
    sizes = read_sizes(graph, axes)
    costs = cost_table(graph, sizes, BYTES[precision])
    cache = state_by_node(graph, sizes, BYTES[precision])
    if out:
        plot_costs(costs, cache, Path(out))
    if measured:
        from ..analysis.measure import measure

        profile = measure(graph, sizes, precision)
    if json_:
        report = {**costs.as_json(), "precision": precision}
        report |= {"cache_bytes": sum(cache.values()), "cache": cache}
        if measured:
            report["measured"] = profile.as_json()
        print(json.dumps(report, indent=2, ensure_ascii=False))
    else:
        unknown = blocks_without_formula(graph)
        print(render(costs, cache, precision, graph.step_axis, unknown))
        if measured:
            print(f"\n{render_measured(costs, profile)}")
        if out:
            print(f"plotted  {out}")


def read_sizes(graph: Graph, written: Sequence[str]) -> dict[str, int]:
    """Return the sizes of a graph's axes; written sizes override the defaults.

    Args:
        graph: a checked graph.
        written: `AXIS=SIZE` texts.

    Raises:
        InputError: the graph has no such axis.
    """
    return default_sizes(graph) | sizes_given(graph, written)


def render(
    table: CostTable,
    cache: Mapping[str, int],
    precision: str,
    step_axis: str | None,
    unknown: Sequence[str] = (),
) -> str:
    """Return costs as text in columns.

    Args:
        table: costs that need no module.
        cache: path of a node to the bytes of its decoding state.
        precision: dtype that the bytes are counted for.
        step_axis: axis along which the model decodes.
        unknown: blocks whose decoding state is not known.
    """
    head = ("node", "block", "parameters", "FLOPs", "activations", "decoding", "sequential", "path")
    rows: list[tuple[str, ...]] = [head]
    node_paths = {node.path for node in table.nodes}
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
        if path not in node_paths and count
    ]
    paths = ", ".join(f"{axis} {length:,}" for axis, length in table.path_length.items())
    totals = (table.parameters, table.flops, table.activation_bytes, sum(cache.values()))
    rows.append(("total", "", *(f"{count:,}" for count in totals), f"{table.sequential:,}", paths))
    sizes = " ".join(f"{axis}={size}" for axis, size in table.sizes.items())
    state = (
        f"decoding     bytes of the decoding state after {table.sizes[step_axis]} steps along "
        f"{step_axis}, one hypothesis per sentence"
        + (f"; without that of {', '.join(unknown)}" if unknown else "")
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
    from ..analysis.profile_summary import Spent, by_row

    rows: list[tuple[str, ...]] = [
        ("node", "FLOPs", "forward ms", "backward ms", "GFLOP/s", "activations", "memory kept")
    ]
    spent_by_path = by_row(profile, [node.path for node in table.nodes])
    formulas = {node.path: node for node in table.nodes}
    for path in [*formulas, *(path for path in spent_by_path if path not in formulas)]:
        spent, node = spent_by_path.get(path, Spent()), formulas.get(path)
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


def _of_a_run(
    run_name: str,
    overrides: Mapping[str, Any],
    axes: Sequence[str],
    speeds: Sequence[float],
    devices: int,
    peak: float | None,
    json_: bool,  # noqa: FBT001 - as above
) -> None:
    """Print how long a run takes at several speeds."""
    import torch

    from ..compile.roofline import peak_flops
    from ..train.costs import FILL, SHARES, project
    from ..train.device import prefers_bfloat16
    from ..train.objective import Objective
    from ..train.plan import load_run

    run, source = load_run(run_name, overrides)
    graph = Objective.of(run, source).graph
    lengths = read_sizes(graph, axes) if axes else None
    projection = project(run, graph, lengths)
    if peak is not None:
        best, where = peak * 1e12, f"given: {peak:,.0f} TFLOP/s"
    else:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        half = prefers_bfloat16(device)
        best = peak_flops(device, torch.bfloat16 if half else torch.float32)
        kind = "bfloat16" if half else "float32"
        where = f"measured here, {device.type}, {kind}: {best / 1e12:,.2f} TFLOP/s"
    rates = [(f"{speed:,.0f} tokens/s, given", speed) for speed in speeds]
    rates += [(f"MFU {share:.0%}", projection.speed(best, share, devices)) for share in SHARES]
    if json_:
        rows = [
            {"at": name, "tokens_per_second": speed, "hours": projection.seconds(speed) / HOUR}
            for name, speed in rates
        ]
        report = {**projection.as_json(), "peak_flops": best, "devices": devices, "rows": rows}
        print(json.dumps(report, indent=2))
        return
    print(
        f"{projection.name}: {projection.parameters:,} parameters, {projection.updates:,} updates"
        f" of {projection.tokens_per_update:,.0f} tokens"
    )
    print(
        f"work: {projection.flops_per_token:,.0f} FLOPs per token, forward and backward;"
        f" {projection.flops:.2e} in total\n"
    )
    table = [("speed", "tokens/s", "updates/s", "hours", "device hours")]
    for name, speed in rates:
        hours = projection.seconds(speed) / HOUR
        table.append(
            (
                name,
                f"{speed:,.0f}",
                f"{speed / projection.tokens_per_update:,.2f}",
                f"{hours:,.1f}",
                f"{hours * devices:,.1f}",
            )
        )
    print("\n".join(columns(table, 1)))
    print(f"\nhours    updates x tokens per update / tokens/s; devices: {devices}")
    print("tokens/s peak FLOP/s x MFU x devices / FLOPs per token")
    print(f"peak     {where}, per device")
    print(f"tokens   {FILL:.0%} of the batch size limit; validations are not counted")
