"""Diff as text: one line for each change.

Marks: `+` added, `-` removed, `~` changed, `>` rewired or renamed.  Names come from untrusted
files, so characters that are not printable are replaced.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..ir.canonical import Json
from .changes import ABSENT, Change, same
from .weight_transfer import WeightTransfer

MARKS = {"added": "+", "removed": "-", "rewired": ">", "renamed": ">"}
_LONGEST = 100
"""Maximum number of characters of a value in a line."""
_PLACES = 2
"""Maximum number of other places of a change that a line names."""


@dataclass(frozen=True, slots=True)
class PathChanges:
    """One line: the changes at one path."""

    mark: str
    path: str
    text: str

    def __str__(self) -> str:
        """Return the line, not aligned with others."""
        return f"{self.mark} {self.path}  {self.text}" if self.path else f"{self.mark} {self.text}"


def rows(changes: Iterable[Change]) -> list[PathChanges]:
    """Return a line for the changes with one mark at one path.

    Changes of a spec's name or doc, and changes that only follow from a rename, are omitted.
    """
    grouped: dict[tuple[str, str], list[PathChanges]] = {}
    for change in changes:
        if change.follows or change.kind == "spec":
            continue
        for mark, text in describe(change):
            row = PathChanges(mark, _clean(change.path) + _elsewhere(change), _clean(text))
            grouped.setdefault((mark, row.path), []).append(row)
    return [row for (_, path), same in grouped.items() for row in (_joined(same) if path else same)]


def _joined(lines: list[PathChanges]) -> list[PathChanges]:
    """Return one line for several changes with the same mark and path."""
    return [replace(lines[0], text=", ".join(row.text for row in lines))]


def render(
    names: tuple[str, str],
    changes: tuple[Change, ...],
    *,
    parameters: tuple[int, int],
    flops: tuple[int, int],
    sizes: Mapping[str, int],
    transfer: WeightTransfer,
) -> str:
    """Return a diff as text: a line for each change, then totals.

    Args:
        names: names of both specs.
        changes: changes from the old graph to the new one.
        parameters: number of parameters, before and after.
        flops: floating-point operations of one forward pass, before and after.
        sizes: sizes of the axes for `flops`.
        transfer: which weights carry over.
    """
    lines = rows(changes)
    width = max((len(row.path) for row in lines), default=0)
    head = " -> ".join(map(_clean, names))
    body = [
        f"{row.mark} {row.path:{width}}  {row.text}" if row.path else f"{row.mark} {row.text}"
        for row in lines
    ]
    if not body:
        only = "; only names and docs of the specs differ" if changes else ""
        body = [f"the same graph{only}"]
    total, carried = transfer.after, transfer.sizes()["carried"]
    share = f" ({100 * carried / total:.1f} %)" if total else ""
    at = " ".join(f"{axis}={size}" for axis, size in sizes.items())
    totals = [
        f"parameters {_numbers(*parameters)}",
        f"FLOPs      {_numbers(*flops)}, one forward pass of {at}",
        f"weights    {carried:,} of {total:,} carried over{share}",
    ]
    return "\n".join([head, "", *body, "", *totals]) + "\n"


def _numbers(before: int, after: int) -> str:
    """Format a number before and after, with the difference.

    >>> _numbers(63_082_496, 61_509_632)
    '63,082,496 -> 61,509,632 (-2.5 %)'
    >>> _numbers(63_082_496, 63_084_544)
    '63,082,496 -> 63,084,544 (+2,048)'
    """
    if before == after:
        return f"{after:,}, as before"
    share = f"{100 * (after - before) / before:+.1f}" if before else "0.0"
    grown = f"{after - before:+,}" if share.lstrip("+-") == "0.0" else f"{share} %"
    return f"{before:,} -> {after:,} ({grown})"


def describe(change: Change) -> Iterator[tuple[str, str]]:
    """Yield the mark and the text of each line for a change."""
    mark = MARKS.get(change.kind, "~")
    before, after = change.before, change.after
    if change.kind in ("added", "removed"):
        record = after if change.kind == "added" else before
        yield mark, _record(record, "reads" if change.kind == "added" else "read")
    elif change.kind == "replaced":
        yield mark, _replaced(before, after)
    elif change.kind == "renamed":
        yield mark, f"{f'input {after} ' if change.name else ''}was {before}"
    elif change.kind == "rewired":
        yield mark, _rewired(change)
    elif change.kind == "tie":
        yield from _ties(before or [], after or [])
    elif change.kind == "template":
        yield mark, f"template {_arrow(before, after, 'as the others')}"
    else:
        yield from _valued(change)


def _valued(change: Change) -> Iterator[tuple[str, str]]:
    """Yield the lines for one value: a param, a port, an axis, or a key of a repeat."""
    before, after = change.before, change.after
    inner = change.kind in ("param", "repeat", "training")
    name = change.name if inner else f"{change.kind} {change.name}"
    if (change.kind, change.name) == ("repeat", "repeat"):
        name = "copies"
    if change.kind == "step":
        before, after = (value if value is ABSENT else value["axis"] for value in (before, after))
        name = "decodes along"
    if before is ABSENT:
        yield "~" if inner else "+", f"{name} {_value(after)}"
    elif after is ABSENT:
        yield "~" if inner else "-", f"{name} {'removed, was ' if inner else ''}{_value(before)}"
    else:
        yield "~", f"{name} {_value(before)} -> {_value(after)}"


def _arrow(before: Any, after: Any, absent: str) -> str:
    words = [absent if value is ABSENT else str(value) for value in (before, after)]
    return " -> ".join(words)


def _record(record: Json, reads: str) -> str:
    """Describe a node: its block, the blocks in its slots, and the values that it reads."""
    block = f"{record['repeat']} x {record['block']}" if "repeat" in record else record["use"]
    slots = "".join(f" of {inner['use']}" for inner in record.get("fill", {}).values())
    wires = ", ".join(dict.fromkeys(record.get("in", {}).values()))
    return f"{block}{slots}{f', {reads} {wires}' if wires else ''}"


def _replaced(before: Json, after: Json) -> str:
    """Describe a replaced block: both names, and the params that differ."""
    words = [f"use {_name(before)} -> {_name(after)}"]
    old, new = before.get("params", {}), after.get("params", {})
    for name, value in new.items():
        if not same(old.get(name, ABSENT), value):
            was = f"{_value(old[name])} -> " if name in old else ""
            words.append(f"{name} {was}{_value(value)}")
    return ", ".join(words)


def _name(record: Json) -> str:
    """Return the block or template of a record."""
    return str(record.get("use", record.get("block")))


def _rewired(change: Change) -> str:
    if change.before is ABSENT:
        return f"{change.name} reads {change.after}"
    if change.after is ABSENT:
        return f"{change.name} no longer reads {change.before}"
    return f"{change.name} reads {change.after}, was {change.before}"


def _ties(before: list[list[str]], after: list[list[str]]) -> Iterator[tuple[str, str]]:
    """Yield the groups of tied parameters that were added or removed."""
    for mark, groups, others in (("-", before, after), ("+", after, before)):
        for group in groups:
            if group not in others:
                yield mark, f"tie {' = '.join(group)}"
    if sorted(before) == sorted(after):
        yield "~", "ties in another order"


def _elsewhere(change: Change) -> str:
    """Name the other places of the same template."""
    if not change.also:
        return ""
    more = len(change.also) - _PLACES
    shown = [*change.also[:_PLACES], *([f"{more} more"] if more > 0 else [])]
    return f" (and {', '.join(map(_clean, shown))})"


def _value(value: Any) -> str:
    """Write a value as in a spec, with strings unquoted, cut to one line."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _clean(text: str) -> str:
    return "".join(char if char.isprintable() else "�" for char in text)
