"""Tests of synthetic data: what is written, what is refused, and who reads it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
import weft
from weft.extensions.study import synthesis
from weft.extensions.study.synthesis import closest_answer, synthesize
from weft.runtime.cli.main import main
from weft.runtime.decode.predictors.predictor import Answer
from weft.runtime.model.opening import ensemble, open_model
from weft.runtime.train.plan import run_of
from weft.runtime.train.run import Run

from .conftest import Writer


@pytest.fixture
def run(toy_study: Writer) -> tuple[Run, Path]:
    """Return the run of the toy study, and its file."""
    path = toy_study()
    value = json.loads(path.read_text())["run"]
    file = path.parent / "run.json"
    file.write_text(json.dumps(value))
    return run_of(value, str(file)), file


def test_a_folder_outside_of_the_data_is_refused(run: tuple[Run, Path], tmp_path: Path) -> None:
    """A run reads no files outside of its root."""
    with pytest.raises(weft.InputError, match="not below the root"):
        synthesize(run[0], tmp_path / "teacher", tmp_path / "elsewhere")


def test_a_folder_that_is_no_checkpoint_is_refused(run: tuple[Run, Path], tmp_path: Path) -> None:
    """Before the folder is made."""
    out = Path(run[0].data.root) / "distilled"

    with pytest.raises(weft.InputError, match="cannot read"):
        synthesize(run[0], tmp_path / "teacher", out)
    assert not out.exists()


def test_files_are_cut_to_the_rows_that_all_have(tmp_path: Path) -> None:
    """A kill may come between two writes, and within a line."""
    (tmp_path / "a").write_text("1\n2\n3\n")
    (tmp_path / "b").write_text("1\n2\n3")

    assert synthesis._aligned(tmp_path, ["a", "b"]) == 2
    assert (tmp_path / "a").read_text() == (tmp_path / "b").read_text() == "1\n2\n"


def test_the_closest_answer_has_the_highest_bleu_of_the_sentence() -> None:
    """By the definition: more n-grams in common with the text; the best answer among equals."""
    text = "a man rides a horse on the beach"
    far, near = "people are at the beach", "a man rides a brown horse on the beach"

    assert closest_answer(Answer(far, others=(Answer(near), Answer("a dog"))), text).value == near
    assert closest_answer(Answer(text, others=(Answer(near),)), text).value == text
    assert closest_answer(Answer("x y", others=(Answer("y x"),)), text).value == "x y"


@pytest.mark.slow
def test_an_ensemble_answers_with_the_closest_of_several(
    run: tuple[Run, Path], tmp_path: Path, capsys: Any
) -> None:
    """Each answer is one of the n best of both models, and the most similar to the corpus."""
    settings, file = run
    root = Path(settings.data.root)
    words = {"updates": 40, "schedule.peak": 0.01}
    prepared = weft.train(file, out=tmp_path / "1", overrides=words).averaged
    other = weft.train(file, out=tmp_path / "2", overrides={**words, "seed": 7}).averaged
    assert prepared is not None
    assert other is not None
    out = root / "closest"
    command = ["synthesize", str(file), str(prepared), "--ensemble", str(other), "--out", str(out)]
    command += ["--closest", "--predict", "beam=3"]

    assert main(command) == 1
    assert "--predict nbest=5" in capsys.readouterr().err
    assert not (out / "provenance.json").exists()
    assert main([*command, "--predict", "nbest=3"]) == 0

    model = ensemble(open_model(prepared), [open_model(other)])
    rows = [{"source": line} for line in (root / "train.src").read_text().splitlines()]
    wanted = (root / "train.tgt").read_text().splitlines()
    found = (out / "train.target.txt").read_text().splitlines()
    given = model.predictor({"beam": 3, "nbest": 3}, answers="target").answers(rows)
    better = 0
    for answer, text, chosen in zip(given, wanted, found, strict=True):
        texts = [" ".join(one.value.split()) for one in (answer, *answer.others)]
        bleu = [sacrebleu.sentence_bleu(one, [text]).score for one in texts]
        assert chosen == texts[bleu.index(max(bleu))]
        better += chosen != texts[0]
    assert better > 0
    known = json.loads((out / "provenance.json").read_text())
    assert len(known["weights"]) == 2
    assert known["closest"] is True


@pytest.mark.slow
def test_the_answers_are_those_of_the_teacher_and_train_a_run(
    run: tuple[Run, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """As `translate` gives them; a stopped call continues; other settings are refused."""
    settings, file = run
    root = Path(settings.data.root)
    teacher = weft.train(file, out=tmp_path / "teacher").averaged
    assert teacher is not None
    monkeypatch.setattr(synthesis, "CHUNK", 25)
    words = ["synthesize", str(file), str(teacher), "--out", str(root / "distilled")]

    assert main(words) == 0

    captured = capsys.readouterr()
    printed = captured.out.strip()
    assert "synthesize: 60 rows" in captured.err
    sources = (root / "train.src").read_text().splitlines()
    answers = (root / "distilled/train.target.txt").read_text().splitlines()
    assert (root / "distilled/train.source.txt").read_text().splitlines() == sources
    search = {"beam": 1, "max_extra": 4}
    wanted = weft.open(teacher, predict=search).translate(sources)
    assert answers == [" ".join(one.split()) for one in wanted]
    known = json.loads((root / "distilled/provenance.json").read_text())
    assert known["rows"] == 60
    assert known["data"].keys() == {"train.src", "train.tgt"}

    whole = (root / "distilled/train.target.txt").read_bytes()
    (root / "distilled/train.target.txt").write_bytes(whole[: len(whole) // 2])
    assert main(words) == 0
    assert (root / "distilled/train.target.txt").read_bytes() == whole
    apart = [*words[:-1], str(root / "apart"), "--processes", "2"]
    assert main(apart) == 0
    assert (root / "apart/train.target.txt").read_bytes() == whole
    assert main([*words, "--predict", "beam=2"]) == 1
    assert "another 'predict'" in capsys.readouterr().err

    given = (word.split("=", 1) for word in shlex.split(printed) if word != "--set")
    read = {name: json.loads(value) for name, value in given}
    assert read.keys() == {"data.train", "tokenizers"}
    assert read["data.train"] == {"synthetic": {"folder": "distilled"}}
    read |= {"start": str(teacher), "updates": 1}
    result = weft.train(file, out=tmp_path / "student", overrides=read)
    assert result.finished
    assert result.checkpoint is not None
    (own,) = result.checkpoint.glob("*.model")
    assert own.read_bytes() == (teacher / own.name).read_bytes()


@pytest.mark.slow
def test_a_model_of_the_other_direction_translates_back(
    run: tuple[Run, Path], tmp_path: Path, capsys: Any
) -> None:
    """From text of one language alone; what was written is checked when it is read."""
    settings, file = run
    root = Path(settings.data.root)
    turned = {"data.columns.source.from": "target", "data.columns.target.from": "source"}
    backward = weft.train(file, out=tmp_path / "back", overrides=turned).averaged
    assert backward is not None
    mono = (root / "train.tgt").read_text().splitlines()[:20]
    (root / "mono.tgt").write_text("".join(f"{line}\n" for line in mono))
    rows = json.dumps({"lines": {"target": ["mono.tgt"]}})
    words = ["synthesize", str(file), str(backward), "--out", str(root / "back"), "--rows"]

    assert main([*words, json.dumps({"lines": {"source": ["mono.tgt"]}})]) == 1
    assert "no field 'target'" in capsys.readouterr().err
    assert main([*words, "[]"]) == 2
    assert "--rows" in capsys.readouterr().err
    assert main([*words, rows]) == 0

    read = {"synthetic": {"folder": "back"}}
    assert json.dumps(read) in capsys.readouterr().out
    assert (root / "back/train.target.txt").read_text().splitlines() == mono
    answers = (root / "back/train.source.txt").read_text().splitlines()
    search = {"beam": 1, "max_extra": 4}
    expected = weft.open(backward, predict=search).translate(mono)
    assert answers == [" ".join(text.split()) for text in expected]
    scores = [float(line) for line in (root / "back/train.score.txt").read_text().splitlines()]
    assert len(scores) == 20
    assert all(score <= 0 for score in scores)
    provenance = json.loads((root / "back/provenance.json").read_text())
    assert (provenance["rows"], provenance["fields"]) == (20, ["source", "target", "score"])

    sources = {"real": settings.data.train.model_dump(mode="json"), "back": read}
    mixed = {
        "updates": 2,
        "data.train": {"sources": sources},
        "data.mixture": [{"until": 1}, {"weights": {"back": 0}}],
    }
    assert weft.train(file, out=tmp_path / "mixed", overrides=mixed).finished

    (root / "back/train.source.txt").write_text("".join(f"{text} x\n" for text in answers))
    with pytest.raises(weft.InputError, match="not as 'weft synthesize' wrote it"):
        weft.train(file, out=tmp_path / "changed", overrides=mixed)
    del provenance["files"]
    (root / "back/provenance.json").write_text(json.dumps(provenance))
    with pytest.raises(weft.SpecError, match="not all rows of 'back' are answered") as caught:
        weft.train(file, out=tmp_path / "early", overrides=mixed)
    assert caught.value.findings[0].at == "/data/train/sources/back/synthetic"
