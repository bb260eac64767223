"""Bounds: how much a spec may hold as written, told before anything is made of it.

A file of a quarter of a megabyte is read in no time, but what it means may take
long: thousands of nodes that read each other, a type of ten thousand axes, a list
that every node reads.  These bounds keep every check below a second, and lie far
above what models need: 96 layers, each written out, have about 800 nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .findings import Finding, pointer

MOST_WRITTEN = 1_000
"""Nodes that a spec may have as written, what stands in slots counted; and the entries
that any one object or list of it may have."""
LONGEST_TEXT = 1_000
"""Characters of a key, and of a text other than `doc`."""
LARGEST_VALUE = 1_000
"""Values inside the value of one param, and characters of its texts, in all."""

_Path = tuple[Any, ...]
"""The way to a value: `(way to what holds it, key)`; `()` is the root."""


def beyond_bounds(value: Mapping[str, Any], source: str) -> Iterator[Finding]:
    """Yield a finding for each part of a spec that is larger than it may be.

    Args:
        value: the spec, or the child of one, as JSON; it need not have the right form.
        source: the file's name, for findings.
    """
    yield from _too_many_nodes(value, source)
    for path, code, problem, help_ in _too_large(value):
        at = pointer(*_steps(path))
        yield Finding(code=code, at=at, problem=problem, help=help_, source=source)


def _too_many_nodes(value: Mapping[str, Any], source: str) -> Iterator[Finding]:
    scopes = {pointer("nodes"): value.get("nodes")}
    templates = value.get("blocks")
    for name, template in templates.items() if isinstance(templates, dict) else ():
        if isinstance(template, dict):
            scopes[pointer("blocks", name, "nodes")] = template.get("nodes")
    written = {at: _uses(nodes) for at, nodes in scopes.items()}
    total = sum(written.values())
    if total > MOST_WRITTEN:
        largest = max(written, key=lambda at: written[at])
        yield Finding(
            code="S09",
            at=largest,
            problem=f"the spec has {total:,} nodes as written, more than {MOST_WRITTEN:,}",
            evidence=(f"{written[largest]:,} of them stand here",),
            help="write nodes that recur as a template, and repeat it",
            source=source,
        )


def _uses(nodes: Any) -> int:
    """Return how many nodes stand in an object, what stands in their slots counted."""
    if not isinstance(nodes, dict):
        return 0
    inner = (node["fill"] for node in nodes.values() if isinstance(node, dict) and "fill" in node)
    return len(nodes) + sum(map(_uses, inner))


def _too_large(value: Any) -> Iterator[tuple[_Path, str, str, str]]:
    """Walk what is too large, as way, code, problem and help."""
    long = "S10", f"a text is longer than {LONGEST_TEXT:,} characters"
    shorter = "shorten it; only 'doc' may be as long as the file"
    large = "S11", f"the value of a param is larger than {LARGEST_VALUE:,} characters and values"
    simpler = "a param is a number, a flag, a word or a block choice"
    many = "S11", f"more than {MOST_WRITTEN:,} entries stand in one object or list"
    waiting: list[tuple[_Path, Any]] = [((), value)]
    while waiting:
        path, here = waiting.pop()
        if len(here) > MOST_WRITTEN and path != ((), "nodes"):
            yield path, *many, "split it, or repeat a template"
        bounded = isinstance(here, dict) and bool(path) and path[-1] == "params"
        for key, inner in here.items() if isinstance(here, dict) else enumerate(here):
            if isinstance(key, str) and len(key) > LONGEST_TEXT:
                yield path, *long, shorter
            elif isinstance(inner, str) and len(inner) > LONGEST_TEXT and key != "doc":
                yield (path, key), *long, shorter
            elif isinstance(inner, dict | list | tuple):
                if not bounded:
                    waiting.append(((path, key), inner))
                elif larger(inner, LARGEST_VALUE):
                    yield (path, key), *large, simpler


def larger(value: Any, most: int) -> bool:
    """Say whether a value holds more than so many values and characters, stopping there."""
    waiting, found = [value], 0
    while waiting and found <= most:
        here = waiting.pop()
        if isinstance(here, str):
            found += len(here)
        elif isinstance(here, dict | list | tuple):
            found += len(here)
            waiting += [*here, *here.values()] if isinstance(here, dict) else here
    return found > most


def _steps(path: _Path) -> list[str | int]:
    """Return the keys of a way, outermost first."""
    steps: list[str | int] = []
    while path:
        path, key = path
        steps.append(key)
    return steps[::-1]
