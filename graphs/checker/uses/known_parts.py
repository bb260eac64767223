"""Known parts: nodes that are alike are typed once, also from one check to the next.

While a spec is edited, nearly all nodes stay as they are.  A part does not depend on the name of
its node, so nodes with the same block, params and types of wires have the same part.  Only parts
without mistakes are kept: everything that is reported is found anew in each check.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from ....specs.expressions import ExpressionError, is_expression, names_in
from ....specs.findings import pointer
from ....specs.form import Use
from ...ir.graph import Part
from ..ports import Given, Reads
from ..records import Checker, Context, Doubts, Findings

Infer = Callable[[Checker, Use, Reads, str, str], Part | None]
"""Types a block: (checker, use, given, at, pointer of the wires)."""
MOST_PARTS = 4_000
"""Maximum number of parts that are kept: those of four of the largest specs."""


def part_of(checker: Checker, use: Use, given: Reads, at: str, infer: Infer) -> Part | None:
    """Return the part of a node, or None if its block is unknown.

    Args:
        checker: the state that the scopes share.
        use: the node as written.
        given: port to the value that it reads.
        at: JSON Pointer of the node.
        infer: `infer_part`, called if no part of a node that is alike is known.
    """
    key, reads = _key(checker.context, use, given, at)
    place = _place(key) if key is not None else []
    if place:
        checker.context.values.read.update(reads)
        for inner, below in _uses(use, at):
            checker.findings.active_params.update(
                below + pointer("params", name) for name in inner.params
            )
        return place[0]
    before = _mistakes(checker.findings, checker.doubts)
    part = infer(checker, use, given, at, at + pointer("in"))
    if (
        key is not None
        and part is not None
        and before == _mistakes(checker.findings, checker.doubts)
    ):
        unclear = checker.doubts.unsized | checker.doubts.unnamed
        if not any(below in unclear for _, below in _uses(use, at)):
            place.append(part)
    return part


@functools.lru_cache(maxsize=MOST_PARTS)
def _place(key: tuple[Any, ...]) -> list[Part]:
    """Return the place where the part of a key is kept; it is empty at first."""
    del key
    return []


def _mistakes(findings: Findings, doubts: Doubts) -> tuple[int, ...]:
    """Return numbers that grow with each mistake that concerns a part."""
    return findings.calls, doubts.misfits, doubts.doubts, len(doubts.wanted)


def _key(
    context: Context, use: Use, given: Reads, at: str
) -> tuple[tuple[Any, ...] | None, frozenset[str]]:
    """Return everything that the part of a node depends on, and the params that it reads.

    The key is None if the part also depends on something else: on a mistake, a template, or a
    param that chooses a block or holds a model.
    """
    key = [*_types(given), *_blocks(context, use, at)]
    names = frozenset(name for inner, _ in _uses(use, at) for name in _reads(inner))
    for name in sorted(names):
        value = context.values.known.get(name)
        key += (name, repr(value) if isinstance(value, bool | int | float | str) else None)
    return None if None in key else tuple(key), names


def _types(given: Reads) -> Iterator[Any]:
    """Yield the wired ports and the types of their values, and None for each mistake."""
    for port, read in given.items():
        yield port
        yield read.type if isinstance(read, Given) and not read.guessed else None


def _blocks(context: Context, use: Use, at: str) -> Iterator[Any]:
    """Yield the blocks and params of a use and of those in its slots; None if they are unclear."""
    for inner, below in _uses(use, at):
        block = context.registry.get(inner.use)
        nested = any(isinstance(value, dict | list) for value in inner.params.values())
        unclear = block is None or inner.use in context.spec.blocks or nested
        # The part that is kept holds the block, so that no other block gets its identity.
        yield None if unclear or context.lost.covers(below + pointer("params")) else id(block)
        yield from inner.fill
        yield repr(inner.params)


def _reads(use: Use) -> Iterator[str]:
    """Yield the names that the params of a use read; an empty one for a wrong expression."""
    for value in use.params.values():
        if is_expression(value):
            yield from _names(value)


@functools.lru_cache(maxsize=MOST_PARTS)
def _names(text: str) -> tuple[str, ...]:
    """Return the names in an expression with its sign; no param has an empty name."""
    try:
        return names_in(text[1:])
    except ExpressionError:
        return ("",)


def _uses(use: Use, at: str) -> Iterator[tuple[Use, str]]:
    """Yield a use and those in its slots, each with its JSON Pointer."""
    yield use, at
    for slot, inner in use.fill.items():
        yield from _uses(inner, at + pointer("fill", slot))
