"""Text tables with aligned columns, and axis sizes given on the command line."""

from __future__ import annotations

from collections.abc import Sequence

from ...graphs.cost.flops import default_sizes
from ...graphs.ir.graph import Graph
from ...specs.findings import InputError, did_you_mean

LARGEST = 10**9
"""Largest allowed size of an axis."""


def read_sizes(graph: Graph, written: Sequence[str]) -> dict[str, int]:
    """Return the sizes of a graph's axes; written sizes override the defaults.

    Args:
        graph: a checked graph.
        written: `AXIS=SIZE` texts, separated by commas, such as `["S=40,T=40"]`.

    Raises:
        InputError: a text is not `AXIS=SIZE`, the graph has no such axis, or the size is invalid.
    """
    sizes = default_sizes(graph)
    for text in (one.strip() for many in written for one in many.split(",")):
        axis, equals, size = text.partition("=")
        if not equals:
            raise InputError(f"'{text}' is not a size of an axis", help="write it as S=40")
        if axis not in sizes:
            help_ = did_you_mean(axis, sizes) or f"the axes of {graph.name}: {', '.join(sizes)}"
            raise InputError(f"{graph.name} has no axis '{axis}'", help=help_)
        if not (size.isascii() and size.isdigit()) or not 1 <= int(size[:12]) <= LARGEST:
            problem = f"'{size}' is not a valid size for axis '{axis}'"
            raise InputError(problem, help=f"give a whole number from 1 to {LARGEST:,}")
        sizes[axis] = int(size)
    return sizes


def columns(rows: Sequence[Sequence[str]], words: int) -> list[str]:
    """Return aligned lines with a rule below the header; columns from `words` on align right."""
    width = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width[at]) if at < words else cell.rjust(width[at])
            for at, cell in enumerate(row)
        ).rstrip()
        for row in rows
    ]
    return [lines[0], "-" * max(map(len, lines)), *lines[1:]]
