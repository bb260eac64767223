"""Edits: what the patches of a file write in one scope, whichever comes first.

Every patch reads the scope as the parent wrote it and says which keys it writes.  Two
that write one key, or of which one writes inside what the other writes, conflict; the
rest can be written in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..findings import did_you_mean
from ..form import RepeatNode, Template, UseNode
from .patch import INTERCEPTED, Patch
from .sites import Site, is_repeat

GONE: Any = object()
"""Stands for a key that is removed."""
_OWN = ("format", "name", "doc", "params", "blocks")
"""Keys of a spec that a child writes beside 'extends'."""

Fail = Callable[..., None]
"""Called with a patch, a key in it, and code, problem and help of a finding."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One key that a patch writes."""

    path: Site
    """Keys from the scope's record."""
    value: Any
    at: str
    """JSON Pointer in the file of the patch."""
    patch: Patch
    again: bool = False
    """Whether the same patch has written the record around it, this included."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A place on which a patch counts without writing it."""

    path: Site
    at: str
    patch: Patch


@dataclass(frozen=True, slots=True)
class _Instead:
    """A value that is read instead of another."""

    value: str
    at: str
    patch: Patch


class ScopeEdits:
    """All that patches do in one version of a scope."""

    def __init__(self, scope: str, record: Mapping[str, Any], fail: Fail) -> None:
        """Start with nothing to do.

        Args:
            scope: the template's name; `""` is the spec itself.
            record: the scope as the parent wrote it.
            fail: takes what cannot be done.
        """
        self.scope, self.record, self._fail = scope, record, fail
        self.edits: list[Edit] = []
        self.claims: list[Claim] = []
        self.owners: dict[Site, str] = {}
        """Records that are another block now, to the place in a patch that made them so."""
        self._instead: dict[str, _Instead] = {}
        self._gone: set[str] = set()
        self._read: dict[str, set[str]] | None = None
        """Node to what is read of it, once it is asked for."""

    def add(self, patch: Patch, site: Site) -> None:
        """Take in what one patch does at one site."""
        record: Any = self.record
        for key in site:
            record = record[key]
        getattr(self, f"_{patch.action}")(patch, site, record)

    def finish(self) -> None:
        """Rewire what reads a value for which another is read now."""
        ends: dict[str, str] = {}
        for path, value in self._wires():
            stays = path[0] == "outputs" or path[1] not in self._gone
            if value in self._instead and stays:
                first = self._instead[value]
                end = self._end(value, ends)
                self.edits.append(Edit(path, end, first.at, first.patch))

    def _end(self, value: str, ends: dict[str, str]) -> str:
        """Return what is read at last in place of a value; in a circle, any of it.

        Args:
            value: something for which another is read.
            ends: what has been followed already; added to.
        """
        chain: dict[str, None] = {}
        while value in self._instead and value not in chain and value not in ends:
            chain[value] = None
            value = self._instead[value].value
        end = ends.get(value, value)
        ends |= dict.fromkeys(chain, end)
        return end

    def _wires(self) -> Iterator[tuple[Site, str]]:
        """Walk the wires of the scope as the parent wrote it, its outputs among them."""
        for name, node in self.record["nodes"].items():
            for port, value in node.get("in", {}).items():
                yield ("nodes", name, "in", port), value
        for port, value in self.record["outputs"].items():
            yield ("outputs", port), value

    def _set(self, patch: Patch, site: Site, record: Mapping[str, Any]) -> None:
        for (key, at), value in zip(patch.keys, patch.value.values(), strict=True):
            if not (site or self.scope or self._may_set(patch, key)):
                continue
            here: Any = record
            for part in key[:-1]:
                here = here.get(part, {}) if isinstance(here, dict) else here
            if not isinstance(here, dict):
                problem = f"'{'.'.join(key)}' leads into a value that is no object"
                self._fail(patch, at, "X07", problem, f"set '{key[0]}' whole")
                continue
            self.edits.append(Edit((*site, *key), value, at, patch))
            if site and key in (("use",), ("block",)):
                self.owners[site] = at

    def _may_set(self, patch: Patch, key: tuple[str, ...]) -> bool:
        if key[0] in _OWN:
            help_ = f"write '{key[0]}' beside 'extends'"
            if key[0] == "blocks":
                help_ = "select '/blocks/NAME', or write a new template beside 'extends'"
            problem = f"a patch of '/' cannot write '{key[0]}'"
            self._fail(patch, patch.at(patch.action), "X07", problem, help_)
        return key[0] not in _OWN

    def _remove(self, patch: Patch, site: Site, record: Mapping[str, Any]) -> None:
        if patch.value is True:
            self._remove_whole(patch, site, record)
            return
        for key, at in patch.keys:
            here: Any = record
            known: Any = record
            for part in key:
                known = here
                here = here.get(part, GONE) if isinstance(here, dict) else GONE
                if here is GONE:
                    break
            lone = key[0] == "params" and len(key) == _PARAM
            if not (site or self.scope or lone or self._may_set(patch, key)):
                continue
            if here is GONE:
                words = known if isinstance(known, dict) else {}
                problem = f"there is no '{'.'.join(key)}' to remove"
                self._fail(patch, at, "X07", problem, did_you_mean(key[-1], words))
                continue
            self.edits.append(Edit((*site, *key), GONE, at, patch))

    def _remove_whole(self, patch: Patch, site: Site, record: Mapping[str, Any]) -> None:
        at = patch.at("remove")
        if not site and not self.scope:
            self._fail(patch, at, "X07", "the spec itself cannot be removed", "select a node")
            return
        self.edits.append(Edit(site, GONE, at, patch))
        if len(site) != _NODE:
            if patch.through:
                self._fail(patch, patch.at("through"), "X07", _NO_WIRES, "drop 'through'")
            return
        name, wires = site[1], record.get("in", {})
        self._gone.add(name)
        if not patch.through:
            return
        if patch.through not in wires:
            problem = f"node '{name}' has no wire '{patch.through}'"
            help_ = did_you_mean(patch.through, wires)
            self._fail(patch, patch.at("through"), "X07", problem, help_)
            return
        given = _Instead(wires[patch.through], patch.at("through"), patch)
        self._instead |= dict.fromkeys(self._values_of(name), given)

    def _replace(self, patch: Patch, site: Site, record: Mapping[str, Any]) -> None:
        at = patch.at("replace")
        if not site and not self.scope:
            help_ = "write a spec that stands alone"
            self._fail(patch, at, "X07", "the spec itself cannot be replaced", help_)
            return
        kept = {"in"} if len(site) == _NODE and "in" not in patch.value else set()
        for key in sorted({*record, *patch.value, *_KEYS} - kept):
            value = patch.value.get(key, GONE)
            place = patch.at("replace", key) if key in patch.value else at
            self.edits.append(Edit((*site, key), value, place, patch))
        self.owners[site] = at

    def _insert_after(self, patch: Patch, site: Site, _: Mapping[str, Any]) -> None:
        if not self._has_wires(patch, site):
            return
        name, read = site[1], self._values_of(site[1])
        value = f"{name}.{patch.port}" if patch.port else next(iter(read), "")
        if not patch.port and len(read) != 1:
            problem = (
                f"{len(read)} outputs of '{name}' are read" if read else f"nothing reads '{name}'"
            )
            known = ", ".join(f'"port": "{text.partition(".")[2]}"' for text in read)
            help_ = f"say which one: {known}" if read else "say at which one, as 'port'"
            self._fail(patch, patch.at("insert_after"), "X07", problem, help_)
            return
        if value not in read:
            problem = f"nothing reads '{value}'"
            outputs = [text.partition(".")[2] for text in read]
            self._fail(patch, patch.at("port"), "X07", problem, did_you_mean(patch.port, outputs))
            return
        given = self._insert(patch, value)
        self.claims.append(Claim((*site, "(out)", value), patch.at("insert_after"), patch))
        self._instead[value] = _Instead(given, patch.at("insert_after", patch.inserted[0]), patch)

    def _insert_before(self, patch: Patch, site: Site, record: Mapping[str, Any]) -> None:
        if not self._has_wires(patch, site):
            return
        wires = record.get("in", {})
        port = patch.port or (next(iter(wires)) if len(wires) == 1 else "x")
        if port not in wires:
            problem = f"node '{site[1]}' has no wire '{port}'"
            key = "port" if patch.port else "insert_before"
            self._fail(patch, patch.at(key), "X07", problem, did_you_mean(port, wires))
            return
        at = patch.at("insert_before", patch.inserted[0])
        given = self._insert(patch, wires[port])
        self.edits.append(Edit((*site, "in", port), given, at, patch))

    def _insert(self, patch: Patch, value: str) -> str:
        """Add the node that a patch inserts; return the value to be read in place of another."""
        name, record = patch.inserted
        at = patch.at(patch.action, name)
        twice = any(edit.path == ("nodes", name) and edit.patch is patch for edit in self.edits)
        if name in self.record["nodes"] or twice:
            where = f"in template '{self.scope}'" if self.scope else "in the spec"
            problem = f"node '{name}' would stand twice {where}"
            self._fail(patch, at, "X04", problem, "give it another name, or select one place")
            return f"{name}.{patch.output}"
        wires = record.get("in", {"x": INTERCEPTED})
        if isinstance(wires, dict):
            wires = {port: value if w == INTERCEPTED else w for port, w in wires.items()}
        self.edits.append(Edit(("nodes", name), {**record, "in": wires}, at, patch))
        if "in" not in record:
            self.edits.append(Edit(("nodes", name, "in", "x"), value, at, patch, again=True))
        return f"{name}.{patch.output}"

    def _has_wires(self, patch: Patch, site: Site) -> bool:
        if len(site) == _NODE:
            return True
        problem = _NO_WIRES if site else "only nodes have wires"
        self._fail(patch, patch.at(patch.action), "X07", problem, "select the node")
        return False

    def _values_of(self, name: str) -> list[str]:
        """Return what the scope reads of a node, each once."""
        if self._read is None:
            self._read = {}
            for _, value in self._wires():
                self._read.setdefault(value.partition(".")[0], set()).add(value)
        return sorted(self._read.get(name, ()))

    def enter(self, patch: Patch, name: str) -> None:
        """Note that a patch selects something inside a node's template."""
        node = self.record["nodes"][name]
        keys = ("block", "instead", "share") if is_repeat(node) else ("use",)
        self.claims += [Claim(("nodes", name, key), patch.at("select"), patch) for key in keys]

    def conflicts(self) -> Iterator[tuple[Edit | Claim, Edit | Claim]]:
        """Walk the pairs of which one writes what the other writes, or what lies around it.

        A patch that selects a record and what stands in its slots may be both.
        """
        writers: dict[Site, dict[int, Edit | Claim]] = {}
        all_: list[Edit | Claim] = [*self.edits, *self.claims]
        for item in all_:
            if isinstance(item, Edit) or "(out)" in item.path:
                writers.setdefault(item.path, {}).setdefault(item.patch.index, item)
        for item in all_:
            alone = isinstance(item, Edit) and not item.again
            for length in range(len(item.path) + 1):
                for index, other in writers.get(item.path[:length], {}).items():
                    inside = alone and length < len(item.path) and isinstance(other, Edit)
                    if index != item.patch.index or inside:
                        yield other, item


_NODE = 2
"""Keys that lead from a scope to a node."""
_PARAM = 2
"""Names in the dotted key of a spec's param."""
_NO_WIRES = "what stands in a slot has no wires of its own"
_KEYS = {
    field.alias or name
    for form in (UseNode, RepeatNode, Template)
    for name, field in form.model_fields.items()
}
