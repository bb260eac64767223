"""Upgrade specs of older formats and uses of older blocks to the current ones.

An upgrader is a function from one JSON object to another.  A format's upgrader converts a
file of that format (a standalone spec or a child) to the next format; a block's upgrader
converts a use of the previous major version to its own.  Files are untrusted, so upgraders
leave unknown parts unchanged; the reader and the checker report what is wrong with them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Protocol

from pydantic import ValidationError

from . import format_1
from .findings import pointer
from .form import FORMAT, Spec

Upgrader = Callable[[dict[str, Any]], dict[str, Any]]
"""Converts an object of one version to the next; it may modify its argument."""

FORMATS: Mapping[int, Upgrader] = {1: format_1.upgrade_spec}
"""Format of a spec to the function that upgrades it to the next format."""
RUN_FORMATS: Mapping[int, Upgrader] = {1: format_1.upgrade_run}
"""The same for run files."""
OBJECTIVE_FORMAT = 3
"""Format of the run files that train an objective."""
TABLE_FORMATS: Mapping[int, Upgrader] = {1: dict}
"""The same for import tables, which format 2 did not change."""

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


Blocks = Mapping[str, tuple[str, Upgrader]]
"""Key of an older block to the next key and the upgrader between the two."""


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
    found: dict[str, tuple[str, Upgrader]] = {}
    for block in blocks.values():
        before = f"{block.name}@{block.major - 1}"
        if block.upgrade is not None and (registered or before not in names):
            found[before] = (block.key, block.upgrade)
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
    while (old := _format_of(made)) is not None and old < FORMAT and old in formats:
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
    if not blocks:
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


class _UseUpgrader:
    """Walks every part of a spec that may name a block, and upgrades the uses."""

    def __init__(self, blocks: Blocks, changes: list[str]) -> None:
        self.blocks, self.changes = blocks, changes

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
        return made

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
        """Return a patch with the uses that it writes upgraded; its selection is unchanged."""
        if not isinstance(patch, dict):
            return patch
        made = dict(patch)
        for key in _SINGLE_USES:
            if key in made:
                made[key] = self.in_use(made[key], at + pointer(key))
        for key in _NAMED_USES:
            if key in made:
                made[key] = self.in_uses(made[key], at + pointer(key))
        if isinstance(made.get("set"), dict):
            made["set"] = self.in_keys(made["set"], at + "/set")
        return made

    def in_keys(self, keys: dict[str, Any], at: str) -> dict[str, Any]:
        """Return the keys that a patch sets, upgraded if they name a block."""
        if "params" in keys:
            return self.step(keys, at)
        made = self.step(_undotted(keys), at)
        return _dotted(made) if made.get("use") != keys.get("use") else keys

    def step(self, use: dict[str, Any], at: str) -> dict[str, Any]:
        """Return a use upgraded through every major version that has an upgrader."""
        while isinstance(key := use.get("use"), str) and key in self.blocks:
            after, upgrader = self.blocks[key]
            try:
                use = {**upgrader(copy.deepcopy(use)), "use": after}
            except _FAILURES:
                break
            self.changes.append(f"{at}/use: {key} is now {after}")
        return use


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
