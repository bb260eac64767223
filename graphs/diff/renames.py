"""Renames: nodes and inputs that have another name and are otherwise the same.

A node is the same as one that is gone when its block, params and slots are equal, and
what it reads is the same.  Where several are, the one whose readers are alike is
meant.  Both take one walk along the wires, so large graphs cost no more than reading
them.
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
    """Return a value, `node.port` or the name of an input, with what gives it renamed."""
    node, dot, port = value.partition(".")
    return f"{nodes.get(node, node)}.{port}" if dot else inputs.get(value, value)


def wiring(scope: Json) -> nx.DiGraph:
    """Return the nodes of a canonical scope, with an edge to each from what it reads."""
    graph = nx.DiGraph()
    for name, record in scope["nodes"].items():
        graph.add_node(name)
        for value in record.get("in", {}).values():
            source, dot, _ = value.partition(".")
            if dot:
                graph.add_edge(source, name)
    return graph


def order(scope: Json) -> list[str]:
    """Return the nodes of a canonical scope as the values flow."""
    return list(nx.lexicographical_topological_sort(wiring(scope)))


def in_order(old: Json, new: Json, names: Names) -> list[tuple[str, str]]:
    """Return the nodes of both scopes as (name, old name), those that are gone in their place."""
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
    found = [(gone, gone) for gone in behind[""]]
    for name, was in rows:
        found += [(name, was), *((gone, gone) for gone in behind[name])]
    return found


def port_renames(old: Json, new: Json) -> dict[str, str]:
    """Return the inputs of a scope that had another name, new name to old.

    They have one type, and the same ports read them; or no other input has that type.
    """
    found: dict[str, str] = {}
    gone = {name: type_ for name, type_ in old["inputs"].items() if name not in new["inputs"]}
    come = {name: type_ for name, type_ in new["inputs"].items() if name not in old["inputs"]}
    readers = _readers(old), _readers(new)
    for name, type_ in come.items():
        fits = [was for was, kind in gone.items() if kind == type_ and was not in found.values()]
        rivals = [other for other, kind in come.items() if kind == type_]
        alike = [was for was in fits if readers[0][was] and readers[0][was] == readers[1][name]]
        if len(alike) == 1:
            found[name] = alike[0]
        elif len(fits) == len(rivals) == 1:
            found[name] = fits[0]
    return found


def node_renames(
    old_form: Json, new_form: Json, old: Json, new: Json, ports: Names
) -> dict[str, str]:
    """Return the nodes of a scope that had another name, new name to old.

    Args:
        old_form: the canonical form that holds the old scope.
        new_form: the one that holds the new scope.
        old: a scope.
        new: what may have become of it.
        ports: inputs of the scope that were renamed, new name to old.
    """
    gone = old["nodes"].keys() - new["nodes"].keys()
    come = new["nodes"].keys() - old["nodes"].keys()
    if not gone or not come:
        return {}
    digests = _Digests(old_form), _Digests(new_form)
    known = {name: name for name in new["nodes"] if name not in come}
    below = digests[0].below(old, set(known)), digests[1].below(new, set(known))
    waiting: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name in reversed(order(old)):
        if name in gone:
            key = digests[0].node(old["nodes"][name], {}, {})
            waiting[key, below[0][name]].append(name)
            waiting[key, ""].append(name)
    taken: set[str] = set()
    for name in order(new):
        if name not in come:
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
    """Return who reads each value's node or input: node and port."""
    found: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for name, record in scope["nodes"].items():
        for port, value in record.get("in", {}).items():
            found[value.partition(".")[0]].add((name, port))
    return found


class _Digests:
    """Hashes of nodes and templates that do not depend on their names."""

    def __init__(self, form: Json) -> None:
        """Keep the canonical form that holds the templates."""
        self.form = form
        self.templates: dict[str, str] = {}

    def node(self, record: Json, nodes: Names, inputs: Names) -> str:
        """Return a hash of a node and of what it reads.

        Args:
            record: the node.
            nodes: nodes that it may read, to the name that each is hashed with; those
                left out keep their own.
            inputs: the same of inputs.
        """
        wires = {
            port: translated(value, nodes, inputs) for port, value in record.get("in", {}).items()
        }
        return _hash([self.block(record), wires])

    def block(self, record: Json) -> str:
        """Return a hash of what a node is, wires aside."""
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
        """Return a hash of what is in a template, whatever its nodes are called."""
        if name not in self.templates:
            body = self.form["blocks"][name]
            known: dict[str, str] = {}
            for inner in order(body):
                known[inner] = self.node(body["nodes"][inner], known, {})
            given = {port: translated(value, known, {}) for port, value in body["outputs"].items()}
            self.templates[name] = _hash([body["inputs"], given, sorted(known.values())])
        return self.templates[name]

    def below(self, scope: Json, known: set[str]) -> dict[str, str]:
        """Return a hash of who reads each node, and who reads those, up to known names."""
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
