"""Print and plot table 1 of Vaswani et al. 2017, computed from Weft's blocks.

Run it with `python tools/print_table1.py -o docs/table1.png`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from table1 import TERMS, Row, Sizes, table, term
from weft.runtime.analysis.cost_plot import COLORS, check_png, save_png, tidy
from weft.runtime.cli.common.terminal import columns

MARKERS = "osD^vP"
WIDTH = 512
"""Width d for which operations are plotted."""
SHORTEST = 16
"""Smallest number of positions at which paths are measured; it doubles up to the longest."""


def plot_table1(rows: Sequence[Row], sizes: Sizes, out: Path) -> None:
    """Plot operations, sequential operations and measured path length against n.

    Args:
        rows: rows of table 1.
        sizes: k and r of the table.
        out: PNG file to write.

    Raises:
        InputError: the file cannot be written.
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
        # Hollow markers of several sizes keep overlapping curves visible.
        mark = {"marker": marker, "markersize": 10 - 1.2 * at, "markerfacecolor": "none"}
        style: dict[str, Any] = {"color": color, "linewidth": 1.2, **mark}
        work.plot(lengths, ours, label=row.name, **style)
        steps.plot(lengths, list(row.sequential.values()), **style)
        paths.plot(lengths, list(row.path.values()), **style)
    work.set_title(f"operations per layer, d = {WIDTH}")
    steps.set_title("sequential operations per layer")
    paths.set_title("measured path length from end to end")
    for panel in (work, steps, paths):
        panel.set_xscale("log", base=2)
        panel.set_yscale("log", base=10)
        panel.set_xlabel("positions n")
        tidy(panel)
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    figure.suptitle(
        f"Table 1 of Vaswani et al. 2017 from Weft's blocks, k = {sizes.k}, r = {sizes.r}"
    )
    save_png(figure, out)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the script's options."""
    predictor = argparse.ArgumentParser(
        description="Print and plot table 1 of Vaswani et al. 2017."
    )
    predictor.add_argument(
        "--longest",
        type=int,
        default=4096,
        help="largest number of positions at which paths are measured (default: %(default)s)",
    )
    predictor.add_argument("-o", "--out", type=Path, help="also plot the table into this .png file")
    predictor.add_argument("--json", action="store_true", help="print JSON")
    return predictor


def as_text(rows: Sequence[Row], lengths: Sequence[int], sizes: Sizes) -> str:
    """Return the table, and measured path lengths at every number of positions."""
    last = lengths[-1]
    table = [("layer", "operations", "printed", "sequential", "printed", "path", "printed")]
    for row in rows:
        sequential, path = f"{row.sequential[last]:,}", f"{row.path[last]:,}"
        printed = [f"O({text})" for text in row.paper]
        table.append(
            (row.name, row.operations_text(), printed[0], sequential, printed[1], path, printed[2])
        )
    grown = [("n", *(f"{n:,}" for n in lengths))]
    grown += [(row.name, *(f"{count:,}" for count in row.path.values())) for row in rows]
    return "\n".join(
        [
            *columns(table, 3),
            f"\nmeasured path length, k = {sizes.k}, r = {sizes.r}\n",
            *columns(grown, 1),
            f"\nsequential and path: at n = {last:,}, and as printed in the paper",
        ]
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table, as text or JSON, and plot it if a file is named."""
    options = parser().parse_args(arguments)
    sizes = Sizes(n=1)
    lengths = [2**power for power in range(30) if SHORTEST <= 2**power <= options.longest]
    if not lengths:
        parser().error(f"--longest {options.longest}: give {SHORTEST} or more, such as 4096")
    rows = table(lengths, sizes)
    if options.out:
        plot_table1(rows, sizes, options.out)
    if options.json:
        report = {"k": sizes.k, "r": sizes.r, "rows": [row.as_json() for row in rows]}
        print(json.dumps(report, indent=2))
        return
    print(as_text(rows, lengths, sizes))
    if options.out:
        print(f"plotted: {options.out}")


if __name__ == "__main__":
    main()
