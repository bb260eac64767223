"""Data settings of a run: files, tokenizer, filter and batches.

The settings are plain data; this module opens no files.  `text_files.py` checks the
content of the files, and `prepare.py` uses all of the settings.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from ...specs.findings import did_you_mean
from ...specs.wording import SettingError

SPECIAL_TOKENS = ("<pad>", "</s>", "<unk>", "<s>")
"""Names of the pieces with ids 0 to 3: padding, end, unknown, beginning."""
CORPUS = r"^\w[\w.]*-\w[\w.]*-\w[\w.]*-\w+-\w+$"
"""Pattern of a corpus name: group, name, version and two languages."""
LONGEST_PATH, LONGEST_NAME = 4_096, 255
"""Most bytes of a path, and of each name in it, that common file systems permit."""


def _possible(path: str) -> str:
    """Return a path.

    Raises:
        SettingError: no file system has such a path, so that looking it up would fail.
    """
    longest = max(len(name.encode(errors="replace")) for name in path.split("/"))
    if longest > LONGEST_NAME or len(path.encode(errors="replace")) > LONGEST_PATH:
        problem = f"the name of a file or folder is longer than {LONGEST_NAME} bytes"
        raise SettingError(problem, help_="write the path of a file or folder")
    return path


PathText = Annotated[str, AfterValidator(_possible)]
"""A path of a file or folder as text."""
Language = Annotated[str, Field(pattern=r"^[a-z]{3}(_[A-Za-z]+){0,2}$")]
"""ISO 639-3 language code, optionally followed by a script and a region."""

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
"""Name of a column or a tokenizer."""


class Settings(BaseModel):
    """Frozen settings; unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class TokenizerSettings(Settings):
    """Tokenizer settings; all of them are stored in the model file."""

    type: Literal["bpe", "unigram"] = "bpe"
    """Kind of SentencePiece model."""
    vocab_size: int = Field(gt=len(SPECIAL_TOKENS))
    """Vocabulary size, including special tokens, characters, bytes and user symbols."""
    shared: bool = True
    """Train one model for both sides; otherwise one per side, each with `vocab_size` pieces."""
    byte_fallback: bool = False
    """Encode characters not seen in training as bytes (256 pieces) instead of as unknown."""
    user_symbols: tuple[str, ...] = ()
    """Strings that are always one piece, such as brackets of a tree; without white space."""
    character_coverage: float = Field(default=1.0, ge=0.98, le=1.0)
    """Fraction of the characters of the training text that get their own piece."""
    lowercase: bool = False
    """Fold case before encoding; decoded text stays folded."""
    target: Literal["pieces", "symbols"] | None = None
    """Units of the target side: pieces, or whole symbols separated by spaces, which get a
    vocabulary of their own; None uses the default of the task."""
    sentences: int = Field(default=1_000_000, ge=1)
    """Maximum number of training sentences, both sides together; larger text is sampled with
    a fixed seed.

    A million sentences take about 1 GB during training.
    """

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

    @model_validator(mode="after")
    def _check_symbols(self) -> Self:
        """Check the user symbols as `TokenizerSettings` does.

        Raises:
            ValueError: a symbol is empty, has white space, is a special token, or is repeated.
        """
        self.training()
        return self

    def training(self) -> TokenizerSettings:
        """Return the settings as `train_tokenizer` takes them."""
        return TokenizerSettings(**self.model_dump())


class SymbolSettings(Settings):
    """Vocabulary of whole tokens, separated by spaces, taken from the training texts."""

    type: Literal["symbols"] = "symbols"
    """Selects this tokenizer."""
    spelling: Name | None = None
    """Tokenizer that encodes all other tokens; None encodes them as unknown."""
    only: Literal["all", "brackets"] = "all"
    """Tokens that become symbols: all of them, or those that begin with a bracket."""


class FileTokenizerSettings(Settings):
    """Tokenizer of an existing file: SentencePiece (`.model`) or `tokenizer.json`."""

    type: Literal["file"] = "file"
    """Selects this tokenizer."""
    path: PathText
    """File below the data root; `tokenizer.json` needs the extra `tokenizers`."""
    special: tuple[str, str, str, str] | None = None
    """Padding, end, unknown and beginning token of a `tokenizer.json`; None means `<pad>`,
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


class Files(Settings):
    """Text of both sides: parallel files, named corpora, or treebanks."""

    source: tuple[PathText, ...] = ()
    """Source files below the data root, plain or gzip, one sentence per line."""
    target: tuple[PathText, ...] = ()
    """Target files in the order of `source`; line n is the translation of source line n."""
    trees: tuple[PathText, ...] = ()
    """Files of bracketed trees, instead of `source` and `target`, for the task `parsing`."""
    weights: tuple[Annotated[float, Field(gt=0, le=1000)], ...] | None = None
    """How often the pairs of each file occur in a training epoch (default: 1 each); 0.1 uses
    a tenth of them, a different tenth each epoch."""
    mtdata: tuple[Annotated[str, Field(pattern=CORPUS)], ...] = ()
    """Names of corpora to fetch with the mtdata library, instead of paths."""
    languages: tuple[Language, Language] | None = None
    """Source and target language of the named corpora, such as `eng` and `deu`."""
    digests: dict[str, str] = Field(default_factory=dict)
    """Required SHA-256 of named corpora, by name; corpora without an entry are not checked."""

    @model_validator(mode="after")
    def _check_counts(self) -> Self:
        """Check that the kinds of files are not mixed and that the counts agree.

        Raises:
            ValueError: there are no files, different numbers of targets and sources, both
                kinds of files, or a different number of weights; or named corpora lack
                languages or are combined with files.
        """
        if self.trees and (self.source or self.target):
            msg = "'trees' cannot be combined with 'source' and 'target'"
            raise SettingError(msg, "trees", help_="remove 'trees', or 'source' and 'target'")
        if self.mtdata or self.languages or self.digests:
            self._check_names()
        elif len(self.source) != len(self.target) or not (self.source or self.trees):
            counts = (len(self.source), len(self.target))
            help_ = "list as many target files as source files, in the same order"
            if counts == (0, 0):
                raise SettingError("there are no files", help_="add 'source' and 'target'")
            raise SettingError("{} source files for {} target files".format(*counts), help_=help_)
        count = len(self.trees or self.mtdata or self.source)
        if self.weights is not None and len(self.weights) != count:
            msg = f"{len(self.weights)} weights for {count} files"
            raise SettingError(msg, "weights", help_="write one weight for each file, or none")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """All paths."""
        return (*self.source, *self.target, *self.trees)

    def parts(self) -> list[Files]:
        """Return each file or pair of files on its own, without weights."""
        if self.trees:
            return [Files(trees=(one,)) for one in self.trees]
        both = zip(self.source, self.target, strict=True)
        return [Files(source=(source,), target=(target,)) for source, target in both]

    def _check_names(self) -> None:
        """Check the settings of named corpora.

        Raises:
            ValueError: files are given too, a setting is missing, or a digest has no corpus.
        """
        if self.source or self.target or self.trees:
            own = next(k for k in ("mtdata", "languages", "digests") if getattr(self, k))
            msg = f"'{own}' cannot be combined with 'source', 'target' or 'trees'"
            raise SettingError(msg, own, help_=f"remove '{own}', or the files")
        if not self.mtdata or self.languages is None:
            msg = "'mtdata' and 'languages' must be given together"
            missing = '\'languages\', such as ["eng", "deu"]' if self.mtdata else "'mtdata'"
            raise SettingError(msg, help_=f"add {missing}")
        if unknown := self.digests.keys() - set(self.mtdata):
            name = min(unknown)
            msg = f"'digests' has '{name}', which is not in 'mtdata'"
            raise SettingError(msg, "digests", name, help_=did_you_mean(name, self.mtdata))

    def as_written(self) -> dict[str, Any]:
        """Return the settings that differ from their defaults, as plain data."""
        return self.model_dump(mode="json", exclude_defaults=True)


class FilterSettings(Settings):
    """Which training pairs are dropped; empty pairs are always dropped."""

    max_length: int = Field(default=250, ge=1)
    """Maximum number of tokens on each side, excluding the end token."""
    max_ratio: float | None = Field(default=None, ge=1.0)
    """Maximum ratio of the longer side to the shorter side in tokens; None means no limit."""
    duplicates: Literal["keep", "drop"] = "keep"
    """With `drop`, only the first of the pairs with equal tokens on both sides is kept."""


class RowFilterSettings(Settings):
    """Which training rows are dropped by their texts; rows with an empty text always are."""

    max_length: int | None = Field(default=None, ge=1)
    """Maximum number of tokens of each text, excluding begin and end tokens; None means no
    limit."""
    max_ratio: float | None = Field(default=None, ge=1.0)
    """Maximum ratio of the longest text of a row to the shortest in tokens; None means no
    limit."""
    duplicates: Literal["keep", "drop"] = "keep"
    """With `drop`, only the first of the rows with equal texts is kept."""


class DataSettings(Settings):
    """Text files of a run, and the filter of training pairs."""

    root: PathText = "."
    """Folder that must contain every file, after resolving links."""
    train: Files
    """Training text; the tokenizers are trained on it too."""
    valid: Files
    """Validation text."""
    test: dict[str, Files] = Field(default_factory=dict)
    """Test sets by name; they are not tokenized in advance."""
    filter: FilterSettings = FilterSettings()
    """Which training pairs are dropped."""


class BatchSettings(Settings):
    """Size of a batch."""

    tokens: int = Field(default=4096, ge=2)
    """Maximum number of tokens on each side, including padding and end tokens: rows * longest."""
    max_sentences: int | None = Field(default=None, ge=1)
    """Maximum number of pairs in a batch; None means no limit."""
    pool: int = Field(default=1000, ge=1)
    """Size of the random pools that are sorted by length, in batches.

    Larger pools need less padding; smaller pools mix lengths more.  At 4096 tokens
    and pairs of about 30 tokens, 100 gives 8 % padding and 1000 gives 2 %.
    """
