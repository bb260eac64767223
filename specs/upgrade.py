"""Upgrade: specs of older formats, and uses of older blocks, become today's.

An upgrader is a function from one JSON object to another.  A format's takes a file
of that format, whole spec or child, to one of the next; a block's takes a use of the
major before to one of its own.  Both leave alone what they do not know, for a file
may be a stranger's: what is wrong with it the reader and the checker say afterwards.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from pydantic import ValidationError

from . import format_1
from .findings import pointer
from .form import FORMAT, Spec

Upgrader = Callable[[dict[str, Any]], dict[str, Any]]
"""From an object of one version to one of the next; it may change its argument."""

FORMATS: Mapping[int, Upgrader] = {1: format_1.upgrade_spec}
"""Format of a spec to the function that upgrades it to the next format."""
RUN_FORMATS: Mapping[int, Upgrader] = {1: format_1.upgrade_run}
"""The same for run files."""
TABLE_FORMATS: Mapping[int, Upgrader] = {1: dict}
"""The same for tables of imports, which format 2 left as they were."""

_FAILURES = (LookupError, TypeError, ValueError, AttributeError)
"""What an upgrader may raise over an object of a form that it does not know."""
_SINGLE_USES = ("replace",)
_NAMED_USES = ("insert_before", "insert_after")


class Versioned(Protocol):
    """What is asked of a block type here."""

    @property
    def name(self) -> str:
        """The block's name without its version."""

    @property
    def major(self) -> int:
        """Its version."""

    @property
    def key(self) -> str:
        """`name@major`."""

    @property
    def upgrade(self) -> Upgrader | None:
        """From a use of the major before to one of this."""


Blocks = Mapping[str, tuple[str, Upgrader]]
"""Key of an older block to the next key, and what makes a use of the one a use of the other."""


def older_blocks(known: Iterable[Versioned], *, registered: bool = False) -> Blocks:
    """Return the older blocks whose uses can be upgraded.

    Args:
        known: the registered blocks.
        registered: also those that are themselves still registered, to reach the newest.
    """
    blocks = {block.key: block for block in known}
    found: dict[str, tuple[str, Upgrader]] = {}
    for block in blocks.values():
        before = f"{block.name}@{block.major - 1}"
        if block.upgrade is not None and (registered or before not in blocks):
            found[before] = (block.key, block.upgrade)
    return found


def upgrade(
    value: Mapping[str, Any], formats: Mapping[int, Upgrader], blocks: Blocks
) -> tuple[dict[str, Any], list[str]]:
    """Return a spec file's value in today's format, of today's blocks.

    Args:
        value: the file's JSON value; it stays as it is.
        formats: format to its upgrader.
        blocks: older blocks with theirs.

    Returns:
        The new value, and one line for each change; none when there was nothing to do.
    """
    made, changes = upgrade_format(value, formats)
    walk = _Uses(blocks, changes)
    made = walk.in_spec(made)
    return made, changes


def upgrade_format(
    value: Mapping[str, Any], formats: Mapping[int, Upgrader] = FORMATS
) -> tuple[dict[str, Any], list[str]]:
    """Return a spec file's value in today's format, and one line for each change.

    A value that cannot be upgraded stays what it is, for the reader to refuse.
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
    """Return a spec and the values set from outside with no use of an older block left.

    Both come back as they are where there is none, which is nearly always, and where a
    use cannot be upgraded: the checker then says that there is no such block.
    """
    if not blocks:
        return form, overrides
    changes = list[str]()
    walk = _Uses(blocks, changes)
    chosen = {key: walk.in_value(inner, pointer("params", key)) for key, inner in overrides.items()}
    value = walk.in_spec(form.model_dump(mode="json", by_alias=True, exclude_unset=True))
    if not changes:
        return form, overrides
    try:
        return Spec.model_validate(value), chosen
    except ValidationError:
        return form, overrides


class _Uses:
    """A walk over everything in a spec that may name a block."""

    def __init__(self, blocks: Blocks, changes: list[str]) -> None:
        self.blocks, self.changes = blocks, changes

    def in_spec(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """Return a spec, or the child of one, with its uses upgraded."""
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
        """Return a template with its nodes' uses upgraded."""
        if not isinstance(template, dict) or "nodes" not in template:
            return template
        return {**template, "nodes": self.in_uses(template["nodes"], at + "/nodes")}

    def in_uses(self, uses: Any, at: str) -> Any:
        """Return uses by name, as nodes or slots hold them."""
        if not isinstance(uses, dict):
            return uses
        return {name: self.in_use(use, at + pointer(name)) for name, use in uses.items()}

    def in_use(self, use: Any, at: str) -> Any:
        """Return one use, what stands in its slots upgraded first."""
        if not isinstance(use, dict):
            return use
        if "fill" in use:
            use = {**use, "fill": self.in_uses(use["fill"], at + "/fill")}
        if isinstance(use.get("params"), dict):
            use = {**use, "params": self.in_value(use["params"], at + "/params")}
        return self.step(use, at)

    def in_value(self, value: Any, at: str) -> Any:
        """Return a param's value with the block choices in it upgraded."""
        if isinstance(value, list):
            return [self.in_value(inner, at + pointer(i)) for i, inner in enumerate(value)]
        if not isinstance(value, dict):
            return value
        inner = {key: self.in_value(v, at + pointer(key)) for key, v in value.items()}
        return self.step(inner, at)

    def in_patch(self, patch: Any, at: str) -> Any:
        """Return a patch with the uses that it writes upgraded; what it selects stays."""
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
        """Return what a patch sets, upgraded if it names a block."""
        if "params" in keys:
            return self.step(keys, at)
        made = self.step(_undotted(keys), at)
        return _dotted(made) if made.get("use") != keys.get("use") else keys

    def step(self, use: dict[str, Any], at: str) -> dict[str, Any]:
        """Return a use brought up by as many majors as there are upgraders for."""
        while isinstance(key := use.get("use"), str) and key in self.blocks:
            after, upgrader = self.blocks[key]
            try:
                use = {**upgrader(copy.deepcopy(use)), "use": after}
            except _FAILURES:
                break
            self.changes.append(f"{at}/use: {key} is now {after}")
        return use


def _undotted(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a patch sets as a use of a block would hold it; other keys stay dotted."""
    use: dict[str, Any] = {}
    for key, value in keys.items():
        record, dot, name = key.partition(".")
        if dot and record == "params" and "." not in name:
            use.setdefault(record, {})[name] = value
        else:
            use[key] = value
    return use


def _dotted(use: Mapping[str, Any]) -> dict[str, Any]:
    """Return a use as what a patch sets: one param at a time."""
    keys: dict[str, Any] = {}
    for key, value in use.items():
        if key == "params" and isinstance(value, dict):
            keys |= {f"params.{name}": inner for name, inner in value.items()}
        else:
            keys[key] = value
    return keys
