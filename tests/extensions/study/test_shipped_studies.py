"""The shipped studies: each is valid, and has the rows that its documentation names."""

from __future__ import annotations

import gzip
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import weft
from weft.extensions.study.document import rows_of
from weft.extensions.study.loading import load_study
from weft.extensions.study.planning.base import base_of, read_run, row_value
from weft.specs.reader import shipped_names

from ...runtime.conftest import write_toy
from ...runtime.toy_treebank import write_banks

DOCS = Path(__file__).parents[3] / "docs/studies"
STUDIES = [name for name in shipped_names("studies") if name != "study-demo"]


def files_of(split: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of a split's files."""
    [settings] = [split[key] for key in ("lines", "trees") if key in split]
    groups = [settings["files"]] if "files" in settings else settings.values()
    yield from (name for group in groups for name in group)


def write_data(name: str, root: Path) -> None:
    """Write a toy file for each name that a row of a study reads."""
    study, source = load_study(name)
    base = base_of(study, source)
    root.mkdir()
    write_toy(root, 40, 1, "toy")
    write_banks(root)
    for row in rows_of(study, source):
        run = read_run(row_value(base, row), source)
        data = run.data.model_dump(mode="json", by_alias=True)
        for split in (data["train"], data["valid"], *data["test"].values()):
            for file in files_of({k: v for k, v in split.items() if v is not None}):
                text = "toy.src" if ".en" in file or "source" in file else "toy.tgt"
                toy = "valid.trees" if "trees" in file else text
                path = root / file
                path.parent.mkdir(exist_ok=True)
                content = (root / toy).read_bytes()
                path.write_bytes(gzip.compress(content) if file.endswith(".gz") else content)


def test_modifications_has_the_rows_of_both_papers() -> None:
    """At least 20 besides the baseline, and each names its source."""
    study, source = load_study("modifications")

    rows = [row for row in rows_of(study, source) if row.at]

    assert len(rows) >= 20
    assert all(any(c.isdigit() for c in row.change.doc) for row in rows)
    assert len(study.seeds) >= 2
    assert study.match is not None


def test_no_shipped_study_names_an_absolute_path() -> None:
    """The folder of the data is given with `--set root=DIR`."""
    for name in STUDIES:
        study, _ = load_study(name, {"root": "somewhere"})
        assert '"/' not in study.model_dump_json().replace('"select":"/', "")
        assert study.root == "somewhere"


@pytest.mark.slow
@pytest.mark.parametrize("name", STUDIES)
def test_a_shipped_study_plans_without_a_finding(name: str, tmp_path: Path) -> None:
    """`weft study run NAME --dry`, on toy files with the names of its data."""
    write_data(name, tmp_path / "data")

    plan = weft.Study(
        name, out=tmp_path / "out", overrides={"root": str(tmp_path / "data")}, gigaflops=10.0
    ).plan()

    assert plan.findings == []


@pytest.mark.slow
def test_each_row_for_small_data_trains(tmp_path: Path) -> None:
    """Two updates of each, with a tiny model on toy sentences."""
    name = "small-data-multi30k"
    write_data(name, tmp_path / "data")
    tiny = {"d_model": 16, "heads": 2, "d_ff": 32, "layers": 1, "dropout": 0.1}
    changes = {
        "params.model": {"spec": "transformer-rotary", "params": tiny},
        "tokenizers.tokenizer": {"type": "bpe", "vocab_size": 40},
        "dropout": 1,
        "batch.tokens": 400,
        "checkpoint": {"every": 1, "keep": 2, "average": 2},
        "schedule": {"peak": 0.003},
        "evaluate": {"every": 2, "best": "nll", "samples": 0},
        "predict": {"type": "beam", "beam": 1, "max_extra": 4},
        "precision": "float32",
        "trackers": [],
        "threads": 1,
    }
    overrides = {"root": str(tmp_path / "data"), "set": changes, "seeds": [1], "budget.updates": 2}
    study = weft.Study(name, out=tmp_path / "out", overrides=overrides, gigaflops=10.0)

    report = study.run(processes=2)

    assert report.failed == {}
    assert {job.state for job in study.status()} == {"done"}
    shutil.rmtree(tmp_path / "out")


@pytest.mark.parametrize("name", STUDIES)
def test_a_description_can_be_a_caption(name: str) -> None:
    """The table of a paper tells no options of a command."""
    study, _ = load_study(name)
    assert "--" not in study.doc


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(path.stem for path in DOCS.glob("*.md")))
def test_a_published_report_is_that_of_its_results(name: str, tmp_path: Path) -> None:
    """Written again from the packed results, without the data; all but the commands is the same."""
    study = weft.Study(name, out=tmp_path / "out")

    added, _ = study.unpack([DOCS / name])

    assert added
    study.report(tmp_path, forms=["md", "svg"])
    pages = ((folder / f"{name}.md").read_text() for folder in (tmp_path, DOCS))
    found, published = ([x for x in page.splitlines() if x[:5] != "weft "] for page in pages)
    assert found == published
    # Positions depend on the version of matplotlib.
    pictures = ((folder / f"{name}.svg").read_text() for folder in (tmp_path, DOCS))
    found, published = (re.findall(">([^<]+)</text>", picture) for picture in pictures)
    assert found == published
