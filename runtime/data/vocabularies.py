"""Tokenizers by name: their files, and how those are trained and opened.

NAME.model             SentencePiece
NAME.symbols.json      whole symbols, possibly spelled by another tokenizer
NAME.tokenizer.json    a Hugging Face tokenizer, with `special` naming its special tokens
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...specs.findings import InputError
from .settings import SPECIAL_TOKENS, FileTokenizerSettings, PieceSettings, SymbolSettings
from .symbols import Symbols, Vocabulary, count_symbols, open_symbols
from .text_files import resolve
from .tokenizer import Tokenizer, train_tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from .settings import AnyTokenizer

Content = bytes
"""Alias of `bytes`, for use inside classes that have an attribute `bytes`."""


class HubVocabulary:
    """Hugging Face tokenizer as the vocabulary of a column."""

    def __init__(self, data: Content, special: Sequence[str], *, location: str = "") -> None:
        """Load a tokenizer.

        Args:
            data: content of a `tokenizer.json`.
            special: padding, end, unknown and beginning token.
            location: origin of the data, for messages.

        Raises:
            InputError: the data is damaged, the library is missing, a special token is unknown,
                or the id of the padding token is not 0.
        """
        from .hub import HubTokenizer  # noqa: PLC0415 - few models need it

        self._hub = HubTokenizer(data, location=location)
        self.vocab_size = self._hub.vocab_size
        ids = self._hub.ids_of(special)
        for token, number in zip(special, ids, strict=True):
            if number is None:
                raise InputError(
                    f"the tokenizer has no token '{token}'",
                    location=location,
                    help="give its padding, end, unknown and beginning token as 'special'",
                )
        self.pad, self.eos, self.unk, self.bos = (int(number or 0) for number in ids)
        if self.pad != 0:
            raise InputError(
                f"the padding token '{special[0]}' has the id {self.pad}, not 0",
                location=location,
                help="use a tokenizer whose padding id is 0, such as those of BERT and T5",
            )
        self.bytes = data
        self.spells_all = False

    @property
    def digest(self) -> str:
        """SHA-256 of the file, in hexadecimal."""
        return hashlib.sha256(self.bytes).hexdigest()

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without special tokens."""
        return self.encode_many([text])[0]

    def encode_many(self, texts: Sequence[str], *, threads: int | None = None) -> list[list[int]]:  # noqa: ARG002 - as Vocabulary
        """Return the ids of each text, without special tokens."""
        return self._hub.encode_many(texts)

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids up to the first end token."""
        token_ids = list[int]()
        for number in ids:
            if int(number) == self.eos:
                break
            token_ids.append(int(number))
        return self._hub.decode(token_ids)

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return the piece of each id."""
        return self._hub.pieces(ids)


@dataclass(frozen=True, slots=True)
class VocabularyFile:
    """File of a tokenizer, and what is needed to open it."""

    path: Path
    spelling: Path | None = None
    """File of the tokenizer that spells other tokens, for symbols."""
    special: tuple[str, ...] = SPECIAL_TOKENS
    """Special tokens of a `tokenizer.json`."""

    def open(self) -> Vocabulary:
        """Return the tokenizer.

        Raises:
            InputError: the file is missing or damaged.
        """
        if self.path.name.endswith(".symbols.json"):
            spelling = None if self.spelling is None else Tokenizer.open(self.spelling)
            return open_symbols(self.path, spelling)
        if self.path.suffix == ".model":
            return Tokenizer.open(self.path)
        return HubVocabulary(_content(self.path), self.special, location=str(self.path))


def vocabularies_of(
    files: Mapping[str, bytes], settings: Mapping[str, AnyTokenizer], folder: str
) -> dict[str, Vocabulary]:
    """Return tokenizers by name, from the files of a prepared folder or of a checkpoint.

    Args:
        files: content of the files by name.
        settings: settings of the tokenizers by name.
        folder: origin of the files, for messages.

    Raises:
        InputError: a file is missing or damaged.
    """
    vocabularies: dict[str, Vocabulary] = {}
    for name in sorted(settings, key=lambda name: settings[name].type == "symbols"):
        file = file_of(Path(folder), name, settings)
        if file.path.name not in files:
            raise InputError(
                f"there is no tokenizer '{file.path.name}'",
                location=folder,
                help="restore the file, or prepare the data again",
            )
        data, tokenizer = files[file.path.name], settings[name]
        if isinstance(tokenizer, SymbolSettings):
            spelling = vocabularies.get(tokenizer.spelling or "")
            pieces = spelling if isinstance(spelling, Tokenizer) else None
            vocabularies[name] = Symbols.from_bytes(data, pieces, str(file.path))
        elif file.path.suffix == ".model":
            vocabularies[name] = Tokenizer(data, location=str(file.path))
        else:
            vocabularies[name] = HubVocabulary(data, file.special, location=str(file.path))
    return vocabularies


def file_of(folder: Path, name: str, settings: Mapping[str, AnyTokenizer]) -> VocabularyFile:
    """Return where the file of a tokenizer is in a prepared folder."""
    tokenizer = settings[name]
    if isinstance(tokenizer, SymbolSettings):
        spelling = (
            None
            if tokenizer.spelling is None
            else file_of(folder, tokenizer.spelling, settings).path
        )
        return VocabularyFile(folder / f"{name}.symbols.json", spelling)
    if isinstance(tokenizer, FileTokenizerSettings) and tokenizer.path.endswith(".json"):
        special = tokenizer.special or SPECIAL_TOKENS
        return VocabularyFile(folder / f"{name}.tokenizer.json", special=special)
    return VocabularyFile(folder / f"{name}.model")


def make_vocabulary(
    file: VocabularyFile,
    settings: AnyTokenizer,
    root: str,
    text: Callable[[int | None], Iterable[str]],
) -> None:
    """Write the file of a tokenizer, unless it exists.

    Args:
        file: where to write it; the file of its spelling must exist.
        settings: what to train or copy.
        root: folder that must contain an existing tokenizer.
        text: returns the training text: a sample of the given number of lines, or all of it.

    Raises:
        InputError: the text does not suit the settings, or an existing file is not a tokenizer.
    """
    if file.path.is_file():
        return
    if isinstance(settings, PieceSettings):
        train_tokenizer(text(settings.sentences), settings, file.path)
    elif isinstance(settings, SymbolSettings):
        counts = count_symbols(text(None))
        every = settings.only == "all"
        selected = [token for token in counts if every or token[0] in "()"]
        symbols = sorted(selected, key=lambda token: (-counts[token], token))
        spelling = None if file.spelling is None else Tokenizer.open(file.spelling)
        vocabulary = Symbols(symbols, spelling if len(symbols) < len(counts) else None)
        write_file(file.path, vocabulary.bytes)
    else:
        path = resolve(root, settings.path)
        data = _content(path)
        if file.path.suffix == ".model":
            Tokenizer(data, location=str(path))
        else:
            HubVocabulary(data, file.special, location=str(path))
        write_file(file.path, data)


def write_file(path: Path, content: bytes) -> None:
    """Write a file atomically."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_bytes(content)
    partial.replace(path)


def _content(path: Path) -> bytes:
    """Return the content of a tokenizer's file.

    Raises:
        InputError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        problem = f"cannot read tokenizer '{path.name}': {error.strerror}"
        raise InputError(problem, location=str(path), help="correct its path") from error
