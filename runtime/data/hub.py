"""Hub: tokenizers as Hugging Face's `tokenizers` writes them, for models that came from there.

A `tokenizer.json` says all that is done to a text; it is read by that library, which is an
extra.  It serves to go on from prompts; what is trained here is cut by SentencePiece.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Protocol

from ...specs.findings import InputError

HUB = "tokenizer.json"
"""The name under which a checkpoint keeps one."""


class Prompts(Protocol):
    """Texts to go on from, and what is written after them."""

    vocab_size: int

    def prompt(self, text: str) -> list[int]:
        """Return the ids from which a decoder goes on after a text: the beginning comes first."""

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids."""

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return the piece of each id."""


class HubTokenizer:
    """A tokenizer out of a `tokenizer.json`; immutable."""

    def __init__(self, data: bytes, *, ends: Collection[int] = (), place: str = "") -> None:
        """Load one.

        Args:
            data: content of a `tokenizer.json`.
            ends: ids that end an output; none stands at the end of a prompt.
            place: where it came from, for messages.

        Raises:
            InputError: it is damaged, or the library is not installed.
        """
        try:
            # Few models need it.
            from tokenizers import Tokenizer  # noqa: PLC0415
        except ModuleNotFoundError as error:
            raise InputError(
                "this tokenizer needs the package 'tokenizers'",
                place=place,
                help="install the extra: pip install 'weft[tokenizers]'; or give ids:"
                " weft generate --ids",
            ) from error
        try:
            self._model: Any = Tokenizer.from_str(data.decode("utf-8"))
        except Exception as error:  # the library raises nothing more exact
            raise InputError(
                f"not a tokenizer: {str(error).partition(chr(10))[0]}",
                place=place,
                help="copy it again from the model's folder",
            ) from error
        # Prompts are read as they are.
        self._model.no_padding()
        self._model.no_truncation()
        self._ends = frozenset(ends)
        self.vocab_size = max(self._model.get_vocab().values(), default=-1) + 1
        """Number of ids; every piece has a smaller one."""

    def prompt(self, text: str) -> list[int]:
        """Return the ids from which a decoder goes on after a text: the beginning comes first."""
        ids: list[int] = self._model.encode(text).ids
        while ids and ids[-1] in self._ends and ids != [ids[0]]:
            ids = ids[:-1]
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids, without special ones; a broken letter shows as U+FFFD."""
        return str(self._model.decode([int(one) for one in ids]))

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return the piece of each id, as the file spells it; empty where there is none."""
        return [self._model.id_to_token(int(one)) or "" for one in ids]
