"""Noise of texts: changes that training draws anew in each epoch.

A change depends only on the seed, the epoch, the row and the column, so that a resumed training, or
one of several processes, reads the same texts.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, NamedTuple
from zlib import crc32

import numpy as np
from pydantic import Field

from ..settings import Settings, SourceName

if TYPE_CHECKING:
    from numpy.random import Generator

Rate = Annotated[float, Field(gt=0, le=1)]


class Noise(NamedTuple):
    """What determines the noise of a batch in training."""

    seed: int
    epoch: int
    sources: Mapping[str, int] = {}
    """Rows of each source of the training data, in order."""

    def source_of(self, row: int) -> str:
        """Return the source of a row; "" without named sources."""
        for name, count in self.sources.items():
            if row < count:
                return name
            row -= count
        return ""


class NoiseSettings(Settings):
    """Base class of the settings of one kind of noise."""

    moves_words: ClassVar[bool] = False
    """Whether words are added, removed or moved, so that tags of words would be wrong."""

    sources: tuple[SourceName, ...] | None = Field(default=None, min_length=1)
    """Sources of the training data whose rows are changed; `null` is all."""

    @abstractmethod
    def changed(self, text: str, random: Generator) -> str:
        """Return a text with noise, which is not empty if the text is not."""


class CaseNoise(NoiseSettings):
    """The case of some texts is changed."""

    type: Literal["case"] = "case"
    """Selects this noise."""
    to: Literal["lower", "upper", "title"] = "lower"
    """The new case."""
    rate: Rate
    """Probability that a text is changed."""

    def changed(self, text: str, random: Generator) -> str:
        """Return the text, or all of it in the new case."""
        if random.random() >= self.rate:
            return text
        return {"lower": text.lower, "upper": text.upper, "title": text.title}[self.to]()


class TypoNoise(NoiseSettings):
    """Letters are left out, doubled, or exchanged with the next letter of their word.

    Source: Belinkov & Bisk 2018, section 4.2, https://arxiv.org/abs/1711.02173
    """

    type: Literal["typos"] = "typos"
    """Selects this noise."""
    rate: Rate
    """Probability of each letter that one of the three happens to it, each equally often."""

    def changed(self, text: str, random: Generator) -> str:
        """Return the text with typos; a word keeps at least one letter."""
        return " ".join(self._misspelled(word, random) for word in text.split())

    def _misspelled(self, word: str, random: Generator) -> str:
        letters, at = list(word), 0
        for is_hit, kind in zip(
            random.random(len(word)) < self.rate, random.integers(3, size=len(word)), strict=True
        ):
            if at < len(letters) and is_hit and letters[at].isalpha():
                if kind == 0 and len(letters) > 1:
                    del letters[at]
                    continue
                if kind == 1:
                    letters.insert(at, letters[at])
                    at += 1
                elif at + 1 < len(letters):
                    letters[at : at + 2] = letters[at + 1], letters[at]
            at += 1
        return "".join(letters)


class DropNoise(NoiseSettings):
    """Words are left out.  Source: Lample et al. 2018, section 2.3."""

    moves_words: ClassVar[bool] = True

    type: Literal["drop"] = "drop"
    """Selects this noise."""
    rate: Annotated[float, Field(gt=0, lt=1)]
    """Probability of each word; a text keeps at least one."""

    def changed(self, text: str, random: Generator) -> str:
        """Return the text without some words."""
        words = text.split()
        remaining = [
            word for word, p in zip(words, random.random(len(words)), strict=True) if p >= self.rate
        ]
        if words and not remaining:
            remaining = [words[int(random.integers(len(words)))]]
        return " ".join(remaining)


class ReplaceNoise(NoiseSettings):
    """Words are replaced by a filler.  Source: Edunov et al. 2018, section 3."""

    type: Literal["replace"] = "replace"
    """Selects this noise."""
    rate: Rate
    """Probability of each word."""
    by: str = Field(pattern=r"^\S+$")
    """The filler, such as one of the tokenizer's `user_symbols`."""

    def changed(self, text: str, random: Generator) -> str:
        """Return the text with fillers."""
        words = text.split()
        drawn = random.random(len(words))
        return " ".join(
            self.by if p < self.rate else word for word, p in zip(words, drawn, strict=True)
        )


class SwapNoise(NoiseSettings):
    """Words change places.  Source: Lample et al. 2018, section 2.3."""

    moves_words: ClassVar[bool] = True

    type: Literal["swap"] = "swap"
    """Selects this noise."""
    distance: int = Field(default=3, ge=1)
    """Maximum number of places by which a word moves."""

    def changed(self, text: str, random: Generator) -> str:
        """Return the text in another order."""
        words = text.split()
        keys = np.arange(len(words)) + random.random(len(words)) * (self.distance + 1)
        return " ".join(words[at] for at in np.argsort(keys, kind="stable").tolist())


class TagNoise(NoiseSettings):
    """A tag stands before some texts, such as those that were back-translated.

    Source: Caswell et al. 2019, https://aclanthology.org/W19-5206
    """

    moves_words: ClassVar[bool] = True

    type: Literal["tag"] = "tag"
    """Selects this noise."""
    text: str = Field(pattern=r"^\S+$")
    """The tag, such as one of the tokenizer's `user_symbols`."""
    rate: Rate = 1.0
    """Probability that a text has the tag."""

    def changed(self, text: str, random: Generator) -> str:
        """Return the text, with the tag or without."""
        return f"{self.text} {text}" if random.random() < self.rate else text


AnyNoise = Annotated[
    CaseNoise | TypoNoise | DropNoise | ReplaceNoise | SwapNoise | TagNoise,
    Field(discriminator="type"),
]
"""A noise of any type."""


def with_noise(
    text: str, settings: Sequence[NoiseSettings], noise: Noise, row: int, column: str
) -> str:
    """Return the text of a row in an epoch of training.

    Args:
        text: the text without noise.
        settings: kinds of noise, which are applied in order.
        noise: seed, epoch and sources.
        row: number of the row.
        column: name of the column, so that columns have different noise.
    """
    seeds = (noise.seed % (1 << 64), noise.epoch, row, crc32(column.encode()))
    random = np.random.default_rng(seeds)
    source = noise.source_of(row)
    for kind in settings:
        if kind.sources is None or source in kind.sources:
            text = kind.changed(text, random)
    return text
