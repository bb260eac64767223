"""The command `weft diff`: print the differences between two specs; no torch.

The exit code is 0 whether or not the specs differ; scripts should read `equal` in the JSON
output.
"""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path

from rich.console import Console
from rich.text import Text

from ....graphs.diff.diff import diff as diff_graphs
from ....graphs.draw.diff import draw_diff
from ...spec.check import graph_of

COLORS = {"+": "green", "-": "red", "~": "yellow", ">": "cyan"}
"""First character of a line to its color on a terminal."""


def diff(options: Namespace) -> None:
    """Print the differences, and draw them if a file is named."""
    old, new = graph_of(options.spec), graph_of(options.other)
    found = diff_graphs(old, new)
    if options.out:
        draw_diff(old, new, found, Path(options.out))
    if options.json:
        print(json.dumps(found.as_json(), indent=2, ensure_ascii=False))
        return
    console = Console(highlight=False, soft_wrap=True)
    for line in found.render().splitlines():
        console.print(Text(line, style=COLORS.get(line[:1], "") if line[1:2] == " " else ""))
    if options.out:
        console.print(Text(f"drawn      {options.out}"))
