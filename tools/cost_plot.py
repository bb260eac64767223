"""Cost plots: the costs of a spec's nodes, and table 1, as pictures."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from ..graphs.cost_table import CostTable
from ..specs.files import write_beside
from ..specs.findings import InputError
from .table1 import TERMS, Row, Sizes, term

COLORS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377")
"""Paul Tol's bright scheme, told apart by color-blind readers."""
MARKERS = "osD^vP"
MOST_BARS = 60
"""Nodes that a picture shows; the others are the cheapest."""
WIDTH = 512
"""Width d at which operations are drawn."""


def check_png(out: Path) -> None:
    """Refuse a name that is no PNG's.

    Raises:
        InputError: it ends in something else.
    """
    if out.suffix.lower() != ".png":
        problem = f"cannot plot into a file that ends in '{out.suffix}'"
        raise InputError(problem, place=str(out), help="end the name in .png")


def plot_costs(table: CostTable, cache: Mapping[str, int], out: Path) -> None:
    """Draw bars of what every node costs.

    Args:
        table: costs of a graph.
        cache: path to the bytes that decoding keeps there.
        out: the PNG to write.

    Raises:
        InputError: it cannot be written.
    """
    check_png(out)
    nodes = sorted(table.nodes, key=lambda node: -node.flops - node.parameters)[:MOST_BARS]
    shown = [node for node in table.nodes if node in nodes][::-1]
    paths = [node.path for node in shown]
    panels = {
        "parameters": [node.parameters for node in shown],
        "FLOPs": [node.flops for node in shown],
        "activations (bytes)": [node.activation_bytes for node in shown],
    }
    if cache:
        panels["decoding keeps (bytes)"] = [cache.get(path, 0) for path in paths]
    figure = Figure(figsize=(3.2 * len(panels) + 2, 1.2 + 0.22 * len(paths)), layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for panel, (title, values), color in zip(axes, panels.items(), COLORS, strict=False):
        panel.barh(paths, values, color=color)
        panel.set_title(title, fontsize=10)
        panel.xaxis.set_major_formatter(EngFormatter(sep=""))
        _tidy(panel)
    sizes = " ".join(f"{axis}={size}" for axis, size in table.sizes.items())
    figure.suptitle(f"{table.name}, {sizes}")
    _save(figure, out)


def plot_table1(rows: Sequence[Row], sizes: Sizes, out: Path) -> None:
    """Draw operations, operations in a row and measured path length against n.

    Args:
        rows: of table 1.
        sizes: k and r at which it was made.
        out: the PNG to write.

    Raises:
        InputError: it cannot be written.
    """
    check_png(out)
    figure = Figure(figsize=(13.0, 4.6), layout="constrained")
    work, steps, paths = figure.subplots(1, 3)
    for at, (row, color, marker) in enumerate(zip(rows, COLORS, MARKERS, strict=True)):
        lengths = list(row.path)
        points = [Sizes(n=n, d=WIDTH, k=sizes.k, r=sizes.r) for n in lengths]
        ours = [
            sum(factor * term(TERMS[text], point) for text, factor in row.operations.items())
            for point in points
        ]
        # Hollow marks of several sizes: curves that lie on one another are all seen.
        mark = {"marker": marker, "markersize": 10 - 1.2 * at, "markerfacecolor": "none"}
        style: dict[str, Any] = {"color": color, "linewidth": 1.2, **mark}
        work.plot(lengths, ours, label=row.name, **style)
        steps.plot(lengths, list(row.sequential.values()), **style)
        paths.plot(lengths, list(row.path.values()), **style)
    work.set_title(f"operations of a layer, d = {WIDTH}")
    steps.set_title("operations in a row, of a layer")
    paths.set_title("path length from end to end, measured")
    for panel in (work, steps, paths):
        panel.set_xscale("log", base=2)
        panel.set_yscale("log", base=10)
        panel.set_xlabel("positions n")
        _tidy(panel)
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    figure.suptitle(f"Table 1 of Vaswani et al. 2017 from our blocks, k = {sizes.k}, r = {sizes.r}")
    _save(figure, out)


def _tidy(panel: Axes) -> None:
    panel.grid(visible=True, color="#dddddd", linewidth=0.6)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)


def _save(figure: Figure, out: Path) -> None:
    FigureCanvasAgg(figure)
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=110)
    write_beside(out, content.getvalue(), "plot")
