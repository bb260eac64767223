"""Patterns: copies of a repeat that alternate between templates, folded to one pattern."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..ir.graph import Filling, Part, RepeatNode, Scope, TemplatePart
from . import progressions

LONGEST_PATTERN = 32
"""Maximum number of copies in one pattern."""
MOST_UNITS = 4
"""Maximum number of copies of a repeat that are drawn apart though they differ only in numbers."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Consecutive copies of one template within a pattern."""

    path: str
    """Path below the repeat: `*`, the number of a copy, `0-3`, or `0,2,..,24` in a pattern."""
    body: Scope
    copies: int
    """Number of consecutive copies each time."""


@dataclass(frozen=True, slots=True)
class RepeatedUnits:
    """Units that are repeated in order; several only if copies alternate."""

    units: tuple[Unit, ...]
    times: int = 1

    def words(self) -> str:
        """Return the templates in order, such as `local layer, local layer, global layer`."""
        texts = []
        for unit in self.units:
            name = unit.body.name.replace("_", " ")
            spelled = unit.copies <= _SPELLED
            texts += [name] * unit.copies if spelled else [f"{name} × {unit.copies}"]
        return ", ".join(texts)


_SPELLED = 2
"""Maximum number of equal templates in sequence that are listed one by one."""


def segments(node: RepeatNode, other: RepeatNode | None = None) -> list[RepeatedUnits]:
    """Return the copies of a repeat, folded to patterns.

    Copies of one template are one segment with one unit, also if their numbers follow a formula;
    alternating copies are one segment with several units.

    Args:
        node: the repeat.
        other: the repeat that it is compared with, if any; copies are equal only if those of the
            other are, too.
    """
    instead = {} if other is None else other.instead
    if not node.instead and not instead:
        return [RepeatedUnits((Unit("*", node.body, node.repeat),))]
    bodies = [body for _, body in node.copies()]
    numbers: dict[tuple[str, int], int] = {}
    keys = [
        numbers.setdefault((structure, id(instead.get(index))), len(numbers))
        for index, structure in enumerate(progressions.structures(bodies))
    ]
    if other is None:
        _merge(bodies, keys, [*progressions.runs(bodies)])
    if other is None and sum(period for _, period, _ in periods(keys)) > MOST_UNITS:
        _merge(bodies, keys, [*progressions.alike(bodies)])
    if len({*keys}) == 1:
        return [RepeatedUnits((Unit("*", bodies[0], node.repeat),))]
    result = []
    for start, period, times in periods(keys):
        if period == 1:
            path = _run(start, times)
            result.append(RepeatedUnits((Unit(path, bodies[start], times),)))
            continue
        units, at = [], start
        for _, group in itertools.groupby(range(start, start + period), key=keys.__getitem__):
            run = [bodies[index] for index in group]
            starts = [at + period * turn for turn in range(times)]
            shown = [starts[0], starts[1], starts[-1]] if times > _SPELLED else starts
            path = ",".join(_run(first, len(run)) for first in shown)
            if times > len(shown):
                path = ",..,".join(path.rsplit(",", 1))
            units.append(Unit(path, run[0], len(run)))
            at += len(run)
        result.append(RepeatedUnits(tuple(units), times))
    return result


def _merge(bodies: list[Scope], keys: list[int], runs: list[tuple[int, int]]) -> None:
    """Replace the copies of each run by one with formulas in place of the numbers that differ."""
    for start, count in runs:
        same = progressions.merged(bodies[start : start + count], start)
        bodies[start : start + count] = [same] * count
        keys[start : start + count] = [-1 - start] * count


def periods(keys: Sequence[int]) -> list[tuple[int, int, int]]:
    """Split a sequence into repeated patterns: (first index, length of the pattern, times).

    From the left, always the pattern that covers most elements, and of these the shortest.

    >>> periods([1, 1, 2, 1, 1, 2, 1])
    [(0, 3, 2), (6, 1, 1)]
    >>> periods([5, 7, 7, 7])
    [(0, 1, 1), (1, 1, 3)]
    """
    spans, start = [], 0
    while start < len(keys):
        best = (1, 1)
        for period in range(1, min(LONGEST_PATTERN, (len(keys) - start) // 2) + 1):
            unit, times = keys[start : start + period], 1
            while keys[start + period * times : start + period * (times + 1)] == unit:
                times += 1
            if times > 1 and period * times > best[0] * best[1]:
                best = (period, times)
        spans.append((start, *best))
        start += best[0] * best[1]
    return spans


def covers(path: str, index: int) -> bool:
    """Return whether the path of a unit stands for a copy.

    >>> [covers("0-1,3-4,..,9-10", index) for index in (1, 2, 7, 8)]
    [True, False, True, False]
    """
    if path == "*":
        return True
    runs = [[int(end) for end in run.split("-")] for run in path.split(",") if run != ".."]
    if ",..," not in path:
        return any(run[0] <= index <= run[-1] for run in runs)
    period, first = runs[1][0] - runs[0][0], runs[0][0]
    inside = first <= index <= runs[-1][-1]
    return inside and (index - first) % period <= runs[0][-1] - first


def _run(first: int, count: int) -> str:
    return f"{first}" if count == 1 else f"{first}-{first + count - 1}"


def slot_templates(part: Filling, path: str) -> Iterator[tuple[str, tuple[str, ...], TemplatePart]]:
    """Yield the templates in optional slots of a block: path, inputs from the block, template."""
    if isinstance(part, Part):
        for slot, filling in part.fill.items():
            if isinstance(filling, TemplatePart):
                entries = part.signature.slot(slot).entries
                ports = tuple(port for port in filling.inputs if port in entries)
                yield f"{path}/{slot}", ports, filling
            else:
                yield from slot_templates(filling, f"{path}/{slot}")
