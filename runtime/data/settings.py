"""Settings of the data of a run: files, tokenizer, filter, batches.

Plain data with units.  Nothing is opened here; what the files hold is checked
in `text.py`, and `prepare.py` puts the pieces together.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

SPECIAL_TOKENS = ("<pad>", "</s>", "<unk>", "<s>")
"""Names of the pieces with ids 0 to 3: padding, end, unknown, beginning."""
CORPUS = r"^\w[\w.]*-\w[\w.]*-\w[\w.]*-\w+-\w+$"
"""Form of a corpus's name: group, name, version and two languages."""
Language = Annotated[str, Field(pattern=r"^[a-z]{3}(_[A-Za-z]+){0,2}$")]
"""Code of a language as ISO 639-3 has it, and perhaps of its script and region."""


class Settings(BaseModel):
    """A frozen record that refuses keys it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class TokenizerSettings(Settings):
    """How text becomes ids; all of it is written into the model file."""

    type: Literal["bpe", "unigram"] = "bpe"
    """Kind of SentencePiece model."""
    vocab_size: int = Field(gt=len(SPECIAL_TOKENS))
    """Pieces in all: special ones, characters, bytes and user symbols included."""
    shared: bool = True
    """One model for both sides; otherwise one for each, of `vocab_size` pieces each."""
    byte_fallback: bool = False
    """Spell characters never seen in training as bytes (256 pieces) rather than unknown."""
    user_symbols: tuple[str, ...] = ()
    """Strings that are always one piece, such as brackets of a tree; without white space."""
    character_coverage: float = Field(default=1.0, ge=0.98, le=1.0)
    """Share of the characters of the training text that get a piece of their own."""
    lowercase: bool = False
    """Fold case before encoding; text that was folded cannot be unfolded."""
    target: Literal["pieces", "symbols"] | None = None
    """What targets are made of: pieces, or whole symbols parted by spaces, which then have a
    vocabulary of their own; None is what the task says."""
    sentences: int = Field(default=1_000_000, ge=1)
    """Most sentences to train on, both sides together; of more, a fixed random sample.

    A million take about 1 GB while the model is trained.
    """

    @field_validator("user_symbols")
    @classmethod
    def _check_symbols(cls, symbols: tuple[str, ...]) -> tuple[str, ...]:
        """Refuse symbols that SentencePiece would take for something else.

        Raises:
            ValueError: a symbol is empty, has white space, is special, or comes twice.
        """
        for symbol, times in Counter(symbols).items():
            if not symbol or any(letter.isspace() for letter in symbol):
                msg = f"user symbol {symbol!r} is empty or has white space"
                raise ValueError(msg)
            if symbol in SPECIAL_TOKENS or times > 1:
                msg = f"user symbol {symbol!r} is already defined"
                raise ValueError(msg)
        return symbols


class Files(Settings):
    """Text of both sides: parallel files, corpora by name, or treebanks."""

    source: tuple[str, ...] = ()
    """Paths below the data root, plain or gzip, one sentence a line."""
    target: tuple[str, ...] = ()
    """As many paths, in the order of `source`; line n belongs to line n of the source."""
    trees: tuple[str, ...] = ()
    """Instead of the two, paths of bracketed trees, for the task `parsing`."""
    weights: tuple[Annotated[float, Field(gt=0, le=1000)], ...] | None = None
    """How often the pairs of each file are in an epoch of training, 1 each when left out;
    0.1 takes a tenth of them, another one each time."""
    mtdata: tuple[Annotated[str, Field(pattern=CORPUS)], ...] = ()
    """Instead of paths, names by which the mtdata library fetches corpora."""
    languages: tuple[Language, Language] | None = None
    """Source and target of those, such as `eng` and `deu`."""
    digests: dict[str, str] = Field(default_factory=dict)
    """SHA-256 that named corpora must have, by name; those of others are not looked at."""

    @model_validator(mode="after")
    def _check_counts(self) -> Self:
        """Refuse files without a partner.

        Raises:
            ValueError: no file, not as many targets as sources, or both kinds of files;
                not as many weights as files; or names of corpora without languages, or
                beside files.
        """
        if self.trees and (self.source or self.target):
            raise ValueError("either 'trees', or 'source' and 'target'")
        if self.mtdata or self.languages or self.digests:
            self._check_names()
        elif len(self.source) != len(self.target) or not (self.source or self.trees):
            msg = f"{len(self.source)} source files for {len(self.target)} target files"
            raise ValueError(msg)
        count = len(self.trees or self.mtdata or self.source)
        if self.weights is not None and len(self.weights) != count:
            msg = f"{len(self.weights)} weights for {count} files"
            raise ValueError(msg)
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """Every path."""
        return (*self.source, *self.target, *self.trees)

    def parts(self) -> list[Files]:
        """Return the files one by one, or pair by pair, without their weights."""
        if self.trees:
            return [Files(trees=(one,)) for one in self.trees]
        both = zip(self.source, self.target, strict=True)
        return [Files(source=(source,), target=(target,)) for source, target in both]

    def _check_names(self) -> None:
        """Refuse what does not name corpora.

        Raises:
            ValueError: there are files too, a part is missing, or a digest is of no name.
        """
        if self.source or self.target or self.trees:
            msg = "'mtdata' and 'source' are two ways to say where text is: give one of them"
            raise ValueError(msg)
        if not self.mtdata or self.languages is None:
            msg = "'mtdata' and 'languages' belong together: names, and source and target"
            raise ValueError(msg)
        if unknown := self.digests.keys() - set(self.mtdata):
            msg = f"'digests' has '{min(unknown)}', which 'mtdata' does not name"
            raise ValueError(msg)

    def as_written(self) -> dict[str, Any]:
        """Return what was set, as plain data."""
        return self.model_dump(mode="json", exclude_defaults=True)


class FilterSettings(Settings):
    """Which training pairs are left out; empty ones always are."""

    max_length: int = Field(default=250, ge=1)
    """Most tokens of one side, without the end token."""
    max_ratio: float | None = Field(default=None, ge=1.0)
    """Most tokens of the longer side for one of the shorter; None is no limit."""
    duplicates: Literal["keep", "drop"] = "keep"
    """Whether of pairs with the same tokens on both sides only the first is kept."""


class DataSettings(Settings):
    """Where the text is, and what of it is used."""

    root: str = "."
    """Folder that every file must lie in, links followed."""
    train: Files
    """Text to learn from; tokenizers are trained on it too."""
    valid: Files
    """Text to watch the training with."""
    test: dict[str, Files] = Field(default_factory=dict)
    """Text to measure with, by name; it stays text."""
    filter: FilterSettings = FilterSettings()
    """Which training pairs are left out."""


class BatchSettings(Settings):
    """How many sentences make a batch."""

    tokens: int = Field(default=4096, ge=2)
    """Most tokens on each side, padding and end tokens counted: rows * longest."""
    max_sentences: int | None = Field(default=None, ge=1)
    """Most pairs in a batch; None is no limit."""
    pool: int = Field(default=1000, ge=1)
    """Batches' worth of random pairs that are sorted by length together.

    More pads less, fewer mixes lengths more freely.  At 4096 tokens, pairs of
    about 30 tokens: 100 pads 8 %, 1000 pads 2 %.
    """
