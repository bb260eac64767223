"""Weight transfer: which weights of one graph can initialize another.

A weight is identified by its path.  Tied paths are one tensor, which carries over to each of them
that the other graph has; where the other graph unties them, each starts as a copy of it.
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
"""Maximum number of lines in one part of the table."""
_INDEX = re.compile(r"(?<=\.)\d+(?=\.)")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class WeightTransfer:
    """Which weights carry over when one graph replaces another."""

    carried: Mapping[str, Shape]
    """Weights that both graphs have in the same shape, by path in the new graph."""
    new: Mapping[str, Shape]
    """Weights that only the new graph has."""
    lost: Mapping[str, Shape]
    """Weights that only the old graph has."""
    reshaped: Mapping[str, tuple[Shape, Shape]]
    """Weights that both graphs have, with the old and the new shape."""
    sources: Mapping[str, str]
    """Path of each carried weight to the path under which the old weight is stored."""
    before: int
    """Number of parameters of the old graph."""
    after: int
    """Number of parameters of the new graph."""

    def __repr__(self) -> str:
        """Return the number of parameters in each part."""
        sizes = ", ".join(f"{name} {size:,}" for name, size in self.sizes().items())
        return f"<WeightTransfer of parameters: {sizes}>"

    def sizes(self) -> dict[str, int]:
        """Return the number of parameters before, after, and in each part."""
        return {
            "before": self.before,
            "after": self.after,
            "carried": _size(self.carried.values()),
            "new": _size(self.new.values()),
            "reshaped": _size(now for _, now in self.reshaped.values()),
            "lost": _size(self.lost.values()),
        }

    def render(self) -> str:
        """Return a short table: totals, and the weights that do not carry over."""
        sizes = self.sizes()
        every = [*self.carried, *self.new, *self.reshaped]
        were = [*self.sources.values(), *self.lost, *self.reshaped]
        parts = (
            ("reshaped", self.after, {p: _change(*shapes) for p, shapes in self.reshaped.items()}),
            ("new", self.after, {p: _text(shape) for p, shape in self.new.items()}),
            ("lost", self.before, {p: _text(shape) for p, shape in self.lost.items()}),
        )
        lines = [f"carried   {_share(sizes['carried'], self.after)}", *self._copies()]
        for name, total, rows in parts:
            if rows:
                among = were if name == "lost" else every
                lines += [f"{name:<9} {_share(sizes[name], total)}", *_table(rows, among)]
        return "\n".join(lines) + "\n"

    def _copies(self) -> list[str]:
        """Return a line for each weight that carries over to another path, repeats folded."""
        rows = {
            path: f"copied from {_fold(source)[0]}"
            for path, source in self.sources.items()
            if path != source
        }
        return _table(rows, self.carried, counted=False) if rows else []

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain data."""
        parts = {"carried": self.carried, "new": self.new, "lost": self.lost}
        listed = {
            name: {path: list(shape) for path, shape in part.items()}
            for name, part in parts.items()
        }
        reshaped = {path: [list(old), list(now)] for path, (old, now) in self.reshaped.items()}
        details = {"reshaped": reshaped, "sources": dict(self.sources)}
        return {"parameters": self.sizes(), **listed, **details}


def weight_transfer(
    old: Graph, new: Graph, former: Callable[[str], str] = lambda path: path
) -> WeightTransfer:
    """Return which weights of a graph can initialize another one.

    Args:
        old: the graph that has the weights.
        new: the graph to initialize.
        former: maps a path in the new graph to the path in the old one, where nodes were
            renamed.
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
        candidates = [stored[name] for name in were if name in stored]
        source = next((name for name in candidates if before[name] == shape), None)
        if source is not None:
            carried[path], sources[path] = shape, source
            used.add(source)
        elif candidates:
            reshaped[path] = before[candidates[0]], shape
            used.add(candidates[0])
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
    """Return the total number of parameters of weights with these shapes."""
    return sum(map(prod, shapes))


def _text(shape: Shape) -> str:
    return str(list(shape))


def _change(old: Shape, now: Shape) -> str:
    return f"{_text(old)} -> {_text(now)}"


def _share(part: int, total: int) -> str:
    """Format a share of the parameters, such as `1,024 of 2,048 parameters (50.0 %)`."""
    share = f" ({100 * part / total:.1f} %)" if total else ""
    return f"{part:,} of {total:,} parameters{share}"


def _table(rows: Mapping[str, str], among: Iterable[str], *, counted: bool = True) -> list[str]:
    """Return a line for each weight; weights that differ only in their copy number share a line.

    Args:
        rows: path to the text of its line.
        among: every path, to find out whether a line covers all copies.
        counted: whether to write the number of copies of a line.
    """
    copies: dict[str, list[tuple[int, ...]]] = {}
    for path in among:
        pattern, index = _fold(path)
        copies.setdefault(_repeats(pattern), []).append(index)
    groups: dict[tuple[str, str], list[tuple[int, ...]]] = {}
    for path, text in rows.items():
        pattern, index = _fold(path)
        groups.setdefault((pattern, text), []).append(index)
    entries = [
        (_unfold(pattern, indices, copies.get(_repeats(pattern), indices)), len(indices), text)
        for (pattern, text), indices in groups.items()
    ]
    width = max(len(path) for path, _, _ in entries)
    lines = []
    for path, count, text in entries:
        times = f"{count} x " if counted and ("*" in path or count > 1) else ""
        lines.append(f"  {path:{width}}  {times}{text}")
    return _cut(lines)


def _fold(path: str) -> tuple[str, tuple[int, ...]]:
    """Return a path with `*` for the copy numbers, and these numbers."""
    return _INDEX.sub("*", path), tuple(map(int, _INDEX.findall(path)))


def _repeats(pattern: str) -> str:
    """Return a pattern up to its last repeat, whose copies may have different weights."""
    return pattern[: pattern.rfind("*") + 1]


def _unfold(pattern: str, some: list[tuple[int, ...]], every: list[tuple[int, ...]]) -> str:
    """Write copy numbers into a pattern, unless all copies are meant.

    >>> _unfold("encoder.*.norm.weight", [(1,), (2,)], [(0,), (1,), (2,)])
    'encoder.1-2.norm.weight'
    """
    selected, there = (
        [set(column) for column in zip(*indices, strict=True)] for indices in (some, every)
    )
    if prod(map(len, selected)) != len(set(some)):
        return pattern
    texts = iter(
        "*" if mine == all_ else ",".join(_runs(sorted(mine)))
        for mine, all_ in zip(selected, there, strict=True)
    )
    return re.sub(r"\*", lambda _: next(texts), pattern)


def _runs(numbers: list[int]) -> Iterator[str]:
    """Format numbers, consecutive ones as `first-last`."""
    by_run = itertools.groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])
    for _, run in by_run:
        row = [number for _, number in run]
        yield f"{row[0]}-{row[-1]}" if row[1:] else f"{row[0]}"


def _cut(lines: list[str]) -> list[str]:
    """Return at most `_ROWS` lines, followed by the number of omitted ones."""
    return lines if len(lines) <= _ROWS else [*lines[:_ROWS], f"  and {len(lines) - _ROWS} more"]
