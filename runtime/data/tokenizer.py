"""SentencePiece tokenizers: text to ids and back.

The ids 0 to 3 are padding, end, unknown and beginning in every model trained
here.  Normalization (NFKC, white space and, optionally, case) is stored in the model
file, so the file fully determines the encoding.  The tokenizer does not add the end
token; `batches.py` does.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, cast

from sentencepiece import (
    SentencePieceProcessor,
    SentencePieceTrainer,
)

from ...specs.findings import InputError, did_you_mean
from .piece_model import PieceModel
from .settings import SPECIAL_TOKENS, PieceSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

PAD, EOS, UNK, BOS = range(4)

UNKNOWN = "\u2047"
"""Decoded text of an unknown piece."""

LONGEST = 2000
"""Maximum characters of a training sentence; longer ones are split at spaces, losslessly."""

FEWEST = 101
"""Smallest sample size that SentencePiece accepts."""

ERRORS_ONLY = 2
"""Log level of SentencePiece, which logs to the terminal."""

RESERVED = str.maketrans({"\u2585": " ", "\0": " "})
"""Characters that would make SentencePiece skip a training sentence."""


class Tokenizer:
    """Trained SentencePiece model; immutable."""

    def __init__(self, model: bytes, *, location: str = "", own_ids: bool = True) -> None:
        """Load a serialized model.

        Args:
            model: content of a `.model` file.
            location: origin of the model, for messages.
            own_ids: whether the special ids must be those of the models trained here;
                otherwise, a missing special id is -1.

        Raises:
            InputError: the bytes are not a model, or `own_ids` and its special ids are not 0 to 3.
        """
        # SentencePiece would load an empty model and then print an error at each use.
        if not model:
            msg = "tokenizer file is empty"
            raise InputError(msg, location=location)
        try:
            self._model = SentencePieceProcessor(model_proto=model)
        except (RuntimeError, OSError) as error:
            msg = "tokenizer file is damaged or not a SentencePiece model"
            raise InputError(
                msg,
                location=location,
                help="copy it again, or prepare the data again",
            ) from error
        self.bytes = model
        """The serialized model, as in a `.model` file."""
        self.vocab_size = int(self._model.vocab_size())
        """Number of pieces; all ids are smaller."""
        self.pad, self.eos = int(self._model.pad_id()), int(self._model.eos_id())
        self.unk, self.bos = int(self._model.unk_id()), int(self._model.bos_id())
        codes = {self._model.piece_to_id(f"<0x{code:02X}>"): code for code in range(256)}
        self._byte_of = {} if self.unk in codes else codes
        self._id_of = {code: number for number, code in self._byte_of.items()}
        if own_ids and (self.pad, self.eos, self.unk, self.bos) != (PAD, EOS, UNK, BOS):
            msg = (
                f"special ids are pad {self.pad}, eos {self.eos}, unk {self.unk}, bos {self.bos};"
                f" expected {PAD}, {EOS}, {UNK}, {BOS}"
            )
            raise InputError(
                msg,
                location=location,
                help="train with --pad_id=0 --eos_id=1 --unk_id=2 --bos_id=3",
            )

    @classmethod
    def open(cls, path: str | Path) -> Tokenizer:
        """Read a `.model` file.

        Raises:
            InputError: the file is missing or damaged.
        """
        path = Path(path)
        try:
            model = path.read_bytes()
        except OSError as error:
            names = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
            problem = f"cannot read tokenizer '{path.name}': {error.strerror}"
            raise InputError(
                problem, location=str(path), help=did_you_mean(path.name, names)
            ) from error
        return cls(model, location=str(path))

    @classmethod
    def from_bytes(cls, model: bytes) -> Tokenizer:
        """Load a model serialized by `.bytes`.

        Raises:
            InputError: the bytes are not a model.
        """
        return cls(model)

    @property
    def digest(self) -> str:
        """SHA-256 of the serialized model, in hexadecimal."""
        return hashlib.sha256(self.bytes).hexdigest()

    @cached_property
    def _piece_model(self) -> PieceModel:
        return PieceModel.read(self.bytes)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without an end token.

        Raises:
            InputError: the text contains surrogates, which come from bytes that are not UTF-8.
        """
        return self.encode_many([text])[0]

    def encode_many(self, texts: Sequence[str], *, threads: int | None = None) -> list[list[int]]:
        """Return the ids of each text; faster than repeated calls of `encode`.

        Args:
            texts: texts without line feeds.
            threads: number of threads; None is one per core.

        Raises:
            InputError: as for `encode`.
        """
        try:
            encoded = [text.encode() for text in texts]
        except UnicodeEncodeError as error:
            msg = f"text is not Unicode: {error.reason}"
            raise InputError(
                msg,
                location=ascii(error.object)[:60],
                help="read the text as UTF-8",
            ) from error
        ids = self._model.encode(encoded, out_type=int, num_threads=threads or -1)
        return cast("list[list[int]]", ids)

    def sample(self, text: str, amount: float, seed: int) -> list[int]:
        """Return the ids of a text that is split at random, determined by the seed.

        Args:
            text: text without line feeds.
            amount: of a `bpe` model, the probability of skipping a merge; of a `unigram` model,
                the smoothing of the probabilities of all splits.
            seed: seed of the split, less than 2**32.
        """
        ids, numbers = list[int](), self._piece_model.ids
        for piece in self._piece_model.sample(self._model.normalize(text), amount, seed):
            if piece in numbers:
                ids.append(numbers[piece])
            elif self._id_of:
                ids += (self._id_of[code] for code in piece.encode())
            elif ids[-1:] != [self.unk]:  # one for adjacent unknown characters
                ids.append(self.unk)
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids up to the first end token, without padding and beginning.

        Unknown pieces become U+2047.  Bytes of an incomplete character, such as at the
        end of a truncated output, are dropped.

        Raises:
            IndexError: an id is not in the vocabulary.
        """
        token_ids = list[int]()
        for token_id in ids:
            number = int(token_id)
            if number == self.eos:
                break
            if not 0 <= number < self.vocab_size:
                msg = f"id {number} is not in a vocabulary of {self.vocab_size}"
                raise IndexError(msg)
            if number not in (self.pad, self.bos):
                token_ids.append(number)
        return str(self._model.decode(self._drop_incomplete(token_ids)))

    @property
    def spells_all(self) -> bool:
        """Whether every character can be encoded, using byte pieces if necessary."""
        return bool(self._byte_of)

    def _drop_incomplete(self, ids: list[int]) -> list[int]:
        """Return ids without the byte pieces of incomplete characters."""
        complete = list[int]()
        for is_byte, run in groupby(ids, self._byte_of.__contains__):
            if is_byte:
                codes = bytes(self._byte_of[token_id] for token_id in run)
                text = codes.decode("utf-8", errors="ignore")
                complete += (self._id_of[code] for code in text.encode())
            else:
                complete += run
        return complete

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return the piece of each id, including special tokens; U+2581 stands for a space."""
        return [str(self._model.id_to_piece(int(token_id))) for token_id in ids]


def train_tokenizer(
    lines: Iterable[str], settings: PieceSettings, model_path: str | Path
) -> Tokenizer:
    """Train a model and write it; the same lines and settings give the same bytes.

    Args:
        lines: training sentences, in any order; read once, stored by SentencePiece.
        settings: kind and size.
        model_path: output file; written atomically.

    Raises:
        InputError: there is no text, or the vocabulary is too large or too
            small for it; the message has the largest or smallest possible size.
    """
    feed = _Feed(lines)
    buffer = io.BytesIO()
    try:
        SentencePieceTrainer.train(
            sentence_iterator=iter(feed),
            model_writer=buffer,
            model_type=settings.type,
            vocab_size=settings.vocab_size,
            byte_fallback=settings.byte_fallback,
            user_defined_symbols=list(settings.user_symbols),
            character_coverage=settings.character_coverage,
            normalization_rule_name="nmt_nfkc_cf" if settings.lowercase else "nmt_nfkc",
            input_sentence_size=max(settings.sentences, FEWEST),
            shuffle_input_sentence=True,  # a sample from a fixed seed, not the first lines
            max_sentence_length=8 * LONGEST,  # bytes; never reached
            num_threads=16,  # fixed, because the sums of `unigram` depend on it
            minloglevel=ERRORS_ONLY,
            pad_id=PAD,
            eos_id=EOS,
            unk_id=UNK,
            bos_id=BOS,
            pad_piece=SPECIAL_TOKENS[PAD],
            eos_piece=SPECIAL_TOKENS[EOS],
            unk_piece=SPECIAL_TOKENS[UNK],
            bos_piece=SPECIAL_TOKENS[BOS],
            unk_surface=UNKNOWN,
        )
    except RuntimeError as error:
        if feed.failure is not None:
            raise feed.failure from None
        raise _explain(str(error), settings, feed) from error
    tokenizer = Tokenizer(buffer.getvalue(), location=str(model_path))
    _write(Path(model_path), tokenizer.bytes)
    return tokenizer


class _Feed:
    """Iterable of training sentences that records exceptions, which SentencePiece swallows."""

    def __init__(self, lines: Iterable[str]) -> None:
        """Store the lines; `failure` and `words` are set during iteration."""
        self.lines = lines
        self.failure: BaseException | None = None
        self.words = False

    def __iter__(self) -> Iterator[str]:
        """Yield the sentences without reserved characters, split to the maximum length."""
        try:
            for line in self.lines:
                clean = line.translate(RESERVED)
                self.words = self.words or (not clean.isspace() and bool(clean))
                yield from _cut(clean) if len(clean) > LONGEST else (clean,)
        except BaseException as error:
            self.failure = error
            raise


def _cut(line: str) -> Iterator[str]:
    """Yield parts of at most LONGEST characters, split at a space if possible."""
    start = 0
    while len(line) - start > LONGEST:
        space = line.rfind(" ", start, start + LONGEST)
        end = space if space > start else start + LONGEST
        yield line[start:end]
        start = end
    yield line[start:]


def _explain(message: str, settings: PieceSettings, feed: _Feed) -> InputError:
    """Turn an error of SentencePiece into one that says how to fix it."""
    size = settings.vocab_size
    if not feed.words:
        return InputError("no text to train a tokenizer on", help="use files that are not empty")
    if largest := re.search(r"too high .*value <= (\d+)", message):
        return InputError(
            f"vocab_size {size} is too large for the training text",
            help=f"set vocab_size to at most {largest[1]}, or train on more text",
        )
    if smallest := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        return InputError(
            f"vocab_size {size} is too small for the characters of the training text",
            help=f"set vocab_size to at least {smallest[1]}, or lower character_coverage",
        )
    return InputError(f"SentencePiece cannot train: {message.strip()}")


def _write(path: Path, content: bytes) -> None:
    """Write a file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_bytes(content)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
