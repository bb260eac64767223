"""Word inputs: piece ids grouped into words, each with its pieces and characters.

Characters are UTF-8 bytes, so they need no vocabulary and are never unknown.

Axes: B sentences, S words of the longest, P pieces and C characters of a word.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ....plugin import SPACE, Vocabulary

MOST_PIECES = 12
"""Maximum pieces of a word; the rest is dropped."""
MOST_CHARACTERS = 24
"""Maximum characters of a word; of a longer word, the first and last 12 are used."""

Parts = tuple[tuple[int, ...], tuple[int, ...]]
"""Pieces and characters of a word."""


class Words:
    """Converts piece ids to the inputs of a model that reads words."""

    def __init__(self, source: Vocabulary) -> None:
        """Find the pieces that begin a word, and the bytes of each piece."""
        self._special_tokens = frozenset((source.pad, source.eos, source.bos))
        texts = source.pieces(range(source.vocab_size))
        self._begins = [text.startswith(SPACE) for text in texts]
        self._bytes = [tuple(b + 1 for b in text.replace(SPACE, "").encode()) for text in texts]
        self._known: dict[tuple[int, ...], Parts] = {}

    def __call__(self, source_BP: Tensor) -> dict[str, Tensor]:
        """Return the inputs of a model, on the device of the ids.

        Args:
            source_BP: piece ids with end tokens and padding.
        """
        rows = [self.parts(row) for row in source_BP.tolist()]
        counts_B = np.array([len(row) for row in rows])
        flat = [word for row in rows for word in row]
        mask_BS = np.arange(max(1, counts_B.max(initial=0))) < counts_B[:, None]
        values: dict[str, NDArray[np.int64] | NDArray[np.bool_]] = {"source_mask": mask_BS}
        for index, name in enumerate(("pieces", "characters")):
            parts_NC, mask_NC = _padded([word[index] for word in flat])
            for key, part in ((name, parts_NC), (f"{name}_mask", mask_NC)):
                table = np.zeros((*mask_BS.shape, part.shape[1]), part.dtype)
                table[mask_BS] = part
                values[key] = table
        return {key: torch.from_numpy(value).to(source_BP.device) for key, value in values.items()}

    def parts(self, ids: Sequence[int]) -> list[Parts]:
        """Return the pieces and characters of each word of a sentence.

        Args:
            ids: piece ids; special tokens are ignored.
        """
        words: list[list[int]] = []
        for token in ids:
            if token in self._special_tokens:
                continue
            if self._begins[token] or not words:
                words.append([])
            words[-1].append(token)
        return [self._parts(tuple(word)) for word in words]

    def _parts(self, pieces: tuple[int, ...]) -> Parts:
        """Return the pieces and characters of a word, with caching."""
        parts = self._known.get(pieces)
        if parts is None:
            letters = [letter for piece in pieces for letter in self._bytes[piece]]
            if len(letters) > MOST_CHARACTERS:
                half = MOST_CHARACTERS // 2
                letters = letters[:half] + letters[-half:]
            parts = self._known[pieces] = (pieces[:MOST_PIECES], tuple(letters))
        return parts


def _padded(rows: Sequence[Sequence[int]]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return rows as one zero-padded array, and the mask of its values."""
    counts_N = np.array([len(row) for row in rows])
    mask_NC = np.arange(max(1, counts_N.max(initial=0))) < counts_N[:, None]
    values_NC = np.zeros(mask_NC.shape, np.int64)
    values_NC[mask_NC] = [value for row in rows for value in row]
    return values_NC, mask_NC
