"""Find the files that depend on a spec: those that extend it, import it, or hold it in a param."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from ....plugin import InputError, pointer
from ....specs.form import Name as NameForm
from ....specs.inherit import FOLDERS, parent_of
from ....specs.json_tree import TextValue, parts_of, tree
from ....specs.reader import LARGEST, RUN_FOLDER, SHIPPED, read_text, with_texts
from ....specs.references import files_named
from ....specs.text_edits import TextEdit
from .definitions import apply, definition
from .document import TextDocument, document, forget
from .nameless import nameless
from .names import Name, name_at, names

MOST_FILES = 5_000
"""Maximum number of files of a workspace that are searched."""
_SKIPPED = ("node_modules", "site-packages", "__pycache__")


def dependents(
    path: Path, texts: Mapping[Path, str], folders: Iterable[Path] = ()
) -> dict[Path, str]:
    """Return the files that depend on a spec, directly or through others, with their texts.

    Args:
        path: the spec.
        texts: resolved path of a file to its text in an editor, if it is open.
        folders: folders to search, besides the folder of the spec.
    """
    files = dict.fromkeys([path.resolve()])
    waiting = {file: text for file, text in _texts(path, texts, folders) if file not in files}
    readers: dict[Path, str] = {}
    while True:
        stems = {file.stem for file in files}
        more = {file: text for file, text in waiting.items() if _depends(file, text, files, stems)}
        if not more:
            return readers
        readers |= more
        files |= dict.fromkeys(more)
        waiting = {file: text for file, text in waiting.items() if file not in more}


def _depends(file: Path, text: str, files: Collection[Path], stems: Iterable[str]) -> bool:
    if not any(f'"{stem}"' in text or f'"{stem}.json"' in text for stem in stems):
        return False
    return any(target in files for _, target in _targets(text, file))


def _targets(text: str, file: Path) -> Iterator[tuple[TextValue, Path]]:
    """Yield every place in a file that names a spec: the record around it, and the spec's file."""
    root = tree(text)
    for at, name in files_named(root.json()):
        target, record = parent_of(name, file), root.get(*parts_of(at))
        if target is not None and record is not None:
            yield record, target.resolve()


def _texts(
    path: Path, texts: Mapping[Path, str], folders: Iterable[Path]
) -> Iterator[tuple[Path, str]]:
    """Yield the files that may depend on a spec."""
    shipped = path.resolve().is_relative_to(SHIPPED)
    beside = [path.resolve().parent]
    if shipped:
        beside = [SHIPPED / name for name in (*FOLDERS, RUN_FOLDER)]
    files = dict.fromkeys(texts)
    for folder in beside:
        files |= dict.fromkeys(sorted(file.resolve() for file in folder.glob("*.json")))
    for folder in folders:
        files |= dict.fromkeys(_below(folder))
    for file in list(files)[:MOST_FILES]:
        try:
            yield file, texts[file] if file in texts else read_text(file)
        except InputError:
            continue  # too large for a spec, or not readable


def _below(folder: Path) -> Iterator[Path]:
    """Yield the JSON files in a folder and those below, at most `MOST_FILES`."""
    count = 0
    for where, inner, files in os.walk(folder):
        inner[:] = sorted(name for name in inner if name[:1] != "." and name not in _SKIPPED)
        for name in sorted(files):
            file = Path(where, name)
            if name.endswith(".json") and file.is_file() and file.stat().st_size <= LARGEST:
                yield file.resolve()
                count += 1
        if count > MOST_FILES:
            return


_FORM = TypeAdapter[str](NameForm)
_NOT_HERE = "rename a node, template, param, port or axis where a file of yours defines it"
_OUTER = ("input", "output", "port", "axis")
"""Kinds whose names are used from outside of a graph, so that digests contain them."""


@dataclass(frozen=True, slots=True)
class Renaming:
    """The edits that rename a name."""

    edits: Mapping[Path, list[TextEdit]]
    """File to its edits; the path of the text itself is as it was given."""
    texts: Mapping[Path, str]
    """The texts that the edits change."""
    notes: list[str] = field(default_factory=list)
    """Files that may use the name and are left as they are, with the reason."""


@dataclass(frozen=True, slots=True)
class _Target:
    """What is renamed: the name, the file that defines it, and the new name."""

    name: Name
    path: Path
    text: str
    new: str

    @property
    def document(self) -> TextDocument:
        return document(self.text, str(self.path))


def renamable(
    text: str, offset: int, path: str, texts: Mapping[Path, str] | None = None
) -> Name | None:
    """Return the name at an offset if it can be renamed: a file that can be changed defines it.

    Args:
        text: the text of a spec.
        offset: characters from its start.
        path: the file.
        texts: as of `rename`.
    """
    return name_at(document(text, path), offset) if _home(text, offset, path, texts or {}) else None


def rename(
    text: str,
    offset: int,
    new: str,
    path: str,
    *,
    texts: Mapping[Path, str] | None = None,
    folders: Iterable[Path] = (),
) -> Renaming:
    """Return the edits that rename the name at an offset wherever a file uses it.

    Wires, ties, patches, expressions and outputs follow, and those in files that extend, import
    or hold the spec.

    Args:
        text: the text of a spec.
        offset: characters from its start.
        new: the new name.
        path: the file.
        texts: resolved path of a file to its text in an editor, if it is open.
        folders: folders in which files may depend on the spec, besides that of the file.

    Raises:
        InputError: there is nothing to rename, the new name is not a name or is taken, or a file
            would have a mistake or another graph than now.
    """
    texts = {**(texts or {}), Path(path).resolve(): text}
    forget()  # what is known from the texts on the disk
    try:
        with with_texts(texts):
            return _renamed(text, offset, new, path, texts, folders)
    finally:
        forget()


def _renamed(
    text: str,
    offset: int,
    new: str,
    path: str,
    texts: Mapping[Path, str],
    folders: Iterable[Path],
) -> Renaming:
    home = _home(text, offset, path, texts)
    if home is None:
        raise InputError("there is no name to rename here", location=path, help=_NOT_HERE)
    name, file, content = home
    target = _Target(name, Path(file), content, new)
    _allowed(target)
    others = dependents(target.path, texts, folders)
    edits = {target.path: _in_own(target)}
    wrong, notes = [], []
    for other, inner in others.items():
        doc = document(inner, str(other))
        if doc.kind == "spec" and not doc.valid:
            wrong.append(other)
        else:
            edits[other] = list(_in_other(target, other, inner))
    notes += [f"{broken.name} has mistakes and is left as it is" for broken in wrong]
    before = {target.path: content, **{o: t for o, t in others.items() if o not in wrong}}
    _prove(target, before, edits)
    notes += _left(target, edits, before)
    return Renaming(
        {file: file_edits for file, file_edits in edits.items() if file_edits}, before, notes
    )


def _home(
    text: str, offset: int, path: str, texts: Mapping[Path, str]
) -> tuple[Name, str, str] | None:
    """Return the name at an offset with the file that defines it and its text."""
    doc = document(text, path)
    name = name_at(doc, offset)
    if name is None or name.kind in ("file", "block"):
        return None
    above = _parent(doc, texts)
    spec_param = name.kind == "param" and not name.scope
    if spec_param and above and name.name in above[2].merged.get("params", {}):
        file, content, parent = above
        home = _from(parent, name.name, str(file), content, texts)
        return home if home and _changeable(Path(home[1]), Path(path)) else None
    own_names = (
        occurrence
        for occurrence in names(doc)
        if occurrence.defines and occurrence.symbol == name.symbol
    )
    if next(own_names, None) is not None:
        return name, path, text
    origin = definition(text, offset, path)
    if origin is None or not _changeable(Path(origin.path), Path(path)):
        return None
    inner = texts.get(Path(origin.path).resolve(), origin.text)
    if inner != origin.text:  # an editor has another text, in which the place is another one
        return None
    there = name_at(document(inner, origin.path), origin.start + 1)
    return (there, origin.path, inner) if there and there.name == name.name else None


def _parent(doc: TextDocument, texts: Mapping[Path, str]) -> tuple[Path, str, TextDocument] | None:
    """Return the file that a spec extends, with its text."""
    extends = doc.root.get("extends")
    file = parent_of(str(extends.scalar), Path(doc.path)) if extends else None
    if file is None:
        return None
    text = texts.get(file.resolve()) or _read(file)
    return file, text, document(text, str(file))


def _read(file: Path) -> str:
    """Return the text of a file, or an empty one if it cannot be read."""
    try:
        return read_text(file)
    except InputError:
        return ""


def _from(
    doc: TextDocument, param: str, path: str, text: str, texts: Mapping[Path, str]
) -> tuple[Name, str, str] | None:
    """Return where a param that a parent has is defined first."""
    above = _parent(doc, texts)
    if above and param in above[2].merged.get("params", {}):
        return _from(above[2], param, str(above[0]), above[1], texts)
    for occurrence in names(doc):
        if occurrence.defines and occurrence.symbol == ("param", "", param):
            return occurrence, path, text
    return None


def _changeable(path: Path, beside: Path) -> bool:
    """Return whether a rename may change a file; shipped ones are changed from inside only."""
    shipped = path.resolve().is_relative_to(SHIPPED)
    return not shipped or beside.resolve().is_relative_to(SHIPPED)


def _allowed(target: _Target) -> None:
    """Raise InputError if the new name is not a name, or is taken in the file itself."""
    location = str(target.path)
    try:
        _FORM.validate_python(target.new, strict=True)
    except ValidationError:
        raise InputError(
            f"'{target.new}' is not a name",
            location=location,
            help="start with a letter, and use letters, digits and underscores",
        ) from None
    taken = (target.name.kind, target.name.scope, target.new)
    same = target.new == target.name.name
    if not same and any(
        occurrence.defines and occurrence.symbol == taken for occurrence in names(target.document)
    ):
        problem = f"the name '{target.new}' is taken"
        raise InputError(problem, location=location, help="choose another name")


def _in_own(target: _Target) -> list[TextEdit]:
    same = [
        occurrence
        for occurrence in names(target.document)
        if occurrence.symbol == target.name.symbol
    ]
    edits = [TextEdit(occurrence.start, occurrence.end, target.new) for occurrence in same]
    return list(dict.fromkeys(edits))


def _in_other(target: _Target, path: Path, text: str) -> Iterator[TextEdit]:
    """Yield the edits of a file that depends on the spec."""
    doc, kind, name = document(text, str(path)), target.name.kind, target.name.name
    global_ = kind in ("param", "template", "axis") and not target.name.scope
    renamed = {prefix + name: prefix + target.new for prefix in _prefixes(path, text, target.path)}
    if kind == "axis":  # those of an imported spec have no names
        renamed = {old: new for old, new in renamed.items() if old == name}
    for span, same in groupby(
        names(doc), key=lambda occurrence: (occurrence.start, occurrence.end)
    ):
        for occurrence in same:
            if (
                global_
                and (occurrence.kind, occurrence.scope) == (kind, "")
                and occurrence.name in renamed
            ):
                yield TextEdit(*span, renamed[occurrence.name])
                break
            if not global_ and occurrence.name == name and _same_scope(target, doc, occurrence):
                yield TextEdit(*span, target.new)
                break
    if kind == "param" and global_:
        yield from _in_uses(target, path, text)


def _same_scope(target: _Target, doc: TextDocument, name: Name) -> bool:
    """Return whether a name of another file lies in the scope of the target."""
    kind, target_kind = name.kind, target.name.kind
    if kind not in ("node", "input", "output", "port", "param") or any(
        (target_kind == apart) != (kind == apart) for apart in ("node", "param")
    ):
        return False
    if not name.scope and kind != target_kind:
        return False
    return bool(_origins(target.document, target.name) & _origins(doc, name))


def _origins(doc: TextDocument, name: Name) -> set[tuple[Path, str]]:
    """Return where the scope of a name was written, in the spec before and after its patches."""
    origins = set()
    for loaded in (doc.base, doc.loaded):
        if loaded is not None:
            file, at = loaded.origin_of(name.scope)
            origins.add((Path(file).resolve(), at))
    return origins


def _prefixes(path: Path, text: str, target: Path) -> list[str]:
    """Return what precedes the names of params and templates of the target in another file."""
    if path.resolve() == target.resolve():
        return [""]
    prefixes: list[str] = []
    for value, file in _targets(text, path):
        way = value.path
        if way and not (way[:1] == ("blocks",) and not way[2:]):
            continue  # a param holds the spec, so its names are not those of this file
        prefix = f"{way[1]}__" if way else ""
        inner = _read(file)
        prefixes += [prefix + inner_prefix for inner_prefix in _prefixes(file, inner, target)]
    return list(dict.fromkeys(prefixes))


def _in_uses(target: _Target, path: Path, text: str) -> Iterator[TextEdit]:
    """Yield the edits of params that are set next to the name of the spec: `spec` and `params`."""
    for value, file in _targets(text, path):
        if value.get("spec") is None or not value.path:
            continue
        inner = _read(file)
        for prefix in _prefixes(file, inner, target.path):
            entry = value.get("params", prefix + target.name.name)
            if entry is not None and entry.key_inside:
                yield TextEdit(*entry.key_inside, prefix + target.new)


def _prove(
    target: _Target, before: Mapping[Path, str], edits: Mapping[Path, list[TextEdit]]
) -> None:
    """Raise InputError if a file would have a new mistake, or another graph than before."""
    after = {file: apply(text, edits[file]) for file, text in before.items()}
    ignored = {target.name.name, target.new} if target.name.kind in _OUTER else set[str]()
    now = {file.resolve(): text for file, text in before.items()}
    then = {file.resolve(): text for file, text in after.items()}
    for file, text in before.items():
        with with_texts(now):
            old = document.__wrapped__(text, str(file))
        with with_texts(then):
            new = document.__wrapped__(after[file], str(file))
        codes = Counter(finding.code for finding in old.explored.findings)
        more = Counter(finding.code for finding in new.explored.findings) - codes
        wrong = [finding for finding in new.explored.findings if finding.code in more]
        if wrong:
            where = "the spec" if file == target.path else f"'{file.name}'"
            problem = f"renamed to '{target.new}', {where} would be wrong: {wrong[0].problem}"
            raise InputError(
                problem, location=str(file), help=_help(target, file, before, wrong[0].at)
            )
        if not _alike(old, new, ignored):
            problem = f"renamed to '{target.new}', '{file.name}' would be another model"
            raise InputError(problem, location=str(file), help=_help(target, file, before, ""))


def _alike(old: TextDocument, new: TextDocument, ignored: Collection[str]) -> bool:
    """Return whether two versions of a spec have the same graph up to names."""
    if not old.valid or old.graph is None or new.graph is None:
        return old.graph is None or not old.valid
    return nameless(old.graph, ignored) == nameless(new.graph, ignored)


def _help(target: _Target, file: Path, before: Mapping[Path, str], at: str) -> str:
    """Return the way out, with the selection that stands for several names if there is one."""
    doc, patches = document(before[file], str(file)), tree(before[file]).get("patch")
    number = at.split("/")[2] if at.startswith("/patch/") else ""
    for patch in patches.entries if patches is not None else ():
        select = patch.get("select")
        if select is None or (number and patch.name != number):
            continue
        inside = {
            (occurrence.kind, occurrence.scope)
            for occurrence in names(doc)
            if select.start <= occurrence.start < select.end and occurrence.name == target.name.name
        }
        if number or len(inside) > 1:
            text = f"patch {patch.name} of '{file.name}' selects '{select.scalar}'"
            several = ", which also stands for other names" * (len(inside) > 1)
            return f"{text}{several}; write one selection for each, or choose another name"
    return "choose another name, or rename the parts by hand"


def _left(
    target: _Target, edits: Mapping[Path, list[TextEdit]], before: Mapping[Path, str]
) -> Iterator[str]:
    """Yield notes about files that contain the name as text and are not specs."""
    for file, text in before.items():
        if document(text, str(file)).kind == "spec" or edits[file]:
            continue
        for value in tree(text).walk():
            words = str(value.scalar) if value.kind == "string" else ""
            if target.name.name in words.replace("/", ".").split("."):
                yield f"{file.name} has '{words}' at {pointer(*value.path)}, which is left as it is"
                break


def renamed_node(text: str, path: str, scope: str, name: str, new: str) -> str:
    """Return a text with another name of a node in wires, ties, outputs and patches.

    Args:
        text: the text of a spec.
        path: its file.
        scope: JSON Pointer of the template of the node; empty for a node of the spec itself.
        name: the node.
        new: its new name.

    Raises:
        InputError: the file does not define the node, the new name is not a name or is taken, or
            another file uses the old one, which this would not change.
    """
    occurrences = [
        occurrence
        for occurrence in names(document(text, path))
        if occurrence.symbol == ("node", scope, name)
    ]
    declaration = next((occurrence for occurrence in occurrences if occurrence.defines), None)
    if declaration is None:
        problem = f"'{name}' is written in another file"
        raise InputError(problem, location=path, help="rename it there")
    renaming = rename(text, declaration.start, new, path)
    resolved = Path(path).resolve()
    others = [file.name for file in renaming.edits if file.resolve() != resolved]
    if others:
        raise InputError(
            f"'{others[0]}' uses the name '{name}' as well, and only this file can be changed",
            location=path,
            help="rename it in an editor with 'weft lsp', which changes all files",
        )
    return apply(text, [edit for edits in renaming.edits.values() for edit in edits])
