"""`weft generate`: continues lines of text or ids, with one output line per continuation."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
import weft
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.runtime.checkpoint.saving import Contents, save, weights_of
from weft.runtime.codegen.build import build
from weft.runtime.data.prompts import VocabularyPrompts
from weft.runtime.data.settings import PieceSettings
from weft.runtime.data.tokenizer import train_tokenizer
from weft.specs.load import load

from .piped import piped

SMALL = {"d_model": 16, "heads": 2, "kv_heads": 1, "d_ff": 24, "layers": 1}
Generate = Callable[..., list[str]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a checkpoint of a small Llama with perturbed weights, and a tokenizer."""
    place = tmp_path_factory.mktemp("llama")
    settings = PieceSettings(vocab_size=40)
    tokenizer = train_tokenizer(["sun moon tree river"] * 20, settings, place / "t.model")
    graph = check(load("llama").form, registry(), {**SMALL, "vocab": tokenizer.vocab_size})
    model = build(graph).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=generator))
    contents = Contents(
        graph=graph,
        weights=weights_of(model, graph),
        tokenizers={"tokenizer.model": tokenizer.bytes},
    )
    return save(place / "checkpoint", contents)


@pytest.fixture
def generate(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Generate:
    """Return a function that runs `weft generate` on lines and returns its output."""

    def run(*options: str, lines: Sequence[str] = ("sun moon", ""), code: int = 0) -> list[str]:
        words = ["generate", str(folder), "--max-new", "6", "--precision", "float32", *options]
        return piped(words, lines, monkeypatch, code)

    return run


@pytest.mark.integration
def test_text_and_ids_give_the_same_continuation(generate: Generate, folder: Path) -> None:
    """Text and ids give the same output, also for an empty line; JSON contains the plain lines."""
    model = weft.open(folder)
    plain = generate()
    records = [json.loads(line) for line in generate("--json")]
    tokenizer_ids = [record["continuations"][0]["ids"] for record in records]

    found = model.generate([[3, *_encoded(folder, "sun moon")], [3]], max_new=6)

    assert len(plain) == 2
    assert tokenizer_ids == [list(one.tokens) for [one] in found]
    assert plain == model.generate_text(["sun moon", ""], max_new=6)
    assert [record["line"] for record in records] == [1, 2]
    [first] = records[0]["continuations"]
    assert first["text"] == plain[0]
    assert first["log_probability"] == pytest.approx(found[0][0].log_probability, abs=1e-4)


def _encoded(folder: Path, text: str) -> list[int]:
    from weft.runtime.data.tokenizer import Tokenizer  # noqa: PLC0415

    return Tokenizer.open(folder / "tokenizer.model").encode(text)


def test_a_continuation_is_one_line(generate: Generate, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model may generate the ends of lines."""
    monkeypatch.setattr(VocabularyPrompts, "decode", lambda *_: "sun\r\nmoon\rtree")

    assert generate() == ["sun  moon tree"] * 2


@pytest.mark.integration
def test_a_model_without_a_run_predicts_continuations(folder: Path) -> None:
    """Of its column `text`, as `generate_text` continues it; so do the predictor's settings."""
    texts = ["sun moon", "tree"]
    rows = [{"text": text} for text in texts]
    model = weft.open(folder, predict={"max_new": 6})

    [answer, _] = model.predictor({"beam": 4, "nbest": 3}).answers(rows)

    assert model.predict(rows) == model.generate_text(texts)
    assert [answer.value, *(other.value for other in answer.others)] == model.generate_text(
        texts[:1], beam=4, nbest=3
    )
    assert answer.hypothesis.score == answer.score


def test_an_n_best_list_has_the_beams_of_each_prompt(generate: Generate, folder: Path) -> None:
    """Number of the prompt, score and text, best first; JSON has the same."""
    model = weft.open(folder)
    prompts = [[3, *_encoded(folder, "sun moon")], [3]]
    expected = model.generate(prompts, max_new=6, beam=4, nbest=2)

    rows = [line.split("\t") for line in generate("--beam", "4", "--nbest", "2")]
    records = [json.loads(line) for line in generate("--beam", "4", "--nbest", "2", "--json")]

    found = [one["ids"] for record in records for one in record["continuations"]]
    assert [row[0] for row in rows] == ["1", "1", "2", "2"]
    assert [float(row[1]) for row in rows] == pytest.approx(
        [one.score for best in expected for one in best], abs=1e-3
    )
    assert found == [list(one.tokens) for best in expected for one in best]


def test_a_continuation_has_required_and_no_banned_words(
    generate: Generate, tmp_path: Path
) -> None:
    """Line by line; without a phrase, a line is not restricted by one."""
    (tmp_path / "phrases").write_text("tree river\n\n")

    first, second = generate("--include", str(tmp_path / "phrases"), "--avoid", "sun")

    assert "tree river" in first
    assert "sun" not in f"{first} {second}".split()


def test_lines_of_ids(generate: Generate, folder: Path) -> None:
    """With --ids, input and output are token ids."""
    [found] = generate("--ids", lines=["3 5 7"])

    [[expected]] = weft.open(folder).generate([[3, 5, 7]], max_new=6)
    assert found.split() == [str(one) for one in expected.tokens]


@pytest.mark.parametrize(
    ("line", "problem"), [("3 x", "not a line of token ids"), ("3 4000", "4000")]
)
def test_an_invalid_id_is_refused(
    generate: Generate, capsys: pytest.CaptureFixture[str], line: str, problem: str
) -> None:
    """The exit code is 1, and the message names the line."""
    generate("--ids", lines=[line], code=1)

    assert problem in capsys.readouterr().err


@pytest.mark.integration
def test_samples_depend_only_on_their_line(generate: Generate) -> None:
    """Batch size and other lines do not change the samples, which are printed line by line."""
    draw = ("--temperature", "1.5", "--seed", "4", "--samples", "2", "--top-p", "0.99")
    lines = ["sun", "moon tree river", "sun moon"]

    together = generate(*draw, lines=lines)

    assert len(together) == 6
    assert together == generate(*draw, "--batch", "1", lines=lines)
    assert [line.split("\t")[0] for line in together] == ["1", "1", "2", "2", "3", "3"]
    alone = generate(*draw, lines=lines[2:])
    assert [line.split("\t")[1:] for line in alone] == [
        line.split("\t")[1:] for line in together[4:]
    ]
    assert together != generate(*draw[:3], "5", *draw[4:], lines=lines)


def test_settings_out_of_range_are_refused(
    generate: Generate, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message names the option."""
    generate("--temperature", "-1", code=2)

    assert "temperature" in capsys.readouterr().err
