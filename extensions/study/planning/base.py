"""The base run of a study, and the run of each row."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from .... import Run
from ....plugin import (
    Finding,
    Objectives,
    SpecError,
    did_you_mean,
    objective_file,
    pointer,
    run_of,
    set_dotted,
)
from ....plugin import read_run as recovered
from ....specs import reader as upgrade
from ....specs.findings import Origins, respelled, with_location
from ....specs.form import FORMAT, UseNode, kind_of
from ....specs.inherit import FOLDERS, parent_of
from ....specs.json_tree import parts_of
from ....specs.load import OVERRIDES, LoadedSpec, load, load_as, load_child, load_held
from ....specs.reader import RUN_FOLDER, read_file, read_value, shipped_names
from ....specs.text_edits import below
from ..document import Row, StudySettings

_MATCH = "/match/"
"""Beginning of the places of the study's `match`."""

__all__ = ["Base", "Run", "base_of", "read_run", "row_value"]


def read_run(value: Any, source: str) -> Run:
    """Return the run in a JSON value, which is not changed.

    Raises:
        SpecError: it is not a valid run.
    """
    return run_of(copy.deepcopy(value), source)


@dataclass(frozen=True, slots=True)
class Base:
    """The base run of a study, as a JSON value."""

    value: dict[str, Any]
    source: str
    """File of the run, for names of its objective and specs."""
    study: str
    """File of the study."""
    inline: bool
    """Whether the study contains the run."""
    changed: tuple[tuple[str, str], ...] = ()
    """Places in the run that the study changes, each with the place of the change."""
    objectives: Objectives = field(default_factory=Objectives, compare=False, repr=False)
    """Objectives of the rows, each type-checked once."""


def base_of(study: StudySettings, source: str) -> Base:
    """Return the base run of a study with the study's settings.

    Raises:
        InputError: there is no such run.
        SpecError: the run cannot be read, or is not a run of an objective.
    """
    if isinstance(study.run, dict):
        value: Any = copy.deepcopy(study.run)
        file = source
    else:
        path = parent_of(study.run, Path(source), RUN_FOLDER)
        if path is None or not path.is_file():
            beside = [file.name for file in Path(source).parent.glob("*.json")]
            names = [*shipped_names(RUN_FOLDER), *beside]
            finding = Finding(
                code="Y01",
                at="/run",
                problem=f"there is no run '{study.run}'",
                help=did_you_mean(study.run, names),
                source=source,
                fix=respelled("/run", study.run, names),
            )
            raise SpecError([finding])
        value, file = read_file(path)
    if isinstance(value, dict):
        value = upgrade.upgrade_format(value, upgrade.RUNS)
    if not isinstance(value, dict) or kind_of(value) != "run":
        raise SpecError(
            [
                Finding(
                    code="Y01",
                    at="/run",
                    problem="the base is not a run",
                    help="name a run: see 'weft list runs'",
                    source=source,
                )
            ]
        )
    changed = []
    if study.root is not None:
        set_dotted(value, "data.root", study.root, source, "/root")
        changed.append((pointer("data", "root"), "/root"))
    for dotted, new in study.set.items():
        at = pointer("set", dotted)
        set_dotted(value, dotted, copy.deepcopy(new), source, at)
        changed.append((pointer(*dotted.split(".")), at))
    inline = isinstance(study.run, dict)
    return Base(value, file, source, inline=inline, changed=(*changed,))


def row_value(base: Base, row: Row) -> dict[str, Any]:
    """Return the run of a row as a JSON value.

    Raises:
        InputError: a spec or an objective does not exist.
        SpecError: the change does not apply; the findings are in the study.
    """
    value, change = copy.deepcopy(base.value), row.change
    if change.objective is not None:
        value["objective"] = change.objective
    for dotted, new in change.set.items():
        at = row.at + pointer("set", dotted)
        set_dotted(value, dotted, copy.deepcopy(new), base.study, at)
    for dotted, new in row.tuned.items():
        set_dotted(value, dotted, copy.deepcopy(new), base.study, row.tuned_at + pointer(dotted))
    if change.extends or change.params or change.unset or change.patch:
        name, model = held_model(value, base, row)
        value.setdefault("params", {})[name] = _changed(model, base, row)
    return value


def held_model(value: dict[str, Any], base: Base, row: Row) -> tuple[str, dict[str, Any]]:
    """Return the param of the objective that holds the deployed model, and its value in a run.

    Raises:
        InputError: there is no such objective.
        SpecError: the objective takes its model from no param.
    """
    read = recovered(copy.deepcopy(value), base.source)  # mistakes elsewhere do not matter here
    if read.form is None:
        raise SpecError(read.findings)
    run = read.form
    form = load(objective_file(run, base.source), kind="objectives").form
    node = form.nodes.get(form.deploy or "")
    name = node.use.removeprefix("=").strip() if isinstance(node, UseNode) else ""
    if not isinstance(node, UseNode) or not node.use.startswith("=") or name not in form.params:
        raise SpecError(
            [
                Finding(
                    code="Y01",
                    at=row.at,
                    problem=f"the objective '{form.name}' has no param that holds its model, so a"
                    " row cannot change the model",
                    help="change settings of the run with 'set', or name another objective",
                    source=base.study,
                )
            ]
        )
    default = form.params[name]
    model = run.params.get(name, default)
    return name, {"spec": model} if isinstance(model, str) else dict(model)


def _changed(model: dict[str, Any], base: Base, row: Row) -> dict[str, Any]:
    """Return a held model with the changes of a row.

    Raises:
        SpecError: a spec does not exist, or a patch does not apply.
    """
    change, changed = row.change, dict(model)
    if "spec" not in changed and change.extends is None:
        problem = "the base run takes its model from a checkpoint, so a row cannot change it"
        help_ = "name the spec of the model in the run, and the checkpoint as its 'start'"
        raise SpecError(
            [Finding(code="Y01", at=row.at, problem=problem, help=help_, source=base.study)]
        )
    params = dict(changed.get("params", {}))
    for name in change.unset:
        if name not in params:
            raise SpecError([_no_param(name, params, base, row)])
        del params[name]
    params |= change.params
    if change.extends is not None:
        changed = {"spec": _extending(model, base, row).value()}
    if change.patch:
        changed = {"spec": _patched(changed, base, row)}
    return {**changed, **({"params": params} if params else {})}


def _extending(model: Mapping[str, Any], base: Base, row: Row) -> LoadedSpec:
    """Return the spec of a row with `extends`, with the params of the base run's spec if it can.

    Raises:
        SpecError: a spec does not exist, or the specs contradict each other.
    """
    names, spec = row.change.parents, sibling_of(model, base, row)
    written = [read_value(_path_of(name, base, row))[0] for name in names]
    if not spec and len(names) == 1:
        return load(_path_of(names[0], base, row))
    settled: dict[str, Any] = {}  # what the specs set goes before that of the base run's spec
    for params in (value.get("params", {}) for value in written):
        for key, value in params.items():
            same = all(w.get("params", {}).get(key, value) == value for w in written)
            if same or key in row.change.params:
                settled[key] = row.change.params.get(key, value)
    child = {"format": FORMAT, "name": "-".join(names), "params": settled}
    loaded = load_as({**child, "extends": [*names, *([spec] if spec else [])]}, base.study)
    if loaded.mistakes:
        raise SpecError(loaded.mistakes)
    return loaded


def sibling_of(model: Mapping[str, Any], base: Base, row: Row) -> str:
    """Return the spec of the base run if it is a variant of the same spec as those of a row.

    Variants of one spec combine, so the row keeps the params of the base run's spec.
    """
    spec = model.get("spec")
    if not isinstance(spec, str) or spec in row.change.parents:
        return ""
    files = [parent_of(spec, Path(file), *FOLDERS) for file in (base.source, base.study)]
    if files[0] is None or files[0] != files[1]:
        return ""
    paths = [files[0], *(_path_of(name, base, row) for name in row.change.parents)]
    parents = set[Path | None]()
    for path in paths:
        parent = read_value(path)[0].get("extends")
        parents.add(parent_of(parent, path) if isinstance(parent, str) else None)
    return spec if len(parents) == 1 and None not in parents else ""


def _path_of(name: str, base: Base, row: Row) -> Path:
    """Return the file of a spec that a row extends.

    Raises:
        SpecError: there is none.
    """
    path = parent_of(name, Path(base.study), *FOLDERS)
    if path is None or not path.is_file():
        raise SpecError([_no_spec(name, base, row)])
    return path


def _no_param(name: str, params: dict[str, Any], base: Base, row: Row) -> Finding:
    return Finding(
        code="Y01",
        at=f"{row.at}/unset",
        problem=f"the base run does not set the param '{name}' of its model",
        help=did_you_mean(name, params) or "remove it",
        source=base.study,
        fix=respelled(f"{row.at}/unset/{row.change.unset.index(name)}", name, params),
    )


def _no_spec(name: str, base: Base, row: Row) -> Finding:
    at = f"{row.at}/extends"
    if isinstance(row.change.extends, tuple):
        at += pointer(row.change.extends.index(name))
    return Finding(
        code="Y01",
        at=at,
        problem=f"there is no spec '{name}'",
        help=did_you_mean(name, shipped_names(*FOLDERS)),
        source=base.study,
        fix=respelled(at, name, shipped_names(*FOLDERS)),
    )


def _patched(model: dict[str, Any], base: Base, row: Row) -> dict[str, Any]:
    """Return the complete spec of a model with the patches of a row.

    Raises:
        SpecError: the model does not exist, or a patch does not apply.
    """
    loaded = load_held(model, base.source)
    if loaded is None:
        raise SpecError([_no_spec(str(model["spec"]), base, row)])
    name = loaded.form.name
    patch = list(row.change.patch)
    child = {"format": FORMAT, "extends": name, "name": name, "patch": patch}
    patched = load_child(loaded, child, base.study)
    return patched.value()


def placed(findings: Iterable[Finding], base: Base, row: Row) -> list[Finding]:
    """Return the findings about a row in the study.

    A finding about the run points to the change of the row that caused it, as far as it is known.
    """
    tuned = [(pointer(*name.split(".")), row.tuned_at + pointer(name)) for name in row.tuned]
    placed_findings = []
    for finding in findings:
        if row.tuned and (change := _cause(finding.at, tuned)):
            at_value = replace(finding, at=change[1], source=base.study, fix=None, placed=True)
            placed_findings.append(at_value)
        elif row.tuned and finding.source == base.study and finding.at.startswith(row.tuned_at):
            placed_findings.append(finding)
        else:
            placed_findings.append(_placed(finding, base, row))
    return placed_findings


def _placed(finding: Finding, base: Base, row: Row) -> Finding:
    help_ = finding.help.replace("data.root", "root")  # the key of a study
    finding = replace(finding, help=help_)
    of_run = finding.source in (base.source, OVERRIDES)
    by_study = _cause(finding.at, base.changed) if of_run else None
    if not row.at:  # the base run itself
        inline = base.inline and finding.source == base.source
        return _moved(finding, by_study, base) if by_study else _in(finding, inline and "/run")
    if finding.at.startswith(("/patch", "/extends")) and finding.source == base.study:
        return _in(finding, row.at) if _is_written(row) else replace(finding, at=row.at, fix=None)
    if finding.source == base.study and finding.at.startswith((row.at, _MATCH)):
        return finding
    where = f"in the row '{row.name}', {finding.source or 'the run'}#{finding.at}"
    by_row = _cause(finding.at, _changed_by(row)) if _is_written(row) else None
    finding = replace(finding, evidence=(*finding.evidence, where))
    return _moved(finding, by_row or by_study or (finding.at, row.at), base)


def _in(finding: Finding, at: str | Literal[False]) -> Finding:
    """Return a finding about a value for the same value at a JSON Pointer, if there is one."""
    if not at:
        return finding
    return replace(finding, at=at + finding.at, fix=finding.fix and below(finding.fix, at))


def _moved(finding: Finding, change: tuple[str, str], base: Base) -> Finding:
    """Return a finding about a run or a spec in the study, at the change that caused it.

    Args:
        finding: the finding.
        change: the JSON Pointer of what the study changes, and that of the change.
        base: the base run.
    """
    (changed, cause), origins = change, Origins((finding.source, ""))
    origins.put(parts_of(changed), (base.study, cause))
    return replace(with_location(finding, origins), placed=True)


def _changed_by(row: Row) -> list[tuple[str, str]]:
    """Return the ends of places in a run or spec that a row changes, each with that of the change.

    Both are JSON Pointers.
    """
    change = row.change
    pointers = [(pointer(*name.split(".")), pointer("set", name)) for name in change.set]
    pointers += [(pointer(name), pointer("params", name)) for name in change.params]
    pointers += [("/objective", "/objective")] if change.objective is not None else []
    for number, patch in enumerate(change.patch):
        keys = patch.get("set")
        for name in keys if isinstance(keys, dict) else ():
            pointers.append((pointer(*name.split(".")), pointer("patch", number, "set", name)))
    return [(end, row.at + cause) for end, cause in pointers]


def _cause(at: str, changed: Sequence[tuple[str, str]]) -> tuple[str, str] | None:
    """Return the pointer of what a finding is about, and that of its change, if it is known.

    It is the one that names most of the finding's place; else the only one inside of it.

    Args:
        at: JSON Pointer of the finding.
        changed: ends of places that are changed, each with the place of its change.
    """
    about = [(len(end), end, cause) for end, cause in changed if f"{end}/" in f"{at}/"]
    longest = [
        (at[: f"{at}/".rindex(f"{end}/") + length], cause)
        for length, end, cause in about
        if length == max(about)[0]
    ]
    inside = [(at, cause) for end, cause in changed if at and end.startswith(f"{at}/")]
    causes = longest or inside
    return causes[0] if len(causes) == 1 else None


def _is_written(row: Row) -> bool:
    """Return whether the place of a row has its change, and not a list of values."""
    return row.at.startswith("/rows/") or "/levels/" in row.at
