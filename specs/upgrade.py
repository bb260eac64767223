"""Upgrade specs of older formats and uses of older blocks to the current ones.

An upgrader is a function from one JSON object to another.  A format's upgrader converts a
file of that format (a standalone spec or a child) to the next format; a block's upgrader
converts a use of the previous major version to its own.  Files are untrusted, so upgraders
leave unknown parts unchanged; the reader and the checker report what is wrong with them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from pydantic import ValidationError

from . import format_1, format_2
from .findings import pointer
from .form import Spec, Use

Upgrader = Callable[[dict[str, Any]], dict[str, Any]]
"""Converts an object of one version to the next; it may modify its argument."""

FORMATS: Mapping[int, Upgrader] = {1: format_1.upgrade_spec}
"""Format of a spec to the function that upgrades it to the next format."""
RUN_FORMATS: Mapping[int, Upgrader] = {1: format_1.upgrade_run, 2: format_2.upgrade_run}
"""The same for run files, whose current format is 3."""
TABLE_FORMATS: Mapping[int, Upgrader] = {1: dict, 2: format_2.upgrade_table}
"""The same for import tables, which format 2 did not change and whose current format is 3."""

_FAILURES = (LookupError, TypeError, ValueError, AttributeError)
"""Exceptions that an upgrader may raise for an object of an unexpected form."""
_SINGLE_USES = ("replace",)
_NAMED_USES = ("insert_before", "insert_after")


class Versioned(Protocol):
    """The attributes of a block type that upgrades need."""

    @property
    def name(self) -> str:
        """The block's name without its version."""

    @property
    def major(self) -> int:
        """The block's major version."""

    @property
    def key(self) -> str:
        """`name@major`."""

    @property
    def upgrade(self) -> Upgrader | None:
        """Function that converts a use of the previous major version, if there is one."""

    @property
    def replaces(self) -> tuple[str, ...]:
        """Keys of removed blocks whose uses `upgrade` also converts."""

    @property
    def removed_params(self) -> frozenset[str]:
        """Params of the previous major version that this one lacks."""

    @property
    def moved_weights(self) -> Mapping[str, str]:
        """Weight of the previous major version to its new name, if they differ."""


class Older(NamedTuple):
    """How a use of an older block is upgraded."""

    key: str
    """The next key."""
    upgrade: Upgrader
    only: frozenset[str] | None = None
    """The upgrade applies only to a use with one of these params; None for every use."""
    moved: Mapping[str, str] = MappingProxyType({})
    """Old name of a weight to the new one."""


Blocks = Mapping[str, Older]
"""Key of an older block to its upgrade; of a current one, for params that an older patch sets."""


def older_blocks(
    known: Iterable[Versioned], *, registered: bool = False, keys: Collection[str] | None = None
) -> Blocks:
    """Return the older blocks whose uses can be upgraded.

    Args:
        known: the registered blocks, or at least those that can upgrade a use.
        registered: include older blocks that are still registered, to reach the newest version.
        keys: keys of all registered blocks; those of `known` when left out.
    """
    blocks = {block.key: block for block in known}
    names = blocks.keys() if keys is None else keys
    found: dict[str, Older] = {}
    for block in blocks.values():
        if block.upgrade is None:
            continue
        made = Older(block.key, block.upgrade, moved=block.moved_weights)
        before = (f"{block.name}@{block.major - 1}", *block.replaces)
        found |= {key: made for key in before if registered or key not in names}
        if block.removed_params:
            found[block.key] = made._replace(only=block.removed_params)
    return found


def upgrade(
    value: Mapping[str, Any], formats: Mapping[int, Upgrader], blocks: Blocks
) -> tuple[dict[str, Any], list[str]]:
    """Return a spec file's value in the current format, with the current blocks.

    Args:
        value: the file's JSON value; it is not modified.
        formats: format to its upgrader.
        blocks: older blocks with their upgraders.

    Returns:
        The new value, and one line for each change; no lines if nothing changed.
    """
    made, changes = upgrade_format(value, formats)
    walk = _UseUpgrader(blocks, changes)
    made = walk.in_spec(made)
    return made, changes


def upgrade_format(
    value: Mapping[str, Any], formats: Mapping[int, Upgrader] = FORMATS
) -> tuple[dict[str, Any], list[str]]:
    """Return a spec file's value in the current format, and one line for each change.

    A value that cannot be upgraded is returned unchanged; the reader then rejects it.
    """
    made, changes = dict(value), list[str]()
    while (old := _format_of(made)) is not None and old in formats:
        try:
            made = {**formats[old](copy.deepcopy(made)), "format": old + 1}
        except _FAILURES:
            break
        changes.append(f"/format: {old} is now {old + 1}")
    return made, changes


def _format_of(value: Mapping[str, Any]) -> int | None:
    found = value.get("format")
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def upgrade_uses(
    form: Spec, overrides: Mapping[str, Any], blocks: Blocks
) -> tuple[Spec, Mapping[str, Any]]:
    """Return a spec and its overrides with every use of an older block upgraded.

    Both are returned unchanged if there is no such use, which is nearly always the case,
    or if a use cannot be upgraded; the checker then reports the block as unknown.
    """
    records = [form.params, overrides, form.nodes, *(one.nodes for one in form.blocks.values())]
    if not _mentions(records, blocks):
        return form, overrides
    changes = list[str]()
    walk = _UseUpgrader(blocks, changes)
    chosen = {key: walk.in_value(inner, pointer("params", key)) for key, inner in overrides.items()}
    value = walk.in_spec(form.model_dump(mode="json", by_alias=True, exclude_unset=True))
    if not changes:
        return form, overrides
    try:
        return Spec.model_validate(value), chosen
    except ValidationError:
        return form, overrides


def _mentions(records: Any, blocks: Blocks) -> bool:
    """Return whether records contain a use that can be upgraded."""
    waiting = [records]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Use):
            if _is_older(value.use, value.params, blocks):
                return True
            waiting += (value.params, *value.fill.values())
        elif isinstance(value, Mapping):
            if _is_older(value.get("use"), value.get("params"), blocks):
                return True
            waiting += value.values()
        elif isinstance(value, list | tuple):
            waiting += value
    return False


def _is_older(key: Any, params: Any, blocks: Blocks) -> bool:
    """Return whether a use with a key and params can be upgraded."""
    older = blocks.get(key) if isinstance(key, str) else None
    if older is None:
        return False
    return older.only is None or (isinstance(params, dict) and not older.only.isdisjoint(params))


class _UseUpgrader:
    """Walks every part of a spec that may name a block, and upgrades the uses."""

    def __init__(self, blocks: Blocks, changes: list[str]) -> None:
        self.blocks, self.changes = blocks, changes
        self.wires: Any = {}
        """Wires of the node whose uses are being upgraded; those of a slot enter by its node."""
        self.moved: dict[str, str] = {}
        """Old name of a weight to the new one, for the blocks that were upgraded."""

    def in_spec(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """Return a standalone spec or a child with its uses upgraded."""
        made = dict(value)
        if "nodes" in made:
            made["nodes"] = self.in_uses(made["nodes"], "/nodes")
        if isinstance(made.get("params"), dict):
            made["params"] = self.in_value(made["params"], "/params")
        if isinstance(made.get("blocks"), dict):
            made["blocks"] = {
                name: self.in_template(template, pointer("blocks", name))
                for name, template in made["blocks"].items()
            }
        if isinstance(made.get("patch"), list):
            made["patch"] = [
                self.in_patch(patch, pointer("patch", index))
                for index, patch in enumerate(made["patch"])
            ]
        self.in_ties(made)
        for template in made.get("blocks", {}).values() if self.moved else ():
            self.in_ties(template)
        return made

    def in_ties(self, record: Any) -> None:
        """Replace the names of weights that moved in the ties of a spec or a template."""
        if self.moved and isinstance(record, dict) and isinstance(record.get("tie"), list):
            record["tie"] = [
                [self.path(one) for one in group] if isinstance(group, list) else group
                for group in record["tie"]
            ]

    def path(self, text: Any) -> Any:
        """Return the path of a weight, or a pattern of paths, with the name it has now."""
        return moved_path(text, self.moved) if isinstance(text, str) else text

    def in_template(self, template: Any, at: str) -> Any:
        """Return a template with the uses in its nodes upgraded."""
        if not isinstance(template, dict) or "nodes" not in template:
            return template
        return {**template, "nodes": self.in_uses(template["nodes"], at + "/nodes")}

    def in_uses(self, uses: Any, at: str) -> Any:
        """Return an object of nodes or slots with its uses upgraded."""
        if not isinstance(uses, dict):
            return uses
        return {name: self.in_use(use, at + pointer(name)) for name, use in uses.items()}

    def in_use(self, use: Any, at: str) -> Any:
        """Return one use upgraded, after the uses in its slots."""
        if not isinstance(use, dict):
            return use
        outer, self.wires = self.wires, use.get("in", self.wires)
        use = self.in_slots(use, at)
        self.wires = outer
        return use

    def in_slots(self, use: dict[str, Any], at: str) -> dict[str, Any]:
        """Return one use upgraded, given the wires of its node."""
        if "fill" in use:
            use = {**use, "fill": self.in_uses(use["fill"], at + "/fill")}
        if isinstance(use.get("params"), dict):
            use = {**use, "params": self.in_value(use["params"], at + "/params")}
        return self.step(use, at)

    def in_value(self, value: Any, at: str) -> Any:
        """Return the value of a param with the block choices in it upgraded."""
        if isinstance(value, list):
            return [self.in_value(inner, at + pointer(i)) for i, inner in enumerate(value)]
        if not isinstance(value, dict):
            return value
        inner = {key: self.in_value(v, at + pointer(key)) for key, v in value.items()}
        return self.step(inner, at)

    def in_patch(self, patch: Any, at: str) -> Any:
        """Return a patch with its selection and the uses that it writes upgraded."""
        if not isinstance(patch, dict):
            return patch
        made = dict(patch)
        if isinstance(made.get("select"), str):
            made["select"] = self.in_selection(made["select"], at)
        for key in _SINGLE_USES:
            if key in made:
                made[key] = self.in_use(made[key], at + pointer(key))
        for key in _NAMED_USES:
            if key in made:
                made[key] = self.in_uses(made[key], at + pointer(key))
        if isinstance(made.get("set"), dict):
            made["set"] = self.in_keys(made["set"], at + "/set")
        return made

    def in_selection(self, text: str, at: str) -> str:
        """Return a selection that names the current blocks in its brackets."""
        for key, older in self.blocks.items():
            if older.only is None and f"[use={key}]" in text:
                text = text.replace(f"[use={key}]", f"[use={older.key}]")
                self.changes.append(f"{at}/select: {key} is now {older.key}")
        return text

    def in_keys(self, keys: dict[str, Any], at: str) -> dict[str, Any]:
        """Return the keys that a patch sets, upgraded if they name a block."""
        if "params" in keys:
            return self.step(keys, at)
        made = self.step(_undotted(keys), at)
        return _dotted(made) if made.get("use") != keys.get("use") else keys

    def step(self, use: dict[str, Any], at: str) -> dict[str, Any]:
        """Return a use upgraded through every major version that has an upgrader."""
        while _is_older(key := use.get("use"), use.get("params"), self.blocks):
            older = self.blocks[str(key)]
            try:
                wired = {**copy.deepcopy(use), "in": self.wires}
                made = {**older.upgrade(wired), "use": older.key}
                use = {k: v for k, v in made.items() if k != "in" or k in use}
            except _FAILURES:
                break
            self.moved |= older.moved
            if older.only is not None:
                self.changes.append(f"{at}/params: params of an older {key} are upgraded")
                break
            self.changes.append(f"{at}/use: {key} is now {older.key}")
        return use


def moved_path(path: str, moved: Mapping[str, str]) -> str:
    """Return the path of a weight with the name that it has now.

    >>> moved_path("encoder.*.f.head_gate", {"head_gate": "output.weight"})
    'encoder.*.f.output.weight'
    """
    for old, new in moved.items():
        if path.endswith(f".{old}"):
            return f"{path.removesuffix(old)}{new}"
    return path


def _undotted(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a patch nested as in a use of a block; other keys stay dotted."""
    use: dict[str, Any] = {}
    for key, value in keys.items():
        record, dot, name = key.partition(".")
        if dot and record == "params" and "." not in name:
            use.setdefault(record, {})[name] = value
        else:
            use[key] = value
    return use


def _dotted(use: Mapping[str, Any]) -> dict[str, Any]:
    """Return a use as dotted keys of a patch, one key for each param."""
    keys: dict[str, Any] = {}
    for key, value in use.items():
        if key == "params" and isinstance(value, dict):
            keys |= {f"params.{name}": inner for name, inner in value.items()}
        else:
            keys[key] = value
    return keys
