"""Orders of names that read each other, and the cycles in the way of an order.

networkx is imported only for cycles and unused templates, which a valid spec does not have: its
import takes longer than checking a spec.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import networkx as nx

Value = TypeVar("Value")
Reads = Mapping[str, Collection[str]]
"""Each name and the names that it reads."""


def ordered(reads: Reads) -> list[str]:
    """Return the names, each after those that it reads, otherwise in alphabetical order.

    Raises:
        CycleError: names read each other in a cycle.
    """
    sorter = TopologicalSorter(reads)
    sorter.prepare()
    ready, order = list(sorter.get_ready()), list[str]()
    heapify(ready)
    while ready:
        order.append(heappop(ready))
        sorter.done(order[-1])
        for name in sorter.get_ready():
            heappush(ready, name)
    return order


def leading(values: Mapping[str, Value], names: Iterable[str]) -> dict[str, Value]:
    """Return a mapping with the keys among some names first, in the order of these names."""
    return {key: values[key] for key in dict.fromkeys([*names, *values]) if key in values}


def cycles(reads: Reads) -> list[set[str]]:
    """Return each largest set of names that all read each other, directly or not."""
    try:
        TopologicalSorter(reads).prepare()
    except CycleError:
        import networkx as nx  # noqa: PLC0415 - see above

        parts: Iterable[set[str]] = nx.strongly_connected_components(digraph(reads))
        return [part for part in parts if len(part) > 1 or part & set(reads[min(part)])]
    return []


def circle_in(cycle: set[str], reads: Reads) -> list[tuple[str, str]]:
    """Return a circle inside one of the `cycles`: pairs of a name and a name that reads it."""
    import networkx as nx  # noqa: PLC0415 - see above

    found: list[tuple[str, str]] = nx.find_cycle(digraph(reads).subgraph(cycle), min(cycle))
    return found


def unread(reads: Reads) -> list[set[str]]:
    """Return each name, and each of the `cycles`, that no other name reads."""
    if not reads:
        return []
    import networkx as nx  # noqa: PLC0415 - see above

    parts = nx.condensation(digraph(reads))
    return [parts.nodes[part]["members"] for part in parts if not parts.out_degree(part)]


def reached(start: str, reads: Reads) -> set[str]:
    """Return a name and all names that it reads, directly or not."""
    found, waiting = {start}, [start]
    while waiting:
        new = set(reads[waiting.pop()]) - found
        found |= new
        waiting += new
    return found


def digraph(reads: Reads) -> nx.DiGraph:
    """Return the graph with an edge from each name to every name that reads it."""
    import networkx as nx  # noqa: PLC0415 - see above

    graph = nx.DiGraph()
    graph.add_nodes_from(reads)
    graph.add_edges_from((other, name) for name, others in reads.items() for other in others)
    return graph
