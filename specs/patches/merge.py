"""Apply the patches of a file to its parent, splitting templates where necessary.

If selections reach a template through only some of its uses, those uses get a copy of the
template under a new name.  Versions with equal results share one template.
"""

from __future__ import annotations

import difflib
import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..expressions import is_expression
from ..findings import MOST, Finding, Origins, Place, SpecError, at_most, respelled
from ..form import by_number, is_number, number_of_copies
from ..reader import LARGEST
from ..text_edits import Fix, replacing
from .patch import GONE, Claim, KeyEdit, Patch, Report, ScopeEdits
from .walk import CopyRun, Found, Site, TooMuchError, Version, Walk, is_repeat

_SHOWN = 8
"""Maximum number of paths in a finding."""
_COMPARED = 40
"""Maximum number of paths that an empty selection is compared with."""


def report_selection(
    patch: Patch, match: Found, walk: Walk, report: Report, *, compare: bool
) -> None:
    """Report a selection that is empty, or whose number of places is not the expected one.

    Args:
        patch: the patch.
        match: the places that it selects.
        walk: the walk that found them.
        report: called with the finding.
        compare: whether to search for similar paths if the selection is empty.
    """
    text, at = patch.selection.text, patch.at("select")
    for why in match.misplaced:
        help_ = "write '*' for every copy" if "share" not in why else "omit the number"
        report(code="X09", at=at, problem=why, help=help_, source=patch.source)
    if match.misplaced:
        return
    count = len(match.paths)
    if not count:
        help_, fix = _nearest(patch, match, walk, compare=compare)
        report(
            code="X01",
            at=at,
            source=patch.source,
            problem=f"'{text}' selects nothing",
            evidence=_missed(patch, match, walk),
            help=help_,
            fix=fix,
        )
    elif patch.expect is not None and count != patch.expect:
        report(
            code="X02",
            at=at,
            source=patch.source,
            problem=f"'{text}' selects {count}, expected {patch.expect}",
            evidence=(f"selected {_listed(match.paths.values())}",),
            help=f'narrow the selection, or write "expect": {count}'
            if count > patch.expect
            else f'widen the selection, or write "expect": {count}',
            fix=replacing(patch.at("expect"), count),
        )


def _missed(patch: Patch, match: Found, walk: Walk) -> tuple[str, ...]:
    """Return lines about the records that match the path but not the predicates."""
    lines = []
    for (scope, site), path in itertools.islice(match.near.items(), _SHOWN):
        record = walk.record(scope, site)
        values = [
            f"{'.'.join(predicate.key)} = {_written(record, predicate.key)}"
            for predicate in patch.selection.predicates
            if not predicate.holds(record)
        ]
        lines.append(f"'{path}' has {', '.join(values)}")
    return tuple(lines)


def _written(record: Any, key: tuple[str, ...]) -> str:
    if key == ("port",):
        return ", ".join(sorted(record.get("in", {}))) or "none"
    for part in key:
        if not isinstance(record, dict) or part not in record:
            return "nothing"
        record = record[part]
    return record if isinstance(record, str) else json.dumps(record)


def _nearest(patch: Patch, match: Found, walk: Walk, *, compare: bool) -> tuple[str, Fix | None]:
    """Return how to select something, and the fix if one path is most similar."""
    if match.near:
        return "change or remove the part in brackets", None
    if patch.selection.target == "templates":
        candidates: list[str] = [f"/blocks/{name}" for name in walk.blocks]
    else:
        candidates = match.candidates
    target = patch.selection.path
    most = _COMPARED if len(target) <= _COMPARED else _SHOWN
    if len(candidates) > most:
        candidates = sorted(candidates, key=lambda path: (abs(len(path) - len(target)), path))[
            :most
        ]
    # The most common mistake is to omit the part for the copy of a repeat.
    matches = [path for path in walk.paths.values() if path.replace(".*.", ".") == target]
    # Candidates are the paths at the first segment that did not match.
    head = "".join(re.split(r"(?=[./])", target)[: match.furthest or None])
    near = difflib.get_close_matches(head, candidates, n=3, cutoff=0.5) if compare else []
    at, predicates = patch.at("select"), patch.selection.text[len(target) :]
    if compare and matches:
        return f"did you mean '{matches[0]}'?", replacing(at, matches[0] + predicates)
    paths = candidates if patch.selection.target == "templates" else walk.paths.values()
    fix = respelled(at, target, set(paths), f"{{}}{predicates}") if compare else None
    near = near or sorted(candidates)[:_SHOWN]
    return f"nearest: {', '.join(near)}" if near else "there is nothing to select", fix


def _listed(paths: Iterable[str]) -> str:
    all_ = list(paths)
    return ", ".join(all_[:_SHOWN]) + (", ..." if all_[_SHOWN:] else "")


def report_conflict(
    edit: KeyEdit | Claim, other: KeyEdit | Claim, path: str, report: Report
) -> None:
    """Report two changes that cannot both be applied.

    Args:
        edit: change of the earlier patch.
        other: change of the later patch.
        path: path of the scope, which precedes the names of its nodes.
        report: called with the finding.
    """
    pair = f"{edit.patch.index} and {other.patch.index}"
    common_path = min(edit.path, other.path, key=len)
    if edit.patch.source != other.patch.source:
        report(
            code="X03",
            at="/extends",
            problem=f"variants contradict each other over {shown(common_path, path)}",
            evidence=tuple(
                f"{item.patch.source}: {_described(item, path)}" for item in (edit, other)
            ),
            help="leave one of the two out, or extend one and write the other's patches anew",
        )
        return
    if edit.patch is other.patch:
        report(
            code="X03",
            at=other.at,
            source=other.patch.source,
            problem=f"patch {edit.patch.index} writes {shown(common_path, path)} and a value inside"
            " it",
            evidence=(_described(edit, path), _described(other, path)),
            help="narrow the selection, so that no record is inside another",
        )
        return
    report(
        code="X03",
        at=other.at,
        source=other.patch.source,
        problem=f"patches {pair} conflict over {shown(common_path, path)}",
        evidence=(_described(edit, path), _described(other, path)),
        help="narrow one of the two selections, or write one patch for both",
    )


def _described(item: KeyEdit | Claim, path: str) -> str:
    verb = "selects inside" if isinstance(item, Claim) else "writes"
    if isinstance(item, Claim) and "(out)" in item.path:
        verb = "inserts after"
    if isinstance(item, KeyEdit) and item.value is GONE:
        verb = "removes"
    text = item.patch.selection.text
    return f"patch {item.patch.index} {verb} {shown(item.path, path)}, by '{text}'"


def shown(site: Site, path: str) -> str:
    """Return a readable name of a place in a scope.

    >>> shown(("nodes", "norm", "fill", "f", "params", "heads"), "encoder.*.")
    "'params.heads' of 'encoder.*.norm/f'"
    """
    if not site:
        return f"'{path.rstrip('.: ') or '/'}'"
    if site[0] != "nodes" or len(site) == 1:
        return f"'{'.'.join(site)}' of '{path.rstrip('.: ') or '/'}'"
    name, remaining = path + site[1], site[2:]
    while remaining[:1] == ("fill",) and len(remaining) > 1:
        name, remaining = f"{name}/{remaining[1]}", remaining[2:]
    if remaining[:1] == ("(out)",):
        return f"'{remaining[1]}'"
    return f"'{'.'.join(remaining)}' of '{name}'" if remaining else f"'{name}'"


MOST_WRITTEN = 4 * LARGEST
"""Maximum characters of a parent plus all that patches write, including template copies."""
MOST_EDITS = 4_000
"""Maximum number of changes by the patches of a file, counting each key at each site."""
_MOST_COMPARED = 32
"""Number of findings after which similar paths are no longer searched for."""
_KEY = 32
"""Number of characters that each written key counts as, in addition to its value."""
LONGEST_NAME = 64
"""Maximum number of characters in a name."""


def patched(
    base: Mapping[str, Any],
    origins: Origins,
    patches: Sequence[Patch],
    source: str,
    taken: Sequence[str] = (),
) -> tuple[dict[str, Any], Origins]:
    """Return a parent's value with patches applied, and where its parts were written.

    Args:
        base: the parent's value, already validated.
        origins: where its parts were written.
        patches: the patches; their order does not matter.
        source: the file of the patches.
        taken: names that new templates must not use.

    Raises:
        SpecError: a selection is empty or too large, or patches conflict.
    """
    merge = _Merge(base, origins, patches, source, taken)
    merge.run()
    return merge.value, merge.origins


@dataclass(slots=True)
class _Made:
    """One version of a scope with its patches applied."""

    record: Any
    origins: Origins
    label: str
    key: str = ""
    """Comparison key: equal for equal records."""


class _Merge:
    def __init__(
        self,
        base: Mapping[str, Any],
        origins: Origins,
        patches: Sequence[Patch],
        source: str,
        taken: Sequence[str],
    ) -> None:
        self.base, self.patches, self.source = base, patches, source
        self.old, self.origins = origins, origins.twin()
        self.value: dict[str, Any] = dict(base)
        self.blocks: dict[str, Any] = dict(base.get("blocks", {}))
        self._taken = {*self.blocks, *taken}
        self._findings: dict[tuple[Any, ...], Finding] = {}
        self._touched: dict[int, frozenset[int]] = {}
        """Patches that change a version or the versions inside it, by `id` of the version."""
        self._names: dict[int, str] = {}
        """Name of the template for a version, by `id` of the version; removed ones are absent."""
        self._left = MOST_WRITTEN - len(json.dumps(base))
        self._sizes: dict[int, tuple[Any, int]] = {}

    def run(self) -> None:
        """Apply every patch.

        Raises:
            SpecError: the patches have findings.
        """
        try:
            walk = Walk(self.base, [patch.selection for patch in self.patches])
        except TooMuchError:
            self._too_much("the selections of these patches need too many comparisons")
            return
        for patch, match in zip(self.patches, walk.matches, strict=True):
            compare = len(self._findings) < _MOST_COMPARED
            report_selection(patch, match, walk, self._report, compare=compare)
            if len(self._findings) > MOST:
                break
        self._raise()
        edits = sum(
            len(match.paths) * max(1, len(patch.keys))
            for patch, match in zip(self.patches, walk.matches, strict=True)
        )
        if edits > MOST_EDITS:
            self._too_much(f"these patches make {edits:,} changes, more than {MOST_EDITS:,}")
        for name in walk.order:
            self._make_template(name, walk.versions(name))
        [root] = walk.versions("")
        root_record = {key: value for key, value in self.base.items() if key != "blocks"}
        version = self._make(root, root_record, ())
        self._raise()
        if version is not None:
            version.origins.inner["blocks"] = self.origins.at(("blocks",))
            self.value, self.origins = version.record, version.origins
        if self.blocks or "blocks" in self.base:
            self.value = {**self.value, "blocks": self.blocks}

    def _report(self, source: str = "", **fields: Any) -> None:
        finding = Finding(source=source or self.source, **fields)
        self._findings.setdefault((finding.code, finding.at, finding.problem), finding)

    def _raise(self) -> None:
        if self._findings:
            raise SpecError(at_most(self._findings.values(), self.source))

    def _too_much(self, problem: str) -> None:
        self._report(
            code="X08",
            at="/patch",
            problem=problem,
            help="select several nodes with one patch, or extend in two steps",
        )
        self._raise()

    def _make_template(self, name: str, versions: Sequence[Version]) -> None:
        """Write the versions of a template; the unchanged or first one retains its name."""
        written = self.base["blocks"][name]
        serialized = json.dumps(written, sort_keys=True) if versions[1:] else ""
        results: dict[tuple[Any, ...], _Made | None] = {}
        groups: list[tuple[_Made | None, list[Version]]] = []
        by_key: dict[str, int] = {}
        for version in versions:
            mark = self._mark(version)
            if mark not in results:
                results[mark] = self._make(version, written, ("blocks", name))
            result = results[mark]
            key = "" if result is None else result.key or serialized
            if key not in by_key:
                by_key[key] = len(groups)
                groups.append((result, []))
            groups[by_key[key]][1].append(version)
        original = by_key.get(
            serialized, next((i for i, g in enumerate(groups) if self._free(g[1])), 0)
        )
        for index, (result, members) in enumerate(groups):
            if result is None:
                self.blocks.pop(name, None)
                continue
            version_name = name if index == original else self._new_name(name, result.label)
            self._names |= {id(version): version_name for version in members}
            if result.record is not written:
                self.blocks[version_name] = result.record
                self.origins.at(("blocks",)).inner[version_name] = result.origins

    def _free(self, versions: Sequence[Version]) -> bool:
        """Return whether one of the versions is not changed by any patch."""
        return not all(map(self._inside, versions))

    def _mark(self, version: Version) -> tuple[Any, ...]:
        """Return a key that identifies a version by the changes in it and inside it."""
        inside = tuple(
            (name, run.low, run.high, self._names.get(id(run.version), run.template))
            for name, runs in version.runs.items()
            for run in runs
        )
        chosen = frozenset((i, site) for i, sites in version.chosen.items() for site in sites)
        return chosen, self._inside(version), inside

    def _inside(self, version: Version) -> frozenset[int]:
        """Return the patches that change a version or the versions inside it."""
        if id(version) not in self._touched:
            below = [
                self._inside(run.version)
                for runs in version.runs.values()
                for run in runs
                if run.version is not None
            ]
            changing = {i for i, sites in version.chosen.items() if sites != [()]}
            self._touched[id(version)] = frozenset(changing).union(*below)
        return self._touched[id(version)]

    def _make(
        self, version: Version, written: Mapping[str, Any], at: tuple[str, ...]
    ) -> _Made | None:
        """Apply the patches to one version of a scope; return None if a patch removes it."""
        todo = ScopeEdits(version.scope, written, self._fail)
        for index, sites in version.chosen.items():
            for site in sites:
                todo.add(self.patches[index], site)
        todo.finish()
        references = self._references(version, written)
        if not todo.edits and not references:
            return _Made(written, self.old.copied(at), version.label)
        self._find_conflicts(version, todo)
        self._spend(self._size(written) + sum(_KEY + self._size(e.value) for e in todo.edits))
        result = _Made(_copied(written), self.old.copied(at), version.label)
        for node, (keys, index) in references.items():
            origin = (self._file(self.patches[index]), self.patches[index].at("select"))
            _refer(result, node, keys, origin)
        for site, (patch, where) in todo.owners.items():
            others = [key for key in _value_at(written, site) if key not in ("use", "block")]
            result.origins.pin(site, others, (self._file(patch), where))
        for edit in sorted(todo.edits, key=lambda edit: edit.path):
            if edit.path == ():
                return None
            self._write(result, edit)
        result.key = json.dumps(result.record, sort_keys=True)
        return result

    def _write(self, target: _Made, edit: KeyEdit) -> None:
        *way, last = edit.path
        record: Any = target.record
        for depth, key in enumerate(way, 1):
            if not isinstance(record.get(key), dict):
                if edit.value is GONE:
                    return
                record[key] = {}
                target.origins.put(way[:depth], (self._file(edit.patch), edit.at))
            record = record[key]
        if edit.value is GONE:
            record.pop(last, None)
            target.origins.at(way).inner.pop(last, None)
        else:
            record[last] = edit.value
            target.origins.put(edit.path, (self._file(edit.patch), edit.at))

    def _size(self, value: Any) -> int:
        """Return the number of characters of a JSON value; results are cached by `id`."""
        if id(value) not in self._sizes:
            self._sizes[id(value)] = value, 0 if value is GONE else len(json.dumps(value))
        return self._sizes[id(value)][1]

    def _spend(self, characters: int) -> None:
        self._left -= characters
        if self._left < 0:
            self._too_much(f"with these patches the spec has more than {MOST_WRITTEN:,} characters")

    def _fail(
        self,
        patch: Patch,
        at: str,
        code: str,
        problem: str,
        help_: str,
        fix: Fix | None = None,
    ) -> None:
        self._report(
            patch.source,
            code=code,
            at=at,
            problem=problem,
            evidence=(f"selected by '{patch.selection.text}'",),
            help=help_,
            fix=fix,
        )

    def _file(self, patch: Patch) -> str:
        """Return the file of a patch."""
        return patch.source or self.source

    def _find_conflicts(self, version: Version, todo: ScopeEdits) -> None:
        """Report each pair of conflicting patches once."""
        for index in sorted(self._inside(version)):
            for name, runs in version.runs.items():
                if any(run.version and index in self._inside(run.version) for run in runs):
                    todo.enter(self.patches[index], name)
        pairs: set[tuple[tuple[str, int], tuple[str, int]]] = set()
        for edit, other in todo.conflicts():
            first, second = sorted((edit, other), key=lambda item: item.patch.location)
            pair = (first.patch.location, second.patch.location)
            if pair not in pairs:
                pairs.add(pair)
                report_conflict(first, second, version.path, self._report)
            if len(pairs) > MOST:
                break
        self._raise()

    def _references(
        self, version: Version, written: Mapping[str, Any]
    ) -> dict[str, tuple[dict[str, Any], int]]:
        """Return each node whose template was renamed: its new keys and the responsible patch."""
        references: dict[str, tuple[dict[str, Any], int]] = {}
        for name, runs in version.runs.items():
            named_runs = [(run, self._names.get(id(run.version), run.template)) for run in runs]
            if all(now == run.template for run, now in named_runs):
                continue
            blamed = min(
                index for run in runs if run.version for index in self._inside(run.version)
            )
            node = written["nodes"][name]
            keys = _repeated(node, named_runs) if is_repeat(node) else {"use": named_runs[0][1]}
            references[name] = (keys, blamed)
        return references

    def _new_name(self, template: str, label: str) -> str:
        """Return an unused template name."""
        stem, number = f"{template}_{label}"[: LONGEST_NAME - 6], 2
        name = stem
        while name in self._taken:
            name, number = f"{stem}_{number}", number + 1
        self._taken.add(name)
        return name


def _repeated(node: Mapping[str, Any], named_runs: Sequence[tuple[CopyRun, str]]) -> dict[str, Any]:
    """Return the keys of a repeat: the template of most copies, and the others by index."""
    main = named_runs[0][1]  # the run with the most copies, or an open one, is first
    if not any(run.high is None for run, _ in named_runs) and node["block"] in [
        now for _, now in named_runs
    ]:
        main = node["block"]
    instead = dict(node.get("instead", {}))
    if (count := number_of_copies(node["repeat"])) is not None:
        rules = {key: used for key, used in instead.items() if is_expression(key)}
        instead = {str(index): used for index, used in by_number(instead, count).items()} | rules
    for run, now in named_runs:
        if run.key:
            instead[run.key] = now
            continue
        if run.high is not None and now != main:
            instead |= {str(index): now for index in range(run.low, run.high + 1)}
        elif run.low == run.high:
            instead.pop(str(run.low), None)
    keys: dict[str, Any] = {}
    if main != node["block"]:
        keys["block"] = main
    if instead != node.get("instead", {}):
        keys["instead"] = dict(sorted(instead.items(), key=_order))
    return keys


def _order(item: tuple[str, str]) -> tuple[bool, int, str]:
    """Return the sort key of an item of `instead`: numbers first, then slices."""
    key = item[0]
    return not is_number(key), int(key) if is_number(key) else 0, key


def _refer(target: _Made, node: str, keys: Mapping[str, Any], origin: Place) -> None:
    """Write the template names of a node, and record the patch as their origin."""
    record = target.record["nodes"][node]
    before = record.get("instead", {})
    record.update(keys)
    for key in keys.keys() - {"instead"}:
        target.origins.put(("nodes", node, key), origin)
    for index, name in keys.get("instead", {}).items():
        if before.get(index) != name:
            target.origins.put(("nodes", node, "instead", index), origin)


def _copied(value: Any) -> Any:
    """Return a deep copy of the objects and lists of a JSON value."""
    if isinstance(value, Mapping):
        return {key: _copied(inner) for key, inner in value.items()}
    return [_copied(inner) for inner in value] if isinstance(value, list) else value


def _value_at(value: Any, site: Sequence[str]) -> Any:
    for key in site:
        value = value[key]
    return value
