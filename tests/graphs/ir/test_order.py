"""Orders of names that read each other, compared with networkx."""

from __future__ import annotations

import random
import subprocess
import sys

import networkx as nx
import pytest
from weft.graphs.ir.graph import cycles, digraph, ordered, reached


def drawn(seed: int, *, acyclic: bool) -> dict[str, list[str]]:
    """Return eight names that read others at random."""
    generator = random.Random(seed)
    names = [chr(ord("a") + place) for place in range(8)]
    generator.shuffle(names)
    return {
        name: [one for one in names[: place if acyclic else None] if generator.random() < 0.2]
        for place, name in enumerate(names)
    }


def test_the_order_is_alphabetical_where_it_may_be() -> None:
    """It is the lexicographical topological order."""
    for seed in range(50):
        reads = drawn(seed, acyclic=True)
        assert ordered(reads) == list(nx.lexicographical_topological_sort(digraph(reads)))
        assert cycles(reads) == []


def test_cycles_are_the_components_that_reach_themselves() -> None:
    """A name that reads itself is a cycle, too."""
    for seed in range(50):
        reads = drawn(seed, acyclic=False)
        inside = {
            name: set().union(*(reached(one, reads) for one in reads[name])) for name in reads
        }
        on_cycles = {name for name in reads if name in inside[name]}
        found = cycles(reads)
        assert set().union(*found) == on_cycles
        for part in found:
            assert all(inside[name] & on_cycles >= part for name in part)
    assert cycles({"a": ["a"]}) == [{"a"}]


@pytest.mark.integration
def test_checking_a_spec_does_not_import_networkx() -> None:
    """Importing it takes longer than checking, and a valid spec has no cycles."""
    code = (
        "import sys, weft.blocks.registry as r, weft.graphs.checker.check as c;"
        "import weft.specs.load as l;"
        "c.check(l.load('transformer-tiny').form, r.registry());"
        "sys.exit('networkx' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
