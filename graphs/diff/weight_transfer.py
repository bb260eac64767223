"""Survival: which weights of one graph can begin another.

A weight is known by its path.  Tied paths are one tensor: it feeds whichever of them
the other graph still has, and where that unties them, each begins as a copy of it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from ..ir.graph import Graph

Shape = tuple[int, ...]
_ROWS = 24
"""Lines that one part of the table has at most."""
_INDEX = re.compile(r"(?<=\.)\d+(?=\.)")


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightTransfer:
    """What becomes of the weights when one graph takes the place of another."""

    carried: Mapping[str, Shape]
    """Weights that both have in one shape, by their path in the new graph."""
    new: Mapping[str, Shape]
    """Weights that only the new graph has."""
    lost: Mapping[str, Shape]
    """Weights that only the old graph has."""
    reshaped: Mapping[str, tuple[Shape, Shape]]
    """Weights that both have, in two shapes: the old one and the new one."""
    sources: Mapping[str, str]
    """Carried path to the path under which the old weight is stored."""
    before: int
    """Parameters of the old graph."""
    after: int
    """Parameters of the new graph."""

    def sizes(self) -> dict[str, int]:
        """Return how many parameters there were and are, and what becomes of them."""
        return {
            "before": self.before,
            "after": self.after,
            "carried": _size(self.carried.values()),
            "new": _size(self.new.values()),
            "reshaped": _size(now for _, now in self.reshaped.values()),
            "lost": _size(self.lost.values()),
        }

    def render(self) -> str:
        """Return a short table: totals, and below them what does not survive."""
        sizes = self.sizes()
        every = [*self.carried, *self.new, *self.reshaped]
        were = [*self.sources.values(), *self.lost, *self.reshaped]
        parts = (
            ("reshaped", self.after, {p: _change(*both) for p, both in self.reshaped.items()}),
            ("new", self.after, {p: _text(shape) for p, shape in self.new.items()}),
            ("lost", self.before, {p: _text(shape) for p, shape in self.lost.items()}),
        )
        lines = [f"carried   {_share(sizes['carried'], self.after)}", *self._copies()]
        for name, whole, rows in parts:
            if rows:
                among = were if name == "lost" else every
                lines += [f"{name:<9} {_share(sizes[name], whole)}", *_table(rows, among)]
        return "\n".join(lines) + "\n"

    def _copies(self) -> list[str]:
        """Return a line for each weight that goes on under another path, repeats folded."""
        rows = {
            path: f"begins as {_fold(source)[0]}"
            for path, source in self.sources.items()
            if path != source
        }
        return _table(rows, self.carried, counted=False) if rows else []

    def as_json(self) -> dict[str, Any]:
        """Return all of it as plain data."""
        parts = {"carried": self.carried, "new": self.new, "lost": self.lost}
        listed = {
            name: {path: list(shape) for path, shape in part.items()}
            for name, part in parts.items()
        }
        reshaped = {path: [list(old), list(now)] for path, (old, now) in self.reshaped.items()}
        rest = {"reshaped": reshaped, "sources": dict(self.sources)}
        return {"parameters": self.sizes(), **listed, **rest}


def weight_transfer(
    old: Graph, new: Graph, former: Callable[[str], str] = lambda path: path
) -> WeightTransfer:
    """Return which weights of a graph can begin another one.

    Args:
        old: the graph that has the weights.
        new: the graph that wants them.
        former: from a path in the new graph to what it was in the old one, where nodes
            were renamed.
    """
    before, after = old.weights(), new.weights()
    stored = {path: path for path in before}
    stored |= {path: group[0] for group in old.ties for path in group}
    names = {group[0]: group for group in new.ties}
    carried: dict[str, Shape] = {}
    fresh: dict[str, Shape] = {}
    reshaped: dict[str, tuple[Shape, Shape]] = {}
    sources: dict[str, str] = {}
    used: set[str] = set()
    for path, shape in after.items():
        were = map(former, names.get(path, (path,)))
        known = [stored[name] for name in were if name in stored]
        source = next((name for name in known if before[name] == shape), None)
        if source is not None:
            carried[path], sources[path] = shape, source
            used.add(source)
        elif known:
            reshaped[path] = before[known[0]], shape
            used.add(known[0])
        else:
            fresh[path] = shape
    return WeightTransfer(
        carried=carried,
        new=fresh,
        lost={path: shape for path, shape in before.items() if path not in used},
        reshaped=reshaped,
        sources=sources,
        before=_size(before.values()),
        after=_size(after.values()),
    )


def _size(shapes: Iterable[Shape]) -> int:
    """Return how many parameters weights of these shapes have."""
    return sum(map(prod, shapes))


def _text(shape: Shape) -> str:
    return str(list(shape))


def _change(old: Shape, now: Shape) -> str:
    return f"{_text(old)} -> {_text(now)}"


def _share(part: int, whole: int) -> str:
    """Say how much of the parameters a part is, such as `1,024 of 2,048 (50.0 %)`."""
    share = f" ({100 * part / whole:.1f} %)" if whole else ""
    return f"{part:,} of {whole:,} parameters{share}"


def _table(rows: Mapping[str, str], among: Iterable[str], *, counted: bool = True) -> list[str]:
    """Return a line for each weight, those that differ in their copy's number alone in one.

    Args:
        rows: path to what is said of it.
        among: every path, which decides whether some copies are all of them.
        counted: whether to say of how many copies a line is.
    """
    whole: dict[str, list[tuple[int, ...]]] = {}
    for path in among:
        pattern, index = _fold(path)
        whole.setdefault(_repeats(pattern), []).append(index)
    groups: dict[tuple[str, str], list[tuple[int, ...]]] = {}
    for path, said in rows.items():
        pattern, index = _fold(path)
        groups.setdefault((pattern, said), []).append(index)
    found = [
        (_unfold(pattern, indices, whole.get(_repeats(pattern), indices)), len(indices), said)
        for (pattern, said), indices in groups.items()
    ]
    width = max(len(path) for path, _, _ in found)
    lines = []
    for path, count, said in found:
        times = f"{count} x " if counted and ("*" in path or count > 1) else ""
        lines.append(f"  {path:{width}}  {times}{said}")
    return _cut(lines)


def _fold(path: str) -> tuple[str, tuple[int, ...]]:
    """Return a path with `*` for the numbers of copies, and those numbers."""
    return _INDEX.sub("*", path), tuple(map(int, _INDEX.findall(path)))


def _repeats(pattern: str) -> str:
    """Return a pattern up to its last repeat, whose copies may hold different weights."""
    return pattern[: pattern.rfind("*") + 1]


def _unfold(pattern: str, some: list[tuple[int, ...]], every: list[tuple[int, ...]]) -> str:
    """Write in a pattern which copies are meant, where they are not all of them.

    >>> _unfold("encoder.*.norm.weight", [(1,), (2,)], [(0,), (1,), (2,)])
    'encoder.1-2.norm.weight'
    """
    here, there = (
        [set(column) for column in zip(*indices, strict=True)] for indices in (some, every)
    )
    if prod(map(len, here)) != len(set(some)):
        return pattern
    texts = iter(
        "*" if mine == all_ else ",".join(_runs(sorted(mine)))
        for mine, all_ in zip(here, there, strict=True)
    )
    return re.sub(r"\*", lambda _: next(texts), pattern)


def _runs(numbers: list[int]) -> Iterator[str]:
    """Write numbers, those in a row as `first-last`."""
    by_run = itertools.groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])
    for _, run in by_run:
        row = [number for _, number in run]
        yield f"{row[0]}-{row[-1]}" if row[1:] else f"{row[0]}"


def _cut(lines: list[str]) -> list[str]:
    """Return lines, those beyond what a reader looks at counted."""
    return lines if len(lines) <= _ROWS else [*lines[:_ROWS], f"  and {len(lines) - _ROWS} more"]
