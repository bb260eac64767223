"""Symbol vocabulary: whole tokens as ids, other tokens as the pieces of a tokenizer."""

from __future__ import annotations

from pathlib import Path

import pytest
from weft.runtime.data.settings import PieceSettings
from weft.runtime.data.symbols import Symbols, count_symbols, open_symbols
from weft.runtime.data.tokenizer import Tokenizer, train_tokenizer
from weft.specs.findings import InputError


@pytest.fixture
def spelling(tmp_path: Path) -> Tokenizer:
    """Return a tokenizer trained on a few words."""
    lines = ["the dog runs", "the cat runs"] * 3
    return train_tokenizer(lines, PieceSettings(vocab_size=20), tmp_path / "source.model")


def test_symbols_are_numbered_after_the_special_ids() -> None:
    """Text round-trips; unknown tokens become unknown; special ids have no text."""
    symbols = Symbols(["(S", ")S", "XX"])

    assert symbols.vocab_size == 7
    assert symbols.encode("(S XX XX )S") == [4, 6, 6, 5]
    assert symbols.encode("(S YY )S") == [4, 2, 5]
    assert symbols.encode("") == []
    assert symbols.decode([4, 6, 3, 0, 5, 1, 6]) == "(S XX )S"
    assert symbols.pieces([0, 1, 2, 3, 4]) == ["<pad>", "</s>", "<unk>", "<s>", "(S"]
    with pytest.raises(IndexError, match="id 7"):
        symbols.decode([7])


def test_a_space_of_another_kind_is_part_of_a_symbol() -> None:
    """Treebanks contain tokens with no-break spaces."""
    assert Symbols(["a\u00a0b"]).encode("a\u00a0b a\u00a0b") == [4, 4]


def test_other_tokens_are_spelled_in_pieces(spelling: Tokenizer) -> None:
    """The pieces have the same ids as on the source side, and are joined again."""
    symbols = Symbols(["(S", ")"], spelling)

    ids = symbols.encode("(S dog cats )")

    assert ids == [20, *spelling.encode("dog"), *spelling.encode("cats"), 21]
    assert symbols.tokens(ids) == [("(S", False), ("dog", True), ("cats", True), (")", False)]
    assert symbols.vocab_size == 22


def test_a_vocabulary_file_round_trips(spelling: Tokenizer, tmp_path: Path) -> None:
    """The JSON round-trips; the digests of different vocabularies differ."""
    for symbols in (Symbols(["(S", "ü"]), Symbols(["(S", "ü"], spelling)):
        path = tmp_path / "target.symbols.json"
        path.write_bytes(symbols.bytes)
        again = open_symbols(path, spelling)
        assert (again.bytes, again.digest) == (symbols.bytes, symbols.digest)
        assert again.pieces(range(again.vocab_size)) == symbols.pieces(range(symbols.vocab_size))
    assert Symbols(["(S"]).digest != Symbols(["(S"], spelling).digest


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"format": 2, "symbols": [], "spelled": false}',
        '{"format":1}',
        '{"format": 1, "symbols": [3], "spelled": false}',
        '{"format": 1, "symbols": ["a", "a"], "spelled": false}',
        '{"format": 1, "symbols": ["a b"], "spelled": false}',
    ],
)
def test_a_damaged_file_is_refused(content: str, spelling: Tokenizer, tmp_path: Path) -> None:
    """Any damaged content raises an `InputError`."""
    path = tmp_path / "target.symbols.json"
    path.write_text(content)

    with pytest.raises(InputError, match="symbol"):
        open_symbols(path, spelling)


def test_symbols_are_counted() -> None:
    """Tokens of all lines, separated only by spaces."""
    assert count_symbols(["a b a", "", "b\u00a0c"]) == {"a": 2, "b": 1, "b\u00a0c": 1}
