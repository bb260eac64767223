"""Text columns: ids of a tokenizer, optionally cut into blocks or split anew in each epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ....graphs.ir.value_type import ValueType
from ..shards.arrays import ArrayField, RowsAfter, id_dtype
from ..tokenizer import Tokenizer
from .column import Arrays, Column, ColumnContext
from .column_settings import BATCH
from .noise import Noise, with_noise
from .values import text_of

if TYPE_CHECKING:
    from ..plans.lengths import RowValues
    from ..shards.blocks import BlockSettings
    from ..symbols import Vocabulary
    from .column_settings import TextSettings

RAW = "text"
"""ArrayField of the stored text."""


class TextColumn(Column):
    """Text as ids."""

    has_text = True
    settings: TextSettings

    def __init__(self, name: str, settings: TextSettings, context: ColumnContext) -> None:
        """Store the settings and the tokenizer."""
        super().__init__(name, settings, context)
        self.axis = name
        self.words = False
        """Whether each word must begin exactly one piece, because words have tags."""
        self._vocabulary = context.vocabularies.get(settings.tokenizer)

    @property
    def vocabulary(self) -> Vocabulary:
        """The tokenizer."""
        if self._vocabulary is None:
            msg = f"the tokenizer of column '{self.name}' is not open"
            raise RuntimeError(msg)
        return self._vocabulary

    @property
    def before(self) -> tuple[int, ...]:
        """Special tokens before each text."""
        return (self.vocabulary.bos,) if self.settings.begin else ()

    @property
    def after(self) -> tuple[int, ...]:
        """Special tokens after each text."""
        return (self.vocabulary.eos,) if self.settings.end else ()

    @property
    def most(self) -> int | None:
        """Maximum number of ids without special tokens."""
        longest = self.settings.max_length
        return None if longest is None else longest - self.settings.begin - self.settings.end

    @property
    def block(self) -> BlockSettings | None:
        """How to cut the texts into blocks or segments; None keeps them."""
        settings = self.settings
        size = settings.segment or settings.block
        joined = settings.segment is None
        if size is None:
            return None
        from ..shards.blocks import BlockSettings  # noqa: PLC0415 - for language models

        return BlockSettings(size, self.before, self.after, joined)

    @property
    def inputs(self) -> Mapping[str, ValueType]:
        """Ids, B x T."""
        return {self.name: ValueType("ids", (BATCH, self.name), self.vocabulary.vocab_size)}

    @property
    def fields(self) -> Mapping[str, ArrayField]:
        """Ids without special tokens, and the text if it is split anew in each epoch."""
        ids = {"": ArrayField(id_dtype(self.vocabulary.vocab_size).str, ragged=True)}
        raw = {RAW: ArrayField("|u1", ragged=True)}
        return ids | raw if self.settings.draws else ids

    def encode(self, value: Any) -> Mapping[str, NDArray[Any]]:
        """Return the ids of a text.

        Raises:
            InputError: the value is not a text.
        """
        text = text_of(value, self.name)
        ids = np.array(self.vocabulary.encode(self._content(text))[: self.most], dtype=np.int64)
        raw = np.frombuffer(text.encode(), dtype=np.uint8)
        return {"": ids, RAW: raw} if self.settings.draws else {"": ids}

    def _content(self, text: str) -> str:
        """Return what the tokenizer reads: the text, or its words with a space before each."""
        if not self.words:
            return text
        from ..words import source_text  # noqa: PLC0415 - for tags and trees of words

        return source_text(text.split())

    def segments(self, value: Any) -> list[Mapping[str, NDArray[Any]]] | None:
        """Return the ids of each segment of a text, with special tokens.

        Raises:
            InputError: the value is not a text.
        """
        size = self.settings.segment
        if size is None:
            return None
        ids = np.array([*self.before, *self.encode(value)[""], *self.after], dtype=np.int64)
        return [{"": ids[start : start + size]} for start in range(0, len(ids), size)]

    def lengths(self, arrays: Arrays) -> RowValues:
        """Return the number of ids of each row, including special tokens."""
        added = 0 if self.block is not None else len(self.before) + len(self.after)
        return arrays[""].lengths(added)

    @property
    def samples(self) -> bool:
        """Whether it has sub-word sampling or noise."""
        return self.settings.draws

    def sampled_lengths(
        self, arrays: Arrays, rows: NDArray[np.int64], noise: Noise
    ) -> NDArray[np.int64] | None:
        """Return the `lengths` of some rows in an epoch with sampling or noise, (B,)."""
        if not self.samples:
            return None
        added = len(self.before) + len(self.after)
        return np.array([len(ids) + added for ids in self._drawn(arrays, rows, noise)])

    def starts(self, arrays: Arrays) -> RowValues | None:
        """Return whether each row begins a document: the row before ends with the end token."""
        if self.settings.segment is None:
            return None
        return RowsAfter(arrays[""], self.vocabulary.eos)

    def collate(
        self,
        arrays: Arrays,
        rows: NDArray[np.int64],
        collated: Mapping[str, Tensor],  # noqa: ARG002
        noise: Noise | None = None,
    ) -> dict[str, Tensor]:
        """Return ids with special tokens and padding, B x T, int64."""
        pad, after = self.vocabulary.pad, self.after
        if noise is not None and self.settings.draws:
            return {self.name: self._padded(self._drawn(arrays, rows, noise))}
        if self.block is not None:
            table, _ = arrays[""].padded(rows, pad)
            return {self.name: torch.from_numpy(table)}
        table, lengths = arrays[""].padded(rows, pad, spare=len(after))
        if after:
            table[np.arange(len(rows)), lengths] = after[0]
        if self.before:
            table = np.insert(table, 0, self.before[0], axis=1)
        return {self.name: torch.from_numpy(table)}

    def _padded(self, sequences: Sequence[Sequence[int]]) -> Tensor:
        """Return rows with special tokens and padding."""
        ended = [[*self.before, *ids, *self.after] for ids in sequences]
        longest = max(map(len, ended))
        pad = self.vocabulary.pad
        return torch.tensor([[*ids, *([pad] * (longest - len(ids)))] for ids in ended])

    def _drawn(self, arrays: Arrays, rows: NDArray[np.int64], noise: Noise) -> list[list[int]]:
        """Return ids of texts with noise, split at random, as seed, epoch and row determine."""
        texts = {row: arrays[RAW].row(row).tobytes().decode() for row in set(rows.tolist())}
        kinds = self.settings.noise
        if kinds:
            texts = {
                row: with_noise(text, kinds, noise, row, self.name) for row, text in texts.items()
            }
        ids = {row: self._split(self._content(text), row, noise) for row, text in texts.items()}
        return [ids[row][: self.most] for row in rows.tolist()]

    def _split(self, text: str, row: int, noise: Noise) -> list[int]:
        """Return the ids of a text; with sub-word sampling, as seed, epoch and row determine."""
        sampling, vocabulary = self.settings.sampling, self.vocabulary
        if sampling is None:
            return vocabulary.encode(text)
        if not isinstance(vocabulary, Tokenizer):
            msg = f"the tokenizer of column '{self.name}' cannot sample"
            raise TypeError(msg)
        seeds = np.random.SeedSequence((noise.seed % (1 << 64), noise.epoch, row))
        amount = sampling.alpha or sampling.drop or 0.0
        return vocabulary.sample(text, amount, int(seeds.generate_state(1)[0]))

    def tokens(self, inputs: Mapping[str, Tensor]) -> Mapping[str, int]:
        """Return the number of ids that are not padding."""
        return {self.name: int((inputs[self.name] != self.vocabulary.pad).sum())}

    def shifted_tokens(self, inputs: Mapping[str, Tensor]) -> Mapping[str, int]:
        """Return the number of positions once the ids are shifted right.

        Only the rows without padding lose their last id.
        """
        ids = inputs[self.name]
        places = torch.arange(1, ids.size(1) + 1)
        length_B = (places * (ids != self.vocabulary.pad)).amax(1)
        return {self.name: int((length_B + 1).clamp(max=ids.size(1)).sum())}

    def decode(self, prediction: Any) -> str:
        """Return the text of ids."""
        return self.vocabulary.decode(prediction)
