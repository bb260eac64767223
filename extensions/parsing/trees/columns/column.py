"""Trees as a column: a tree becomes arrays once, and a batch of arrays becomes tensors.

What a tree is encoded to depends on the decoder of the settings (`parsing.decoder`):

    chart     words, labeled spans and tags: the inputs of a chart parser and of its loss
    tags      words and three tags for each word
    sequence  ids of the words and of the linearized tree

Labels, tags and symbols are numbered in the order of the symbol vocabulary: by frequency in the
training trees.  Labels are padded with -1, and so are those outside the vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import ValidationError
from torch import Tensor

from .....plugin import InputError, Symbols, ValueType, Vocabulary, count_symbols
from ..parsing_settings import ParsingSettings
from ..reader import ESCAPES, source_text, symbols_of, writer
from ..trees import Leaf, Tree
from .encodings import Arrays, Encoding, Prediction, encoding_of
from .padding import Array
from .types import types_of

FORMAT = 1


@dataclass(frozen=True)
class TreeCodec:
    """Column of trees: conversion of trees to arrays, batches of tensors, and back."""

    source: Vocabulary
    """Tokenizer of the words."""
    target: Vocabulary
    """Vocabulary of the symbols of trees."""
    settings: ParsingSettings
    """Decoder and linearization."""

    def __post_init__(self) -> None:
        """Check the vocabulary.

        Raises:
            InputError: the decoder needs symbols, but targets are pieces.
        """
        if self.settings.decoder != "sequence" and not isinstance(self.target, Symbols):
            raise InputError(
                f"the decoder '{self.settings.decoder}' needs a vocabulary of symbols",
                location="parsing.decoder",
                help='remove "target": "pieces" from the tokenizer\'s settings',
            )

    @classmethod
    def fit(cls, trees: Iterable[Tree], source: Vocabulary, settings: ParsingSettings) -> TreeCodec:
        """Return a column with the symbols of training trees, most frequent first.

        Args:
            trees: the training trees.
            source: tokenizer of the words.
            settings: decoder and linearization.
        """
        write = writer(settings)
        counts = count_symbols(" ".join(write(tree)) for tree in trees)
        symbols = symbols_of(counts, settings)
        # Tokens that are not symbols are words, which a copying parser spells.
        spelling: Any = source if len(symbols) < len(counts) else None
        return cls(source, Symbols(symbols, spelling), settings)

    @cached_property
    def encoding(self) -> Encoding:
        """The encoding of the decoder."""
        return encoding_of(self.source, self.target, self.settings)

    @property
    def sizes(self) -> dict[str, int]:
        """Params of a spec that the vocabularies determine, by their usual names."""
        return self.encoding.sizes

    @property
    def inputs(self) -> dict[str, ValueType]:
        """Type of each tensor of a batch."""
        return types_of(self.settings.decoder, self.sizes)

    @property
    def dtypes(self) -> Mapping[str, str]:
        """Type of the numbers of each array that `encode` returns, such as `<i4`."""
        return self.encoding.dtypes

    def encode(self, tree: Tree) -> Arrays:
        """Return the arrays of a tree, each with one axis; their lengths differ by tree."""
        text = source_text(leaf.word for leaf in tree.leaves())
        escapes = {} if isinstance(self.target, Symbols) else ESCAPES
        symbols = " ".join(writer(self.settings)(tree)).translate(escapes)
        arrays = self.encoding.encode(self.source.encode(text), self.target.encode(symbols))
        return {name: array.astype(self.dtypes[name]) for name, array in arrays.items()}

    def collate(self, rows: Sequence[Mapping[str, Array]]) -> dict[str, Tensor]:
        """Return the padded tensors of a batch, by the names of `inputs`.

        Args:
            rows: arrays of each tree, at least one.
        """
        return self.encoding.collate(rows)

    def lengths(self, row: Mapping[str, Array]) -> dict[str, int]:
        """Return the number of tokens of `source` and `target`, with their end tokens.

        Batches have a limit on tokens; these are the pieces of the words and the symbols.
        """
        return self.encoding.lengths(row)

    def decode(self, prediction: Prediction, leaves: Sequence[Leaf]) -> Tree:
        """Return the tree of a prediction; from the arrays of a tree, the tree itself.

        Args:
            prediction: numbers for one sentence, by the names of the arrays that encode its tree.
            leaves: the words; a leaf without a tag gets the predicted one, if there is one.

        Raises:
            ValueError: the prediction does not form a tree over the leaves.
        """
        return self.encoding.decode(prediction, leaves)

    def as_json(self) -> dict[str, Any]:
        """Return what `from_json` needs besides the tokenizers."""
        symbols = self.target if isinstance(self.target, Symbols) else None
        return {
            "format": FORMAT,
            "parsing": self.settings.model_dump(mode="json"),
            "symbols": None if symbols is None else list(symbols.symbols),
            "spelled": symbols is not None and symbols.spelling is not None,
        }

    @classmethod
    def from_json(
        cls,
        value: Mapping[str, Any],
        source: Any,
        target: Vocabulary | None = None,
        *,
        location: str = "",
    ) -> TreeCodec:
        """Return a column that was saved with `as_json`.

        Args:
            value: the saved value.
            source: tokenizer of the words.
            target: tokenizer of linearized trees, where they are written in pieces.
            location: origin of the value, for messages.

        Raises:
            InputError: the value is damaged.
        """
        help_ = "prepare the data again"
        try:
            is_current, symbols, spelled = (
                value["format"] == FORMAT,
                value["symbols"],
                value["spelled"],
            )
            settings = ParsingSettings.model_validate(value["parsing"])
        except (KeyError, TypeError, ValidationError) as error:
            raise InputError("tree column is damaged", location=location, help=help_) from error
        sound = symbols is None or (
            isinstance(symbols, list) and all(isinstance(symbol, str) for symbol in symbols)
        )
        if not (is_current and sound and isinstance(spelled, bool)):
            msg = "tree column is damaged or has another version"
            raise InputError(msg, location=location, help=help_)
        if symbols is not None:
            return cls(source, Symbols(symbols, source if spelled else None), settings)
        if target is None:
            msg = "tree column has no symbols, and no tokenizer of linearized trees was given"
            raise InputError(msg, location=location, help=help_)
        return cls(source, target, settings)
