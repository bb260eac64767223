"""`tokenizer.json` of a trained tokenizer: the ids are those of SentencePiece."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from weft.extensions.interop.export.huggingface.tokenizer import tokenizer_json
from weft.runtime.data.settings import PieceSettings
from weft.runtime.data.tokenizer import train_tokenizer

TEXT = ["a dog runs over the grass", "Two men are sitting, and the cat sees a dog.", "grün ist es"]
LINES = [
    *TEXT,
    "  the   dogs\tsat ",
    "Ｔｗｏ ﬁne cats…",  # noqa: RUF001 - normalized
    "unseen: Ж丏 and 😀!",
    "under▁score",
    "",
]


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@pytest.mark.parametrize("fallback", [False, True])
def test_ids_are_those_of_sentencepiece(
    kind: Literal["bpe", "unigram"], *, fallback: bool, tmp_path: Path
) -> None:
    """With normalization, unknown characters and bytes; the text comes back."""
    library = pytest.importorskip("tokenizers")
    size = {"bpe": 60, "unigram": 30}[kind] + 256 * fallback
    settings = PieceSettings(type=kind, vocab_size=size, byte_fallback=fallback)
    ours = train_tokenizer(TEXT * 20, settings, tmp_path / "m.model")

    text = tokenizer_json(ours.bytes, before=None, after="</s>")

    assert text is not None
    theirs = library.Tokenizer.from_str(text)
    for line in LINES:
        ids = ours.encode(line)
        assert theirs.encode(line).ids == [*ids, ours.eos], line
        if ours.unk not in ids:
            assert theirs.decode(ids).lstrip() == ours.decode(ids)


USERS = [
    "<x> a dog<y>runs <x>",
    "<x><y> the",
    "the  <x>  grass",
    "do<x>g <x2> sat",
    "<x2<x>",
    "dog <y>",
]


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@pytest.mark.parametrize("line", [*LINES, *USERS])
def test_pieces_of_users_are_never_cut(
    kind: Literal["bpe", "unigram"], line: str, tmp_path: Path
) -> None:
    """At the ends of a text, inside of words and beside another; the longest of several."""
    library = pytest.importorskip("tokenizers")
    symbols = ("<x>", "<x2>", "<y>", "<x2")
    size = {"bpe": 64, "unigram": 34}[kind]
    settings = PieceSettings(type=kind, vocab_size=size, user_symbols=symbols)
    ours = train_tokenizer(TEXT * 20, settings, tmp_path / "m.model")

    text = tokenizer_json(ours.bytes, before=None, after=None)

    assert text is not None
    assert library.Tokenizer.from_str(text).encode(line).ids == ours.encode(line)


@pytest.mark.parametrize("symbol", ["▁x", "ﬁ"])
def test_pieces_of_users_that_normalization_changes_have_no_counterpart(
    symbol: str, tmp_path: Path
) -> None:
    """SentencePiece finds them before it; `ﬁ` becomes two letters."""
    settings = PieceSettings(type="bpe", vocab_size=60, user_symbols=(symbol,))
    ours = train_tokenizer(TEXT * 20, settings, tmp_path / "m.model")

    assert tokenizer_json(ours.bytes, before=None, after=None) is None
