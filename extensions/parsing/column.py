"""Tree columns: trees over the words of a text column, as labeled spans or as tags of words."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ...plugin import (
    ArrayField,
    Arrays,
    Column,
    ColumnContext,
    InputError,
    Noise,
    TextColumn,
    ValueType,
)
from .trees.columns.column import TreeCodec as TreeArrays
from .trees.parsing_settings import ParsingSettings
from .trees.trees import Tree, read_trees

if TYPE_CHECKING:
    from ...plugin import Vocabulary
    from .treebank import TreeSettings

SINGLE = ("symbols", "binary", "known")
"""Arrays with one number for each tree."""
_UNUSED = "tokens"
"""Array that is not stored, because the text column has the lengths."""


class TreeColumn(Column):
    """Trees, encoded once; the text columns have their words and symbols, and plan the batches."""

    settings: TreeSettings

    def __init__(self, name: str, settings: TreeSettings, context: ColumnContext) -> None:
        """Find the columns of the words and of the symbols."""
        super().__init__(name, settings, context)
        self.words = _text(name, "words", settings.words, context)
        self.symbols = _text(name, "symbols", settings.symbols, context)

    @property
    def parsing(self) -> ParsingSettings:
        """Settings of the encoding."""
        settings = self.settings
        return ParsingSettings(decoder=settings.decoder, linearization=settings.linearization)

    @property
    def source(self) -> Vocabulary:
        """Tokenizer of the words."""
        return self.words.vocabulary

    @property
    def target(self) -> Vocabulary:
        """Vocabulary of the symbols."""
        return self.symbols.vocabulary

    @cached_property
    def trees(self) -> TreeArrays:
        """Conversion of trees to arrays and back.

        Raises:
            InputError: the decoder needs symbols, but the targets are pieces.
        """
        return TreeArrays(self.source, self.target, self.parsing)

    @property
    def inputs(self) -> Mapping[str, ValueType]:
        """Words, labels and masks as NAME_FIELD; none for a `sequence`."""
        if self.settings.decoder == "sequence":
            return {}
        return {f"{self.name}_{key}": type_ for key, type_ in self.trees.inputs.items()}

    @cached_property
    def fields(self) -> Mapping[str, ArrayField]:
        """The arrays of a tree; none for a `sequence`."""
        if self.settings.decoder == "sequence":
            return {}
        return {
            key: ArrayField(dtype, (1,)) if key in SINGLE else ArrayField(dtype, ragged=True)
            for key, dtype in self.trees.dtypes.items()
            if key != _UNUSED
        }

    def encode(self, value: Any) -> Mapping[str, NDArray[Any]]:
        """Return the arrays of a tree.

        Args:
            value: a tree, or its text in brackets.

        Raises:
            InputError: it is neither.
        """
        tree = tree_of(value, self.name)
        if self.settings.decoder == "sequence":
            return {}
        return {key: array for key, array in self.trees.encode(tree).items() if key != _UNUSED}

    def collate(
        self,
        arrays: Arrays,
        rows: NDArray[np.int64],
        collated: Mapping[str, Tensor],  # noqa: ARG002
        noise: Noise | None = None,  # noqa: ARG002
    ) -> dict[str, Tensor]:
        """Return the padded tensors of some trees."""
        if self.settings.decoder == "sequence":
            return {}
        tensors = self.trees.collate(
            [{key: arrays[key].row(row) for key in self.fields} for row in rows.tolist()]
        )
        return {f"{self.name}_{key}": tensor for key, tensor in tensors.items()}

    def decode(self, prediction: Any) -> Tree:
        """Return the tree of a prediction: numbers by array, and the words as leaves."""
        numbers, leaves = prediction
        return self.trees.decode(numbers, leaves)


def _text(name: str, key: str, column: str, context: ColumnContext) -> TextColumn:
    """Return a text column.

    Raises:
        InputError: it is not one.
    """
    text_column = context.columns.get(column)
    if not isinstance(text_column, TextColumn):
        msg = f"column '{column}' is not a text"
        raise InputError(msg, location=f"column {name}", help=f"name a text column as '{key}'")
    return text_column


def tree_of(value: Any, name: str) -> Tree:
    """Return a value that must be a tree, or one tree in brackets.

    Raises:
        InputError: it is something else.
    """
    if isinstance(value, Tree):
        return value
    if isinstance(value, str):
        trees = read_trees(value, "")
        if len(trees) == 1:
            return trees[0]
    raise InputError(
        f"the value of '{name}' is {value!r:.60}, not a tree",
        help="use the reader 'trees', or write one tree in brackets",
    )
