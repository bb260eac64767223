"""`weft evaluate` of models that write text: metrics of the run, texts, searches, imports.

Parsers are in `test_parse.py`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
import torch
import weft
from weft.runtime import api
from weft.runtime.checkpoint.saving import Contents, save, weights_of
from weft.runtime.cli.main import main
from weft.runtime.data.settings import PieceSettings
from weft.runtime.data.tokenizer import train_tokenizer
from weft.runtime.spec.check import graph_of
from weft.runtime.train.run import Run
from weft.specs.findings import InputError

from ..conftest import SMALL

pytestmark = pytest.mark.integration

Capture = pytest.CaptureFixture[str]
SOURCES = ["sun moon", "tree river stone", "bird"]
TARGETS = ["moon sun", "stone river tree", "bird"]


@pytest.fixture(scope="module")
def folder(toy_run_module: Callable[..., Run], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a checkpoint of a barely trained model that searches with a beam of 2."""
    watch = {"every": 6, "metrics": ["bleu", "chrf", "perplexity"], "best": "nll", "samples": 0}
    run = toy_run_module(updates=6, evaluate=watch)
    result = api.train(run, out=tmp_path_factory.mktemp("evaluated") / "run")
    assert result.averaged is not None
    return result.averaged


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a checkpoint without a run, as an import writes it, of random weights."""
    base = tmp_path_factory.mktemp("imported")
    lines = [*SOURCES, *TARGETS] * 20
    tokenizer = train_tokenizer(lines, PieceSettings(vocab_size=40), base / "tokenizer.model")
    spec = weft.load("transformer-tiny", vocab=tokenizer.vocab_size, **SMALL)
    module, graph = weft.build(spec), graph_of(spec)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in module.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=generator))
    files = {"tokenizer.model": tokenizer.bytes}
    contents = Contents(graph=graph, weights=weights_of(module, graph), run={}, tokenizers=files)
    return save(base / "checkpoint", contents)


@pytest.fixture
def pair(tmp_path: Path) -> list[str]:
    """Return the options that name a text and its references."""
    for name, lines in (("source", SOURCES), ("target", TARGETS)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    return ["--source", str(tmp_path / "source"), "--target", str(tmp_path / "target")]


def reports(capsys: Capture, *arguments: object) -> list[dict[str, Any]]:
    """Return the reports that `weft evaluate --json` prints, in the precision of `weft.open`."""
    capsys.readouterr()
    assert main(["evaluate", *map(str, arguments), "--precision", "float32", "--json"]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


def mean_nll(model: api.Model, sources: list[str], targets: list[str]) -> float:
    """Return nats per target token, end tokens included, as `weft score` computes them."""
    scored = model.score(zip(sources, targets, strict=True))
    tokens = [value for one in scored for value in one.log_probabilities]
    return -sum(tokens) / len(tokens)


def test_a_test_set_has_the_metrics_of_the_run(
    folder: Path, tmp_path: Path, capsys: Capture
) -> None:
    """BLEU and chrF as sacreBLEU computes them, and the perplexity of the references."""
    model = api.open_model(folder)
    root = Path(model.checkpoint.run["data"]["root"])
    sources, targets = ((root / f"test.{end}").read_text().splitlines() for end in ("src", "tgt"))
    found = model.translate(sources)
    assert model.search.beam == 2

    [report] = reports(capsys, folder, "-o", tmp_path / "out")

    assert (report["test"], report["rows"]) == ("toy", 10)
    assert (tmp_path / "out").read_text().splitlines() == found
    bleu, chrf = sacrebleu.corpus_bleu(found, [targets]), sacrebleu.corpus_chrf(found, [targets])
    nll = mean_nll(model, sources, targets)
    scores = report["scores"]
    assert set(scores) == {"bleu", "chrf", "perplexity", "nll", "loss"}
    assert scores["bleu"] == pytest.approx(bleu.score)
    assert scores["chrf"] == pytest.approx(chrf.score)
    assert scores["nll"] == pytest.approx(nll, rel=1e-4)
    assert scores["perplexity"] == pytest.approx(math.exp(nll), rel=1e-3)
    assert set(report["signatures"]) == {"bleu", "chrf"}
    assert (report["predictor"]["type"], report["predictor"]["beam"]) == ("beam", 2)


def test_the_report_is_also_printed_as_text(folder: Path, capsys: Capture) -> None:
    """One line for each metric, with its signature; the validation set has a name too."""
    assert main(["evaluate", str(folder)]) == 0
    text = capsys.readouterr().out
    first, *rest, note = text.splitlines()
    assert first == "toy: 10 rows, beam, beam 2, alpha 0.6"
    assert {line.split()[0] for line in rest} == {"bleu", "chrf", "perplexity", "nll", "loss"}
    assert "95 % intervals" in note
    assert "nrefs:1" in next(line for line in rest if "bleu" in line)

    [valid] = reports(capsys, folder, "--test", "valid")
    assert (valid["test"], valid["rows"]) == ("valid", 20)


def test_a_text_is_measured_like_a_test_set(
    folder: Path, pair: list[str], tmp_path: Path, capsys: Capture
) -> None:
    """The same lines have the same scores, and are named after the file."""
    for end, name in (("src", "source"), ("tgt", "target")):
        root = Path(api.open_model(folder).checkpoint.run["data"]["root"])
        (tmp_path / name).write_text((root / f"test.{end}").read_text())

    [text], [test] = reports(capsys, folder, *pair), reports(capsys, folder)

    assert text["test"] == pair[1]
    assert text["scores"] == test["scores"]


def test_empty_lines_are_measured_too(folder: Path, tmp_path: Path, capsys: Capture) -> None:
    """An empty source has an empty translation, and an empty reference is its end token."""
    sources, targets = ["sun moon", "", "tree"], ["moon sun", "river", ""]
    for name, lines in (("source", sources), ("target", targets)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    files = ["--source", tmp_path / "source", "--target", tmp_path / "target"]

    [report] = reports(capsys, folder, *files, "-o", tmp_path / "out")

    assert report["rows"] == 3
    assert (tmp_path / "out").read_text().splitlines()[1] == ""
    nll = mean_nll(api.open_model(folder), sources, targets)
    assert report["scores"]["nll"] == pytest.approx(nll, rel=1e-4)


def test_options_of_searches_change_the_predictor(
    folder: Path, pair: list[str], tmp_path: Path, capsys: Capture
) -> None:
    """The other settings stay as in the run; losses do not depend on the search."""
    before = reports(capsys, folder, *pair)[0]["scores"]["nll"]
    out = tmp_path / "out"

    [report] = reports(capsys, folder, *pair, "--beam", 4, "--min-length", 3, "-o", out)

    changed = {"beam": 4, "min_length": 3}
    assert out.read_text().splitlines() == weft.open(folder, predict=changed).translate(SOURCES)
    assert {
        key: report["predictor"][key] for key in ("type", "beam", "min_length", "max_extra")
    } == {
        "type": "beam",
        **changed,
        "max_extra": 4,
    }
    assert report["scores"]["nll"] == before


def test_samples_are_measured(
    folder: Path, pair: list[str], tmp_path: Path, capsys: Capture
) -> None:
    """Options of sampling select the predictor `sample`; the seed determines the texts."""
    texts = []
    for seed in (1, 1, 2):
        out = tmp_path / "out"
        [report] = reports(capsys, folder, *pair, "--top-k", 20, "--seed", seed, "-o", out)
        assert report["predictor"]["type"] == "sample"
        assert (report["predictor"]["samples"], report["predictor"]["top_k"]) == (1, 20)
        texts.append(out.read_text())

    assert texts[0] == texts[1] != texts[2]


def test_an_imported_model_is_measured_on_a_text(
    imported: Path, pair: list[str], tmp_path: Path, capsys: Capture
) -> None:
    """It names no metrics, so those of translation are printed."""
    out = tmp_path / "out"

    [report] = reports(capsys, imported, *pair, "--beam", 2, "-o", out)

    found = out.read_text().splitlines()
    model = weft.open(imported, predict={"beam": 2})
    assert found == model.translate(SOURCES)
    bleu, chrf = sacrebleu.corpus_bleu(found, [TARGETS]), sacrebleu.corpus_chrf(found, [TARGETS])
    perplexity = math.exp(mean_nll(model, SOURCES, TARGETS))
    assert report["scores"] == {
        "bleu": pytest.approx(bleu.score),
        "bleu_lc": pytest.approx(bleu.score),
        "chrf": pytest.approx(chrf.score),
        "perplexity": pytest.approx(perplexity, rel=1e-4),
    }
    assert report["predictor"]["beam"] == 2


def test_an_imported_model_is_measured_by_sampling(
    imported: Path, pair: list[str], capsys: Capture
) -> None:
    """Options of sampling are settings of its search."""
    [report] = reports(capsys, imported, *pair, "--sample", "--seed", 3)

    assert report["predictor"]["seed"] == 3
    assert report["rows"] == len(SOURCES)


def test_an_imported_model_has_no_test_sets(imported: Path, capsys: Capture) -> None:
    """The message says what to give in their place."""
    assert main(["evaluate", str(imported)]) == 1
    assert "give --source and --target" in capsys.readouterr().err


def test_an_imported_model_predicts_as_it_translates(
    imported: Path, pair: list[str], tmp_path: Path, capsys: Capture
) -> None:
    """Rows have the columns of its tokenizer, and every predictor of text answers them."""
    model = weft.open(imported, predict={"beam": 2})
    rows = [{"source": line} for line in SOURCES]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))

    greedy = model.predict(rows, "greedy")

    assert model.predict(rows) == model.translate(SOURCES)
    assert greedy == weft.open(imported, predict="greedy").translate(SOURCES)
    [report] = reports(capsys, imported, *pair, "--predictor", "greedy")
    assert report["predictor"]["type"] == "greedy"
    options = ("--predictor", "greedy", "--precision", "float32")
    assert main(["predict", str(imported), str(path), *options]) == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == greedy
    with pytest.raises(InputError, match="there is no column 'text'"):
        model.predictor(answers="text")


def test_other_metrics_can_be_measured(
    folder: Path, imported: Path, pair: list[str], tmp_path: Path, capsys: Capture
) -> None:
    """TER as sacreBLEU computes it, instead of the metrics of the run; losses are kept."""
    for model, own in ((folder, {"nll", "loss"}), (imported, {"perplexity"})):
        out = tmp_path / "out"
        wanted = ["--metric", "ter", "--metric", "exact_match"]

        [report] = reports(capsys, model, *pair, *wanted, "-o", out)

        found = out.read_text().splitlines()
        assert set(report["scores"]) == {"ter", "exact_match", *own}
        ter = sacrebleu.corpus_ter(found, [TARGETS]).score
        assert report["scores"]["ter"] == pytest.approx(ter)
        assert set(report["intervals"]) == {"ter", "exact_match"}


@pytest.mark.parametrize(
    ("model", "metric", "code", "told"),
    [
        ("folder", "blue", 1, "bleu"),
        ("folder", "nll", 2, "no metric of predictions"),
        ("folder", "evalb", 1, "compares values of type tree"),
        ("imported", "evalb", 1, "does not measure translations"),
    ],
)
def test_metrics_that_do_not_fit_are_refused(
    model: str, metric: str, code: int, told: str, request: Any, pair: list[str], capsys: Capture
) -> None:
    """Nothing is predicted for them."""
    path = request.getfixturevalue(model)
    assert main(["evaluate", str(path), *pair, "--metric", metric]) == code
    error = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert told in error
    assert "predicting" not in error


def test_predictors_that_do_not_fit_are_refused(
    folder: Path, pair: list[str], capsys: Capture
) -> None:
    """The message names the setting, or what the predictor needs."""
    greedy = [str(folder), *pair, "--predictor", "greedy"]
    assert main(["evaluate", *greedy, "--beam", "3"]) == 1
    assert "unknown key 'beam'" in capsys.readouterr().err
    assert main(["evaluate", str(folder), *pair, "--predictor", "cky"]) == 1
    assert "needs trees for the decoder 'chart'" in capsys.readouterr().err


@pytest.mark.parametrize(("flag", "value"), [("--test", "toy"), ("--data-root", ".")])
def test_options_of_a_test_set_beside_files_are_refused(
    flag: str, value: str, folder: Path, pair: list[str], capsys: Capture
) -> None:
    """They would have no effect."""
    assert main(["evaluate", str(folder), *pair, flag, value]) == 2
    assert "no effect with --source" in " ".join(capsys.readouterr().err.split())
