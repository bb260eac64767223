"""Variants of a spec, written as patches: other blocks, or LoRA at its linear maps; no torch."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from ...blocks.registry import registry
from ...graphs.checker.check import analyse
from ...graphs.ir.block_type import Registry
from ...graphs.ir.graph import Graph
from ...graphs.ir.lora import A, B
from ...specs.findings import InputError, SpecError, pointer
from ...specs.form import FORMAT
from ...specs.json_tree import parts_of
from ...specs.load import LoadedSpec, load_child
from ...specs.patches.selections import SelectError, Selection, read_selection
from ...specs.patches.walk import Walk, is_repeat


@dataclass(frozen=True, slots=True)
class LoraVariant:
    """A variant with LoRA."""

    child: Mapping[str, Any]
    """The variant as file contents; it extends the spec."""
    spec: LoadedSpec
    graph: Graph

    @property
    def matrices(self) -> dict[str, tuple[int, ...]]:
        """Shape of each low-rank matrix by its path."""
        weights = self.graph.weights()
        return {path: weights[path] for path in weights if path.endswith((A, B))}

    @property
    def added(self) -> int:
        """Number of their elements."""
        return sum(map(prod, self.matrices.values()))


def lora(
    spec: LoadedSpec,
    select: str,
    rank: int,
    alpha: float,
    maps: Collection[str] = (),
    *,
    names: tuple[str, str] | None = None,
    source: str = "<lora>",
) -> LoraVariant:
    """Return a variant of a spec with low-rank matrices in the selected blocks.

    Args:
        spec: the spec to vary.
        select: blocks with linear maps, selected as in a patch.
        rank: rank of the matrices.
        alpha: scale; their product is multiplied by alpha / rank.
        maps: linear maps of these blocks, such as `query`; all by default.
        names: name of the spec, as the variant extends it, and name of the variant.
        source: the variant's file, for findings.

    Raises:
        SpecError: the selection matches nothing, or the variant is invalid.
    """
    value = {"rank": rank, "alpha": alpha, **({"maps": [*maps]} if maps else {})}
    extends, name = names or (spec.form.name, spec.form.name)
    patch = [{"select": select, "set": {"params.lora": value}}]
    child = {"format": FORMAT, "extends": extends, "name": name, "patch": patch}
    variant = load_child(spec, child, source)
    blocks = registry(variant.blocks)
    graph, findings = analyse(variant.form, blocks, variant.overrides, source=source)
    if graph is None:
        raise SpecError(variant.place_all(findings))
    return LoraVariant(child, variant, graph)


_ROUNDS = 16
"""Most rounds of removing unused params; removing some may leave others unused."""


@dataclass(frozen=True, slots=True)
class SwappedBlock:
    """One place at which a block was swapped."""

    path: str
    use: str
    """The block before the swap."""
    lost: tuple[str, ...]
    """Dotted keys that the new block does not have, or that have no effect in it."""
    at: str
    """JSON Pointer of its record in the old spec."""


@dataclass(frozen=True, slots=True)
class Swap:
    """A variant and its changes."""

    child: Mapping[str, Any]
    """The variant as file contents; it extends the old spec."""
    spec: LoadedSpec
    graph: Graph
    changes: tuple[SwappedBlock, ...]
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

    Params and slots that both blocks have are kept.  The others are removed, and so are kept
    params that no longer have an effect and params of the spec that nothing uses any more.

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
    idle: set[str] = set()
    changes, patches = _patches(spec, select, use, params, expect, idle)
    old, new = names or (spec.form.name, spec.form.name)
    child = {"format": FORMAT, "extends": old, "name": new, "patch": patches}
    unread: list[str] = []
    for _ in range(_ROUNDS):
        variant = load_child(spec, child, source)
        block_types = registry(variant.blocks)
        graph, findings = analyse(variant.form, block_types, variant.overrides, source=source)
        if graph is not None:
            return Swap(child, variant, graph, changes, tuple(unread))
        # If params without use (W08) or effect (P08) are the only findings, remove them.
        more = [f.at.removeprefix("/params/") for f in findings if f.code == "W08"]
        lost = [f.at for f in findings if f.code == "P08"]
        if len(more) + len(lost) < len(findings) or spec.overrides.keys() & {*more}:
            break
        if lost:
            more_idle = _idle(spec, variant, changes, lost) - idle
            if not more_idle:
                break
            idle |= more_idle
            changes, patches = _patches(spec, select, use, params, expect, idle)
        unread = sorted([*unread, *more])
        gone = {"select": "/", "remove": [f"params.{name}" for name in unread]}
        child = {**child, "patch": [*patches, gone] if unread else patches}
    # The old spec was valid, so unused params are consequences of the other findings.
    shown = [finding for finding in findings if finding.code != "W08"] or findings
    raise SpecError(variant.place_all(shown))


def _idle(
    spec: LoadedSpec, variant: LoadedSpec, changes: Iterable[SwappedBlock], pointers: Iterable[str]
) -> set[str]:
    """Return the pointers, in the old spec, of kept params that have no effect in the variant.

    If the variant changes single copies of a repeat, it has a new template for them; a param in
    it is found by the place where it was written.
    """
    value, retained = spec.value(), list[str]()
    for change in changes:
        record: Any = value
        for key in parts_of(change.at):
            record = record[key]
        retained += [change.at + pointer("params", name) for name in record.get("params", {})]
    written = {spec.origin_of(at): at for at in retained}
    pairs = ((at, variant.origin_of(at)) for at in pointers)
    return {
        at if at in retained else written[origin]
        for at, origin in pairs
        if at in retained or origin in written
    }


def _patches(
    spec: LoadedSpec,
    select: str,
    use: str,
    params: Mapping[str, Any],
    expect: int | None,
    idle: Collection[str],
) -> tuple[tuple[SwappedBlock, ...], list[dict[str, Any]]]:
    """Return the changes, and the patches that make them; params in `idle` are not kept."""
    try:
        selection = read_selection(select)
    except SelectError as error:
        raise InputError(str(error), location=f"'{select}'", help=error.help) from error
    value = spec.value()
    changes = _changes(value, selection, use, params, registry(spec.blocks), idle)
    keys = {"use": use, **{f"params.{name}": value for name, value in params.items()}}
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
    idle: Collection[str],
) -> tuple[SwappedBlock, ...]:
    """Return the selected places and the keys that each loses."""
    if selection.target != "nodes":
        help_ = "select nodes, or the blocks in their slots"
        raise InputError(f"'{selection.text}' selects no block", help=help_)
    walk = Walk(value, [selection])
    param_names, slots = _takes(use, value, blocks)
    changes = []
    for (scope, site), path in walk.matches[0].paths.items():
        record = walk.record(scope, site)
        if is_repeat(record):
            help_ = f"select a node inside it, such as '{path}.*.NAME'"
            raise InputError(f"'{path}' is a repeat, not a block", help=help_)
        if "use" not in record:
            raise InputError(
                f"'{path}' shares the module of '{record['share']}'",
                help=f"select '{record['share']}'",
            )
        at = pointer(*(("blocks", scope) if scope else ()), *site)
        lost = [
            f"params.{name}"
            for name in record.get("params", {})
            if name not in params
            and (
                (param_names is not None and name not in param_names)
                or at + pointer("params", name) in idle
            )
        ]
        lost += [f"fill.{slot}" for slot in record.get("fill", {}) if slot not in slots]
        changes.append(SwappedBlock(path, record["use"], tuple(lost), at))
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
