"""A study whose runs train within a second, on the toy corpus of reversed sentences."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from weft.extensions.study.jobs import Job, write_jobs
from weft.extensions.study.loading import load_study
from weft.extensions.study.planning.plan import plan_study
from weft.extensions.study.planning.table import plan_record
from weft.extensions.study.report import plots
from weft.extensions.study.worker import run_job

from ...runtime.conftest import write_toy

SMALL = {"d_model": 16, "heads": 2, "d_ff": 32, "layers": 1, "dropout": 0.1}
"""Params of a small transformer."""
SWIGLU = {
    "patch": [
        {
            "select": "**/f[use=feed_forward@1]",
            "set": {"use": "gated_feed_forward@1", "params.activation": "silu"},
        }
    ]
}
"""A row with gated feed-forward layers, which have three matrices instead of two."""
ONE_ROW = {"swiglu": SWIGLU}
ROWS = {"swiglu": SWIGLU, "no-smoothing": {"set": {"params.label_smoothing": 0.0}}}

Writer = Callable[..., Path]


def write_study(folder: Path, **changes: Any) -> Path:
    """Write a corpus and a study of it; return the study's file.

    Args:
        folder: where they are written.
        changes: replace top-level keys of the study; `settings` replace those of its run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in (("train", 60), ("valid", 8), ("test", 12)):
        if not (folder / f"{name}.src").exists():
            write_toy(folder, lines, len(name), name)
    splits = {
        name: {"lines": {"source": [f"{name}.src"], "target": [f"{name}.tgt"]}}
        for name in ("train", "valid", "test")
    }
    text = {"type": "text", "tokenizer": "text"}
    run = {
        "format": 1,
        "name": "toy",
        "objective": "translation",
        "params": {"model": {"spec": "transformer-tiny", "params": SMALL}},
        "data": {
            "root": str(folder),
            "columns": {"source": text, "target": text},
            "train": splits["train"],
            "valid": splits["valid"],
            "test": {"toy": splits["test"]},
        },
        "tokenizers": {"text": {"type": "bpe", "vocab_size": 40}},
        "batch": {"tokens": 200},
        "accumulate": 1,
        "updates": 4,
        "schedule": {"peak": 0.003},
        "predict": {"type": "beam", "beam": 1, "max_extra": 4},
        "answers": "target",
        "evaluate": {"every": 2, "best": "nll", "samples": 0},
        "checkpoint": {"every": 2, "keep": 2, "average": 2},
        "trackers": [],
        "threads": 1,
        "precision": "float32",
        **changes.pop("settings", {}),
    }
    study = {
        "format": 1,
        "name": "toy-study",
        "run": run,
        "rows": ROWS,
        "seeds": [1, 2],
        "measure": {"metrics": ["chrf", "bleu"]},
        "compare": {"samples": 100},
    }
    path = folder / "study.json"
    path.write_text(json.dumps({**study, **changes}))
    return path


@pytest.fixture(autouse=True, scope="session")
def _letters_as_outlines() -> Iterator[None]:
    """Draw letters in PDF files as outlines: subsets of fonts take most of the time of a report."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(plots._STYLE, "pdf.fonttype", 3)
        yield


@pytest.fixture
def toy_study(tmp_path: Path) -> Writer:
    """Return `write_study` for a folder of the test."""

    def write(**changes: Any) -> Path:
        return write_study(tmp_path / "study", **changes)

    return write


def written(path: Path, out: Path) -> list[Job]:
    """Write the jobs of a study file."""
    study, source = load_study(path)
    plan = plan_study(study, source)
    assert plan.errors == []
    record = plan_record(plan, lambda _: 1e9)
    record["document"] = study.model_dump(mode="json", exclude_unset=True)
    record |= {"source": str(path), "folder": str(out), "overrides": []}
    return write_jobs(plan, out, record)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with `study.json` and its finished jobs in `out`."""
    folder = tmp_path_factory.mktemp("done")
    for job in written(write_study(folder, rows=ONE_ROW), folder / "out"):
        assert run_job(job.folder) == "done"
    return folder


@pytest.fixture
def copy(done: Path, tmp_path: Path) -> Path:
    """Return a copy of the finished study, to change it."""
    shutil.copytree(done / "out", tmp_path / "out", symlinks=True)
    return tmp_path / "out"
