"""`weft shortlist` counts, measures and writes; `--shortlist` decodes with what it wrote."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
import weft
from weft.runtime import api
from weft.runtime.analysis.alignment import count_aligned
from weft.runtime.cli.main import main
from weft.runtime.cli.shortlists import measured
from weft.runtime.compile.decoder import passes_of
from weft.runtime.decode.shortlist.making import make_shortlist
from weft.runtime.decode.shortlist.table import open_shortlist
from weft.runtime.metrics.metric import Measured
from weft.runtime.metrics.text import Bleu
from weft.runtime.train.context import Result
from weft.specs.findings import InputError

pytestmark = pytest.mark.integration

Capture = pytest.CaptureFixture[str]
LINES = ["sun moon", "tree", "", "river stone bird wind leaf"]


@pytest.fixture(scope="module")
def folder(toy_trained: Result) -> str:
    """Return a checkpoint of a barely trained model."""
    assert toy_trained.averaged is not None
    return str(toy_trained.averaged)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """Return a file of lines to translate."""
    path = tmp_path / "in.txt"
    path.write_text("".join(f"{line}\n" for line in LINES))
    return path


def translated(folder: str, text: Path, *options: str) -> list[str]:
    """Return the lines that `weft translate` writes."""
    out = text.with_name("out.txt")
    command = ["translate", folder, str(text), "-o", str(out), "--precision", "float32"]
    assert main([*command, *options]) == 0
    return out.read_text().splitlines()


def test_a_shortlist_of_all_tokens_translates_as_without(
    folder: str, text: Path, capsys: Capture
) -> None:
    """It is made from the run's own data, measured on the run's own validation data."""
    out = text.with_name("all")

    assert main(["shortlist", folder, "-o", str(out), "--each", "999", "--frequent", "999"]) == 0

    assert "BLEU" in capsys.readouterr().out
    made = open_shortlist(out)
    found = made.about.measured
    assert found is not None
    assert found.bleu == found.bleu_shortlist
    assert made.about.made["from"] == "alignment"
    for options in (("--beam", "1"), ("--beam", "3", "--nbest", "2"), ("--sample", "--seed", "3")):
        expected = translated(folder, text, *options)
        assert translated(folder, text, *options, "--shortlist", str(out)) == expected


def test_a_table_restricts_what_is_written(folder: str, text: Path) -> None:
    """Outputs consist of the table's pieces; the API opens the same file."""
    out, table = text.with_name("few"), text.with_name("lex.s2t")
    target = api.open_model(folder).line_predictor().target
    pieces = target.pieces(target.encode("sun tree"))
    source = api.open_model(folder).line_predictor().source
    words = source.pieces([one for line in LINES for one in source.encode(line)])
    table.write_text("".join(f"{piece} {word} 0.5\n" for piece in pieces for word in words))
    command = ["shortlist", folder, "-o", str(out), "--lex", str(table), "--frequent", "0"]

    assert main([*command, "--unchecked"]) == 0

    rows = translated(folder, text, "--json", "--shortlist", str(out), "--beam", "2")
    found = [json.loads(row)["translations"] for row in rows]
    assert found[2] == []
    # Beside the candidates of a table, a source piece may be copied.
    assert {piece for row in found for one in row for piece in one["tokens"]} <= {*pieces, *words}
    model = weft.open(folder, shortlist=out)
    assert model.translate(LINES) == [row[0]["text"] if row else "" for row in found]
    assert model.translate(LINES) != weft.open(folder).translate(LINES)


def test_counts_are_those_of_the_alignments(folder: str) -> None:
    """Against `align`, one pair at a time; empty and long pairs are left out."""
    model = api.open_model(folder)
    source, target = model.line_predictor().source, model.line_predictor().target
    texts = [("sun moon", "moon sun"), ("tree river tree", "tree river"), ("moon", "")]
    pairs = [(source.encode(one), target.encode(other)) for one, other in texts]
    expected: Counter[tuple[int, int]] = Counter()
    for (one, other), (ids, written) in zip(texts[:2], pairs, strict=False):
        [alignment] = model.align([one], [other])
        expected.update((ids[s], written[t]) for s, t in alignment.pairs)
    calls: list[int] = []

    found = count_aligned(
        model.module,
        model.graph,
        (source, target),
        [*pairs, ([], [5]), ([5] * 101, [5])],
        calls.append,
    )

    assert found == expected
    assert found.total() == len(pairs[0][1]) + len(pairs[1][1])
    assert calls == [5]


def test_a_shortlist_that_loses_bleu_is_not_written(
    folder: str, text: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says by how much, and which sizes to raise."""
    scores = [30.0, 29.8]
    monkeypatch.setattr(Bleu, "measure", lambda *_: Measured(scores.pop(0)))
    out = text.with_name("bad")
    files = ("--valid-source", str(text), "--valid-target", str(text))

    assert main(["shortlist", folder, "-o", str(out), "--each", "7", *files]) == 1

    error = " ".join(capsys.readouterr().err.split())
    assert "BLEU is 29.80 with the shortlist and 30.00 without it" in error
    assert "--each (now 7), --frequent (now 1000)" in error
    assert not out.exists()
    scores[:] = [30.0, 29.91]
    assert main(["shortlist", folder, "-o", str(out), "--each", "7", *files]) == 0
    found = open_shortlist(out).about.measured
    assert found is not None
    assert (found.lines, found.bleu, found.bleu_shortlist) == (4, 30.0, 29.91)


def test_measuring_leaves_the_model_as_it_was(folder: str) -> None:
    """It decodes without the shortlist again."""
    model = api.open_model(folder)
    tokenizers = model.line_predictor().source, model.line_predictor().target
    before, expected = passes_of(model.module), model.translate(LINES)
    small = make_shortlist({(5, 5): 1.0}, {5: 1}, tokenizers, frequent=1, per_token=1, origin={})

    made = measured(model, small, LINES, LINES)

    assert passes_of(model.module) == before
    assert model.translate(LINES) == expected
    found = made.about.measured
    assert found is not None
    assert found.settings["search"]["beam"] == model.search.beam
    # The frequent token and the copies of 11 or fewer pieces.
    assert 1 <= found.tokens <= 12


def test_shortlists_of_other_checkpoints_are_refused(
    folder: str, toy_trained: Result, text: Path, capsys: Capture
) -> None:
    """A measurement holds for the weights with which it was made."""
    out = text.with_name("one")
    assert main(["shortlist", folder, "-o", str(out), "--pairs", "8"]) == 0
    assert toy_trained.checkpoint is not None
    other = str(toy_trained.checkpoint)

    assert main(["translate", other, str(text), "--shortlist", str(out)]) == 1
    assert "measured with another checkpoint" in capsys.readouterr().err
    assert main(["translate", folder, str(text), "--shortlist", str(text)]) == 1
    assert "not a shortlist" in capsys.readouterr().err
    with pytest.raises(InputError, match="another checkpoint"):
        weft.open(other, shortlist=str(out))
    assert main(["evaluate", folder, "--test", "valid", "--shortlist", str(out)]) == 0


@pytest.mark.parametrize(
    ("options", "code", "problem"),
    [
        (("--source", "a"), 2, "needs both --source and --target"),
        (("--valid-target", "a"), 2, "needs both --valid-source"),
        (("--table", "a", "--lex", "b"), 2, "cannot be combined"),
        (("--unchecked", "--valid-source", "a", "--valid-target", "b"), 2, "measures nothing"),
        (("--table", "missing"), 1, "no file 'missing'"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    folder: str, tmp_path: Path, capsys: Capture, options: tuple[str, ...], code: int, problem: str
) -> None:
    """Before anything is counted or written."""
    out = tmp_path / "list"

    assert main(["shortlist", folder, "-o", str(out), *options]) == code
    assert problem in " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert not out.exists()
