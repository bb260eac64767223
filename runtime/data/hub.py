"""Hugging Face tokenizers, for imported models.

A `tokenizer.json` describes all text processing; it is read by the `tokenizers` library,
an optional dependency.  It is used to continue prompts; models trained here use SentencePiece.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from typing import Any

from ...specs.findings import InputError


def _is_panic(error: BaseException) -> bool:
    """Return whether an error is a panic of a library in Rust, which is not an `Exception`."""
    return type(error).__module__ == "pyo3_runtime"


class _Sound:
    """A tokenizer of the library, whose panics are errors of the input.

    A regular expression of its file may need more steps than the library allows for some text.
    """

    def __init__(self, model: Any, location: str) -> None:
        """Store the tokenizer and the origin of its file."""
        self._model, self._location = model, location

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the tokenizer, or a method that raises `InputError`."""
        value = getattr(self._model, name)
        if not callable(value):
            return value

        def sound(*arguments: Any, **options: Any) -> Any:
            try:
                return value(*arguments, **options)
            except BaseException as error:
                if not _is_panic(error):
                    raise
                raise InputError(
                    f"the tokenizer fails: {str(error).partition(chr(10))[0]:.200}",
                    location=self._location,
                    help="its file is damaged or hostile: use one from a source that you trust",
                ) from error

        return sound


class HubTokenizer:
    """Tokenizer loaded from a `tokenizer.json`; immutable."""

    def __init__(self, data: bytes, *, ends: Collection[int] = (), location: str = "") -> None:
        """Load a tokenizer.

        Args:
            data: content of a `tokenizer.json`.
            ends: ids that end an output; they are removed from the end of a prompt.
            location: origin of the data, for messages.

        Raises:
            InputError: the data is damaged, or the library is not installed.
        """
        try:
            # Imported here because few models need it.
            from tokenizers import Tokenizer  # noqa: PLC0415
        except ModuleNotFoundError as error:
            raise InputError(
                "this tokenizer needs the package 'tokenizers'",
                location=location,
                help="install the extra: pip install 'weft[tokenizers]'; or give ids:"
                " weft generate --ids",
            ) from error
        try:
            self._model: Any = _Sound(Tokenizer.from_str(data.decode("utf-8")), location)
        except InputError:
            raise
        except BaseException as error:  # the library raises no more specific type
            if not (isinstance(error, Exception) or _is_panic(error)):
                raise
            raise InputError(
                f"not a tokenizer: {str(error).partition(chr(10))[0]}",
                location=location,
                help="copy it again from the model's folder",
            ) from error
        self._model.no_padding()
        self._model.no_truncation()
        self._ends = frozenset(ends)
        self.vocab_size = max(self._model.get_vocab().values(), default=-1) + 1
        """Number of ids; all ids are smaller."""

    def prompt(self, text: str) -> list[int]:
        """Return the ids of a prompt, starting with the beginning token if there is one."""
        ids: list[int] = self._model.encode(text).ids
        while ids and ids[-1] in self._ends and ids != [ids[0]]:
            ids = ids[:-1]
        return ids

    def lacking(self, text: str, ids: Sequence[int], what: str) -> str:  # noqa: ARG002
        """Return what to warn about a text with characters that the tokenizer lacks, or ""."""
        unknown = getattr(self._model.model, "unk_token", None)
        if unknown is None or self._model.token_to_id(unknown) not in ids:
            return ""
        return f"the vocabulary lacks a part of {what}: '{unknown}' stands for it"

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without special tokens."""
        return self.encode_many([text])[0]

    @cached_property
    def texts(self) -> list[str | None]:
        """The text that each id adds; None for a part of a character."""
        # Decoders drop the space before a first piece, so a piece is decoded after itself.
        ids = range(self.vocab_size)
        once = self._model.decode_batch([[token_id] for token_id in ids])
        twice = self._model.decode_batch([[token_id, token_id] for token_id in ids])
        texts = [doubled[len(text) :] for text, doubled in zip(once, twice, strict=True)]
        return [None if "\ufffd" in text else text for text in texts]

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text, without special tokens."""
        encodings = self._model.encode_batch(list(texts), add_special_tokens=False)
        return [list(encoding.ids) for encoding in encodings]

    def ids_of(self, pieces: Iterable[str]) -> list[int | None]:
        """Return the id of each piece; None for unknown pieces."""
        return [self._model.token_to_id(piece) for piece in pieces]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids without special tokens; broken characters become U+FFFD."""
        return str(self._model.decode([int(token_id) for token_id in ids]))

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return the piece of each id as spelled in the file; empty for unknown ids."""
        return [self._model.id_to_token(int(token_id)) or "" for token_id in ids]
