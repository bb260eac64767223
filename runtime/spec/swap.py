"""Swapping blocks: a variant of a spec, written as patches; no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...blocks.registry import registry
from ...graphs.checker.check import analyse
from ...graphs.ir.block_type import Registry
from ...graphs.ir.graph import Graph
from ...specs.findings import InputError, SpecError
from ...specs.form import FORMAT
from ...specs.load import LoadedSpec, load_child
from ...specs.patches.select import SelectError, Selection, read_selection
from ...specs.patches.sites import Walk, is_repeat

_ROUNDS = 16
"""Most rounds of removing unused params; removing some may leave others unused."""


@dataclass(frozen=True, slots=True)
class Change:
    """One place at which a block was swapped."""

    path: str
    use: str
    """The block before the swap."""
    lost: tuple[str, ...]
    """Dotted keys that the new block does not have."""


@dataclass(frozen=True, slots=True)
class Swap:
    """A variant and its changes."""

    child: Mapping[str, Any]
    """The variant as file contents; it extends the old spec."""
    spec: LoadedSpec
    graph: Graph
    changes: tuple[Change, ...]
    unread: tuple[str, ...]
    """Params of the spec that were removed because nothing uses them any more."""


def swap(
    spec: LoadedSpec,
    select: str,
    use: str,
    params: Mapping[str, Any],
    *,
    expect: int | None = None,
    names: tuple[str, str] | None = None,
    source: str = "<swap>",
) -> Swap:
    """Return a variant of a spec with the selected blocks replaced.

    Params and slots that both blocks have are kept.  The others are removed, and so are params
    of the spec that nothing uses any more.

    Args:
        spec: the spec to vary.
        select: blocks to replace, selected as in a patch.
        use: the replacement block.
        params: params of the new block; they override the kept params.
        expect: number of nodes that must match; by default any number above 0.
        names: name of the spec, as the variant extends it, and name of the variant.
        source: the variant's file, for findings.

    Raises:
        InputError: the selection does not select blocks.
        SpecError: the selection matches nothing, or the variant is invalid.
    """
    changes, patches = _patches(spec, select, use, params, expect)
    old, new = names or (spec.form.name, spec.form.name)
    child = {"format": FORMAT, "extends": old, "name": new, "patch": patches}
    unread: list[str] = []
    for _ in range(_ROUNDS):
        variant = load_child(spec, child, source)
        known = registry(variant.blocks)
        graph, findings = analyse(variant.form, known, variant.overrides, source=source)
        if graph is not None:
            return Swap(child, variant, graph, changes, tuple(unread))
        # If unused params (W08) are the only findings, remove them from the variant.
        more = [f.at.removeprefix("/params/") for f in findings if f.code == "W08"]
        if len(more) < len(findings) or spec.overrides.keys() & {*more}:
            break
        unread = sorted([*unread, *more])
        gone = {"select": "/", "remove": [f"params.{name}" for name in unread]}
        child = {**child, "patch": [*patches, gone]}
    # The old spec was valid, so unused params are consequences of the other findings.
    shown = [finding for finding in findings if finding.code != "W08"] or findings
    raise SpecError(variant.place_all(shown))


def _patches(
    spec: LoadedSpec, select: str, use: str, params: Mapping[str, Any], expect: int | None
) -> tuple[tuple[Change, ...], list[dict[str, Any]]]:
    """Return the changes, and the patches that make them."""
    try:
        selection = read_selection(select)
    except SelectError as error:
        raise InputError(str(error), place=f"'{select}'", help=error.help) from error
    value = spec.value()
    changes = _changes(value, selection, use, params, registry(spec.blocks))
    keys = {"use": use, **{f"params.{name}": given for name, given in params.items()}}
    count = len(changes) if expect is None else expect
    head = {"select": select, "expect": count} if count else {"select": select}
    patches: list[dict[str, Any]] = [{**head, "set": keys}]
    losers: dict[str, frozenset[str]] = {}
    for key in sorted({key for change in changes for key in change.lost}):
        losers[key] = frozenset(change.path for change in changes if key in change.lost)
    for paths in dict.fromkeys(losers.values()):
        lost = [key for key in losers if losers[key] == paths]
        # If only some places have these keys, select those by their first key.
        mark = "" if len(paths) == len(changes) else f"[{lost[0]}=*]"
        patches.append({"select": select + mark, "expect": len(paths), "remove": lost})
    return changes, patches


def _changes(
    value: Mapping[str, Any],
    selection: Selection,
    use: str,
    params: Mapping[str, Any],
    blocks: Registry,
) -> tuple[Change, ...]:
    """Return the selected places and the keys that each loses."""
    if selection.target != "nodes":
        help_ = "select nodes, or the blocks in their slots"
        raise InputError(f"'{selection.text}' selects no block", help=help_)
    walk = Walk(value, [selection])
    known, slots = _takes(use, value, blocks)
    changes = []
    for (scope, site), path in walk.found[0].paths.items():
        record = walk.record(scope, site)
        if is_repeat(record):
            help_ = f"select a node inside it, such as '{path}.*.NAME'"
            raise InputError(f"'{path}' is a repeat, not a block", help=help_)
        lost = [
            f"params.{name}"
            for name in record.get("params", {})
            if known is not None and name not in known and name not in params
        ]
        lost += [f"fill.{slot}" for slot in record.get("fill", {}) if slot not in slots]
        changes.append(Change(path, record["use"], tuple(lost)))
    return tuple(sorted(changes, key=lambda change: change.path))


def _takes(
    use: str, value: Mapping[str, Any], blocks: Registry
) -> tuple[frozenset[str] | None, frozenset[str]]:
    """Return the params and slots of a block; None for params of an unknown block."""
    block = blocks.get(use)
    if block is None:
        return (frozenset() if use in value.get("blocks", {}) else None), frozenset()
    signature = block.signature(
        block.params.model_validate(block.example), frozenset(block.example_inputs)
    )
    return frozenset(block.params.model_fields), frozenset(slot.name for slot in signature.slots)
