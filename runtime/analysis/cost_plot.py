"""Bar chart of the costs of a spec's nodes."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from ...graphs.cost.table import CostTable
from ...specs.files import write_beside
from ...specs.findings import InputError

COLORS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377")
"""Paul Tol's bright scheme, distinguishable for color-blind readers."""
MOST_BARS = 60
"""Maximum number of bars; the cheapest nodes are omitted."""


def check_png(out: Path) -> None:
    """Raise unless a file name ends in .png.

    Raises:
        InputError: it has another suffix.
    """
    if out.suffix.lower() != ".png":
        problem = f"cannot plot into a file that ends in '{out.suffix}'"
        raise InputError(problem, location=str(out), help="use a name that ends in .png")


def plot_costs(table: CostTable, cache: Mapping[str, int], out: Path) -> None:
    """Plot the costs of every node as bars.

    Args:
        table: costs of a graph.
        cache: path to the bytes of decoding state there.
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
        panels["decoding state (bytes)"] = [cache.get(path, 0) for path in paths]
    figure = Figure(figsize=(3.2 * len(panels) + 2, 1.2 + 0.22 * len(paths)), layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for panel, (title, values), color in zip(axes, panels.items(), COLORS, strict=False):
        panel.barh(paths, values, color=color)
        panel.set_title(title, fontsize=10)
        panel.xaxis.set_major_formatter(EngFormatter(sep=""))
        tidy(panel)
    sizes = " ".join(f"{axis}={size}" for axis, size in table.sizes.items())
    figure.suptitle(f"{table.name}, {sizes}")
    save_png(figure, out)


def tidy(panel: Axes) -> None:
    """Draw a light grid behind the data and drop the top and right spines."""
    panel.grid(visible=True, color="#dddddd", linewidth=0.6)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)


def save_png(figure: Figure, out: Path) -> None:
    """Write a figure as PNG, atomically."""
    FigureCanvasAgg(figure)
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=110)
    write_beside(out, content.getvalue(), "plot")
