"""Tables of lexical shortlists: the tokens by which each source token is likely to be translated.

A shortlist is a file in the format of safetensors.  Its tensors are `frequent`, tokens that every
output may contain, and for each source token a part of `candidates`, from `starts[i]` up to
`starts[i + 1]`.  Its metadata names the tokenizers and says how well the shortlist translates.

Axes: N sentences, S source tokens, V target tokens, M candidates, F frequent tokens.

Source: Jean et al. 2015, section 3.3, https://arxiv.org/abs/1412.2007
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError
from safetensors.torch import save
from torch import Tensor

from ....specs.files import write_beside
from ....specs.findings import InputError
from ....specs.regular_files import DamagedError
from ...data.symbols import Vocabulary
from ...data.text_files import refuse_missing_file
from ...system.strangers import tensors_of

FORMAT = 1
WORST = 0.1
"""Most BLEU that a shortlist may lose on validation data."""
_KEY = "weft_shortlist"
_TENSORS = {"starts": torch.int64, "candidates": torch.int32, "frequent": torch.int32}
_AGAIN = "make a shortlist for this checkpoint: weft shortlist --help"


class Measurement(BaseModel):
    """How well a model translates validation data with a shortlist, and without."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    lines: int = Field(ge=1)
    """Number of lines."""
    bleu: float
    """BLEU with all tokens, from 0 to 100."""
    bleu_shortlist: float
    """BLEU with the shortlist."""
    tokens: float
    """Mean number of tokens that the output of a line may contain."""
    weights: str
    """Digest of the weights of the model."""
    settings: dict[str, Any]
    """Search, precision and passes with which it was measured."""

    @property
    def lost(self) -> float:
        """BLEU that the shortlist loses; negative if it gains."""
        return self.bleu - self.bleu_shortlist

    @property
    def passes(self) -> bool:
        """Whether the shortlist loses at most `WORST`, up to rounding."""
        return self.lost <= WORST + 1e-9


class About(BaseModel):
    """The metadata of a shortlist."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    format: int
    """Version of the file."""
    source: str
    """Digest of the tokenizer of sources."""
    target: str
    """Digest of the tokenizer of outputs."""
    made: dict[str, Any]
    """From what it was made, and with which sizes."""
    unchecked: bool = False
    """Whether it was written on purpose without a measurement."""
    measured: Measurement | None = None
    """How well it translates; None if that was not measured."""


@dataclass(frozen=True, eq=False)
class Shortlist:
    """The tokens by which each source token is likely to be translated."""

    about: About
    starts: Tensor
    """First candidate of each source token, and after all, [S + 1]."""
    candidates: Tensor
    """Candidates of all source tokens, [M]."""
    frequent: Tensor
    """Tokens that every output may contain, [F]."""

    def __eq__(self, other: object) -> bool:
        """Return whether another shortlist allows the same tokens."""
        if not isinstance(other, Shortlist):
            return False
        tokenizers = [
            (shortlist.about.source, shortlist.about.target) for shortlist in (self, other)
        ]
        pairs = ((getattr(self, name), getattr(other, name)) for name in _TENSORS)
        return tokenizers[0] == tokenizers[1] and all(torch.equal(*pair) for pair in pairs)

    def __hash__(self) -> int:
        """Return a hash of the tokenizers and the sizes."""
        return hash((self.about.source, self.about.target, len(self.candidates)))

    def allowed(self, sources: Sequence[Sequence[int]], size: int) -> Tensor:
        """Return whether the output of each source may contain each token, [N, V].

        Args:
            sources: ids of each source; one that the table does not know has no candidates.
            size: number V of tokens, at least as many as those of the table.
        """
        own_NV = torch.zeros(len(sources), size, dtype=torch.bool)
        own_NV[:, self.frequent.long()] = True
        vocab_size = len(self.starts) - 1
        rows = [
            (row, token)
            for row, ids in enumerate(sources)
            for token in {*ids}
            if token < vocab_size
        ]
        if rows:
            row_P, token_P = torch.tensor(rows).unbind(1)
            count_P = self.starts[token_P + 1] - self.starts[token_P]
            # The places of the candidates of every pair of a row and a token, one after the other.
            skipped_P = self.starts[token_P] - (count_P.cumsum(0) - count_P)
            place_Q = torch.arange(int(count_P.sum())) + skipped_P.repeat_interleave(count_P)
            own_NV[row_P.repeat_interleave(count_P), self.candidates[place_Q].long()] = True
        return own_NV

    def write(self, path: Path) -> None:
        """Write the file.

        Raises:
            InputError: it cannot be written.
        """
        tensors = {name: getattr(self, name).contiguous() for name in _TENSORS}
        about = json.dumps(self.about.model_dump(mode="json"), ensure_ascii=False)
        write_beside(path, save(tensors, {_KEY: about}), "shortlist")

    def refuse_other(
        self, location: str, source: Vocabulary, target: Vocabulary, weights: str
    ) -> None:
        """Check that the shortlist belongs to a model, and was measured with it.

        Args:
            location: the file, for messages.
            source: tokenizer of the model's sources.
            target: tokenizer of its outputs.
            weights: digest of its weights.

        Raises:
            InputError: it was made for other tokenizers, was not measured or with another model,
                or translates worse than without it.
        """
        about = self.about
        for side, actual, expected in (
            ("source", about.source, source.digest),
            ("target", about.target, target.digest),
        ):
            if actual != expected:
                raise InputError(
                    f"the shortlist was made for another {side} tokenizer: its digest is"
                    f" {actual[:12]}, that of the checkpoint {expected[:12]}",
                    location=location,
                    help=_AGAIN,
                )
        ids = torch.cat((self.candidates, self.frequent, torch.tensor([0])))
        if len(self.starts) != source.vocab_size + 1 or int(ids.max()) >= target.vocab_size:
            raise _wrong(location, "the shortlist is damaged")
        if about.unchecked:
            return
        measurement = about.measured
        if measurement is None:
            raise InputError(
                "it was not measured how well the shortlist translates",
                location=location,
                help="make it again, or with --unchecked to use it as it is",
            )
        if not measurement.passes:
            raise InputError(
                f"the shortlist loses {measurement.lost:.2f} BLEU, more than {WORST}",
                location=location,
                help="make it again with larger sizes: --frequent, --each",
            )
        if measurement.weights != weights:
            raise InputError(
                "the shortlist was measured with another checkpoint",
                location=location,
                help=f"{_AGAIN}; an ensemble needs one that was made with --unchecked",
            )


def open_shortlist(path: Path | str) -> Shortlist:
    """Read a shortlist.

    Raises:
        InputError: the file cannot be read, or is not a shortlist of this version.
    """
    file_path = Path(path).resolve()
    refuse_missing_file(file_path)
    try:
        with tensors_of(file_path.parent, file_path.name) as file:
            metadata: Mapping[str, str] = file.metadata() or {}
            if _KEY not in metadata:
                raise _wrong(path, "the file is not a shortlist")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        header = json.loads(metadata[_KEY])
        if isinstance(header, dict) and header.get("format") != FORMAT:
            raise _wrong(path, f"the shortlist has format {header.get('format')}, not {FORMAT}")
        shortlist = Shortlist(About.model_validate(header), **tensors)
    except (
        DamagedError,
        SafetensorError,
        OSError,
        ValueError,
        ValidationError,
        TypeError,
    ) as error:
        raise _wrong(path, "the file is not a shortlist, or is damaged") from error
    _refuse_damaged(shortlist, path)
    return shortlist


def _refuse_damaged(shortlist: Shortlist, path: Path | str) -> None:
    """Check the tensors of a shortlist.

    Raises:
        InputError: one has another type, or its values are not possible.
    """
    kinds = all(
        getattr(shortlist, name).dtype == kind and getattr(shortlist, name).dim() == 1
        for name, kind in _TENSORS.items()
    )
    if not (kinds and len(shortlist.starts) and _is_sound(shortlist)):
        raise _wrong(path, "the shortlist is damaged")


def _is_sound(shortlist: Shortlist) -> bool:
    """Return whether the values of the tensors, which are vectors, are possible."""
    starts = shortlist.starts
    ids = torch.cat((shortlist.candidates, shortlist.frequent))
    return (
        int(starts[0]) == 0
        and int(starts[-1]) == len(shortlist.candidates)
        and bool((starts.diff() >= 0).all())
        and bool((ids >= 0).all())
    )


def _wrong(path: Path | str, problem: str) -> InputError:
    return InputError(problem, location=str(path), help="write it again with 'weft shortlist'")
