"""Edits: what a click changes in the text of a spec, with its formatting kept.

A value that this file writes is changed where it is written; a value that a parent writes is
changed by a patch in this file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ....graphs.draw.facts import pointers
from ....plugin import BlockNode, InputError, Source, TemplateNode, Visit, pointer, visits
from ....specs.findings import Place
from ....specs.inherit import parent_of
from ....specs.json_tree import is_in, parts_of, value_at
from ....specs.load import load
from ....specs.reader import read_json, read_text
from ....specs.text_edits import EditError, PatchOperation, edited
from ..language.definitions import apply
from ..language.rename import renamed_node
from .checked_text import CheckedText, read
from .covering import covering
from .menu import judge
from .ports import piece
from .variant import variant

_PADDING = "D02"
"""Finding of a block that reads padding."""
_ROUNDS = 3
"""Maximum number of rounds of removing params that nothing uses any more."""


class _MovedError(Exception):
    """A patch gives a value that it does not contain, such as the wires of an inserted node."""


def edit(reading: CheckedText, act: Callable[[Editor], str]) -> str:
    """Return a text after an edit.

    The patches of a variant are written anew where the edit contradicts them.

    Args:
        reading: the text.
        act: makes the edit.

    Raises:
        InputError: the edit is not possible.
    """
    try:
        text = act(Editor(reading))
        if "extends" not in _object(reading) or not _broken(read(text, reading.source), reading):
            return text
    except _MovedError:
        pass
    file = Editor(reading).parent_file()
    if reading.loaded is None or file is None:
        raise InputError(
            "this edit contradicts a patch", location=reading.source, help="edit the text by hand"
        )
    head = _object(reading)
    complete = read(json.dumps(reading.loaded.value(), indent=2), reading.source)
    changed = read(act(Editor(complete)), reading.source)
    old = read(read_text(file), str(file))
    text, _ = variant(old, changed, head["extends"], head["name"], draft=True)
    return text


def _object(reading: CheckedText) -> Any:
    """Return a text as a JSON value."""
    return read_json(reading.text, Source(reading.source, reading.text))


def _broken(after: CheckedText, before: CheckedText) -> bool:
    """Return whether the patches of a text contradict each other, or are none, after an edit."""
    codes = [{e.code for e in reading.errors if e.code[0] in "SX"} for reading in (after, before)]
    return bool(codes[0] - codes[1])


class Editor:
    """Edits of one text: a spec whose form has no mistakes, and of it the nodes without errors."""

    def __init__(self, reading: CheckedText) -> None:
        """Open a text.

        Raises:
            InputError: it is not a spec, or its form is wrong.
        """
        if reading.loaded is None or reading.editable is None:
            raise InputError(
                "this text cannot be edited by clicks",
                location=reading.source,
                help="correct its errors first; for a run, open the spec of its model",
            )
        self.reading, self.loaded, self.graph = reading, reading.loaded, reading.editable
        self.text = reading.text
        self._opened = self._value()
        self.visits = {visit.path: visit for visit in visits(self.graph.root)}

    def at(self, path: str) -> str:
        """Return the pointer of a node or a filling in the merged spec.

        Raises:
            InputError: there is none.
        """
        visit = pointers(self.graph).get(path)
        if not visit:
            raise InputError(
                f"no node '{path}' in this spec", location=path, help="see 'weft show'"
            )
        return visit

    def set(self, path: str, keys: Mapping[str, Any], gone: Iterable[str] = ()) -> str:
        """Return the text with some keys of a record set and others removed.

        Args:
            path: a node, or a block in a slot; `/` is the spec itself.
            keys: dotted keys, such as `params.heads`, to their values.
            gone: dotted keys to remove.
        """
        return self._set("" if path == "/" else self.at(path), path, keys, gone)

    def set_all(self, paths: Iterable[str], keys: Mapping[str, Any], gone: Iterable[str]) -> str:
        """Return the text with the same keys of several records set, and others removed.

        What parents write is changed by patches with as few selections as possible.

        Args:
            paths: nodes, or blocks in slots.
            keys: as of `set`.
            gone: dotted keys to remove, where they are written.
        """
        records = {self.at(path): path for path in paths}  # copies of a repeat are one record
        late: dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = {}
        removed = set[Place]()
        for at, path in records.items():
            late_set = tuple(key for key in keys if not self._write(at, key, keys[key]))
            late_gone = []
            for key in gone:
                there = at + pointer(*key.split("."))
                origin = self.loaded.origin_of(there)  # a patch writes it for several records
                if not self._in_merged(there) or origin in removed:
                    continue
                if self._remove(at, key):
                    removed.add(origin)
                else:
                    late_gone.append(key)
            if late_set or late_gone:
                late.setdefault((late_set, tuple(late_gone)), []).append(path)
        for (late_set, lost), remaining in late.items():
            for select in self._selections(remaining):
                self._patch(select, {key: keys[key] for key in late_set}, [*lost])
        return self.text

    def _selections(self, paths: list[str]) -> list[str]:
        """Return the selections that reach some paths in the parent."""
        parent = self._parent()
        return paths if parent is None else covering(parent, paths)

    def parent_file(self) -> Path | None:
        """Return the file of the one spec that this file extends; None if there is none."""
        extends = self._value().get("extends")
        return parent_of(extends, Path(self.reading.source)) if isinstance(extends, str) else None

    def _parent(self) -> Any:
        """Return the value of the spec that this file extends; None if there is none."""
        file = self.parent_file()
        return load(file).value() if file else None

    def _set(self, at: str, path: str, keys: Mapping[str, Any], gone: Iterable[str] = ()) -> str:
        late_set = {key: value for key, value in keys.items() if not self._write(at, key, value)}
        late_gone = [key for key in gone if not self._remove(at, key)]
        if late_set or late_gone:
            self._patch(path, late_set, late_gone)
        return self.text

    def _own(self, at: str) -> str | None:
        """Return the pointer in this text of a part of the merged spec, if it is written here."""
        file, origin = self.loaded.origin_of(at)
        if str(file) != self.reading.source or not self._has(origin):
            return None
        value = value_at(self.loaded.value(), at)
        if (
            is_in(self._opened, origin)
            and not isinstance(value, dict)
            and value_at(self._opened, origin) != value
        ):
            raise _MovedError(at)  # a patch that moves wires gives the value
        return origin

    def _has(self, path: str) -> bool:
        return is_in(self._value(), path)

    def _value(self) -> Any:
        """Return the text as a JSON value."""
        return read_json(self.text, Source(self.reading.source, self.text))

    def _write(self, at: str, key: str, value: Any) -> bool:
        """Write a key where it or its record is written; return whether that is in this file."""
        names = key.split(".")
        path = self._own(at + pointer(*names)) if self._in_merged(at + pointer(*names)) else None
        if path is not None:
            self._edit(PatchOperation("replace", path, value))
            return True
        if self._in_merged(at + pointer(*names)):
            return False
        record = self._own(at)
        if record is None or self._is_child(at):
            return False
        for index in range(1, len(names)):
            if not self._has(record + pointer(*names[:index])):
                inner: Any = value
                for name in reversed(names[index:]):
                    inner = {name: inner}
                self._edit(PatchOperation("add", record + pointer(*names[:index]), inner))
                return True
        self._edit(PatchOperation("add", record + pointer(*names), value))
        return True

    def _is_child(self, at: str) -> bool:
        """Return whether a pointer is the whole of a spec that extends another."""
        return at == "" and self._has("/extends")

    def _remove(self, at: str, key: str) -> bool:
        path = self._own(at + pointer(*key.split(".")))
        if path is None or "/" not in path[1:]:
            return False
        if path.startswith("/patch/") and parts_of(path)[2] == "set" and "." in parts_of(path)[3]:
            # A patch that set it here; the parent has none.
            self._edit(PatchOperation("remove", path))
            return True
        self._edit(PatchOperation("remove", path))
        above = path.rpartition("/")[0]
        if parts_of(above)[-1] in ("params", "fill") and self._is_empty(above):
            self._edit(PatchOperation("remove", above))
        return True

    def _is_empty(self, path: str) -> bool:
        return value_at(self._value(), path) in ({}, [])

    def _in_merged(self, at: str) -> bool:
        return is_in(self.loaded.value(), at)

    def _patch(self, path: str, keys: Mapping[str, Any], gone: list[str]) -> None:
        """Add to the patch of this file that selects a path, or add one."""
        if not self._has("/extends"):
            raise InputError(
                f"'{path}' is written in another file", location=path, help="edit that file"
            )
        existing = {
            key: value for key, value in keys.items() if path == "/" and key.startswith("params.")
        }
        for key, value in existing.items():
            name = key.removeprefix("params.")
            if not self._has("/params"):
                self._edit(PatchOperation("add", "/params", {name: value}))
            else:
                self._edit(PatchOperation("add", pointer("params", name), value))
        keys = {key: value for key, value in keys.items() if key not in existing}
        if not keys and not gone:
            return
        for action, content in (("remove", gone), ("set", keys)):
            if content:
                self._add_patch(path, action, content)

    def _add_patch(self, path: str, action: str, content: Any) -> None:
        """Add to the patch with a selection and an action, or add one: a patch has one action."""
        patches = read_json(self.text, Source(self.reading.source, self.text)).get("patch")
        if patches is None:
            self._edit(PatchOperation("add", "/patch", [{"select": path, action: content}]))
            return
        for index, patch in enumerate(patches):
            if patch.get("select") == path and action in patch:
                at = pointer("patch", index, action)
                if action == "remove":
                    for key in content:
                        self._edit(PatchOperation("add", f"{at}/-", key))
                else:
                    for key, entry in content.items():
                        self._edit(PatchOperation("add", at + pointer(key), entry))
                return
        self._edit(PatchOperation("add", "/patch/-", {"select": path, action: content}))

    def _edit(self, edit: PatchOperation) -> None:
        try:
            self.text = edited(self.text, [edit])
        except EditError as error:
            problem = f"the text cannot be edited: {error}"
            raise InputError(
                problem, location=self.reading.source, help="edit it by hand"
            ) from error

    def swap(self, path: str, use: str, params: Mapping[str, Any]) -> str:
        """Return the text with another block; params that both have are kept."""
        judged = judge(self.graph, self.loaded, path, use, params)
        if judged.record is None:
            raise InputError(
                f"'{use}' does not fit: {judged.reason}", location=path, help="choose another block"
            )
        if self._in_merged(self.at_or_slot(path)):
            old = value_at(self.loaded.value(), self.at(path))
            new = judged.record
            keys = {"use": new["use"]} if old.get("use") != new["use"] else {}
            gone = []
            for part in ("params", "fill"):
                before, after = old.get(part, {}), new.get(part, {})
                keys |= {f"{part}.{k}": v for k, v in after.items() if before.get(k, ...) != v}
                gone += [f"{part}.{name}" for name in before if name not in after]
            self.set(path, keys, gone)
        else:
            outer, _, slot = path.rpartition("/")
            self.set(outer, {f"fill.{slot}": judged.record})
        return self._tidy()

    def at_or_slot(self, path: str) -> str:
        """Return the pointer of a path, which may be an empty slot."""
        if path in self.visits:
            return self.at(path)
        outer, _, slot = path.rpartition("/")
        return self.at(outer) + pointer("fill", slot)

    def _tidy(self) -> str:
        """Remove params of the spec that nothing uses any more."""
        for _ in range(_ROUNDS):
            now = read(self.text, self.reading.source)
            idle = [finding.at for finding in now.errors if finding.code == "W08"]
            if not idle or now.loaded is None:
                break
            self.loaded = now.loaded
            for at in idle:
                name = parts_of(at)[-1]
                if not self._remove("", f"params.{name}"):
                    self._patch("/", {}, [f"params.{name}"])
        return self.text

    def wire(self, path: str, port: str, value: str | None) -> str:
        """Return the text with another value at a port; None leaves an optional port open."""
        if value is None:
            return self.set(path, {}, [f"in.{port}"])
        return self.set(path, {f"in.{port}": value})

    def repeat(self, path: str, count: int) -> str:
        """Return the text with a number of copies of a template.

        Raises:
            InputError: the node is a block, or there are not that many copies.
        """
        node = self.node(path)
        if isinstance(node.node, BlockNode):
            raise InputError(
                f"'{path}' is a block, and templates are repeated",
                location=path,
                help="write a template with this node in it",
            )
        if isinstance(node.node, TemplateNode):
            body = node.node.body
            carry = [name for name in body.inputs if name in body.outputs]
            keys = {"repeat": count, "block": body.name, "carry": carry}
            return self.set(path, keys, ["use"])
        return self.set(path, {"repeat": count})

    def tie(self, weights: Iterable[str]) -> str:
        """Return the text with weights that are one and the same."""
        value = self.loaded.value()
        groups = [list(group) for group in value.get("tie", [])]
        paths = [*dict.fromkeys(weights)]
        joined = [group for group in groups if set(group) & set(paths)]
        untouched = [group for group in groups if group not in joined]
        merged = [*dict.fromkeys([*(name for group in joined for name in group), *paths])]
        return self.set("/", {"tie": [*untouched, merged]})

    def remove(self, path: str) -> str:
        """Return the text without a node; what reads its output reads its first input.

        Raises:
            InputError: it has a form that cannot be left out.
        """
        visit = self.node(path)
        wires = [*visit.node.wires.values()]
        name = path.rpartition(".")[2]
        scope_at = self.at(path).rpartition("/nodes/")[0]
        scope = value_at(self.loaded.value(), scope_at)
        if not wires:
            raise InputError(f"'{path}' reads nothing", location=path, help="remove it in the text")
        values = [f"{name}.{output}" for output in visit.node.outputs]
        for key in _readers(scope, values):
            self._scope_set(scope_at, key, wires[0])
        if not self._remove(scope_at, f"nodes.{name}"):
            self._patch_scope(scope_at, {}, [f"nodes.{name}"])
        return self._tidy()

    def _scope_set(self, scope_at: str, key: str, value: Any) -> None:
        """Set a key of the spec or of a template, and so of all its uses."""
        if not self._write(scope_at, key, value):
            self._patch_scope(scope_at, {key: value}, [])

    def _patch_scope(self, scope_at: str, keys: Mapping[str, Any], gone: list[str]) -> None:
        """Patch the spec or a template of the parent.

        Raises:
            InputError: the parent does not have the template.
        """
        parent = self._parent()
        if parent is not None and not is_in(parent, scope_at):
            problem = f"'{scope_at.removeprefix('/blocks/')}' is not a template of the parent"
            raise InputError(problem, location=scope_at, help="edit the text by hand")
        self._patch(scope_at or "/", keys, gone)

    def insert(
        self, use: str, path: str, port: str, params: Mapping[str, Any], *, after: bool = False
    ) -> str:
        """Return the text with a new node in the wires of a port.

        Args:
            use: a block.
            path: the node before which it is, or after which.
            port: its input, or its output.
            params: params of the block.
            after: whether the port is an output, whose readers then read the new node.
        """
        node = self.node(path).node
        fitting = piece(self.graph, self.loaded, path, port, use, params, after=after)
        scope_at = self.at(path).rpartition("/nodes/")[0]
        scope = value_at(self.loaded.value(), scope_at)
        value = f"{node.name}.{port}" if after else node.wires[port]
        readers = _readers(scope, [value]) if after else [f"nodes.{node.name}.in.{port}"]
        taken = scope.get("nodes", {})
        name = use.partition("@")[0]
        while name in taken:
            stem, _, number = name.rpartition("_")
            name = f"{stem}_{int(number) + 1}" if number.isdecimal() else f"{name}_2"
        wires = dict.fromkeys(fitting.record["in"], value)
        self._scope_set(scope_at, f"nodes.{name}", {**fitting.record, "in": wires})
        for key in readers:
            self._scope_set(scope_at, key, f"{name}.{fitting.output}")
        return self._masked(scope_at + pointer("nodes", name))

    def _masked(self, at: str) -> str:
        """Wire a mask to a new node that reads padding, as the finding about it proposes."""
        now = read(self.text, self.reading.source)
        if now.loaded is not None and is_in(now.loaded.value(), at):
            _, origin = now.loaded.origin_of(at)
            for problem in now.problems:
                if problem.finding.code == _PADDING and problem.finding.at == origin:
                    return (
                        apply(self.text, [*problem.fixes[0].edits]) if problem.fixes else self.text
                    )
        return self.text

    def rename(self, path: str, name: str, *, copied: bool = False) -> str:
        """Return the text with another name of a node, wherever this file uses it.

        Args:
            path: the node.
            name: its new name.
            copied: whether the text will be a new file, which no other one uses.
        """
        node = self.node(path).node
        scope = self.at(path).rpartition("/nodes/")[0]
        source = Path(self.reading.source)
        file = source / "copy.json" if copied else source  # there is no such folder
        return renamed_node(self.text, str(file), scope, node.name, name)

    def node(self, path: str) -> Visit:
        """Return a node of the graph.

        Raises:
            InputError: there is none, or the path is of a block in a slot.
        """
        visit = self.visits.get(path)
        if visit is None or visit.kind != "name":
            raise InputError(f"'{path}' is not a node", location=path, help="see 'weft show'")
        return visit


def _readers(scope: Mapping[str, Any], values: Iterable[str]) -> list[str]:
    """Return the dotted keys of a scope that read one of some values."""
    keys = {
        f"nodes.{name}.in.{port}": value
        for name, record in scope.get("nodes", {}).items()
        for port, value in record.get("in", {}).items()
    }
    keys |= {f"outputs.{output}": value for output, value in scope.get("outputs", {}).items()}
    values = {*values}
    return [key for key, value in keys.items() if value in values]
