"""Changes: compare two canonical forms, and list their differences with paths.

Nodes are matched by name first.  A new node also matches a removed one if its block, params, slots
and wires are equal; if several do, the one with matching readers is chosen.  Both comparisons walk
the wires once, so their cost is linear in the size of the graph.

Templates are compared where they are used, and each pair only once:
the pair of names is the scope of the changes in it, and `("", "")` is the spec itself.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Literal

import networkx as nx

from ..ir.canonical import REPEAT_KEYS, Json, is_part, numbered, scope_of, stack_of

Names = Mapping[str, str]


def translated(value: str, nodes: Names, inputs: Names) -> str:
    """Return a value (`node.port`, or the name of an input) with its node or input renamed."""
    node, dot, port = value.partition(".")
    return f"{nodes.get(node, node)}.{port}" if dot else inputs.get(value, value)


def wiring(scope: Json) -> nx.DiGraph:
    """Return the nodes of a canonical scope, with an edge from each node to its readers."""
    graph = nx.DiGraph()
    for name, record in scope["nodes"].items():
        graph.add_node(name)
        for value in record.get("in", {}).values():
            source, dot, _ = value.partition(".")
            if dot:
                graph.add_edge(source, name)
    return graph


def order(scope: Json) -> list[str]:
    """Return the nodes of a canonical scope in topological order."""
    return list(nx.lexicographical_topological_sort(wiring(scope)))


def in_order(old: Json, new: Json, names: Names) -> list[tuple[str, str]]:
    """Return the nodes of both scopes as (name, old name), removed ones at their old place."""
    now = {was: name for name, was in names.items()}
    rows = [(name, names.get(name, name)) for name in order(new)]
    matched = {was for _, was in rows}
    behind: dict[str, list[str]] = defaultdict(list)
    last = ""
    for was in order(old):
        if was in matched:
            last = now.get(was, was)
        else:
            behind[last].append(was)
    pairs = [(removed, removed) for removed in behind[""]]
    for name, was in rows:
        pairs += [(name, was), *((removed, removed) for removed in behind[name])]
    return pairs


def port_renames(old: Json, new: Json) -> dict[str, str]:
    """Return the renamed inputs of a scope, new name to old.

    The old and the new input have the same type, and either the same ports read them or no other
    input has this type.
    """
    renames: dict[str, str] = {}
    removed = {name: type_ for name, type_ in old["inputs"].items() if name not in new["inputs"]}
    added = {name: type_ for name, type_ in new["inputs"].items() if name not in old["inputs"]}
    readers = _readers(old), _readers(new)
    for name, type_ in added.items():
        fits = [
            was for was, kind in removed.items() if kind == type_ and was not in renames.values()
        ]
        rivals = [other for other, kind in added.items() if kind == type_]
        alike = [was for was in fits if readers[0][was] and readers[0][was] == readers[1][name]]
        if len(alike) == 1:
            renames[name] = alike[0]
        elif len(fits) == len(rivals) == 1:
            renames[name] = fits[0]
    return renames


def node_renames(
    old_form: Json, new_form: Json, old: Json, new: Json, ports: Names
) -> dict[str, str]:
    """Return the renamed nodes of a scope, new name to old.

    Args:
        old_form: the canonical form that contains the old scope.
        new_form: the canonical form that contains the new scope.
        old: the old scope.
        new: the new scope.
        ports: renamed inputs of the scope, new name to old.
    """
    removed = old["nodes"].keys() - new["nodes"].keys()
    added = new["nodes"].keys() - old["nodes"].keys()
    if not removed or not added:
        return {}
    digests = _Digests(old_form), _Digests(new_form)
    matches = {name: name for name in new["nodes"] if name not in added}
    below = digests[0].below(old, set(matches)), digests[1].below(new, set(matches))
    waiting: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name in reversed(order(old)):
        if name in removed:
            key = digests[0].node(old["nodes"][name], {}, {})
            waiting[key, below[0][name]].append(name)
            waiting[key, ""].append(name)
    taken: set[str] = set()
    for name in order(new):
        if name not in added:
            continue
        key = digests[1].node(new["nodes"][name], matches, ports)
        for fits in (waiting[key, below[1][name]], waiting[key, ""]):
            while fits and fits[-1] in taken:
                fits.pop()
            if fits:
                matches[name] = fits.pop()
                taken.add(matches[name])
                break
    return {name: was for name, was in matches.items() if name != was}


def _readers(scope: Json) -> dict[str, set[tuple[str, str]]]:
    """Return the readers of each node or input, as (node, port)."""
    readers: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for name, record in scope["nodes"].items():
        for port, value in record.get("in", {}).items():
            readers[value.partition(".")[0]].add((name, port))
    return readers


class _Digests:
    """Hashes of nodes and templates that do not depend on their names."""

    def __init__(self, form: Json) -> None:
        """Store the canonical form that contains the templates."""
        self.form = form
        self.templates: dict[str, str] = {}

    def node(self, record: Json, nodes: Names, inputs: Names) -> str:
        """Return a hash of a node and the values that it reads.

        Args:
            record: the node.
            nodes: nodes that it may read, to the name under which each is hashed; nodes that
                are not listed are hashed under their own names.
            inputs: the same for inputs.
        """
        wires = {
            port: translated(value, nodes, inputs) for port, value in record.get("in", {}).items()
        }
        return _hash([self.block(record), wires])

    def block(self, record: Json) -> str:
        """Return a hash of a node without its wires."""
        content = {key: value for key, value in record.items() if key != "in"}
        for key in ("use", "block"):
            if key in content and "@" not in content[key]:
                content[key] = self.template(content[key])
        if "fill" in content:
            content["fill"] = {slot: self.block(inner) for slot, inner in content["fill"].items()}
        if "instead" in content:
            content["instead"] = {i: self.template(name) for i, name in content["instead"].items()}
        return _hash(content)

    def template(self, name: str) -> str:
        """Return a hash of the content of a template, independent of the names of its nodes."""
        if name not in self.templates:
            body = self.form["blocks"][name]
            hashes: dict[str, str] = {}
            for inner in order(body):
                hashes[inner] = self.node(body["nodes"][inner], hashes, {})
            outputs = {
                port: translated(value, hashes, {}) for port, value in body["outputs"].items()
            }
            self.templates[name] = _hash([body["inputs"], outputs, sorted(hashes.values())])
        return self.templates[name]

    def below(self, scope: Json, matched: set[str]) -> dict[str, str]:
        """Return a hash of the direct and indirect readers of each node, up to known names."""
        readers: dict[str, list[tuple[str, str, str]]] = defaultdict(list)
        for name, record in scope["nodes"].items():
            for port, value in record.get("in", {}).items():
                source, _, output = value.partition(".")
                readers[source].append((output, port, name))
        for port, value in scope["outputs"].items():
            source, _, output = value.partition(".")
            readers[source].append((output, port, ""))
        hashes: dict[str, str] = {"": ""}
        blocks = {name: self.block(record) for name, record in scope["nodes"].items()}
        for name in reversed(order(scope)):
            rows = sorted(
                [output, port, who if who in matched else blocks.get(who, "") + hashes[who]]
                for output, port, who in readers[name]
            )
            hashes[name] = _hash(rows)
        return hashes


def _hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


Pair = tuple[str, str]
"""Names of a template in the old and in the new form."""
Kind = Literal[
    "added",
    "removed",
    "replaced",
    "param",
    "rewired",
    "renamed",
    "repeat",
    "template",
    "input",
    "output",
    "axis",
    "tie",
    "step",
    "training",
    "spec",
]
_OF_TRAINING = ("deploy", "losses", "segments")
"""Keys of a spec, but not of its templates, that only training reads."""
_OF_NODE = ("frozen", "shares")
"""Keys of a node that say which weights it has, and whether they train."""
SPEC_KEYS = ("format", "name", "doc")


class Absent(Enum):
    """Marks a value that does not exist; null may be a value."""

    ABSENT = "absent"


ABSENT = Absent.ABSENT


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One difference between two graphs."""

    kind: Kind
    path: str
    """Path of the change, as a patch selects it; empty for the spec."""
    name: str = ""
    """The param, port, axis, input, output or key; the number of a copy for `template`."""
    before: Any = ABSENT
    after: Any = ABSENT
    scope: Pair = ("", "")
    """The old and the new template that contain it."""
    node: str = ""
    """The node in its scope, followed by slots after `/`."""
    also: tuple[str, ...] = ()
    """Paths of the same change at the other places of the template."""
    follows: bool = False
    """Whether it only follows from renames, or from the change of a module that is shared."""

    def as_json(self) -> Json:
        """Return the change as plain data, without `from` or `to` if that value does not exist."""
        data: Json = {"kind": self.kind, "path": self.path}
        if self.before is not ABSENT:
            data["from"] = self.before
        if self.after is not ABSENT:
            data["to"] = self.after
        details = {"name": self.name, "node": self.node, "also": list(self.also)}
        data |= {key: value for key, value in details.items() if value}
        data["scope"] = list(self.scope)
        return {**data, "follows": True} if self.follows else data


@dataclass(slots=True)
class GraphComparison:
    """The state of a comparison: the changes found so far, and the templates compared."""

    old: Json
    new: Json
    changes: list[Change] = field(default_factory=list)
    places: dict[Pair, list[str]] = field(default_factory=dict)
    """Compared templates to the path prefixes of their uses."""
    renames: dict[Pair, dict[str, str]] = field(default_factory=dict)
    """Compared templates to their renamed nodes: new name to old."""

    def results(self) -> list[Change]:
        """Return all changes, each with the other places of its template."""
        return [self._with_places(change) for change in self.changes]

    def _with_places(self, change: Change) -> Change:
        _, *others = self.places.get(change.scope, [""])
        copy = f".{change.name}" if change.kind == "template" and change.name else ""
        also = tuple(_joined(prefix, change.node) + copy for prefix in others)
        return replace(change, also=also)

    def templates(self) -> Json:
        """Return the origin of each new template: an old template, or its complete content."""
        origins: Json = {}
        for old, new in self.places:
            if new:
                origins.setdefault(new, old)
        old_blocks = self.old.get("blocks", {})
        for name, body in self.new.get("blocks", {}).items():
            if name not in origins:
                origins[name] = name if same(old_blocks.get(name), body) else body
        return dict(sorted(origins.items()))


def compare(old: Json, new: Json) -> GraphComparison:
    """Return what changed between two canonical forms."""
    comparison = GraphComparison(old, new)
    for key in SPEC_KEYS:
        comparison.changes += _changed("spec", "", key, old.get(key, ABSENT), new.get(key, ABSENT))
    for name, before, after in _both(old.get("axes", {}), new.get("axes", {})):
        comparison.changes += _changed("axis", "", name, before, after)
    _compare_scopes(comparison, ("", ""), "")
    ties = old.get("tie", []), new.get("tie", [])
    if not same(*ties):
        follows = ties[0] == [[former(comparison, path) for path in group] for group in ties[1]]
        change = Change(kind="tie", path="", before=ties[0], after=ties[1], follows=follows)
        comparison.changes.append(change)
    comparison.changes += _changed("step", "", "", old.get("step", ABSENT), new.get("step", ABSENT))
    for key in _OF_TRAINING:
        comparison.changes += _changed(
            "training", "", key, old.get(key, ABSENT), new.get(key, ABSENT)
        )
    return comparison


def former(comparison: GraphComparison, path: str) -> str:
    """Return the path of a weight before nodes were renamed."""
    pair, remaining, was = ("", ""), path.split("."), list[str]()
    while remaining:
        name = remaining.pop(0)
        old_name = comparison.renames.get(pair, {}).get(name, name)
        was.append(old_name)
        old = scope_of(comparison.old, pair[0])["nodes"].get(old_name)
        new = scope_of(comparison.new, pair[1])["nodes"].get(name)
        while old and new and is_part(old) and is_part(new) and remaining:
            slot = remaining[0]
            old, new = (record.get("fill", {}).get(slot) for record in (old, new))
            was += [remaining.pop(0)] if old and new else []
        if not old or not new or is_part(old) or is_part(new):
            break
        stacks = stack_of(old), stack_of(new)
        if numbered(stacks[0]) != numbered(stacks[1]):
            break
        index = ""
        if numbered(stacks[1]) and remaining:
            index = remaining.pop(0)
            was.append(index)
        templates = [stack["instead"].get(index, stack["block"]) for stack in stacks]
        pair = (templates[0], templates[1])
        if pair not in comparison.places:
            break
    return ".".join([*was, *remaining])


def same(value: Any, other: Any) -> bool:
    """Return whether two JSON values are the same; 1, 1.0 and true are all different."""
    if value is ABSENT or other is ABSENT:
        return value is other
    return value == other and json.dumps(value, sort_keys=True) == json.dumps(other, sort_keys=True)


def _joined(prefix: str, node: str) -> str:
    return prefix + node if node else prefix.rstrip(".")


def _both(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield the keys of two objects, each with both values."""
    for key in sorted({*old, *new}):
        yield key, old.get(key, ABSENT), new.get(key, ABSENT)


def _changed(
    kind: Kind, path: str, name: str, before: Any, after: Any, **where: Any
) -> list[Change]:
    """Return the change of one value, or nothing."""
    if same(before, after):
        return []
    return [Change(kind=kind, path=path, name=name, before=before, after=after, **where)]


def _compare_scopes(comparison: GraphComparison, pair: Pair, prefix: str) -> None:
    """Compare two templates, or the two specs, unless this pair has been compared."""
    if pair in comparison.places:
        comparison.places[pair].append(prefix)
        return
    comparison.places[pair] = [prefix]
    old, new = scope_of(comparison.old, pair[0]), scope_of(comparison.new, pair[1])
    at: Json = {"path": _joined(prefix, ""), "scope": pair}
    before, after = old.get("init", ABSENT), new.get("init", ABSENT)
    comparison.changes += _changed("training", name="init", before=before, after=after, **at)
    ports = port_renames(old, new)
    names = comparison.renames[pair] = node_renames(comparison.old, comparison.new, old, new, ports)
    for name, was in sorted(ports.items()):
        comparison.changes.append(Change(kind="renamed", name=name, before=was, after=name, **at))
    inputs = {**old["inputs"], **{name: old["inputs"][was] for name, was in ports.items()}}
    for was in ports.values():
        del inputs[was]
    for name, before, after in _both(inputs, new["inputs"]):
        comparison.changes += _changed("input", name=name, before=before, after=after, **at)
    nodes_now, inputs_now = (
        {was: name for name, was in renames.items()} for renames in (names, ports)
    )
    now = nodes_now, inputs_now
    # A node that shares a module comes after its owner, whose changes it repeats.
    ordered = in_order(old, new, names)
    for name, node in sorted(ordered, key=lambda pair: "shares" in new["nodes"].get(pair[0], ())):
        _compare_nodes(comparison, pair, prefix, name, node, now)
    for name, before, after in _both(old["outputs"], new["outputs"]):
        moved = before if before is ABSENT else translated(before, *now)
        if not same(moved, after):
            comparison.changes += _changed("output", name=name, before=before, after=after, **at)


def _compare_nodes(
    comparison: GraphComparison,
    pair: Pair,
    prefix: str,
    name: str,
    was: str,
    now: tuple[Names, Names],
) -> None:
    """Compare a node with its old version.

    Args:
        comparison: collects the changes.
        pair: the templates that contain it.
        prefix: prefix of its path.
        name: its name, or the name of a removed node.
        was: its old name, usually the same.
        now: old name to new name, for renamed nodes and for renamed inputs.
    """
    at: Json = {"path": prefix + name, "scope": pair, "node": name}
    old = scope_of(comparison.old, pair[0])["nodes"].get(was)
    new = scope_of(comparison.new, pair[1])["nodes"].get(name)
    if old is None or new is None:
        change: Json = {"kind": "removed", "before": old}
        if new is not None:
            change = {"kind": "added", "after": new}
        comparison.changes.append(Change(**change, **at))
        return
    if was != name:
        comparison.changes.append(Change(kind="renamed", before=was, after=name, **at))
    count = len(comparison.changes)
    _compare_records(comparison, old, new, at)
    if "shares" in old and "shares" in new:
        repeated = [replace(change, follows=True) for change in comparison.changes[count:]]
        comparison.changes[count:] = repeated
    for key in _OF_NODE:
        before, after = old.get(key, ABSENT), new.get(key, ABSENT)
        comparison.changes += _changed("training", name=key, before=before, after=after, **at)
    for port, before, after in _both(old.get("in", {}), new.get("in", {})):
        moved = before if before is ABSENT else translated(before, *now)
        if not same(moved, after):
            comparison.changes += _changed("rewired", name=port, before=before, after=after, **at)


def _compare_records(comparison: GraphComparison, old: Json, new: Json, at: Json) -> None:
    """Compare two records of a node or a slot: blocks or templates."""
    if is_part(old) and is_part(new):
        _compare_parts(comparison, old, new, at)
    elif is_part(old) or is_part(new):
        before, after = (
            {key: value for key, value in record.items() if key != "in"} for record in (old, new)
        )
        comparison.changes += _changed("replaced", name="", before=before, after=after, **at)
    else:
        _compare_stacks(comparison, stack_of(old), stack_of(new), at)


def _compare_parts(comparison: GraphComparison, old: Json, new: Json, at: Json) -> None:
    """Compare two uses of registered blocks, and the blocks in their slots."""
    params = old.get("params", {}), new.get("params", {})
    if old["use"] != new["use"]:
        before, after = (
            {key: record[key] for key in ("use", "params") if key in record}
            for record in (old, new)
        )
        comparison.changes += _changed("replaced", name="", before=before, after=after, **at)
    else:
        for name, before, after in _both(*params):
            comparison.changes += _changed("param", name=name, before=before, after=after, **at)
    for slot, before, after in _both(old.get("fill", {}), new.get("fill", {})):
        slot_at = {**at, "path": f"{at['path']}/{slot}", "node": f"{at['node']}/{slot}"}
        if before is ABSENT:
            comparison.changes.append(Change(kind="added", after=after, **slot_at))
        elif after is ABSENT:
            comparison.changes.append(Change(kind="removed", before=before, **slot_at))
        else:
            _compare_records(comparison, before, after, slot_at)


def _compare_stacks(comparison: GraphComparison, old: Json, new: Json, at: Json) -> None:
    """Compare two uses of templates: the templates, their copies, and their content."""
    for key in REPEAT_KEYS:
        before, after = old.get(key, ABSENT), new.get(key, ABSENT)
        comparison.changes += _changed("repeat", name=key, before=before, after=after, **at)
    inside = f"{at['path']}.*." if numbered(new) else f"{at['path']}."
    _compare_templates(comparison, (old["block"], new["block"]), inside, at, "")
    for index, before, after in sorted(
        _both(old["instead"], new["instead"]), key=lambda entry: int(entry[0])
    ):
        copy = {**at, "path": f"{at['path']}.{index}"}
        comparison.changes += _changed("template", name=index, before=before, after=after, **copy)
        pair = (
            old["block"] if before is ABSENT else before,
            new["block"] if after is ABSENT else after,
        )
        if alike(comparison, pair):
            _compare_scopes(comparison, pair, f"{at['path']}.{index}.")


def _compare_templates(
    comparison: GraphComparison, pair: Pair, inside: str, at: Json, index: str
) -> None:
    """Compare the templates of two uses, unless they have nothing in common."""
    like = alike(comparison, pair)
    kind: Kind = "template" if like else "replaced"
    before, after = pair if like else ({"use": pair[0]}, {"use": pair[1]})
    comparison.changes += _changed(kind, name=index, before=before, after=after, **at)
    if like:
        _compare_scopes(comparison, pair, inside)


def alike(comparison: GraphComparison, pair: Pair) -> bool:
    """Return whether two templates have anything in common besides how they are used."""
    if pair[0] == pair[1] or pair in comparison.places:
        return True
    old, new = scope_of(comparison.old, pair[0]), scope_of(comparison.new, pair[1])
    if old["nodes"].keys() & new["nodes"].keys():
        return True
    return bool(node_renames(comparison.old, comparison.new, old, new, port_renames(old, new)))
