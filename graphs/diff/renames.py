"""Renames: find nodes and inputs that have another name and are otherwise the same.

A new node matches a removed one if its block, params, slots and wires are equal.  If several
match, the one with matching readers is chosen.  Both comparisons walk the wires once, so their
cost is linear in the size of the graph.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import networkx as nx

Json = dict[str, Any]
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
    kept = {was for _, was in rows}
    behind: dict[str, list[str]] = defaultdict(list)
    last = ""
    for was in order(old):
        if was in kept:
            last = now.get(was, was)
        else:
            behind[last].append(was)
    found = [(removed, removed) for removed in behind[""]]
    for name, was in rows:
        found += [(name, was), *((removed, removed) for removed in behind[name])]
    return found


def port_renames(old: Json, new: Json) -> dict[str, str]:
    """Return the renamed inputs of a scope, new name to old.

    The old and the new input have the same type, and either the same ports read them or no other
    input has this type.
    """
    found: dict[str, str] = {}
    removed = {name: type_ for name, type_ in old["inputs"].items() if name not in new["inputs"]}
    added = {name: type_ for name, type_ in new["inputs"].items() if name not in old["inputs"]}
    readers = _readers(old), _readers(new)
    for name, type_ in added.items():
        fits = [was for was, kind in removed.items() if kind == type_ and was not in found.values()]
        rivals = [other for other, kind in added.items() if kind == type_]
        alike = [was for was in fits if readers[0][was] and readers[0][was] == readers[1][name]]
        if len(alike) == 1:
            found[name] = alike[0]
        elif len(fits) == len(rivals) == 1:
            found[name] = fits[0]
    return found


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
    known = {name: name for name in new["nodes"] if name not in added}
    below = digests[0].below(old, set(known)), digests[1].below(new, set(known))
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
        key = digests[1].node(new["nodes"][name], known, ports)
        for fits in (waiting[key, below[1][name]], waiting[key, ""]):
            while fits and fits[-1] in taken:
                fits.pop()
            if fits:
                known[name] = fits.pop()
                taken.add(known[name])
                break
    return {name: was for name, was in known.items() if name != was}


def _readers(scope: Json) -> dict[str, set[tuple[str, str]]]:
    """Return the readers of each node or input, as (node, port)."""
    found: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for name, record in scope["nodes"].items():
        for port, value in record.get("in", {}).items():
            found[value.partition(".")[0]].add((name, port))
    return found


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
        rest = {key: value for key, value in record.items() if key != "in"}
        for key in ("use", "block"):
            if key in rest and "@" not in rest[key]:
                rest[key] = self.template(rest[key])
        if "fill" in rest:
            rest["fill"] = {slot: self.block(inner) for slot, inner in rest["fill"].items()}
        if "instead" in rest:
            rest["instead"] = {i: self.template(name) for i, name in rest["instead"].items()}
        return _hash(rest)

    def template(self, name: str) -> str:
        """Return a hash of the content of a template, independent of the names of its nodes."""
        if name not in self.templates:
            body = self.form["blocks"][name]
            known: dict[str, str] = {}
            for inner in order(body):
                known[inner] = self.node(body["nodes"][inner], known, {})
            given = {port: translated(value, known, {}) for port, value in body["outputs"].items()}
            self.templates[name] = _hash([body["inputs"], given, sorted(known.values())])
        return self.templates[name]

    def below(self, scope: Json, known: set[str]) -> dict[str, str]:
        """Return a hash of the direct and indirect readers of each node, up to known names."""
        readers: dict[str, list[tuple[str, str, str]]] = defaultdict(list)
        for name, record in scope["nodes"].items():
            for port, value in record.get("in", {}).items():
                source, _, given = value.partition(".")
                readers[source].append((given, port, name))
        for port, value in scope["outputs"].items():
            source, _, given = value.partition(".")
            readers[source].append((given, port, ""))
        found: dict[str, str] = {"": ""}
        blocks = {name: self.block(record) for name, record in scope["nodes"].items()}
        for name in reversed(order(scope)):
            rows = sorted(
                [given, port, who if who in known else blocks.get(who, "") + found[who]]
                for given, port, who in readers[name]
            )
            found[name] = _hash(rows)
        return found


def _hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
