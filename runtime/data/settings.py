"""Data settings of a run: tokenizers, filter and batches.

The settings are plain data; this module opens no files.  The columns of the data are in
`columns/column_settings.py`, the readers of its files in `readers/reader_settings.py`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from ...specs.wording import SettingError

HUB = "tokenizer.json"
"""File name of a Hugging Face tokenizer in an imported checkpoint."""
SPECIAL_TOKENS = ("<pad>", "</s>", "<unk>", "<s>")
"""Names of the pieces with ids 0 to 3: padding, end, unknown, beginning."""
CORPUS = r"^\w[\w.]*-\w[\w.]*-\w[\w.]*-\w+-\w+$"
"""Pattern of a corpus name: group, name, version and two languages."""
LONGEST_PATH, LONGEST_NAME = 4_096, 255
"""Most bytes of a path, and of each name in it, that common file systems permit."""


def possible_path(path: str) -> str:
    """Return a path.

    Raises:
        SettingError: no file system has such a path, so that looking it up would fail.
    """
    longest = max(len(name.encode(errors="replace")) for name in path.split("/"))
    if longest > LONGEST_NAME or len(path.encode(errors="replace")) > LONGEST_PATH:
        problem = f"the name of a file or folder is longer than {LONGEST_NAME} bytes"
        raise SettingError(problem, help_="write the path of a file or folder")
    return path


PathText = Annotated[str, AfterValidator(possible_path)]
"""A path of a file or folder as text."""
STORES = ("s3", "gs", "memory")
"""Protocols of stores of prepared data that are not folders: addresses of other protocols could
make a run that somebody else wrote send requests to any server."""
_OBJECT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.=-]*(/[A-Za-z0-9_][A-Za-z0-9_.=-]*)*")
_MANIFEST = re.compile(r"/[0-9a-f]{64}\.json")


def checked_store(text: str) -> str:
    """Return the address of a store of prepared data: a folder, or a bucket and a path in it.

    Raises:
        SettingError: no prepared data is written or read there.
    """
    protocol, mark, path = text.partition("://")
    if not mark:
        return possible_path(text)
    if protocol not in STORES:
        listed = ", ".join(f"{name}://" for name in STORES)
        problem = f"addresses that begin with '{protocol}://' are not opened"
        raise SettingError(problem, help_=f"write the path of a folder, or one of {listed}")
    if not _OBJECT.fullmatch(path):
        problem = "not a bucket and a path in it"
        help_ = f"write {protocol}://BUCKET/PATH with letters, digits and '_.=-'"
        raise SettingError(problem, help_=help_)
    return text


def split_address(address: str) -> tuple[str, str]:
    """Return the store of prepared data, and the SHA-256 of its manifest.

    Args:
        address: `PLACE/DIGEST.json`, as `weft prepare RUN --to PLACE` prints it.

    Raises:
        SettingError: it is no such address.
    """
    name = _MANIFEST.search(address[-len("/.json") - 64 :])
    if name is None or len(address) == len(name[0]):
        problem = "not the address of prepared data, which ends with the SHA-256 of its manifest"
        raise SettingError(problem, help_="write what 'weft prepare RUN --to PLACE' printed")
    store = checked_store(address[: -len(name[0])])
    return store, name[0].removeprefix("/").removesuffix(".json")


def _checked_address(address: str) -> str:
    split_address(address)
    return address


PreparedAddress = Annotated[str, AfterValidator(_checked_address)]
"""Address of prepared data as text."""
Language = Annotated[str, Field(pattern=r"^[a-z]{3}(_[A-Za-z]+){0,2}$")]
"""ISO 639-3 language code, optionally followed by a script and a region."""

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
"""Name of a column or a tokenizer."""

SourceName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}$")]
"""Name of a source of a split."""


class Settings(BaseModel):
    """Frozen settings; unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


def refuse_repeated(names: Sequence[str], what: str) -> None:
    """Check that no name is repeated.

    Raises:
        SettingError: one is.
    """
    for at, name in enumerate(names):
        if name in names[:at]:
            problem = f"the {what} {name!r} is already defined"
            raise SettingError(problem, at, help_="remove or rename it")


class PieceSettings(Settings):
    """Tokenizer that is trained on the training texts of the columns that use it."""

    type: Literal["bpe", "unigram"] = "bpe"
    """Kind of SentencePiece model."""
    vocab_size: int = Field(gt=len(SPECIAL_TOKENS))
    """Vocabulary size, including special tokens, characters, bytes and user symbols."""
    byte_fallback: bool = False
    """Encode characters not seen in training as bytes (256 pieces) instead of as unknown."""
    user_symbols: tuple[str, ...] = ()
    """Strings that are always one piece, such as brackets of a tree; without white space."""
    character_coverage: float = Field(default=1.0, ge=0.98, le=1.0)
    """Fraction of the characters of the training text that get their own piece."""
    lowercase: bool = False
    """Fold case before encoding; decoded text stays folded."""
    sentences: int = Field(default=1_000_000, ge=1)
    """Maximum number of training sentences, all columns together; larger text is sampled with a
    fixed seed."""

    @field_validator("user_symbols")
    @classmethod
    def _check_symbols(cls, symbols: tuple[str, ...]) -> tuple[str, ...]:
        """Check that SentencePiece can treat each symbol as one piece.

        Raises:
            ValueError: a symbol is empty, has white space, is a special token, or is repeated.
        """
        for symbol, times in Counter(symbols).items():
            if not symbol or any(letter.isspace() for letter in symbol):
                msg = f"user symbol {symbol!r} is empty or contains white space"
                raise SettingError(msg, symbols.index(symbol), help_="write it without white space")
            if symbol in SPECIAL_TOKENS or times > 1:
                msg = f"user symbol {symbol!r} is already defined"
                last = len(symbols) - 1 - symbols[::-1].index(symbol)
                raise SettingError(msg, last, help_="remove it")
        return symbols


class SymbolSettings(Settings):
    """Vocabulary of whole tokens, separated by spaces, taken from the training texts."""

    type: Literal["symbols"] = "symbols"
    """Selects this tokenizer."""
    spelling: Name | None = None
    """Tokenizer that encodes all other tokens, with `only`; `null` encodes them as unknown."""
    only: Literal["all", "brackets"] = "all"
    """Tokens that become symbols: all of them, or those that begin with a bracket."""


class FileTokenizerSettings(Settings):
    """Tokenizer of an existing file: SentencePiece (`.model`) or `tokenizer.json`."""

    type: Literal["file"] = "file"
    """Selects this tokenizer."""
    path: PathText
    """File below the data root; `tokenizer.json` needs the extra `tokenizers`."""
    special: tuple[str, str, str, str] | None = None
    """Padding, end, unknown and beginning token of a `tokenizer.json`; `null` means `<pad>`,
    `</s>`, `<unk>` and `<s>`.  The padding token must have the id 0."""

    @model_validator(mode="after")
    def _check_special(self) -> Self:
        """Check that special tokens are given only where they have an effect.

        Raises:
            ValueError: they are given for a SentencePiece model, which stores its own.
        """
        if self.special is not None and not self.path.endswith(".json"):
            msg = "'special' has no effect on a SentencePiece model"
            raise SettingError(msg, "special", help_="remove it")
        return self


AnyTokenizer = Annotated[
    PieceSettings | SymbolSettings | FileTokenizerSettings, Field(discriminator="type")
]
"""A tokenizer of any type."""


class FilterSettings(Settings):
    """Rules that drop training rows by their texts; rows with an empty text are always dropped."""

    max_length: int | None = Field(default=None, ge=1)
    """Maximum number of tokens of each text, excluding begin and end tokens; `null` means no
    limit."""
    max_ratio: float | None = Field(default=None, ge=1.0)
    """Maximum ratio of the longest text of a row to the shortest in tokens; `null` means no
    limit."""
    duplicates: Literal["keep", "drop"] = "keep"
    """With `drop`, only one of the rows with equal texts is kept."""
    duplicates_of: tuple[Name, ...] | None = Field(default=None, min_length=1)
    """Text columns that duplicates have in common, such as the source of several translations;
    `null` is all."""
    best_by: str | None = Field(default=None, min_length=1)
    """Field of the records with a number, such as a score: of duplicates, the row with the largest
    is kept, or the first of these; `null` keeps the first."""


class Stage(Settings):
    """Weights of the sources of the training data, for all updates or for some of them."""

    until: Annotated[float, Field(gt=0)] | None = None
    """Last update of the stage, or below 1 the share of the run's updates after which it ends;
    `null` for the last stage alone.  The next stage begins a new epoch."""
    weights: dict[SourceName, Annotated[float, Field(ge=0, le=1000)]] = Field(default_factory=dict)
    """How often the rows of each source occur in an epoch (default: 1 each); 0.1 uses a tenth of
    them, a different tenth in each epoch, and 0 none."""
    temperature: float | None = Field(default=None, gt=1, le=1000)
    """Instead of weights: the share of a source of n rows is proportional to n^(1/T), so that small
    sources occur more often.  Arivazhagan et al. 2019, https://arxiv.org/abs/1907.05019"""

    @model_validator(mode="after")
    def _check_weights(self) -> Self:
        """Check that the weights and the end mean something.

        Raises:
            SettingError: there are weights and a temperature, or the end is within an update.
        """
        if self.temperature is not None and self.weights:
            msg = "'temperature' decides the weights, so 'weights' has no effect"
            raise SettingError(msg, "weights", help_="remove one of both")
        if self.until is not None and self.until >= 1 and self.until != int(self.until):
            msg = f"a stage cannot end within an update, at {self.until:g}"
            help_ = "write a whole number of updates, or a share of the run below 1"
            raise SettingError(msg, "until", help_=help_)
        return self


class BatchSettings(Settings):
    """Size of a batch."""

    tokens: int = Field(default=4096, ge=2)
    """Maximum number of tokens on each side, end tokens included; `count` says which."""
    count: Literal["padded", "real"] = "padded"
    """The tokens that `tokens` limits: `padded` counts rows * longest; `real` leaves padding out,
    for models that are unpadded, so that batches of mixed lengths hold as many tokens as others."""
    max_sentences: int | None = Field(default=None, ge=1)
    """Maximum number of pairs in a batch; `null` means no limit."""
    pool: int = Field(default=1000, ge=1)
    """Size of the random pools that are sorted by length, in batches; 1 sorts nothing, so that a
    batch is drawn at random and mixes lengths.

    Larger pools need less padding; smaller pools mix lengths more.  At 4096 tokens
    and pairs of about 30 tokens, 100 gives 8 % padding and 1000 gives 2 %.
    """
