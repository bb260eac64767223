"""Tokenizers, samples for them, symbols and their settings."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from weft.runtime.data import preparation
from weft.runtime.data.preparation import sampled
from weft.runtime.data.readers.split import Split
from weft.runtime.data.settings import BatchSettings, PieceSettings
from weft.runtime.data.symbols import Symbols, count_symbols, open_symbols
from weft.runtime.data.table_settings import DataSettings
from weft.runtime.data.tokenizer import LONGEST, Tokenizer, train_tokenizer
from weft.specs.findings import InputError

from .pairs import lines

if TYPE_CHECKING:
    from collections.abc import Iterator


LINES = [
    f"the {color} {thing} sees {count} small birds"
    for color in ("red", "green", "blue", "yellow")
    for thing in ("house", "dog", "river", "mountain", "teacher")
    for count in ("two", "three", "seven")
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """Return a small model with byte fallback."""
    settings = PieceSettings(vocab_size=330, byte_fallback=True)
    return train_tokenizer(LINES, settings, tmp_path_factory.mktemp("model") / "m.model")


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_the_same_text_gives_the_same_file(tmp_path: Path, kind: str) -> None:
    """Runs are reproducible, and corpora refer to a tokenizer by its digest."""
    settings = PieceSettings.model_validate({"type": kind, "vocab_size": 34})

    first = train_tokenizer(LINES, settings, tmp_path / "a.model")
    second = train_tokenizer(iter(LINES), settings, tmp_path / "b.model")

    assert first.bytes == second.bytes == (tmp_path / "a.model").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.model", "b.model"]


def test_special_ids_are_fixed(tokenizer: Tokenizer) -> None:
    """Models rely on padding being 0 and the end token being 1."""
    assert (tokenizer.pad, tokenizer.eos, tokenizer.unk, tokenizer.bos) == (0, 1, 2, 3)
    assert tokenizer.vocab_size == 330
    assert tokenizer.pieces([0, 1, 2, 3]) == ["<pad>", "</s>", "<unk>", "<s>"]


def test_special_names_in_a_text_are_only_text(tokenizer: Tokenizer) -> None:
    """Text cannot produce an end token or padding."""
    ids = tokenizer.encode("the <pad> dog </s> sees <s>")

    assert not {0, 1, 2, 3} & set(ids)
    assert tokenizer.decode(ids) == "the <pad> dog </s> sees <s>"


@given(st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S"]), max_size=30))
def test_byte_fallback_restores_unseen_characters(tokenizer: Tokenizer, text: str) -> None:
    """Text that normalization does not change round-trips in any script."""
    once = tokenizer.decode(tokenizer.encode(text))

    assert tokenizer.decode(tokenizer.encode(once)) == once
    assert tokenizer.unk not in tokenizer.encode(text)


def test_byte_fallback_spells_a_character_in_bytes(tokenizer: Tokenizer) -> None:
    """U+6F22 is three bytes in UTF-8: E6 BC A2."""
    ids = tokenizer.encode("\u6f22")

    assert tokenizer.pieces(ids)[-3:] == ["<0xE6>", "<0xBC>", "<0xA2>"]
    assert tokenizer.decode(ids) == "\u6f22"


def test_without_byte_fallback_unseen_characters_are_unknown(tmp_path: Path) -> None:
    """They become U+2047 when decoded."""
    plain = train_tokenizer(LINES, PieceSettings(vocab_size=60), tmp_path / "m")

    ids = plain.encode("dog \u6f22")

    assert ids[-1] == plain.unk
    assert plain.decode(ids) == "dog \u2047"


def test_decoding_stops_at_the_first_end(tokenizer: Tokenizer) -> None:
    """Tokens after the end token, and padding, are dropped."""
    dog, house = tokenizer.encode("dog"), tokenizer.encode("house")

    assert tokenizer.decode([3, *dog, 0, 1, *house, 1]) == "dog"
    assert tokenizer.decode([]) == ""
    assert tokenizer.decode([1]) == ""
    with pytest.raises(IndexError, match="id 330 is not in a vocabulary of 330"):
        tokenizer.decode([330])


def test_many_are_encoded_as_one_by_one(tokenizer: Tokenizer) -> None:
    """Threads keep the order."""
    texts = [*LINES, "", "  ", "x"]

    assert tokenizer.encode_many(texts) == [tokenizer.encode(text) for text in texts]
    assert tokenizer.encode("  ") == []


def test_a_model_round_trips_as_bytes_and_as_file(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """A checkpoint contains the bytes of the model and needs no other file."""
    (tmp_path / "m").write_bytes(tokenizer.bytes)

    for again in (Tokenizer.from_bytes(tokenizer.bytes), Tokenizer.open(tmp_path / "m")):
        assert again.encode(LINES[0]) == tokenizer.encode(LINES[0])
        assert again.digest == tokenizer.digest


def test_case_is_folded_by_the_file_itself(tmp_path: Path) -> None:
    """A reopened model must encode text like the one in memory."""
    settings = PieceSettings(vocab_size=60, lowercase=True)
    train_tokenizer(LINES, settings, tmp_path / "m")

    again = Tokenizer.open(tmp_path / "m")

    assert again.encode("The RED Dog") == again.encode("the red dog")
    assert again.decode(again.encode("The RED Dog")) == "the red dog"


def test_user_symbols_are_one_piece(tmp_path: Path) -> None:
    """Brackets of trees are one piece, including unseen ones and ones with commas."""
    settings = PieceSettings(vocab_size=64, user_symbols=("(NP", ")NP", "a,b"))
    model = train_tokenizer(LINES, settings, tmp_path / "m")

    ids = model.encode("(NP dog )NP a,b")

    assert {"(NP", ")NP", "a,b"} <= set(model.pieces(ids))
    assert model.decode(ids) == "(NP dog )NP a,b"


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@pytest.mark.parametrize("size", [5, 5000])
def test_the_suggested_size_works(tmp_path: Path, kind: str, size: int) -> None:
    """For sizes that are too small or too large, the help names the nearest size, which works."""
    settings = PieceSettings.model_validate({"type": kind, "vocab_size": size})

    with pytest.raises(InputError, match=f"vocab_size {size}") as caught:
        train_tokenizer(LINES, settings, tmp_path / "m")
    [named] = re.findall(r"at (?:most|least) (\d+)", caught.value.help)
    mended = settings.model_copy(update={"vocab_size": int(named)})

    assert train_tokenizer(LINES, mended, tmp_path / "m").vocab_size == int(named)


def test_no_text_is_an_error_and_writes_nothing(tmp_path: Path) -> None:
    """Blank lines do not count as text."""
    with pytest.raises(InputError, match="no text"):
        train_tokenizer(["", "  "], PieceSettings(vocab_size=60), tmp_path / "m")

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("odd", ["\u2585", "\0", "\t"])
def test_reserved_characters_do_not_lose_a_training_line(tmp_path: Path, odd: str) -> None:
    """SentencePiece skips lines with its own marks; here their words are still learned."""
    model = train_tokenizer(
        [*LINES, *[f"qqq{odd} zzz"] * 5], PieceSettings(vocab_size=60), tmp_path / "m"
    )

    assert model.unk not in model.encode("qqq zzz")


def test_long_training_lines_are_not_lost(tmp_path: Path) -> None:
    """Characters at both ends of a line of any length are in the vocabulary."""
    spaced = "Q" + " dog" * LONGEST + " Z"
    solid = "J" + "o" * 70_000 + "K"

    model = train_tokenizer([*LINES, spaced, solid], PieceSettings(vocab_size=64), tmp_path / "m")

    assert model.unk not in model.encode("Q Z J K")


def test_an_exception_of_the_reader_is_raised(tmp_path: Path) -> None:
    """SentencePiece would replace the exception with its own."""

    def broken() -> Iterator[str]:
        yield LINES[0]
        problem = "line 2 is not UTF-8"
        raise InputError(problem)

    with pytest.raises(InputError, match=r"line 2 is not UTF-8$"):
        train_tokenizer(broken(), PieceSettings(vocab_size=60), tmp_path / "m")


def test_damaged_files_are_refused(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Empty, truncated and unrelated files raise errors; a missing file gets a suggestion."""
    for content in (b"", tokenizer.bytes[:100], tokenizer.bytes[:-50], b"hello " * 50):
        (tmp_path / "source.model").write_bytes(content)
        with pytest.raises(InputError, match=r"empty|damaged"):
            Tokenizer.open(tmp_path / "source.model")
    with pytest.raises(InputError, match="cannot read tokenizer") as caught:
        Tokenizer.open(tmp_path / "sorce.model")
    assert caught.value.help == "did you mean 'source.model'?"


def test_text_that_is_not_unicode_is_refused(tokenizer: Tokenizer) -> None:
    """Surrogates come from standard input that was decoded with another encoding."""
    with pytest.raises(InputError, match="not Unicode"):
        tokenizer.encode("a\ud800b")


def test_training_is_silent(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Only the command line may write to the terminal."""
    train_tokenizer(LINES, PieceSettings(vocab_size=60), tmp_path / "m")
    with pytest.raises(InputError):
        train_tokenizer(LINES, PieceSettings(vocab_size=6000), tmp_path / "m")

    assert capfd.readouterr() == ("", "")


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, Path]]:
    """Return two groups of two files, of 25 and 10 lines, read in blocks of 10."""
    monkeypatch.setattr(preparation, "BLOCK", 10)
    made = []
    for name, count in (("a", 25), ("b", 10)):
        paths = tmp_path / f"{name}.x", tmp_path / f"{name}.y"
        for path in paths:
            path.write_text("".join(f"{path.name} {row}\n" for row in range(count)))
        made.append((paths[0], paths[1]))
    return made


def test_few_lines_are_all_taken_in_order(groups: list[tuple[Path, Path]]) -> None:
    """Sides alternate, file after file; the last progress report is the total."""
    progress: list[int] = []

    lines = list(sampled(groups, [25, 10], 1000, progress.append))

    assert lines[:4] == ["a.x 0", "a.y 0", "a.x 1", "a.y 1"]
    assert lines[50:52] == ["b.x 0", "b.y 0"]
    assert len(lines) == len(set(lines)) == 70
    assert progress == [10, 20, 25, 35]


def test_lines_are_sampled_evenly(groups: list[tuple[Path, Path]]) -> None:
    """35 of 70: the requested number, half of each block, without repetition, deterministic."""
    lines = list(sampled(groups, [25, 10], 35, lambda _: None))

    assert len(lines) == len(set(lines)) == 35
    blocks = Counter((line[0], int(line.split()[1]) // 10) for line in lines)
    assert blocks == {("a", 0): 10, ("a", 1): 10, ("a", 2): 5, ("b", 0): 10}
    assert lines == list(sampled(groups, [25, 10], 35, lambda _: None))
    everything = list(sampled(groups, [25, 10], 70, lambda _: None))
    assert lines == [line for line in everything if line in set(lines)]


def test_one_side_may_be_sampled(groups: list[tuple[Path, Path]]) -> None:
    """As for separate tokenizers."""
    lines = list(sampled([(left,) for left, _ in groups], [25, 10], 7, lambda _: None))

    assert len(lines) == 7
    assert all(".x" in line for line in lines)


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


def test_source_files_need_as_many_target_files() -> None:
    """A file without a counterpart, and missing files, are errors before reading."""
    with pytest.raises(ValidationError, match="2 source files for 1 target files"):
        Split.model_validate(lines(["a", "b"], ["c"]))
    with pytest.raises(ValidationError, match="at least 1 item"):
        Split.model_validate(lines([], []))


@pytest.mark.parametrize("symbols", [("",), ("a b",), ("\u00a0",), ("<pad>",), ("x", "x")])
def test_user_symbols_that_would_break_the_model_are_refused(symbols: tuple[str, ...]) -> None:
    """`<pad>` as a user symbol would leave the model without padding."""
    with pytest.raises(ValidationError, match="user symbol"):
        PieceSettings(vocab_size=100, user_symbols=symbols)


def test_unknown_keys_are_refused() -> None:
    """A misspelled setting must not silently use the default."""
    with pytest.raises(ValidationError, match="max_sentence\n"):
        BatchSettings.model_validate({"max_sentence": 3})


def test_a_run_file_may_omit_settings_with_defaults() -> None:
    """The minimum of a run: one column, two splits; no row is dropped for its length."""
    files = {"lines": {"source": ["a"]}}
    columns = {"source": {"type": "text", "tokenizer": "words"}}

    data = DataSettings.model_validate({"columns": columns, "train": files, "valid": files})

    assert data.filter.max_length is None
    assert data.test == {}
