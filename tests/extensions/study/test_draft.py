"""`weft study new`: a first study of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import weft
from weft.runtime.cli.main import main
from weft.specs.findings import InputError, SpecError

from .conftest import Writer


@pytest.fixture
def run(toy_study: Writer, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a run of a small translator, whose folder is the current one."""
    study = toy_study()
    monkeypatch.chdir(study.parent)
    path = Path("toy.json")
    path.write_text(json.dumps(json.loads(study.read_text())["run"]))
    return path


def change(path: Path, **entries: Any) -> None:
    """Replace settings of a run."""
    path.write_text(json.dumps(json.loads(path.read_text()) | entries))


@pytest.mark.integration
def test_a_new_study_has_rows_that_differ_and_no_mistake(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The gated layers are as large as those of the run, within the tolerance of `match`."""
    change(run, params={"model": {"spec": "transformer-tiny"}})

    assert main(["study", "new", str(run)]) == 0

    assert capsys.readouterr().out.startswith("weft study check toy-study.json\n")
    plan = weft.Study("toy-study.json", gigaflops=1.0).plan()
    assert plan.findings == []
    rows = {row.name: row for row in plan.rows}
    assert list(rows) == ["baseline", "no-dropout", "swiglu", "pre-norm", "half-rate"]
    assert rows["swiglu"].parameters == pytest.approx(rows["baseline"].parameters, rel=0.01)
    assert rows["half-rate"].changes == ("~ run schedule.peak  0.003 -> 0.0015",)


@pytest.mark.integration
def test_a_new_study_leaves_out_what_does_not_fit_the_run(run: Path) -> None:
    """A tagger of LSTMs has no feed-forward layers; its spec is no relative of a Transformer."""
    Path("a.jsonl").write_text('{"text": "a b", "tags": "X Y"}\n' * 2)
    weft.new_run("tagging", ["a.jsonl"], valid=["a.jsonl"], out=run.with_name("tags.json"))

    study = weft.Study.new("tags.json", name="mine", out="mine.json")

    assert study.name == "mine"
    assert list(study.settings.rows) == ["no-dropout", "half-rate"]
    assert study.settings.run == "tags.json"


def test_a_new_study_is_beside_its_run(run: Path) -> None:
    """A study reads no file of another folder."""
    Path("sub").mkdir()
    for path in ("sub/study.json", "../study.json"):
        with pytest.raises(InputError, match="in its folder"):
            weft.Study.new(run, out=path)
        assert not Path(path).exists()


def test_a_new_study_overwrites_nothing(run: Path) -> None:
    """The file stays as it is."""
    Path("toy-study.json").write_text("mine")

    with pytest.raises(InputError, match="it exists"):
        weft.Study.new(run)

    assert Path("toy-study.json").read_text() == "mine"


@pytest.mark.integration
def test_a_study_of_a_wrong_run_names_the_mistake_of_the_run(run: Path) -> None:
    """Nothing is written."""
    change(run, params={"model": {"spec": "transformer-tny"}})

    with pytest.raises(SpecError, match="transformer-tny") as caught:
        weft.Study.new(run)

    assert all(Path(str(finding.source)).name == "toy.json" for finding in caught.value.findings)
    assert not Path("toy-study.json").exists()
