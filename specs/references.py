"""References: which strings of a document name a node, a template, a param, a port or an axis.

One walk serves whoever follows names: imports, which rename what a spec defines; the checker, which
reports what nothing reads; and editors, which find, rename and colour names.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .expressions import WORD, calls, is_expression
from .findings import pointer
from .form import BUDGETS, holds_spec, own_part
from .json_tree import parts_of
from .patches.selections import INDEX, SelectError, Selection, glob, read_selection
from .patches.walk import Found, Site, TooMuchError, Walk

Json = Mapping[str, Any]
Kind = Literal[
    "node", "template", "param", "index", "input", "output", "port", "axis", "size", "file", "block"
]
"""What a name names; an `index` is the number of a copy, a `port` an input or output of a template,
an `input` or `output` one of the spec, a `size` a free word of a type, a `file` another spec, and a
`block` a registered one."""
Index = tuple[str, str]
"""Name of the number of a copy, and JSON Pointer of the repeat whose params may read it."""
NO_INDEX: Index = ("", "")
_KIND_OF_TYPE = re.compile(r"[a-z ]*")
_PREDICATE = re.compile(r"\[([^\[\]=]*)=([^\[\]]*)\]")
_SEGMENT = re.compile(r"(?P<mark>[./]|^)(?P<word>[^./]*)")
_NODE = 2
"""Number of keys from a scope to a node."""


@dataclass(frozen=True, slots=True)
class Reference:
    """One occurrence of a name in a document."""

    at: str
    """JSON Pointer of the value whose text, or whose key, has the name."""
    kind: Kind
    name: str
    """The name; in a selection, a pattern in which `*` stands for any text."""
    scope: str
    """Pointer of the scope in which it is defined: empty, or `/blocks/NAME`."""
    start: int
    """Where it begins in the text."""
    in_key: bool = False
    """Whether the text is the key of the value."""
    defines: bool = False

    @property
    def end(self) -> int:
        """Where it ends in the text, exclusive."""
        return self.start + len(self.name)


def references(
    document: Json, merged: Json | None = None, unpatched: Json | None = None
) -> Iterator[Reference]:
    """Yield every reference in a spec or a variant.

    Args:
        document: the JSON value of its file; what has a wrong form is passed over.
        merged: the spec with what it inherits, in which names are resolved; by default, itself.
        unpatched: the spec before its patches, in which their names are resolved; without it,
            those are passed over.
    """
    yield from _Scopes(document if merged is None else merged).in_spec(document)
    if unpatched is not None:
        yield from _Patched(unpatched).in_patches(document.get("patch"))


def files_named(value: Any, at: str = "") -> Iterator[tuple[str, str]]:
    """Yield the specs that any document names: pointer of the record that does so, and the name."""
    for key in ("extends", "spec") if isinstance(value, dict) else ():
        names = value.get(key)
        for name in names if isinstance(names, list) else [names]:
            if isinstance(name, str):
                yield at, name
    for key, inner in entries(value):
        yield from files_named(inner, at + pointer(key))


def words_read(value: Any) -> Iterator[str]:
    """Yield the names that the expressions inside a JSON value read, but not those of its specs."""
    return (name.name for name in _Scopes({}).in_values(value, "") if name.kind == "param")


def templates_used(spec: Json, nodes: Json, *, inside: bool = True) -> set[str]:
    """Return the templates of a spec that some nodes use.

    Args:
        spec: the spec as JSON data.
        nodes: the nodes by name.
        inside: whether to add the templates that are used inside these.
    """
    scopes = _Scopes(spec)
    used = {scope for node in nodes.values() for scope in scopes.templates_of(node)}
    return {parts_of(scope)[1] for scope in (scopes.below(used) if inside else used)}


def rewritten(
    value: Any, names: Iterable[Reference], new: Callable[[Reference], str | None]
) -> Any:
    """Return a JSON value with other names in its texts.

    Args:
        value: the value; it is not modified.
        names: the references in it; keys that are names stay.
        new: returns the new name of a reference, or None if it stays.
    """
    edits: dict[tuple[str, bool], list[tuple[Reference, str]]] = {}
    for reference in names:
        is_name = reference.in_key and not is_expression(parts_of(reference.at)[-1])
        name = None if is_name else new(reference)
        if name is not None:
            edits.setdefault((reference.at, reference.in_key), []).append((reference, name))

    def edited(text: Any, at: str, *, in_key: bool) -> Any:
        for reference, name in sorted(edits.get((at, in_key), ()), key=lambda edit: -edit[0].start):
            text = text[: reference.start] + name + text[reference.end :]
        return text

    def copied(part: Any, at: str) -> Any:
        if isinstance(part, dict):
            places = {key: at + pointer(key) for key in part}
            return {
                edited(key, places[key], in_key=True): copied(inner, places[key])
                for key, inner in part.items()
            }
        if isinstance(part, list):
            return [copied(inner, at + pointer(index)) for index, inner in enumerate(part)]
        return edited(part, at, in_key=False)

    return copied(value, "") if edits else value


def entries(value: Any) -> Iterable[tuple[Any, Any]]:
    """Return the keys or indices of a JSON value with the entries."""
    if isinstance(value, dict):
        return value.items()
    return enumerate(value) if isinstance(value, list | tuple) else ()


class _Scopes:
    """Walks over records of a document; names are resolved in a spec that has more than these."""

    def __init__(self, spec: Json) -> None:
        self.spec = spec
        self.templates, self.params = _record(spec, "blocks"), _record(spec, "params")
        self.axes = _record(spec, "axes")

    def nodes(self, scope: str) -> Json:
        """Return the nodes of a scope, with those that it inherits."""
        record = self.templates.get(scope.removeprefix("/blocks/")) if scope else self.spec
        return _record(record, "nodes")

    def in_spec(self, spec: Json, at: str = "") -> Iterator[Reference]:
        """Yield the names in a spec, or in a part of one, without those in its patches."""
        for key, value in entries(spec.get("params")):
            yield self._key("param", "", at + pointer("params", key))
            yield from self.in_values(value, at + pointer("params", key))
        for index, text in entries(spec.get("require")):
            yield from self._words(text, 0, at + pointer("require", index))
        for key, _ in entries(spec.get("axes")):
            yield self._key("axis", "", at + pointer("axes", key))
        yield from self._whole("file", "", spec, "extends", at)
        several = spec.get("extends")
        for index, _ in enumerate(several) if isinstance(several, list) else ():
            yield from self._whole("file", "", several, index, at + "/extends")
        for key, text in entries(spec.get("output_types")):
            yield self._key("output", "", at + pointer("output_types", key), defines=False)
            yield from self._type(text, at + pointer("output_types", key))
        for key, value in entries(spec.get("losses")):
            yield self._key("output", "", at + pointer("losses", key), defines=False)
            yield from self.in_values(value, at + pointer("losses", key))
        for key in ("step", "segments"):
            yield from self._whole("axis", "", spec.get(key), "axis", at + pointer(key))
        memory = _record(spec, "segments").get("memory")
        yield from self.in_values(memory, at + "/segments/memory")
        yield from self._whole("node", "", spec, "deploy", at)
        yield from self.in_scope(spec, "", at)
        for key, template in entries(spec.get("blocks")):
            inside = at + pointer("blocks", key)
            yield self._key("template", "", inside)
            if isinstance(template, dict):
                yield from self._whole("file", "", template, "spec", inside)
                if "spec" in template:
                    yield from self.in_values(template.get("params"), inside + "/params")
                yield from self.in_scope(template, pointer("blocks", key), inside)

    def in_scope(self, record: Json, scope: str, at: str) -> Iterator[Reference]:
        """Yield the names in the spec itself or a template, or in a part of one."""
        if scope and "spec" not in record:
            for key, value in entries(record.get("params")):
                yield self._key("param", scope, at + pointer("params", key))
                yield from self.in_values(value, at + pointer("params", key), scope)
        for key, text in entries(record.get("inputs")):
            yield self._key("port" if scope else "input", scope, at + pointer("inputs", key))
            yield from self._type(text, at + pointer("inputs", key), scope)
        for key, text in entries(record.get("outputs")):
            yield self._key("port" if scope else "output", scope, at + pointer("outputs", key))
            yield from self._wire(text, scope, at + pointer("outputs", key))
        for key, node in entries(record.get("nodes")):
            yield self._key("node", scope, at + pointer("nodes", key))
            yield from self._node(node, str(key), scope, at + pointer("nodes", key))
        for index, group in entries(record.get("tie")):
            for member, path in entries(group):
                yield from self._path(path, scope, at + pointer("tie", index, member))
        for index, rule in entries(record.get("init")):
            inside = at + pointer("init", index)
            if isinstance(rule, dict):
                yield from self._path(rule.get("select"), scope, inside + "/select")
                yield from self._conditions(rule.get("select"), inside + "/select")
            yield from self.in_values(rule, inside, scope)

    def _node(self, node: Any, name: str, scope: str, at: str) -> Iterator[Reference]:
        if not isinstance(node, dict):
            return
        home = scope + pointer("nodes", name)
        index = (str(node["index"]), home) if "index" in node else NO_INDEX
        yield from self._whole("index", home, node, "index", at, defines=True)
        yield from self._use(node, at, scope, index)
        used = self.used(node) or self.used(self.nodes(scope).get(name))
        ports = pointer("blocks", used)
        for port, value in entries(node.get("in")):
            if used:
                yield self._key("port", ports, at + pointer("in", port), defines=False)
            yield from self._wire(value, scope, at + pointer("in", port))
        yield from self._whole("template", "", node, "block", at)
        for key in ("carry", "collect") if used else ():
            for number, _ in entries(node.get(key)):
                yield from self._whole("port", ports, node[key], number, at + pointer(key))
        yield from self._whole("node", scope, node, "share", at)
        for copies, _ in entries(node.get("instead")):
            yield from self._whole("template", "", node["instead"], copies, at + "/instead")
            location = at + pointer("instead", copies)
            for word in self.in_values(copies, location, scope, index):
                yield dataclasses.replace(word, in_key=True)
        yield from self.in_values(node.get("repeat"), at + "/repeat", scope)

    def _use(
        self, use: Json, at: str, scope: str = "", index: Index = NO_INDEX
    ) -> Iterator[Reference]:
        """Yield the names in a use; its params may also read the number of a copy."""
        text, used = use.get("use"), self.used(use, scope)
        if is_expression(text):
            yield from self._words(text, 1, at + "/use", scope)
        else:
            kind: Kind = "template" if text in self.templates else "block"
            yield from self._whole(kind, "", use, "use", at)
        for key, _ in entries(use.get("params")) if used else ():
            home, location = pointer("blocks", used), at + pointer("params", key)
            if key in _record(self.templates[used], "params"):
                yield self._key("param", home, location, defines=False)
        yield from self.in_values(use.get("params"), at + "/params", scope, index)
        for slot, inner in entries(use.get("fill")):
            if isinstance(inner, dict):
                yield from self._use(inner, at + pointer("fill", slot), scope)

    def in_values(
        self, value: Any, at: str, scope: str = "", index: Index = NO_INDEX
    ) -> Iterator[Reference]:
        """Yield the params that expressions in a value read, and the blocks that it chooses."""
        if is_expression(value):
            yield from self._words(value, 1, at, scope, index)
        elif isinstance(value, dict) and isinstance(value.get("use"), str):
            yield from self._use(value, at, scope, index)
        else:
            if holds_spec(value):
                yield from self._whole("file", "", value, "spec", at)
            for key, inner in entries(own_part(value) if isinstance(value, dict) else value):
                yield from self.in_values(inner, at + pointer(key), scope, index)

    def own_params(self, scope: str) -> Json:
        """Return the params of a template."""
        template = self.templates.get(scope.removeprefix("/blocks/")) if scope else None
        return _record(template, "params")

    def _words(
        self, text: Any, skip: int, at: str, scope: str = "", index: Index = NO_INDEX
    ) -> Iterator[Reference]:
        """Yield the params that an expression reads; `skip` characters precede it."""
        inner = self.own_params(scope)
        for word, start in _words_of(text, skip):
            if word == index[0]:
                yield Reference(at, "index", *index, start)
            elif word in inner:
                yield Reference(at, "param", word, scope, start)
            elif word in self.params or word not in BUDGETS:
                yield Reference(at, "param", word, "", start)

    def _type(self, text: Any, at: str, scope: str = "") -> Iterator[Reference]:
        """Yield the axes, params and free names in a type."""
        kind, inner = (
            _KIND_OF_TYPE.match(text) if isinstance(text, str) else None,
            self.own_params(scope),
        )
        for word, start in _words_of(text, kind.end() if kind else 0):
            default_kind: Kind = "param" if word in self.params or word in inner else "size"
            home = scope if word in inner else ""
            yield Reference(at, "axis" if word in self.axes else default_kind, word, home, start)

    def _wire(self, text: Any, scope: str, at: str) -> Iterator[Reference]:
        if not isinstance(text, str):
            return
        node, dot, port = text.partition(".")
        if not dot:
            yield Reference(at, "port" if scope else "input", node, scope, 0)
            return
        yield Reference(at, "node", node, scope, 0)
        used = self.used(self.nodes(scope).get(node))
        if used:
            yield Reference(at, "port", port, pointer("blocks", used), len(node) + 1)

    def _path(self, text: Any, scope: str, at: str) -> Iterator[Reference]:
        """Yield the nodes that a path or a selection names: those that lie in one scope only."""
        if not isinstance(text, str):
            return
        scopes, path = {scope}, text.partition("[")[0]
        if path.startswith("/"):
            yield from self._template(path, at)
            return
        for segment in _SEGMENT.finditer(path):
            word = segment["word"]
            if segment["mark"] == "/" or INDEX.fullmatch(word):
                continue
            if word == "**":
                scopes = self.below(scopes)
            elif word != "*" or segment.start() == 0:
                inside = [around for around in sorted(scopes) if word in self.nodes(around)]
                if len(inside) == 1:
                    yield Reference(at, "node", word, inside[0], segment.start("word"))
                scopes = {below for around in scopes for below in self._inside(around, word)}

    def _template(self, path: str, at: str) -> Iterator[Reference]:
        """Yield the template, or the pattern of templates, that a selection begins with."""
        name = path.removeprefix("/blocks/")
        if name != path:
            yield Reference(at, "template", name, "", len(path) - len(name))

    def _conditions(self, select: Any, at: str) -> Iterator[Reference]:
        """Yield the templates that the conditions of a selection name, or those of a pattern."""
        for key, word, start in _predicates(select):
            if key in ("use", "block") and any(glob(word, name) for name in self.templates):
                yield Reference(at, "template", word, "", start)

    def _inside(self, scope: str, pattern: str) -> Iterator[str]:
        """Yield the scopes of the templates in nodes of a scope whose name fits a pattern."""
        for name, node in self.nodes(scope).items():
            if glob(pattern, name):
                yield from self.templates_of(node)

    def templates_of(self, record: Any) -> Iterator[str]:
        """Yield the scopes of the templates that a node uses, also in slots and single copies."""
        if isinstance(record, dict):
            used = self.used(record)
            if used:
                yield pointer("blocks", used)
            for _, name in entries(record.get("instead")):
                yield pointer("blocks", str(name))
            for _, inner in entries(record.get("fill")):
                yield from self.templates_of(inner)
            for _, value in entries(record.get("params")):  # a block choice for a template
                yield from self.templates_of(value)

    def below(self, scopes: set[str]) -> set[str]:
        """Return scopes with those of all templates that are used inside them."""
        reached, waiting = set(scopes), list(scopes)
        while waiting:
            more = {*self._inside(waiting.pop(), "*")} - reached
            reached |= more
            waiting += more
        return reached

    def used(self, node: Any, scope: str = "") -> str:
        """Return the template that a node uses, or an empty string."""
        if not isinstance(node, dict):
            return ""
        used = node.get("block") or node.get("use")
        if is_expression(used):
            choice = {**self.params, **self.own_params(scope)}.get(str(used)[1:].strip())
            used = choice.get("use") if isinstance(choice, dict) else None
        return used if isinstance(used, str) and used in self.templates else ""

    def _whole(
        self, kind: Kind, scope: str, record: Any, key: Any, at: str, *, defines: bool = False
    ) -> Iterator[Reference]:
        """Yield the name that is the whole text of an entry."""
        for name, text in entries(record):
            if name == key and isinstance(text, str):
                yield Reference(at + pointer(key), kind, text, scope, 0, defines=defines)

    def _key(self, kind: Kind, scope: str, at: str, *, defines: bool = True) -> Reference:
        name = parts_of(at)[-1]
        defines = defines and self._is_new(kind, scope, name)
        return Reference(at, kind, name, scope, 0, in_key=True, defines=defines)

    def _is_new(self, kind: Kind, scope: str, name: str) -> bool:  # noqa: ARG002 - see `_Patched`
        """Return whether a key of this name defines it."""
        return True


class _Patched(_Scopes):
    """Walks over patches; names are resolved in the spec as it is before them.

    A selection says in which scopes the keys of a patch lie, so it is matched against that spec by
    the code that applies patches.
    """

    def in_patches(self, patches: Any) -> Iterator[Reference]:
        """Yield the names in a list of patches; one place has several if it stands for several."""
        for index, patch in entries(patches):
            if isinstance(patch, dict) and isinstance(patch.get("select"), str):
                yield from self._patch(patch, pointer("patch", index))

    def _patch(self, patch: Json, at: str) -> Iterator[Reference]:
        select = patch["select"]
        ends = list(_names_of(select))
        matches = self._matches([select, *(select[:end] for _, end in ends)])
        if matches is None:
            return
        for (word, end), match in zip(ends, matches[1:], strict=True):
            for scope, site in match.paths:
                if len(site) == _NODE and site[1] == word:
                    yield Reference(at + "/select", "node", word, _scope(scope), end - len(word))
        yield from self._template(select.partition("[")[0], at + "/select")
        yield from self._conditions(select, at + "/select")
        for scope, site in matches[0].paths:
            for key, word, start in _predicates(select):
                if key == "port":
                    yield from self._port(scope, site, word, start, at + "/select")
            yield from self._action(patch, scope, site, at)

    def _matches(self, texts: Sequence[str]) -> list[Found] | None:
        try:
            selections: list[Selection] = [read_selection(text) for text in texts]
            return Walk(self.spec, selections).matches
        except (SelectError, TooMuchError, KeyError):  # a finding says what is wrong
            return None

    def _port(self, scope: str, site: Site, name: str, start: int, at: str) -> Iterator[Reference]:
        """Yield a port of the template that a selected node uses."""
        used = self.used(self.nodes(_scope(scope)).get(site[1])) if len(site) == _NODE else ""
        if used:
            yield Reference(at, "port", name, pointer("blocks", used), start)

    def _action(self, patch: Json, scope: str, site: Site, at: str) -> Iterator[Reference]:
        for key in ("insert_before", "insert_after"):
            for name, node in entries(patch.get(key)):
                yield from self._written(scope, ("nodes",), (name,), node, at + pointer(key, name))
        for key, value in entries(patch.get("replace")):
            yield from self._written(scope, site, (key,), value, at + pointer("replace", key))
        for dotted, value in entries(patch.get("set")):
            keys = tuple(dotted.split("."))
            yield from self._written(scope, site, keys, value, at + pointer("set", dotted))
        for index, dotted in entries(patch.get("remove")):
            keys, inside = tuple(str(dotted).split(".")), at + pointer("remove", index)
            for name in self._written(scope, site, keys, None, inside):
                yield dataclasses.replace(name, in_key=False)
        for key in ("port", "through"):
            if isinstance(patch.get(key), str):
                yield from self._port(scope, site, patch[key], 0, at + pointer(key))

    def _written(
        self, scope: str, site: Site, keys: tuple[str, ...], value: Any, at: str
    ) -> Iterator[Reference]:
        """Yield the names in a value that a patch writes at some keys of a site.

        Args:
            scope: the template of the site, or `""`.
            site: keys from the scope to the record.
            keys: keys from there to the value; the patch has them in one text, with dots.
            value: the value.
            at: JSON Pointer of the value in the document, whose key is that text.
        """
        record, depth = value, len(site) + len(keys)
        for key in reversed((*site, *keys)):
            record = {key: record}
        walk = self.in_scope(record, _scope(scope), "") if scope else self.in_spec(record)
        for name in walk:
            way = parts_of(name.at)
            if not name.in_key or len(way) > depth:
                yield dataclasses.replace(name, at=at + pointer(*way[depth:]))
            elif len(way) > len(site):
                before = ".".join((*keys[: len(way) - len(site) - 1], ""))
                yield dataclasses.replace(name, at=at, start=len(before))

    def _is_new(self, kind: Kind, scope: str, name: str) -> bool:
        """Return whether a key of a patch adds a name, and does not set that of the parent."""
        if kind == "node":
            return name not in self.nodes(scope)
        record = self.templates.get(scope.removeprefix("/blocks/")) if scope else self.spec
        keys = {"input": ("inputs",), "output": ("outputs",), "axis": ("axes",)}
        return all(
            name not in _record(record, key) for key in keys.get(kind, ("inputs", "outputs"))
        )


def _words_of(text: Any, skip: int) -> Iterator[tuple[str, int]]:
    """Yield the words of a text, without the functions that it calls, and where each begins."""
    for word in WORD.finditer(text, skip) if isinstance(text, str) else ():
        if word[1] and not calls(word):
            yield word[1], word.start(1)


def _predicates(select: Any) -> Iterator[tuple[str, str, int]]:
    """Yield the key and the value of each condition of a selection, and where the value begins."""
    for condition in _PREDICATE.finditer(select) if isinstance(select, str) else ():
        yield condition[1], condition[2], condition.start(2)


def _names_of(select: str) -> Iterator[tuple[str, int]]:
    """Yield each name in a selection that is not a pattern, and where it ends."""
    path = select.partition("[")[0]
    for segment in _SEGMENT.finditer(path) if not path.startswith("/") else ():
        word = segment["word"]
        if segment["mark"] != "/" and word and "*" not in word and not INDEX.fullmatch(word):
            yield word, segment.end()


def _record(value: Any, key: str) -> Json:
    """Return the object at a key of an object, or an empty one."""
    inner = value.get(key) if isinstance(value, Mapping) else None
    return inner if isinstance(inner, dict) else {}


def _scope(name: str) -> str:
    return pointer("blocks", name) if name else ""
