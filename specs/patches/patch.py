"""Read the patches of a child spec, and collect the changes that they make in one scope.

Every patch reads the scope as the parent wrote it and records the keys that it writes.  Two
patches conflict if they write the same key, or if one writes inside a value that the other
writes; all other changes can be applied in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..findings import did_you_mean, pointer, renamed, respelled
from ..form import RepeatedTemplate, ShareNode, Template, UseNode
from .selections import SelectError, Selection, read_selection
from .walk import Site, is_repeat

MOST = 256
"""Maximum number of patches in a file."""
DEEPEST_KEY = 8
"""Maximum number of names in a dotted key."""
ACTIONS = ("set", "replace", "insert_before", "insert_after", "remove")
INTERCEPTED = "@"
"""In the wires of an inserted node: the value at the place where it is inserted."""

_EXTRA_KEYS = {
    "insert_before": ("port", "output"),
    "insert_after": ("port", "output"),
    "remove": ("through",),
}
"""Additional keys that each action allows."""

Report = Callable[..., None]
"""Called with the fields of a finding, except its file."""
Key = tuple[str, ...]
"""The names of a dotted key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """One patch: a selection and an action."""

    index: int
    """Index in the file's list of patches."""
    source: str = ""
    """Its file; by default, that of all patches."""
    selection: Selection
    action: str
    value: Any
    """Value of the action's key."""
    expect: int | None = None
    """Required number of selected places; None means at least one."""
    port: str = ""
    """The wire or output at which a node is inserted; `""` if there is only one."""
    output: str = "y"
    """The output of an inserted node that replaces the intercepted value."""
    through: str = ""
    """The port of a removed node whose value its readers read instead."""

    @property
    def location(self) -> tuple[str, int]:
        """Its file, and its index there."""
        return self.source, self.index

    def at(self, *keys: str) -> str:
        """Return the JSON Pointer of a key inside the patch."""
        return pointer("patch", self.index, *keys)

    @property
    def keys(self) -> list[tuple[Key, str]]:
        """The dotted keys that the patch sets or removes, each with its pointer."""
        texts = self.value if isinstance(self.value, Mapping | list) else ()
        return [
            (
                tuple(key.split(".")),
                self.at(self.action, str(i) if self.action == "remove" else key),
            )
            for i, key in enumerate(texts)
        ]

    @property
    def inserted(self) -> tuple[str, dict[str, Any]]:
        """Name and record of the inserted node."""
        [(name, record)] = self.value.items()
        return name, dict(record)


def read_patches(value: Any, report: Report) -> list[Patch]:
    """Return the valid patches of a file; report and omit the invalid ones."""
    if not isinstance(value, list):
        report(code="S04", at="/patch", problem="'patch' is not a list", help="write a list")
        return []
    if len(value) > MOST:
        report(
            code="X08",
            at="/patch",
            problem=f"the file has {len(value)} patches, more than {MOST}",
            help="select several nodes with one patch, or extend in two steps",
        )
        return []
    read = [_read_patch(written, index, report) for index, written in enumerate(value)]
    return [patch for patch in read if patch is not None]


def _read_patch(written: Any, index: int, report: Report) -> Patch | None:
    at = pointer("patch", index)
    if not isinstance(written, dict):
        report(code="S04", at=at, problem="a patch is not an object", help="write an object")
        return None
    actions = [key for key in ACTIONS if key in written]
    extra = _EXTRA_KEYS.get(actions[0], ()) if len(actions) == 1 else ("port", "output", "through")
    allowed = ("select", "expect", *(actions or ACTIONS), *extra)
    sound = True
    for key in written:
        if key not in allowed:
            context = f"in a patch with '{actions[0]}'" if len(actions) == 1 else "in a patch"
            report(
                code="S03",
                at=at + pointer(key),
                problem=f"unknown key '{key}' {context}",
                help=did_you_mean(key, allowed),
                fix=renamed(at + pointer(key), key, allowed, written),
            )
            sound = False
    if len(actions) != 1 and (sound or actions):
        present = " and ".join(f"'{key}'" for key in actions) or "none"
        report(
            code="X05",
            at=at,
            problem=f"a patch has exactly one action, and this patch has {present}",
            help=f"write one of {', '.join(ACTIONS)}; use one patch for each",
        )
    selection = _read_select(written, at, report)
    if len(actions) != 1 or not _sound_values(written, actions[0], at, report):
        return None
    if selection is None or not sound:
        return None
    return Patch(
        index=index,
        selection=selection,
        expect=written.get("expect"),
        action=actions[0],
        value=written[actions[0]],
        **{key: written[key] for key in extra if key in written},
    )


def _read_select(written: Mapping[str, Any], at: str, report: Report) -> Selection | None:
    text = written.get("select")
    if "select" not in written:
        report(code="S04", at=at, problem="key 'select' is missing", help="add 'select'")
    elif not isinstance(text, str):
        report(
            code="S04", at=f"{at}/select", problem="'select' is not a string", help="write a string"
        )
    else:
        try:
            return read_selection(text)
        except SelectError as error:
            report(code="X06", at=f"{at}/select", problem=str(error), help=error.help)
    return None


def _sound_values(written: Mapping[str, Any], action: str, at: str, report: Report) -> bool:
    """Return whether the values of a patch have the right types, and report those that do not."""
    wrong: list[tuple[str, str]] = []
    expect = written.get("expect", 1)
    if isinstance(expect, bool) or not isinstance(expect, int) or expect < 1:
        wrong.append(("expect", "a positive integer"))
    wrong += [
        (key, "the name of a port")
        for key in ("port", "output", "through")
        if key in written and not (isinstance(written[key], str) and written[key])
    ]
    expected = _WANTED[action]
    if not _FORMS[action](written[action]):
        wrong.append((action, expected))
    elif action in ("set", "remove"):
        wrong += [
            (action, expected)
            for key in _dotted(written[action])
            if not all(key.split(".")) or key.count(".") >= DEEPEST_KEY
        ][:1]
    for key, what in wrong:
        report(
            code="S04",
            at=at + pointer(key),
            problem=f"'{key}' is not {what}",
            help=f"write {what}",
        )
    return not wrong and _disjoint_keys(written[action], action, at, report)


def _disjoint_keys(value: Any, action: str, at: str, report: Report) -> bool:
    """Return whether no dotted key of a patch is inside another, and report one that is."""
    keys = {tuple(key.split(".")) for key in _dotted(value)} if action in _DOTTED else set()
    for key in sorted(keys):
        outer = next((key[:n] for n in range(1, len(key)) if key[:n] in keys), None)
        if outer:
            report(
                code="X03",
                at=at + pointer(action),
                problem=f"'{'.'.join(key)}' is inside '{'.'.join(outer)}', also written here",
                help="write the inner value inside the outer one",
            )
            return False
    return True


def _dotted(value: Any) -> list[str]:
    return list(value) if isinstance(value, dict | list) else []


def _is_insert(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and len(value) == 1
        and all(isinstance(node, dict) for node in value.values())
    )


_DOTTED = ("set", "remove")
_FORMS: dict[str, Callable[[Any], bool]] = {
    "set": lambda value: isinstance(value, dict) and bool(value),
    "replace": lambda value: isinstance(value, dict),
    "insert_before": _is_insert,
    "insert_after": _is_insert,
    "remove": lambda value: (
        value is True
        or (isinstance(value, list) and bool(value) and all(isinstance(k, str) for k in value))
    ),
}
_WANTED = {
    "set": "an object of dotted keys, such as {'params.heads': 4}",
    "replace": "an object with 'use'",
    "insert_before": "an object with the new node's name, such as {'norm': {'use': 'rms_norm@1'}}",
    "insert_after": "an object with the new node's name, such as {'norm': {'use': 'rms_norm@1'}}",
    "remove": "true, or a list of dotted keys",
}


GONE: Any = object()
"""Value of an edit that removes a key."""
_OWN = ("format", "name", "doc", "params", "blocks")
"""Keys that a child sets at its top level, not in a patch."""

Fail = Callable[..., None]
"""Called with a patch, a pointer in it, and code, problem, help and perhaps fix of a finding."""


@dataclass(frozen=True, slots=True)
class KeyEdit:
    """One key that a patch writes."""

    path: Site
    """Keys from the scope's record."""
    value: Any
    at: str
    """JSON Pointer in the file of the patch."""
    patch: Patch
    again: bool = False
    """Whether the same patch also wrote the record that contains this key."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A place that a patch depends on without writing it."""

    path: Site
    at: str
    patch: Patch


@dataclass(frozen=True, slots=True)
class _Replacement:
    """A value whose readers are rewired to it from another value."""

    value: str
    at: str
    patch: Patch


class ScopeEdits:
    """The changes that patches make in one version of a scope."""

    def __init__(self, scope: str, record: Mapping[str, Any], fail: Fail) -> None:
        """Create an empty collection of changes.

        Args:
            scope: the template's name; `""` is the spec itself.
            record: the scope as the parent wrote it.
            fail: called for each change that is impossible.
        """
        self.scope, self.record, self._fail = scope, record, fail
        self.edits: list[KeyEdit] = []
        self.claims: list[Claim] = []
        self.owners: dict[Site, tuple[Patch, str]] = {}
        """Records whose block was replaced, to the patch that did so and the pointer in it."""
        self._replacements: dict[str, _Replacement] = {}
        self._removed: set[str] = set()
        self._read: dict[str, set[str]] | None = None
        """Node to the values that are read from it; computed on first use."""

    def add(self, patch: Patch, site: Site) -> None:
        """Add the changes of one patch at one site."""
        record: Any = self.record
        for key in site:
            record = record[key]
        change = {
            "set": self._set,
            "remove": self._remove,
            "replace": self._replace,
            "insert_after": self._insert_after,
            "insert_before": self._insert_before,
        }[patch.action]
        change(patch, site, record)

    def finish(self) -> None:
        """Rewire the readers of every value that has a replacement."""
        ends: dict[str, str] = {}
        for path, value in self._wires():
            stays = path[0] == "outputs" or path[1] not in self._removed
            if value in self._replacements and stays:
                first = self._replacements[value]
                end = self._end(value, ends)
                self.edits.append(KeyEdit(path, end, first.at, first.patch))

    def _end(self, value: str, ends: dict[str, str]) -> str:
        """Follow the replacements of a value to the end; in a cycle, return any of its values.

        Args:
            value: a value with a replacement.
            ends: cache of results, updated here.
        """
        chain: dict[str, None] = {}
        while value in self._replacements and value not in chain and value not in ends:
            chain[value] = None
            value = self._replacements[value].value
        end = ends.get(value, value)
        ends |= dict.fromkeys(chain, end)
        return end

    def _wires(self) -> Iterator[tuple[Site, str]]:
        """Yield the wires of the scope as the parent wrote it, including its outputs."""
        for name, node in self.record["nodes"].items():
            for port, value in node.get("in", {}).items():
                yield ("nodes", name, "in", port), value
        for port, value in self.record["outputs"].items():
            yield ("outputs", port), value

    def _set(self, patch: Patch, site: Site, record: Mapping[str, Any]) -> None:
        for (key, at), value in zip(patch.keys, patch.value.values(), strict=True):
            if not (site or self.scope or self._may_set(patch, key)):
                continue
            current: Any = record
            for part in key[:-1]:
                current = current.get(part, {}) if isinstance(current, dict) else current
            if not isinstance(current, dict):
                problem = f"'{'.'.join(key)}' goes through a value that is not an object"
                self._fail(patch, at, "X07", problem, f"set all of '{key[0]}'")
                continue
            self.edits.append(KeyEdit((*site, *key), value, at, patch))
            if site and key in (("use",), ("block",)):
                self.owners[site] = patch, at

    def _may_set(self, patch: Patch, key: tuple[str, ...]) -> bool:
        if key[0] in _OWN:
            help_ = f"write '{key[0]}' next to 'extends'"
            if key[0] == "blocks":
                help_ = "select '/blocks/NAME', or write a new template next to 'extends'"
            problem = f"a patch of '/' cannot write '{key[0]}'"
            self._fail(patch, patch.at(patch.action), "X07", problem, help_)
        return key[0] not in _OWN

    def _remove(self, patch: Patch, site: Site, record: Mapping[str, Any]) -> None:
        if patch.value is True:
            self._remove_record(patch, site, record)
            return
        for key, at in patch.keys:
            current: Any = record
            missing, words = -1, []
            for number, part in enumerate(key):
                if not isinstance(current, dict) or part not in current:
                    missing, words = number, [*current] if isinstance(current, dict) else []
                    break
                current = current[part]
            lone = key[0] == "params" and len(key) == _PARAM
            if not (site or self.scope or lone or self._may_set(patch, key)):
                continue
            if missing >= 0:
                problem = f"there is no '{'.'.join(key)}' to remove"
                help_ = did_you_mean(key[missing], words)
                text = ".".join([*key[:missing], "{}", *key[missing + 1 :]])
                fix = respelled(at, key[missing], words, text)
                self._fail(patch, at, "X07", problem, help_, fix)
                continue
            self.edits.append(KeyEdit((*site, *key), GONE, at, patch))

    def _remove_record(self, patch: Patch, site: Site, record: Mapping[str, Any]) -> None:
        at = patch.at("remove")
        if not site and not self.scope:
            self._fail(patch, at, "X07", "the spec itself cannot be removed", "select a node")
            return
        self.edits.append(KeyEdit(site, GONE, at, patch))
        if len(site) != _NODE:
            if patch.through:
                self._fail(patch, patch.at("through"), "X07", _NO_WIRES, "remove 'through'")
            return
        name, wires = site[1], record.get("in", {})
        self._removed.add(name)
        if not patch.through:
            return
        if patch.through not in wires:
            problem = f"node '{name}' has no wire '{patch.through}'"
            at = patch.at("through")
            help_, fix = did_you_mean(patch.through, wires), respelled(at, patch.through, wires)
            self._fail(patch, at, "X07", problem, help_, fix)
            return
        replacement = _Replacement(wires[patch.through], patch.at("through"), patch)
        self._replacements |= dict.fromkeys(self._values_of(name), replacement)

    def _replace(self, patch: Patch, site: Site, record: Mapping[str, Any]) -> None:
        at = patch.at("replace")
        if not site and not self.scope:
            help_ = "write a spec without 'extends'"
            self._fail(patch, at, "X07", "the spec itself cannot be replaced", help_)
            return
        retained = {"in"} if len(site) == _NODE and "in" not in patch.value else set()
        for key in sorted({*record, *patch.value, *_KEYS} - retained):
            value = patch.value.get(key, GONE)
            location = patch.at("replace", key) if key in patch.value else at
            self.edits.append(KeyEdit((*site, key), value, location, patch))
        self.owners[site] = patch, at

    def _insert_after(self, patch: Patch, site: Site, _: Mapping[str, Any]) -> None:
        if not self._has_wires(patch, site):
            return
        name, read = site[1], self._values_of(site[1])
        value = f"{name}.{patch.port}" if patch.port else next(iter(read), "")
        if not patch.port and len(read) != 1:
            problem = (
                f"{len(read)} outputs of '{name}' are read" if read else f"nothing reads '{name}'"
            )
            options = ", ".join(f'"port": "{text.partition(".")[2]}"' for text in read)
            help_ = f"name one: {options}" if read else "name an output that is read in 'port'"
            self._fail(patch, patch.at("insert_after"), "X07", problem, help_)
            return
        if value not in read:
            problem = f"nothing reads '{value}'"
            outputs, at = [text.partition(".")[2] for text in read], patch.at("port")
            help_, fix = did_you_mean(patch.port, outputs), respelled(at, patch.port, outputs)
            self._fail(patch, at, "X07", problem, help_, fix)
            return
        output = self._insert(patch, value)
        self.claims.append(Claim((*site, "(out)", value), patch.at("insert_after"), patch))
        at = patch.at("insert_after", patch.inserted[0])
        self._replacements[value] = _Replacement(output, at, patch)

    def _insert_before(self, patch: Patch, site: Site, record: Mapping[str, Any]) -> None:
        if not self._has_wires(patch, site):
            return
        wires = record.get("in", {})
        port = patch.port or (next(iter(wires)) if len(wires) == 1 else "x")
        if port not in wires:
            problem = f"node '{site[1]}' has no wire '{port}'"
            at = patch.at("port" if patch.port else "insert_before")
            fix = respelled(at, port, wires) if patch.port else None
            self._fail(patch, at, "X07", problem, did_you_mean(port, wires), fix)
            return
        at = patch.at("insert_before", patch.inserted[0])
        output = self._insert(patch, wires[port])
        self.edits.append(KeyEdit((*site, "in", port), output, at, patch))

    def _insert(self, patch: Patch, value: str) -> str:
        """Add the node that a patch inserts; return its output, which replaces `value`."""
        name, record = patch.inserted
        at = patch.at(patch.action, name)
        inserted = any(edit.path == ("nodes", name) and edit.patch is patch for edit in self.edits)
        if name in self.record["nodes"] or inserted:
            where = f"in template '{self.scope}'" if self.scope else "in the spec"
            problem = f"node '{name}' exists already {where}"
            self._fail(patch, at, "X04", problem, "give it another name, or select one place")
            return f"{name}.{patch.output}"
        wires = record.get("in", {"x": INTERCEPTED})
        if isinstance(wires, dict):
            wires = {port: value if w == INTERCEPTED else w for port, w in wires.items()}
        self.edits.append(KeyEdit(("nodes", name), {**record, "in": wires}, at, patch))
        if "in" not in record:
            self.edits.append(KeyEdit(("nodes", name, "in", "x"), value, at, patch, again=True))
        return f"{name}.{patch.output}"

    def _has_wires(self, patch: Patch, site: Site) -> bool:
        if len(site) == _NODE:
            return True
        problem = _NO_WIRES if site else "only nodes have wires"
        self._fail(patch, patch.at(patch.action), "X07", problem, "select the node")
        return False

    def _values_of(self, name: str) -> list[str]:
        """Return the values of a node that the scope reads, without duplicates."""
        if self._read is None:
            self._read = {}
            for _, value in self._wires():
                self._read.setdefault(value.partition(".")[0], set()).add(value)
        return sorted(self._read.get(name, ()))

    def enter(self, patch: Patch, name: str) -> None:
        """Record that a patch selects something inside a node's template."""
        node = self.record["nodes"][name]
        keys = ("block", "instead", "share") if is_repeat(node) else ("use",)
        self.claims += [Claim(("nodes", name, key), patch.at("select"), patch) for key in keys]

    def conflicts(self) -> Iterator[tuple[KeyEdit | Claim, KeyEdit | Claim]]:
        """Yield the pairs in which one item writes the other's place or a record around it.

        Both items may belong to one patch, if it selects a record and a slot inside it.
        """
        writers: dict[Site, dict[tuple[str, int], KeyEdit | Claim]] = {}
        all_: list[KeyEdit | Claim] = [*self.edits, *self.claims]
        for item in all_:
            if isinstance(item, KeyEdit) or "(out)" in item.path:
                writers.setdefault(item.path, {}).setdefault(item.patch.location, item)
        for item in all_:
            separate = isinstance(item, KeyEdit) and not item.again
            for length in range(len(item.path) + 1):
                for location, other in writers.get(item.path[:length], {}).items():
                    inside = separate and length < len(item.path) and isinstance(other, KeyEdit)
                    if location != item.patch.location or inside:
                        yield other, item


_NODE = 2
"""Number of keys from a scope to a node."""
_PARAM = 2
"""Number of names in the dotted key of a spec's param."""
_NO_WIRES = "a block in a slot has no wires"
_KEYS = {
    field.alias or name
    for form in (UseNode, RepeatedTemplate, ShareNode, Template)
    for name, field in form.model_fields.items()
}
