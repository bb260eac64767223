"""Size limits of a spec as written, checked before the spec is interpreted.

A file of a quarter of a megabyte is read quickly, but checking it may take long: it may
contain thousands of nodes that read each other, a type of ten thousand axes, or a list that
every node reads.  These limits keep every check below a second and are far above the needs
of real models: 96 layers, each written out, have about 800 nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .findings import Finding, pointer
from .form import holds_spec

MOST_WRITTEN = 1_000
"""Maximum number of nodes as written, including blocks in slots; also the maximum number of
entries in one object or list."""
LONGEST_TEXT = 1_000
"""Maximum number of characters in a key, and in a string other than `doc`."""
LARGEST_VALUE = 1_000
"""Maximum total of nested values and string characters in the value of one param."""

_Path = tuple[Any, ...]
"""Path to a value: `(path to its container, key)`; `()` is the root."""


def beyond_bounds(value: Mapping[str, Any], source: str) -> Iterator[Finding]:
    """Yield a finding for each part of a spec that exceeds a limit.

    Args:
        value: the spec or child spec as JSON; it need not be valid.
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
            evidence=(f"{written[largest]:,} of them are here",),
            help="move recurring nodes into a template, and repeat it",
            source=source,
        )


def _uses(nodes: Any) -> int:
    """Return the number of nodes in an object, including the blocks in their slots."""
    if not isinstance(nodes, dict):
        return 0
    inner = (node["fill"] for node in nodes.values() if isinstance(node, dict) and "fill" in node)
    return len(nodes) + sum(map(_uses, inner))


def _too_large(value: Any) -> Iterator[tuple[_Path, str, str, str]]:
    """Yield path, code, problem and help of each part that is too large."""
    long = "S10", f"a string is longer than {LONGEST_TEXT:,} characters"
    shorter = "shorten it; only 'doc' may be longer"
    large = "S11", f"the value of a param is larger than {LARGEST_VALUE:,} characters and values"
    simpler = "write a number, a boolean, a string or a block choice"
    many = "S11", f"an object or a list has more than {MOST_WRITTEN:,} entries"
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
                if not bounded or holds_spec(inner):
                    waiting.append(((path, key), inner))
                elif larger(inner, LARGEST_VALUE):
                    yield (path, key), *large, simpler


def larger(value: Any, most: int) -> bool:
    """Return whether a value has more than `most` nested values and string characters."""
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
    """Return the keys of a path, outermost first."""
    steps: list[str | int] = []
    while path:
        path, key = path
        steps.append(key)
    return steps[::-1]
