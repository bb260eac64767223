"""Upgrade of format 1 files to format 2.

Format 2 renames attention masks.  The kind `keep` is now `mask`; ports and inputs that were
called `keep` or ended in `_keep` are renamed accordingly, and so are two blocks.  In a run
file, `packed` is now `unpadded` and `recompute` is now `activation_checkpointing`.  Nodes,
params and parameter paths are unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

BLOCKS = {"keep_to_bias@1": "mask_to_bias@1", "lengths_to_keep@1": "lengths_to_mask@1"}
"""Block names of format 1 to those of format 2."""
RUN_KEYS = {"recompute": "activation_checkpointing"}
"""Keys of a run file of format 1 to those of format 2."""
_KIND = re.compile(r"^(\s*)keep(\s*\[)")
_NAME = re.compile(r"(?:[A-Za-z][A-Za-z0-9_]*_)?keep")
_PREDICATE = re.compile(r"\[(port|use)=([^\[\]]*)\]")
_PORTS = ("in", "inputs", "outputs")
"""Records whose keys are port names."""


def upgrade_spec(value: dict[str, Any]) -> dict[str, Any]:
    """Return a spec file of format 1 (standalone or a child) in format 2."""
    return _Renamer(_other_inputs(value)).in_spec(value)


def upgrade_run(value: dict[str, Any]) -> dict[str, Any]:
    """Return a run file of format 1 in format 2."""
    made = {RUN_KEYS.get(key, key): inner for key, inner in value.items()}
    if made.get("padding") == "packed":
        made["padding"] = "unpadded"
    selections = made.get("activation_checkpointing")
    if isinstance(selections, str):
        made["activation_checkpointing"] = _selection(selections)
    elif isinstance(selections, list):
        made["activation_checkpointing"] = [
            _selection(one) if isinstance(one, str) else one for one in selections
        ]
    return made


def _renamed(name: str) -> str:
    """Return the name of a port in format 2.

    >>> _renamed("source_keep"), _renamed("keeper")
    ('source_mask', 'keeper')
    """
    return name[: -len("keep")] + "mask" if _NAME.fullmatch(name) else name


def _selection(text: str) -> str:
    """Return a selection whose predicates use the port and block names of format 2.

    >>> _selection("**[use=keep_to_bias@1]"), _selection("*.keep[port=keep]")
    ('**[use=mask_to_bias@1]', '*.keep[port=mask]')
    """

    def predicate(found: re.Match[str]) -> str:
        key, text = found.groups()
        return f"[{key}={BLOCKS.get(text, text) if key == 'use' else _renamed(text)}]"

    return _PREDICATE.sub(predicate, text)


def _other_inputs(value: Mapping[str, Any]) -> frozenset[str]:
    """Return the input names that look like a mask but whose input is of another kind."""
    blocks = value.get("blocks")
    records = [value, *(blocks.values() if isinstance(blocks, dict) else ())]
    return frozenset(
        name
        for record in records
        for name, text in _items(record, "inputs")
        if not (isinstance(text, str) and _KIND.match(text))
    )


def _items(record: Any, key: str) -> Iterator[tuple[str, Any]]:
    inner = record.get(key) if isinstance(record, dict) else None
    yield from inner.items() if isinstance(inner, dict) else ()


class _Renamer:
    """Walks a spec and renames ports, kinds and blocks."""

    def __init__(self, others: frozenset[str]) -> None:
        """Do not rename the names in `others`, which are inputs of another kind."""
        self.others = others

    def in_spec(self, value: dict[str, Any]) -> dict[str, Any]:
        """Return a standalone spec or a child, renamed."""
        made: dict[str, Any] = self.in_template(value, root=True)
        if isinstance(made.get("blocks"), dict):
            made["blocks"] = {
                name: self.in_template(template) for name, template in made["blocks"].items()
            }
        if "params" in made:
            made["params"] = self.in_param(made["params"])
        if isinstance(made.get("patch"), list):
            made["patch"] = [self.in_patch(patch) for patch in made["patch"]]
        return made

    def in_template(self, template: Any, *, root: bool = False) -> Any:
        """Return a spec or a template with renamed ports; the spec's own output names stay."""
        if not isinstance(template, dict):
            return template
        made = dict(template)
        if isinstance(made.get("inputs"), dict):
            made["inputs"] = {
                self.port(name): self.type(text) for name, text in made["inputs"].items()
            }
        if isinstance(made.get("outputs"), dict):
            made["outputs"] = {
                name if root else self.port(name): self.value(value)
                for name, value in made["outputs"].items()
            }
        if isinstance(made.get("nodes"), dict):
            made["nodes"] = {name: self.in_use(node) for name, node in made["nodes"].items()}
        return made

    def in_use(self, use: Any) -> Any:
        """Return one use of a block, as a node or in a slot, renamed."""
        if not isinstance(use, dict):
            return use
        made = dict(use)
        if isinstance(made.get("use"), str):
            made["use"] = BLOCKS.get(made["use"], made["use"])
        if isinstance(made.get("in"), dict):
            made["in"] = {self.port(port): self.value(value) for port, value in made["in"].items()}
        for key in ("carry", "collect"):
            if isinstance(made.get(key), list):
                made[key] = [self.port(port) for port in made[key]]
        if isinstance(made.get("fill"), dict):
            made["fill"] = {slot: self.in_use(inner) for slot, inner in made["fill"].items()}
        if "params" in made:
            made["params"] = self.in_param(made["params"])
        return made

    def in_param(self, value: Any) -> Any:
        """Return the value of a param, with the block choices in it renamed."""
        if isinstance(value, list):
            return [self.in_param(inner) for inner in value]
        if not isinstance(value, dict):
            return value
        made = {key: self.in_param(inner) for key, inner in value.items()}
        return {**made, "use": BLOCKS.get(made["use"], made["use"])} if _chooses(made) else made

    def in_patch(self, patch: Any) -> Any:
        """Return one patch with its selection and its changes renamed."""
        if not isinstance(patch, dict):
            return patch
        made = dict(patch)
        if isinstance(made.get("select"), str):
            made["select"] = _selection(made["select"])
        for key in ("port", "output", "through"):
            if isinstance(made.get(key), str):
                made[key] = self.port(made[key])
        if "replace" in made:
            made["replace"] = self.in_use(made["replace"])
        for key in ("insert_before", "insert_after"):
            if isinstance(made.get(key), dict):
                made[key] = {name: self.in_use(node) for name, node in made[key].items()}
        if isinstance(made.get("set"), dict):
            made["set"] = dict(self.in_key(key, value) for key, value in made["set"].items())
        if isinstance(made.get("remove"), list):
            made["remove"] = [self.in_key(key, None)[0] for key in made["remove"]]
        return made

    def in_key(self, dotted: Any, value: Any) -> tuple[Any, Any]:
        """Return a dotted key of a patch and the value that it writes, both renamed."""
        if not isinstance(dotted, str):
            return dotted, value
        names = dotted.split(".")
        *outer, last = names
        if outer and outer[-1] in _PORTS:
            names[-1] = self.port(last)
            value = self.type(value) if outer[-1] == "inputs" else self.value(value)
        elif last == "use" and isinstance(value, str):
            value = BLOCKS.get(value, value)
        elif last in (*_PORTS, "carry", "collect", "params", "fill", "nodes"):
            record = {"nodes": {"": {last: value}}} if last != "inputs" else {last: value}
            made = self.in_template(record)
            value = made["inputs"] if last == "inputs" else made["nodes"][""][last]
        elif isinstance(value, dict):
            value = self.in_use(value)
        return ".".join(names), value

    def port(self, name: Any) -> Any:
        """Return the new name of a port or an input."""
        renames = isinstance(name, str) and name not in self.others
        return _renamed(name) if renames else name

    def value(self, value: Any) -> Any:
        """Return the renamed source of a wire: an input, or a port of a node."""
        if not isinstance(value, str):
            return value
        node, dot, port = value.rpartition(".")
        return f"{node}{dot}{self.port(port)}"

    def type(self, text: Any) -> Any:
        """Return the type of an input, with its kind renamed."""
        return _KIND.sub(r"\1mask\2", text) if isinstance(text, str) else text


def _chooses(value: Mapping[str, Any]) -> bool:
    """Return whether the value of a param names a block."""
    return isinstance(value.get("use"), str)
