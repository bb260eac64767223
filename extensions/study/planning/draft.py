"""A first study of a run, to edit: some rows that fit its model, with comments."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ....plugin import InputError, SpecError, load_run
from ....runtime.scaffold.runs import refuse_old
from ....specs.files import write_beside
from ....specs.layout import laid_out
from ..loading import load_study, study_of
from .plan import plan_study


def draft_study(run: str | Path, *, name: str = "", out: str | Path | None = None) -> Path:
    """Write a study of a run: rows that change a setting, a param and blocks, as far as they fit.

    Args:
        run: path of a run, or name of a shipped run.
        name: name of the study; default: that of the run with `-study`.
        out: the file to write, in the folder of the run, as by default: `NAME.json`.

    Returns:
        The file.

    Raises:
        InputError: there is no such run, or the file exists or is elsewhere.
        SpecError: the run has mistakes.
    """
    base, source = load_run(run)
    name = name or f"{base.name}-study"
    folder = Path(run).parent if Path(run).is_file() else Path()
    path = Path(out) if out is not None else folder / f"{name}.json"
    refuse_old(path)
    if path.parent.resolve() != folder.resolve():
        raise InputError(
            "a study names a run in its folder only",
            location=str(path),
            help=f"write it into {folder.resolve()}",
        )
    ideas = _ideas()
    if not isinstance(base.schedule.peak, str):
        about = "A setting of the run, by its path: docs/runs.md has all."
        ideas["half-rate"] = (about, {"set": {"schedule.peak": base.schedule.peak / 2}})
    value = {
        "format": 1,
        "name": name,
        "doc": f"Which change of {base.name} helps?",
        "run": Path(run).name,
        "rows": {row: change for row, (_, change) in ideas.items()},
        "seeds": [1, 2, 3],
    }
    findings = plan_study(study_of(value, str(path)), str(path)).findings
    wrong = {finding.at.split("/")[2] for finding in findings if finding.at.startswith("/rows/")}
    others = [f for f in findings if f.level == "error" and not f.at.startswith("/rows/")]
    if others or len(wrong) == len(ideas):
        raise SpecError([replace(finding, source=source) for finding in others or findings])
    text = _text(value, {row: idea for row, idea in ideas.items() if row not in wrong})
    write_beside(path, text.encode(), "study")
    return path


def _ideas() -> dict[str, tuple[str, dict[str, Any]]]:
    """Return rows that may fit the model of a run by name, each with a comment."""
    demo, _ = load_study("study-demo")
    (swap,) = demo.rows["swiglu"].patch
    gated = {key: value for key, value in swap.items() if key != "expect"}
    return {
        "no-dropout": (
            'A param of the model: "weft show SPEC" lists them.',
            {"params": {"dropout": 0.0}},
        ),
        "swiglu": (
            'Other blocks: "weft blocks" lists them. "match" makes the models equally large.',
            {"patch": [gated], "match": {"param": "d_ff"}},
        ),
        "pre-norm": (
            'Another spec of the model: "weft list specs" has more. The params of the run stay.',
            {"extends": "transformer-prenorm"},
        ),
    }


def _text(value: Mapping[str, Any], ideas: Mapping[str, tuple[str, dict[str, Any]]]) -> str:
    """Return the text of a study, with a comment before each row."""
    rows = ",\n".join(
        f"// {about}\n{json.dumps(row)}: {json.dumps(change)}"
        for row, (about, change) in ideas.items()
    )
    entries = [
        f"{json.dumps(key)}: {json.dumps(entry, ensure_ascii=False)}"
        if key != "rows"
        else f'// Each row changes the run; delete or edit these.\n"rows": {{\n{rows}\n}}'
        for key, entry in value.items()
    ]
    return laid_out("{\n" + ",\n".join(entries) + "\n}\n")
