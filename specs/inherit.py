"""Merge a spec file with the specs it extends, recording where each part was written."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .expressions import is_expression, words_in
from .findings import (
    Finding,
    Origins,
    SpecError,
    at_most,
    did_you_mean,
    nearest_shipped,
    pointer,
    renamed,
    respelled,
    with_location,
)
from .form import SpecForm
from .imported_specs import Read, Reported, take_in
from .json_tree import Source
from .lost_parts import Recovered, recover
from .reader import FOR_EDITORS, parse, read_value, shipped_names
from .text_edits import Fix

if TYPE_CHECKING:
    from .patches.patch import Patch, Report

FOLDERS = ("objectives", "models", "variants", "pretrained")
"""Folders of `specs/` that hold specs; of two files with one name, that of the later folder."""
_OBJECTIVES = FOLDERS[0]
LONGEST_CHAIN = 16
"""Maximum number of specs in a chain of `extends`."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_CHILD_KEYS = ("format", "extends", "name", "doc", "params", "blocks", "patch", "allow")


def inherit(
    path: Path, reported: Reported | None = None, kind: str = ""
) -> tuple[Any, Origins, Source]:
    """Return the value of a file merged with its parents, and where each part was written.

    The last value is the file's name with its text.

    Args:
        path: the file.
        reported: receives the findings about imported specs; they are raised if it is None.
        kind: as of `inherited`.

    Raises:
        InputError: a file cannot be read.
        SpecError: a text, a chain of `extends` or a patch is invalid.
    """
    value, source = read_value(path)
    return (*inherited(value, source, (), reported, kind), source)


def inherited(
    value: Any,
    source: str,
    below: tuple[Path, ...] = (),
    reported: Reported | None = None,
    kind: str = "",
) -> tuple[Any, Origins]:
    """Do the same as `inherit` for the value of a file, which need not exist.

    Args:
        value: the file's JSON value.
        source: path of the file.
        below: the chain of files that extend this one, from the loaded file on.
        reported: as of `inherit`.
        kind: folder of `specs/` in which the parent is looked up first, such as `objectives` for
            the objective of a run; "" if this is not known: then a model and an objective of one
            name are tried in this order.

    Raises:
        InputError: a file cannot be read.
        SpecError: a text, a chain of `extends` or a patch is invalid.
    """
    if not isinstance(value, dict):
        return value, Origins((source, ""))
    if "extends" not in value:
        return take_in(value, Origins((source, "")), source, _importer(below), reported)
    findings = _form_findings(value, source)
    if findings:
        raise SpecError(findings)
    if isinstance(value["extends"], list):
        return _combined(value["extends"], value, source, below, kind)
    name = str(value["extends"])
    if not _is_shared(name, source):
        return _extended_from(name, value, source, below)
    if kind:
        return _extended_from(f"{kind}/{name}", value, source, below)
    errors = []
    kinds = {shipped_names(folder).get(name): folder for folder in FOLDERS}
    model = kinds[parent_of(name, Path(source))]
    for folder in (model, _OBJECTIVES):
        try:
            return _extended_from(f"{folder}/{name}", value, source, below)
        except SpecError as error:
            errors.append((folder, error))
    folder, likely = min(errors, key=lambda pair: len(pair[1].findings))
    other = next(candidate for candidate, _ in errors if candidate != folder)
    also = f"'{name}' was taken for '{folder}/{name}'; there is '{other}/{name}', too"
    raise SpecError(
        replace(finding, evidence=(*finding.evidence, also)) for finding in likely.findings
    )


def _is_shared(name: str, source: str) -> bool:
    """Return whether a model and an objective that weft ships have a name, and no file here."""
    file = parent_of(name, Path(source))
    return name in shipped_names(_OBJECTIVES) and file in shipped_names(*FOLDERS[1:]).values()


def _extended_from(
    name: str, value: Mapping[str, Any], source: str, below: tuple[Path, ...]
) -> tuple[Any, Origins]:
    """Return the value of a child merged with a parent.

    Args:
        name: name of the parent.
        value: the child's JSON value.
        source: path of its file.
        below: as of `inherited`.
    """
    parent = _named(name, source, below)
    if isinstance(parent, Finding):
        raise SpecError([parent])
    base, origins = _base(parent, (*below, Path(source).resolve()))
    return extended(base, origins, value, source, below)


def _base(parent: Path, below: tuple[Path, ...]) -> tuple[Any, Origins]:
    """Return the value of a parent, with its own parents."""
    written, above = read_value(parent)
    base, origins = inherited(written, above, below)
    # Validate the parent first, so that its mistakes are reported in its own file.
    if (
        not isinstance(base, dict)
        or "extends" not in written
        or "patch" in written
        or "blocks" in written
    ):
        parse_placed(base, above, origins)
    return base, origins


def _combined(
    names: list[str], value: Mapping[str, Any], source: str, below: tuple[Path, ...], kind: str
) -> tuple[Any, Origins]:
    """Return the value of a child merged with several variants of one spec.

    Args:
        names: the variants.
        value: the child's JSON value.
        source: path of its file.
        below: as of `inherited`.
        kind: as of `inherited`.
    """
    findings: list[Finding] = []

    def report(index: int, problem: str, help_: str, evidence: tuple[str, ...] = ()) -> None:
        at = pointer("extends", index)
        findings.append(
            Finding(
                code="S07", at=at, problem=problem, evidence=evidence, help=help_, source=source
            )
        )

    variants: list[tuple[Mapping[str, Any], str]] = []
    parents: dict[str, Path] = {}
    chain = (*below, Path(source).resolve())
    for index, name in enumerate(names):
        shared = f"{kind}/{name}" if kind and _is_shared(name, source) else name
        file = _named(shared, source, below, pointer("extends", index))
        if isinstance(file, Finding):
            findings.append(file)
            continue
        written, above = read_value(file)
        own_parent = written.get("extends") if isinstance(written, dict) else None
        if name in names[:index]:
            report(index, f"'{name}' is named twice", "name each variant once")
        elif not isinstance(own_parent, str):
            problem = f"'{name}' extends no single spec, so it is not a variant of one"
            report(index, problem, "name variants that each extend the same spec")
        else:
            findings += _form_findings(written, above)
            parent = _named(own_parent, above, chain)
            if isinstance(parent, Finding):
                findings.append(parent)
                continue
            parents[name] = parent.resolve()
            variants.append((written, above))
    first, *others = parents or [""]
    for name in others:
        if parents[name] != parents[first]:
            report(
                names.index(name),
                f"'{first}' and '{name}' are variants of different specs",
                "combine variants that extend the same spec",
                tuple(
                    f"'{variant}' extends '{parents[variant].stem}'" for variant in (first, name)
                ),
            )
    if findings:
        raise SpecError(at_most(findings, source))
    base, origins = _base(parents[first], (*chain, Path(variants[0][1]).resolve()))
    settled = value.get("params", {})
    merged, placed = extended_by(base, origins, variants, source, below, settled)
    return extended(merged, placed, value, source, below)


def _named(name: str, source: str, below: tuple[Path, ...], at: str = "/extends") -> Path | Finding:
    """Return the file of a spec that another spec names, or a finding if there is none."""
    path = Path(source)
    chain = (*below, path.resolve())

    def fail(code: str, problem: str, help_: str, fix: Fix | None = None) -> Finding:
        return Finding(code=code, at=at, problem=problem, help=help_, source=source, fix=fix)

    parent = parent_of(name, path)
    if parent is None:
        names = [*shipped_names(*FOLDERS), *(p.stem for p in path.parent.glob("*.json"))]
        # A path is not a valid name, but its last part may be one.
        word, others = name.rpartition("/")[2], set(names) - {path.stem}
        fix = respelled(at, word, others)
        return fail("N08", f"unknown spec '{name}'", nearest_shipped(word, others), fix)
    if parent.resolve() in chain:
        return fail("S07", f"'{name}' itself extends this spec", "extend a spec that does not")
    if len(chain) >= LONGEST_CHAIN:
        problem = f"the chain of 'extends' is longer than {LONGEST_CHAIN} specs"
        return fail("S07", problem, "extend a spec nearer to the root")
    return parent


def _importer(below: tuple[Path, ...]) -> Read:
    """Return a function that reads a spec to be imported as a template, each file once."""

    @functools.cache
    def read(name: str, source: str) -> tuple[dict[str, Any], Origins] | Finding:
        file = _named(name, source, below)
        if isinstance(file, Finding):
            return file
        written, inner = read_value(file)
        value, origins = inherited(written, inner, (*below, Path(source).resolve()))
        parse_placed(value, inner, origins)
        return value, origins

    return read


def extended(
    base: Mapping[str, Any],
    origins: Origins,
    child: Mapping[str, Any],
    source: str,
    below: tuple[Path, ...] = (),
) -> tuple[dict[str, Any], Origins]:
    """Apply a child to its parent's value, and record where each part was written.

    Args:
        base: the parent's value, already validated.
        origins: where its parts were written.
        child: the child's JSON value.
        source: the child's file.
        below: the chain of files that extend the child, from the loaded file on.

    Raises:
        SpecError: params, templates or patches of the child are invalid.
    """
    return extended_by(base, origins, [(child, source)], source, below)


def extended_by(
    base: Mapping[str, Any],
    origins: Origins,
    children: Sequence[tuple[Mapping[str, Any], str]],
    source: str,
    below: tuple[Path, ...] = (),
    settled: Collection[str] = (),
) -> tuple[dict[str, Any], Origins]:
    """Apply one child to its parent's value, or several variants of it together.

    Args:
        base: the parent's value, already validated.
        origins: where its parts were written.
        children: the JSON value of each child, and its file.
        source: the file that names them, in which contradictions are reported.
        below: as of `extended`.
        settled: params on which variants may differ, because a child of theirs sets them.

    Raises:
        SpecError: params, templates or patches of a child are invalid, or contradict others.
    """
    findings: list[Finding] = []
    patches: list[Patch] = []
    for child, file in children:
        patches += _checked_child(base, child, file, findings)
    findings += [
        *_contradictions(children, "params", settled, source),
        *_contradictions(children, "blocks", (), source),
    ]
    if findings:
        raise SpecError(at_most(findings, source))
    value, merged = dict(base), origins.twin()
    added = [key for child, _ in children for key in child.get("blocks", {})]
    if patches:
        from .patches.merge import patched  # noqa: PLC0415 - few specs have patches

        value, merged = patched(base, origins, patches, source, added)
    for child, file in children:
        header = {key: child[key] for key in ("format", "name", "doc") if key in child}
        value |= header
        for key in header:
            merged.put((key,), (file, pointer(key)))
        for record in ("params", "blocks"):
            more = child.get(record, {})
            if more or record in value or record == "params":
                value[record] = {**value.get(record, {}), **more}
            for key in more:
                merged.put((record, key), (file, pointer(record, key)))
        _allow_more(value, merged, child.get("allow", ()), file)
    _leave_out_unused(base, value, added)
    for _, file in children:
        value, merged = take_in(value, merged, file, _importer(below))
    return value, merged


def _checked_child(
    base: Mapping[str, Any], child: Mapping[str, Any], source: str, findings: list[Finding]
) -> list[Patch]:
    """Return the patches of a child, and add what is wrong with its params and templates."""

    def report(**fields: Any) -> None:
        findings.append(Finding(source=source, **fields))

    params, base_params = child.get("params", {}), base.get("params", {})
    read = {word for key in ("params", "blocks", "patch") for word in _words(child.get(key, []))}
    for key in params:
        if key not in base_params and key not in read:
            report(
                code="P04",
                at=pointer("params", key),
                problem=f"'{key}' is not a param of '{_listed(child['extends'])}'",
                help=did_you_mean(key, base_params),
                fix=renamed(pointer("params", key), key, base_params, params),
            )
    for key in child.get("blocks", {}):
        if key in base.get("blocks", {}):
            report(
                code="X04",
                at=pointer("blocks", key),
                problem=f"'{_listed(child['extends'])}' already has a template '{key}'",
                help=f"give it another name, or patch '/blocks/{key}'",
            )
    return [replace(patch, source=source) for patch in _patches_in(child, report)]


def _patches_in(child: Mapping[str, Any], report: Report) -> list[Patch]:
    """Return the valid patches of a child; report the others."""
    if "patch" not in child:
        return []
    from .patches.patch import read_patches  # noqa: PLC0415 - few specs have patches

    return read_patches(child["patch"], report)


def _listed(extends: Any) -> str:
    """Return the names of what a spec extends."""
    return "' and '".join(extends) if isinstance(extends, list) else str(extends)


def _contradictions(
    children: Sequence[tuple[Mapping[str, Any], str]],
    record: str,
    settled: Collection[str],
    source: str,
) -> Iterator[Finding]:
    """Yield a finding for each param or template to which variants give different values."""
    first: dict[str, tuple[Any, str]] = {}
    for child, file in children:
        for key, value in child.get(record, {}).items():
            before, other = first.setdefault(key, (value, file))
            if before != value and key not in settled:
                texts = (other, before), (file, value)
                is_param = record == "params"
                yield Finding(
                    code="X03" if is_param else "X04",
                    at="/extends",
                    problem="variants contradict each other over"
                    f" {'param' if is_param else 'template'} '{key}'",
                    evidence=tuple(f"{name}: {json.dumps(v)[:_SHOWN]}" for name, v in texts),
                    help=f"set '{key}' in 'params' here" if is_param else "rename one of the two",
                    source=source,
                )


_SHOWN = 80
"""Number of characters of a value in a finding."""


def _leave_out_unused(base: Mapping[str, Any], value: dict[str, Any], added: Iterable[str]) -> None:
    """Leave out the templates that the parent uses and its child does not, after its patches.

    Args:
        base: the parent's value.
        value: the child's merged value, which is changed.
        added: templates that the child adds.
    """
    if gone := _reached(base) - _reached(value, added):
        value["blocks"] = {
            name: block for name, block in value["blocks"].items() if name not in gone
        }


def _reached(value: Mapping[str, Any], used: Iterable[str] = ()) -> set[str]:
    """Return the templates of a merged value that its nodes or params name, also through others.

    Args:
        value: the merged value.
        used: templates that count as used, with what they name.
    """
    templates = value.get("blocks", {})
    reached, waiting = set[str](), [value.get("nodes"), value.get("params"), list(used)]
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, dict):
            waiting += inner.values()
        elif isinstance(inner, list):
            waiting += inner
        elif isinstance(inner, str) and inner in templates and inner not in reached:
            reached.add(inner)
            waiting.append(templates[inner])
    return reached


def _allow_more(value: dict[str, Any], merged: Origins, codes: Sequence[Any], source: str) -> None:
    """Add the warnings that a child allows to those that its parent allows."""
    before = len(value.get("allow", ()))
    for index, code in enumerate(codes):
        value["allow"] = [*value.get("allow", ()), code]
        merged.put(("allow", str(before + index)), (source, pointer("allow", index)))


def recover_placed(value: Any, source: str, origins: Origins) -> Recovered:
    """Validate a merged value, without the parts that have mistakes of form.

    Raises:
        SpecError: the value cannot be read at all; every finding is in the file of its value.
    """
    try:
        recovered = recover(value, source)
    except SpecError as error:
        raise SpecError(with_location(finding, origins) for finding in error.findings) from None
    if not recovered.findings:
        return recovered
    return replace(
        recovered, findings=tuple(with_location(finding, origins) for finding in recovered.findings)
    )


def parse_placed(value: Any, source: str, origins: Origins) -> SpecForm:
    """Validate a merged value.

    Raises:
        SpecError: every invalid place, in the file in which it was written.
    """
    try:
        return parse(SpecForm, value, source)
    except SpecError as error:
        raise SpecError(with_location(finding, origins) for finding in error.findings) from None


def _words(value: Any, *, typed: bool = False) -> Iterator[str]:
    """Yield the words of all expressions, types and requirements inside a value."""
    if isinstance(value, dict):
        for key, inner in value.items():
            untyped = key.partition(".")[0] in ("inputs", "output_types", "require")
            yield from words_in(key) if is_expression(key) else ()
            yield from _words(inner, typed=typed or untyped)
    elif isinstance(value, list):
        for inner in value:
            yield from _words(inner, typed=typed)
    elif is_expression(value) or (typed and isinstance(value, str)):
        yield from words_in(value)


def _form_findings(value: Mapping[str, Any], source: str) -> list[Finding]:
    """Return the findings about the keys of a spec that extends another."""
    findings = [
        Finding(
            code="S03",
            at=pointer(key),
            problem=f"unknown key '{key}' in a spec with 'extends'",
            help=did_you_mean(key, _CHILD_KEYS),
            fix=renamed(pointer(key), key, _CHILD_KEYS, value),
            source=source,
        )
        for key in value
        if key not in (*_CHILD_KEYS, FOR_EDITORS)
    ]
    findings += [
        Finding(
            code="S04",
            at="",
            problem=f"key '{key}' is missing",
            help=f"add '{key}'",
            source=source,
        )
        for key in ("format", "name")
        if key not in value
    ]
    names = value.get("extends")
    several = isinstance(names, list) and len(names) > 1 and all(isinstance(n, str) for n in names)
    forms = (
        ("extends", list if several else str, "the name of a spec, or a list of several"),
        ("params", dict, "an object"),
        ("blocks", dict, "an object"),
        ("patch", list, "a list"),
        ("allow", list, "a list of codes"),
    )
    findings += [
        Finding(
            code="S04",
            at=pointer(key),
            problem=f"'{key}' is not {expected}",
            help=f"write {expected}",
            source=source,
        )
        for key, form, expected in forms
        if key in value and not isinstance(value[key], form)
    ]
    return findings


def parent_of(name: str, child: Path, *folders: str) -> Path | None:
    """Return the file of a parent: in the child's folder or shipped, never elsewhere.

    Args:
        name: its name, or the name of a file; `objectives/NAME` and `models/NAME` name a shipped
            spec whose name others share.
        child: the file that names it.
        folders: folders of `specs/` with the shipped files; those of specs when left out.
    """
    folder, _, bare = name.rpartition("/")
    if folder in FOLDERS:
        return shipped_names(folder).get(bare)
    if not _NAME.fullmatch(name):
        return None
    sibling = child.parent / f"{name.removesuffix('.json')}.json"
    is_self = sibling.resolve() == child.resolve()
    if sibling.is_file() and not sibling.is_symlink() and not is_self:
        return sibling
    return shipped_names(*(folders or FOLDERS)).get(name) or (sibling if is_self else None)
