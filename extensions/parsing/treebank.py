"""Treebanks in a run: the settings of the column `tree` and of the reader `trees`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal, Self

from pydantic import model_validator

from ...plugin import (
    Columns,
    ColumnSettings,
    FilesSettings,
    Name,
    Readers,
    SettingError,
    SymbolSettings,
    TextSettings,
    Tokenizers,
    ValueType,
    missing_text,
)
from .trees.columns.types import types_of
from .trees.parsing_settings import ParsingSettings


class TreesSettings(FilesSettings):
    """Files of bracketed trees: fields `source` (words), `target` (symbols) and `tree`."""

    module: ClassVar[str] = ".reader:TreesReader"
    quick: ClassVar[bool] = True

    decoder: Literal["sequence", "chart", "tags"] = "sequence"
    """What `target` contains: the tree written as a sequence, as a chart, or one tag a word."""
    linearization: Literal["vinyals", "tensor2tensor", "top_down"] = "vinyals"
    """The form of a `sequence`; see docs/parsing.md."""
    clean: bool = True
    """Remove traces and function tags, and put TOP around each tree."""
    malformed: Literal["refuse", "skip"] = "refuse"
    """How to treat a malformed tree: stop with an error, or skip the tree."""
    pieces: bool = False
    """Whether `target` is tokenized into pieces, which normalizes full-width brackets."""

    @property
    def parsing(self) -> ParsingSettings:
        """The settings that determine the targets."""
        return ParsingSettings(
            decoder=self.decoder,
            linearization=self.linearization,
            clean=self.clean,
            malformed=self.malformed,
        )


class TreeSettings(ColumnSettings):
    """A tree over the words of a text column, whose symbols are another text column."""

    module: ClassVar[str] = ".column:TreeColumn"

    type: Literal["tree"] = "tree"
    """Selects this type of column."""
    words: Name = "source"
    """Text column with the words, such as the field `source` of the reader `trees`."""
    symbols: Name = "target"
    """Text column with the symbols of the tree, such as the field `target` of that reader; its
    tokenizer has the labels and tags."""
    decoder: Literal["sequence", "chart", "tags"]
    """What the tensors are for: a `chart` of labeled spans, or `tags` of words.  For a `sequence`
    the model reads and writes the text columns, and the trees serve only metrics."""
    linearization: Literal["vinyals", "tensor2tensor", "top_down"] = "vinyals"
    """The form of a `sequence`, as for the reader."""

    @model_validator(mode="after")
    def _check_linearization(self) -> Self:
        """Check that the form has an effect.

        Raises:
            ValueError: the trees are not written as a sequence.
        """
        if self.decoder != "sequence" and self.linearization != "vinyals":
            msg = f"'linearization' has no effect on the decoder '{self.decoder}'"
            raise SettingError(msg, "linearization", help_="remove it")
        return self

    @property
    def words_of(self) -> tuple[str, ...]:
        """The text column of the words; none for a `sequence`, in which training reads no trees."""
        return () if self.decoder == "sequence" else (self.words,)

    def planned_inputs(
        self,
        name: str,
        tokenizers: Tokenizers,  # noqa: ARG002
    ) -> dict[str, ValueType]:
        """Return the types of the inputs: none for a `sequence`."""
        types = {} if self.decoder == "sequence" else types_of(self.decoder)
        return {f"{name}_{key}": type_ for key, type_ in types.items()}

    def mistakes(self, name: str, columns: Columns, readers: Readers) -> Iterator[SettingError]:
        """Yield an error for each missing text column, and for symbols that no reader writes."""
        yield from missing_text(name, "words", self.words, columns)
        yield from missing_text(name, "symbols", self.symbols, columns)
        for at, reader in readers.items():
            for key in ("decoder", "linearization") if isinstance(reader, TreesSettings) else ():
                written, read = getattr(reader, key), getattr(self, key)
                if written != read and (key == "decoder" or self.decoder == "sequence"):
                    msg = f"the reader has the {key} '{written}', but the column '{name}' '{read}'"
                    yield SettingError(msg, *at, key, help_=f"give both the same {key}")

    def mistakes_of_tokenizers(
        self, name: str, columns: Columns, tokenizers: Tokenizers
    ) -> Iterator[SettingError]:
        """Yield an error if the symbols of a chart or of tags are not whole tokens."""
        text = columns.get(self.symbols)
        tokenizer = tokenizers.get(text.tokenizer) if isinstance(text, TextSettings) else None
        if self.decoder == "sequence" or tokenizer is None:
            return
        if not isinstance(tokenizer, SymbolSettings):
            msg = f"the decoder '{self.decoder}' of the column '{name}' needs whole symbols"
            help_ = 'use a tokenizer {"type": "symbols"}'
            yield SettingError(msg, "data", "columns", self.symbols, "tokenizer", help_=help_)
