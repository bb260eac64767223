"""Fake columns and a small model for the tests of predictors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
import weft
from torch import Tensor, nn
from weft.runtime.data.batches import pad_rows
from weft.runtime.data.symbols import Symbols
from weft.specs.load import loaded

WORDS = ("▁a", "▁b", "c", "▁d")
"""The piece `c` continues a word."""


class Pieces(Symbols):
    """Vocabulary whose words are split into pieces by hand: `ac` is `▁a c`."""

    def encode_many(self, texts: Sequence[str], *, threads: int | None = None) -> list[list[int]]:
        """Return the ids of the pieces of each text."""
        spaced = [" ".join(f"▁{word}".replace("c", " c") for word in t.split()) for t in texts]
        return super().encode_many(spaced, threads=threads)


class Text:
    """Column of text: ids with an end token, padded with 0."""

    def __init__(self, name: str) -> None:
        """Store the name."""
        self.name, self.vocabulary = name, Pieces(WORDS)

    def encode(self, value: Any) -> list[int]:
        """Return the ids of a text, with the end token."""
        return [*self.vocabulary.encode(value), self.vocabulary.eos]

    def collate(self, values: Sequence[Any]) -> dict[str, Tensor]:
        """Return padded ids."""
        rows = [ids[:-1] for ids in values]
        return {self.name: pad_rows(rows, self.vocabulary.pad, self.vocabulary.eos)}

    def decode(self, prediction: Any) -> str:
        """Return the text of ids."""
        return self.vocabulary.decode(prediction)


class Begun(Text):
    """Column of text with a begin token."""

    def encode(self, value: Any) -> list[int]:
        """Return the ids of a text, with the begin and the end token."""
        return [self.vocabulary.bos, *super().encode(value)]


class Classes:
    """Column of classes or tags."""

    names = ("x", "y", "z")

    def encode(self, value: Any) -> int:
        """Return the index of a class."""
        return self.names.index(value)

    def collate(self, values: Sequence[Any]) -> dict[str, Tensor]:
        """Return indices."""
        return {"label": torch.tensor(values)}

    def decode(self, prediction: Any) -> Any:
        """Return the class of an index, or the tags of several."""
        if isinstance(prediction, int):
            return self.names[prediction]
        return [self.names[one] for one in prediction]


class Numbers:
    """Column of numbers, stored with mean 10 and deviation 2."""

    def encode(self, value: Any) -> float:
        """Return a normalized number."""
        return (float(value) - 10) / 2

    def collate(self, values: Sequence[Any]) -> dict[str, Tensor]:
        """Return numbers."""
        return {"value": torch.tensor(values)}

    def decode(self, prediction: Any) -> float:
        """Return the number of a normalized one."""
        return 2 * float(prediction) + 10


def spec(outputs: int, *, pooled: bool) -> dict[str, Any]:
    """Return a spec that embeds ids and maps each position, or their mean, to scores."""
    pool: dict[str, Any] = {
        "use": "pool@1",
        "in": {"x": "embed.y", "mask": "source_mask"},
        "params": {"kind": "mean"},
    }
    return {
        "format": 1,
        "name": "scores",
        "axes": {"B": "batch", "S": "time"},
        "inputs": {"source": "ids:8[B S]", **({"source_mask": "mask[B S]"} if pooled else {})},
        "nodes": {
            "embed": {"use": "embedding@1", "in": {"ids": "source"}, "params": {"d_model": 4}},
            **({"pool": pool} if pooled else {}),
            "head": {
                "use": "linear@1",
                "in": {"x": "pool.y" if pooled else "embed.y"},
                "params": {"d_out": outputs},
            },
        },
        "outputs": {"logits": "head.y"},
    }


@pytest.fixture
def scorer() -> Any:
    """Return a function that builds a small model with clearly different scores."""

    def built(outputs: int, *, pooled: bool = False, seed: int = 0) -> nn.Module:
        torch.manual_seed(seed)
        model = weft.build(loaded(spec(outputs, pooled=pooled)))
        with torch.no_grad():
            for weight in model.parameters():
                weight.normal_()
        return model.eval()

    return built
