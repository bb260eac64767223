"""Words of piece ids: their pieces and their bytes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from weft.extensions.parsing.trees.words import Words
from weft.runtime.data.symbols import Symbols

WORDS = ("▁a", "▁b", "c")


class Pieces(Symbols):
    """A readable vocabulary of whole words and one additional piece."""

    def encode_many(self, texts: Sequence[str], *, threads: int | None = None) -> list[list[int]]:
        """Return the ids of words, each with the word-start mark."""
        marked = [f"▁{text}".replace(" ", " ▁") for text in texts]
        return super().encode_many(marked, threads=threads)


def test_words_are_their_pieces_and_bytes() -> None:
    """A piece with a space mark begins a word; the end token and padding are not words."""
    given = Words(Pieces(WORDS))(torch.tensor([[4, 6, 5, 1], [5, 1, 0, 0]]))

    assert given["source_mask"].tolist() == [[True, True], [True, False]]
    assert given["pieces"].tolist() == [[[4, 6], [5, 0]], [[5, 0], [0, 0]]]
    a, b, c = (ord(letter) + 1 for letter in "abc")
    assert given["characters"].tolist() == [[[a, c], [b, 0]], [[b, 0], [0, 0]]]
    assert torch.equal(given["characters_mask"], given["characters"] != 0)
    assert torch.equal(given["pieces_mask"], given["pieces"] != 0)
