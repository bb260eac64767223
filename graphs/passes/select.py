"""Selection: resolve a selection in a run file to modules of a checked graph.

The notation is that of patches (`specs/patches/select.py`).
"""

from __future__ import annotations

from ..ir.graph import Graph
from ..ir.selection import chosen_in


def chosen(graph: Graph, text: str, *, place: str = "") -> tuple[str, ...]:
    """Return the paths of the modules that a selection names, outermost ones only.

    Args:
        graph: a checked graph.
        text: such as `encoder.*`, `decoder.0-2.feed_forward/f` or `**[use=attention@1]`.
        place: where the selection is written, for the message.

    Raises:
        InputError: it cannot be parsed or selects nothing; the help names the nearest path.
    """
    return chosen_in(graph.root, text, place=place)
