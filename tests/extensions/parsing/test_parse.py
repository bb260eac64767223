"""`weft parse` and `weft evaluate-parser`: order, trees, JSON, pictures, scores."""

from __future__ import annotations

import io
import itertools
import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import weft
from weft.extensions.parsing.decode import parse as parse_module
from weft.extensions.parsing.metrics.evalb import EvalbSettings, score
from weft.extensions.parsing.trees.draw import picture
from weft.extensions.parsing.trees.sentences import raw_words_of
from weft.extensions.parsing.trees.trees import Leaf, Tree, read_all
from weft.runtime import api
from weft.runtime.cli.common import chunks
from weft.runtime.cli.main import main
from weft.specs.findings import InputError

from ...runtime.toy_treebank import bank, make_runs

pytestmark = pytest.mark.integration

Parse = Callable[..., list[str]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a checkpoint of a barely trained parser."""
    base = tmp_path_factory.mktemp("trees")
    watch = {"every": 9, "best": "nll", "samples": 0}
    result = api.train(make_runs(base / "banks")(updates=2, evaluate=watch), out=base / "run")
    assert result.checkpoint is not None
    return result.checkpoint


@pytest.fixture
def parse(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Parse:
    """Return a function that runs `weft parse` on bytes and returns its output lines."""

    def run(given: bytes, *options: str, code: int = 0) -> list[str]:
        class Stdin:
            buffer = io.BytesIO(given)

        out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", Stdin())
            patch.setattr(sys, "stdout", out)
            assert main(["parse", str(folder), *options]) == code
        return out.buffer.getvalue().decode().splitlines()  # type: ignore[attr-defined]

    return run


def words(line: str) -> list[str]:
    """Return the words of a tree on one line."""
    [tree] = read_all(line)
    assert isinstance(tree, Tree)
    return [leaf.word for leaf in tree.leaves()]


def test_no_line_is_lost_or_shifted(
    parse: Parse, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Empty, non-UTF-8, too long and oddly spaced lines each give one output line."""
    monkeypatch.setattr(parse_module, "LONGEST_SOURCE", 20)
    long = b"dog " * 50
    given = b"the dog\n\n\xff\n" + long + b"\n \t \na\xc2\xa0b ( )\nlast"

    lines = parse(given, code=1)

    assert len(lines) == 7
    assert [bool(line) for line in lines] == [True, False, False, True, False, True, True]
    assert words(lines[0]) == ["the", "dog"]
    assert words(lines[3]) == ["dog"] * 50
    assert words(lines[5]) == ["a\u00a0b", "-LRB-", "-RRB-"]
    assert words(lines[6]) == ["last"]
    printed = capsys.readouterr().err
    assert "byte 0xff at offset 0 of the line is not UTF-8\n  --> standard input:3" in printed
    assert re.search(r"line 4: truncated from \d+ to 20 tokens", printed)


ESCAPES = (
    r"(TOP (S (NP (NN f-LRB-x-RRB-) (-LRB- -LRB-) (-LRB- -LSB-) (-LRB- [) (-LRB- -LCB-))"
    r" (VP (CD 1\/2) (CD 1/2) (SYM \*) (SYM *) (`` ``) ('' '') (`` ') ('' &quot;) (-RRB- -RRB-))))"
).replace("&quot;", '"')
"""A tree with the words that treebanks escape, and with the same words unescaped."""


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_words_come_back_as_the_treebank_writes_them(
    parse: Parse, options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From trees to words to parses: EVALB compares words to the character."""
    gold = tmp_path / "gold.trees"
    gold.write_text(ESCAPES + "\n")
    assert main(["trees", str(gold), "--form", "words"]) == 0
    line = capsys.readouterr().out

    [parsed] = parse(line.encode(), *options)

    tree = json.loads(parsed)["tree"] if options else parsed
    assert words(tree) == words(ESCAPES)
    settings = EvalbSettings(frozenset({"TOP"}), quote_label=frozenset())
    assert score([ESCAPES], [tree], settings).all.errors == 0


def test_json_has_the_tree_and_its_log_probability(parse: Parse) -> None:
    """JSON has one object per line with the plain output's tree, null for an empty line."""
    given = b"the dog sees\n\nthe cat\n"
    plain = parse(given)
    records = [json.loads(line) for line in parse(given, "--json")]

    assert [record["line"] for record in records] == [1, 2, 3]
    assert [record["tree"] or "" for record in records] == plain
    assert records[0]["words"] == ["the", "dog", "sees"]
    assert records[0]["tags"] == ["XX"] * 3
    assert (records[0]["repaired"], records[0]["repairs"]) == (False, 0)
    assert records[0]["log_probability"] < 0


def test_without_the_constraint_outputs_are_repaired(parse: Parse) -> None:
    """The tree has all words, and the record reports the repairs."""
    [line] = parse(b"the dog sees the cat of the bird .\n", "--no-constrained", "--json")

    record = json.loads(line)
    assert record["repaired"]
    assert record["repairs"] > 0
    assert len(record["words"]) == 9


def test_pretty_trees_are_the_same_trees(parse: Parse) -> None:
    """Only the line breaks differ from plain trees."""
    given = b"the dog sees the cat of the bird , which hears a dog of the cat of the bird .\n"
    [flat], pretty = parse(given), parse(given, "--pretty")

    assert len(pretty) > 1
    assert [str(tree) for tree in read_all("\n".join(pretty))] == [flat]


def test_plain_text_is_cut_as_treebanks_are(parse: Parse) -> None:
    """--raw splits clitics, punctuation, quotation marks and brackets."""
    pytest.importorskip("nltk")

    [line] = parse(b'He "can\'t" come (today).\n', "--raw")

    assert words(line) == ["He", "``", "ca", "n't", "''", "come", "-LRB-", "today", "-RRB-", "."]
    assert raw_words_of("  ") == []


def test_the_api_takes_text_words_and_leaves(folder: Path) -> None:
    """Round brackets are escaped in all three, so that the tree can be read again."""
    sentences = [r"the ( 1\/2", ["the", "(", r"1\/2"], [Leaf("DT", "the"), Leaf("", "("), "1\\/2"]]

    parses = weft.open(str(folder)).parse(sentences)

    assert [words(str(parse.tree)) for parse in parses if parse] == [["the", "-LRB-", r"1\/2"]] * 3


@pytest.mark.parametrize(
    ("sentence", "problem"),
    [
        (["the dog"], "the word 'the dog' is empty or has white space inside"),
        (["the", ""], "the word '' is empty"),
        ([Leaf("N(N", "dog")], r"the tag 'N\(N' has white space or a round bracket"),
        (5, "5 is not a sentence"),
    ],
)
def test_words_that_a_tree_cannot_contain_are_refused(
    folder: Path, sentence: Any, problem: str
) -> None:
    """The tree could not be read again."""
    with pytest.raises(InputError, match=problem):
        weft.open(str(folder)).parse([sentence])


def test_predict_answers_with_trees_that_can_be_read(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Words of rows are escaped like those of lines, and a wrong word names its row."""
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"source": "the ( dog"}\n{"source": ["the", "(", "dog"]}\n')
    assert main(["predict", str(folder), str(rows)]) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [words(answer) for answer in answers] == [["the", "-LRB-", "dog"]] * 2

    rows.write_text('{"source": "the dog"}\n{"source": ["the dog"]}\n')
    assert main(["predict", str(folder), str(rows)]) == 1
    printed = capsys.readouterr()
    assert "the word 'the dog'" in printed.err
    assert f"--> {rows}:2" in printed.err
    assert [words(json.loads(line)) for line in printed.out.splitlines()[:1]] == [["the", "dog"]]


@pytest.mark.slow
@pytest.mark.parametrize("options", [["--pretty"], ["--json"]])
def test_chunks_have_the_bytes_of_one_process(
    options: list[str],
    parse: Parse,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Also the numbers of lines, and what is wrong with one; pictures are of one process."""
    monkeypatch.setattr(chunks, "ROWS", 2)
    text = b"the dog\n\nthe cat\n\xff\nlast\n"

    for name, more in (("one", []), ("two", ["--processes", "2"])):
        parse(text, *options, "-o", str(tmp_path / name), *more, code=1)
        assert "standard input:4" in capsys.readouterr().err

    assert (tmp_path / "two").read_bytes() == (tmp_path / "one").read_bytes()
    parse(b"", "--draw", str(tmp_path / "x"), "--processes", "2", code=2)
    assert "--draw" in capsys.readouterr().err


def test_trees_are_drawn(parse: Parse, tmp_path: Path) -> None:
    """--draw writes one picture per line with a tree, or a single file."""
    parse(b"the dog\n\nthe & cat\n", "--draw", str(tmp_path / "pictures"))
    parse(b"\nthe dog\nthe cat\n", "--draw", str(tmp_path / "one.svg"))

    names = sorted(path.name for path in (tmp_path / "pictures").iterdir())
    assert names == ["000001.svg", "000003.svg"]
    third = (tmp_path / "pictures" / "000003.svg").read_text()
    assert "&amp;" in third
    assert "cat" in third
    assert "dog" in (tmp_path / "one.svg").read_text()
    parse(b"the dog\n", "--draw", str(tmp_path / "one.jpeg"), code=1)
    assert parse(b"the dog\n", "--draw", str(tmp_path / "one.svg" / "no"), code=1) == []


def test_a_picture_has_every_label_and_word_once() -> None:
    """The words are in order on one line, with brackets as in the text."""
    tree = Tree("S", (Tree("NP", (Leaf("NN", "dog"), Leaf("-LRB-", "-LRB-"))), Leaf("VB", "runs")))

    source = picture(tree).source

    for text in ("S", "NP", "NN", "dog", "VB", "runs", "-LRB-"):
        assert (
            source.count(f"label={text} ")
            + source.count(f'label="{text}"')
            + source.count(f"[label={text}")
            >= 1
        ), text
    assert source.index("dog") < source.index("runs")
    heights = {
        text: float(found[1])
        for text in ("S", "NP", "NN", "VB", "dog", "runs")
        if (found := re.search(rf'label={text} .*pos="[^,]*,([^"]*)"', source))
    }
    assert heights["S"] > heights["NP"] > heights["NN"] == heights["VB"]
    assert heights["VB"] > heights["dog"] == heights["runs"]


@pytest.mark.parametrize(
    ("word", "em"),
    [
        ("中华人民共和国", 7),
        ("\uff21\uff22\uff23\uff24\uff25", 5),
        ("한국어문장", 5),
        ("WWWWWWWW", 8 * 1.1),
        ("المدرسة", 7 * 0.6),
    ],
)
def test_words_lie_beside_each_other(word: str, em: float) -> None:
    """The distance of two words is at least their width: a wide character is one em, of 12 pt.

    W is 1.1 em in DejaVu Sans Bold, and no Arabic letter is wider than 0.6 em on average.
    """
    tree = Tree("S", (Leaf("NN", word), Leaf("NN", word), Tree("NP", (Leaf("NN", word),))))

    assert min(_distances(tree, word)) >= 12 * em


def test_wide_labels_lie_beside_each_other() -> None:
    """A label over several narrow words makes room for itself."""
    inner = Tree("名词短语很长", (Leaf("A", "a"), Leaf("B", "b")))

    assert min(_distances(Tree("S", (inner, inner, inner)), "名词短语很长")) >= 12 * 6


def _distances(tree: Tree, text: str) -> list[float]:
    """Return the distances of the neighboring nodes with a text, in points."""
    [*rows] = re.findall(rf'label="?{text}"? .*pos="([^,]*),', picture(tree).source)
    places = sorted(map(float, rows))
    assert len(places) == 3
    return [after - before for before, after in itertools.pairwise(places)]


def test_trees_of_a_treebank_are_drawn(tmp_path: Path) -> None:
    """One file for each tree in a folder; a picture needs a tree."""
    if shutil.which("neato") is None:
        pytest.skip("needs graphviz")
    bank_file = tmp_path / "bank.trees"
    bank_file.write_text("(S (NP (NN dog)) (VB runs))\n(S (NN cat))\n")
    assert main(["trees", str(bank_file), "--draw", str(tmp_path / "drawn")]) == 0
    drawn = sorted((tmp_path / "drawn").iterdir())
    assert [path.name for path in drawn] == ["000001.svg", "000002.svg"]
    assert "dog" in drawn[0].read_text()
    bank_file.write_text("")
    assert main(["trees", str(bank_file), "--draw", str(tmp_path / "none.svg")]) == 1
    assert not (tmp_path / "none.svg").exists()


def test_a_parser_is_evaluated_by_evalb(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The report, the JSON and the written parses agree, with and without the constraint."""
    gold = tmp_path / "gold.trees"
    gold.write_text("".join(f"{tree}\n" for tree in bank(8, 5)))
    found = {}
    for constrained in ("--constrained", "--no-constrained"):
        out = tmp_path / f"out{constrained}"
        base = ["evaluate-parser", str(folder), constrained, "--beam", "1"]
        assert main([*base, "--trees", str(gold), "--json", "-o", str(out)]) == 0
        [found[constrained]] = json.loads(capsys.readouterr().out)
        scores = score(gold.read_text().splitlines(), out.read_text().splitlines())
        assert found[constrained]["all"] == scores.all.as_json()

    assert found["--constrained"]["malformed"] == found["--constrained"]["unfinished"] == 0
    assert found["--no-constrained"]["malformed"] > 0
    assert found["--no-constrained"]["all"]["errors"] == 0

    assert main(["evaluate-parser", str(folder), "--test", "toy"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("toy\n=== Summary ===")
    assert "Bracketing FMeasure" in text
    assert "Malformed outputs         =      0" in text
    assert "not the parser's" in text


def test_settings_of_evalb_count(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unlabeled scoring matches more brackets; --each prints a row per sentence."""
    prm = tmp_path / "bare.prm"
    prm.write_text("LABELED 0\nDELETE_LABEL TOP\n")
    assert main(["evaluate-parser", str(folder), "--json"]) == 0
    [plain] = json.loads(capsys.readouterr().out)
    assert main(["evaluate-parser", str(folder), "--json", "--prm", str(prm)]) == 0
    [bare] = json.loads(capsys.readouterr().out)
    assert bare["all"]["words"] > plain["all"]["words"]
    assert bare["all"]["recall"] >= plain["all"]["recall"]

    assert main(["evaluate-parser", str(folder), "--each"]) == 0
    assert "Sent." in capsys.readouterr().out


def test_the_metric_of_a_parser_is_the_f1_of_its_report(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`weft evaluate` measures a parser by metrics and losses, as it does any model."""
    assert main(["evaluate-parser", str(folder), "--json"]) == 0
    [report] = json.loads(capsys.readouterr().out)
    assert main(["evaluate", str(folder), "--metric", "evalb", "--json"]) == 0
    [figures] = json.loads(capsys.readouterr().out)
    assert figures["scores"]["evalb"] == report["all"]["f1"]
    assert figures["scores"]["loss"] > 0


def test_an_unknown_test_set_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The message names it."""
    assert main(["evaluate-parser", str(folder), "--test", "nothing"]) == 1
    assert "no test set 'nothing'" in capsys.readouterr().err


def test_translate_refuses_a_parser(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    """`weft translate` names `weft parse`; `score` and `attend` accept linearized trees."""
    for command in (["translate"], ["serve"]):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"the dog\n")))
        options = ["--port", "0"] if command == ["serve"] else []
        assert main([*command, str(folder), *options]) == 1
        printed = capsys.readouterr()
        assert "a parser, not a translation model" in printed.err
        assert "weft parse" in printed.err
        assert printed.out == ""
    for name, text in (("words", "the dog"), ("symbols", "(S XX XX )S")):
        (tmp_path / name).write_text(f"{text}\n")
    sides = ["--source", str(tmp_path / "words"), "--target", str(tmp_path / "symbols")]
    assert main(["score", str(folder), *sides]) == 0
    page = str(tmp_path / "heads.html")
    assert main(["attend", str(folder), "the dog", "--target", "(S XX", "-o", page]) == 0
    assert main(["generate", str(folder)]) == 1
    assert "whose only input is ids" in capsys.readouterr().err
