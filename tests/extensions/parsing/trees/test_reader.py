"""Treebank reader: every tree is read, every word stays one word, every form round-trips."""

from __future__ import annotations

import sys
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft.extensions.parsing.reader import TreesReader
from weft.extensions.parsing.trees.parsing_settings import ParsingSettings
from weft.extensions.parsing.trees.reader import (
    read_bank,
    read_file,
    source_text,
    spelled,
    symbols_of,
    word_text,
)
from weft.extensions.parsing.trees.sentences import words_of
from weft.extensions.parsing.trees.trees import Malformed, Tree, read_all
from weft.runtime.data.prepare import prepare
from weft.runtime.data.readers.split import Split, reader_of
from weft.runtime.data.settings import PieceSettings, SymbolSettings
from weft.runtime.data.symbols import SPACE
from weft.runtime.data.table_settings import Tokenizers
from weft.runtime.data.tokenizer import Tokenizer, train_tokenizer
from weft.runtime.data.words import word_starts
from weft.specs.findings import InputError

from ....runtime.data.pairs import changed, pairs

GOOD = "(TOP (S (NP (DT the) (NN dog)) (VP (VBZ runs))))"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """Return a tokenizer that knows few letters."""
    path = tmp_path_factory.mktemp("model") / "source.model"
    return train_tokenizer(["the dog runs ( ab )"] * 3, PieceSettings(vocab_size=24), path)


def texts(root: Path, **trees: Any) -> list[tuple[str, str]]:
    """Return the words and the symbols of all trees of a split."""
    reader = reader_of(Split.model_validate({"trees": trees}), str(root))
    parts = [reader.records(part, ("source", "target")) for part in range(reader.parts())]
    return [(one.values["source"], one.values["target"]) for part in parts for one in part]


def is_odd(letter: str) -> bool:
    """Return whether a character is changed by normalization, a space, or invisible."""
    kind = unicodedata.category(letter)
    changed = unicodedata.normalize("NFKC", letter) != letter or kind[0] in "ZC"
    return kind not in ("Cs", "Cn", "Co", "Lo") and (changed or letter in "\u2581\ufffd\u2585")


@pytest.mark.integration
def test_every_character_leaves_a_word_one_word(tokenizer: Tokenizer) -> None:
    """A word with any special character begins exactly one piece with U+2581."""
    letters = [one for one in map(chr, range(sys.maxunicode + 1)) if is_odd(one)]
    assert len(letters) > 2000
    words = [f"a{letter}b" for letter in letters] + letters
    starts = word_starts(tokenizer)

    for word, ids in zip(
        words, tokenizer.encode_many([word_text(word) for word in words]), strict=True
    ):
        assert ids, word
        assert starts[ids].tolist() == [True] + [False] * (len(ids) - 1), (word, ids)


@given(st.lists(st.text(min_size=1, max_size=6), min_size=1, max_size=6))
def test_words_of_a_sentence_can_be_counted(tokenizer: Tokenizer, words: list[str]) -> None:
    """There are as many word starts as words; words contain no spaces."""
    text = source_text(words)

    assert len(text.split(" ")) == len(words)
    assert int(word_starts(tokenizer)[tokenizer.encode(text)].sum()) == len(words)


def test_brackets_are_plain_on_the_source_and_escaped_on_the_target() -> None:
    """A target that copies words has different brackets for words and symbols."""
    assert source_text(["-LRB-", "1\\/2", "a\u00a0b"]) == "( 1/2 ab"
    assert spelled("-RRB-") == "\uff09"
    assert SPACE not in word_text(f"a{SPACE}b")


def test_pretty_and_flat_trees_are_read_alike(tmp_path: Path) -> None:
    """Trees may span many lines, share a line, or follow without a separator."""
    (tmp_path / "flat").write_text(f"{GOOD}\n\n{GOOD} {GOOD}\n")
    (tmp_path / "pretty").write_text(
        "\n(TOP\n  (S (NP (DT the)\n(NN dog))\n   (VP (VBZ runs))))\n" + GOOD
    )

    assert [str(tree) for tree in read_file(tmp_path / "flat")] == [GOOD] * 3
    assert [str(tree) for tree in read_file(tmp_path / "pretty")] == [GOOD] * 2


def test_malformed_trees_are_reported_with_their_line_or_left_out(tmp_path: Path) -> None:
    """Line numbers are those of the file."""
    (tmp_path / "bad").write_text(
        f"{GOOD}\n{GOOD}\n(TOP (NN a b))\n{GOOD}\n(TOP (S (NN a)\n{GOOD}\n"
    )
    files = ("bad",)

    bad = [one for one in read_file(tmp_path / "bad") if isinstance(one, Malformed)]
    assert [one.line for one in bad] == [3, 5]
    with pytest.raises(InputError, match="has 2 words") as caught:
        list(read_bank(files, str(tmp_path), ParsingSettings()))
    assert caught.value.location.endswith("bad:3:6")
    kept = list(read_bank(files, str(tmp_path), ParsingSettings(malformed="skip")))
    assert [tree is not None for tree in kept] == [True, True, False, True, False, True]


def test_trees_are_cleaned_as_asked(tmp_path: Path) -> None:
    """Traces and function tags are removed; a tree of traces only is an empty pair."""
    raw = "( (S (NP-SBJ (NN a)) (NP (-NONE- *T*-1))))"
    (tmp_path / "raw").write_text(f"{raw}\n(TOP (NP (-NONE- *)))\n")

    cleaned = texts(tmp_path, files=["raw"])
    as_is = texts(tmp_path, files=["raw"], clean=False)

    assert cleaned == [("a", "(S (NP XX )NP )S"), ("", "")]
    assert as_is[0] == ("a *T*-1", "( (S (NP-SBJ XX )NP-SBJ (NP XX )NP )S )")


@pytest.mark.parametrize(
    ("form", "wanted"),
    [
        ("vinyals", "(S (NP XX XX )NP (VP XX )VP )S"),
        ("tensor2tensor", "S NP DT NN /NP VP VBZ /VP /S"),
        ("top_down", "(S (NP the dog ) (VP runs ) )"),
    ],
)
def test_each_form_is_written_by_hand(form: str, wanted: str, tmp_path: Path) -> None:
    """Words on one side, symbols on the other; copied words are not symbols."""
    (tmp_path / "bank").write_text(GOOD + "\n")

    [(source, target)] = texts(tmp_path, files=["bank"], linearization=form)

    assert (source, target) == ("the dog runs", wanted)
    settings = ParsingSettings.model_validate({"linearization": form})
    symbols = symbols_of(dict.fromkeys(target.split(" "), 1), settings)
    assert symbols == sorted(set(wanted.split(" ")) - {"the", "dog", "runs"})


def test_trees_are_written_as_text_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A preparation that was stopped later uses the texts it has written, not the trees."""
    (tmp_path / "bank").write_text(f"{GOOD}\n" * 20)
    split = {"trees": {"files": ["bank"]}}
    columns = {side: {"type": "text", "tokenizer": side} for side in ("source", "target")}
    data = changed(pairs(tmp_path, split, split), columns=columns)
    settings: Tokenizers = {
        "source": PieceSettings(vocab_size=22),
        "target": SymbolSettings(),
    }

    def stop(stage: str, *_: object) -> None:
        if stage == "tokenizer":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(data, settings, tmp_path / "out", report=stop)
    text = tmp_path / ".out.work" / "train" / "0.source"
    assert text.read_text() == '"the dog runs"\n' * 20

    monkeypatch.delattr(TreesReader, "records")
    made = prepare(data, settings, tmp_path / "out", processes=1)

    ids = made.train.corpus.pair(0)[1].tolist()
    assert made.columns["target"].decode(ids) == "(S (NP XX XX )NP (VP XX )VP )S"
    assert len(made.train) == 20


def test_lines_become_words() -> None:
    """Only ASCII white space separates words; brackets are escaped."""
    words = [leaf.word for leaf in words_of("  a\u00a0b\t( c) ")]

    assert words == ["a\u00a0b", "-LRB-", "c-RRB-"]
    assert words_of(" \t ") == []
    assert all(isinstance(tree, Tree) for tree in read_bank_of(words))


def read_bank_of(words: list[str]) -> list[Tree | Malformed]:
    """Return the tree of words after writing and reading it."""
    return list(read_all("(TOP " + " ".join(f"(XX {word})" for word in words) + ")"))
