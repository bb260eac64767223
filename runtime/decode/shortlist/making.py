"""Make a shortlist from weights of token pairs, such as counts of aligned tokens or a table."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch

from ....specs.findings import InputError
from ...data.symbols import Vocabulary
from ...data.text_files import read_lines
from .table import FORMAT, About, Shortlist

Order = Literal["source", "target"]
"""Which piece a line of a table begins with."""
Weights = Mapping[tuple[int, int], float]
"""How likely a target token translates a source token, by their ids; for one source token, larger
is more likely."""
_FIELDS = 3


def make_shortlist(
    weights: Weights,
    frequencies: Mapping[int, int],
    tokenizers: tuple[Vocabulary, Vocabulary],
    *,
    frequent: int,
    per_token: int,
    origin: Mapping[str, Any],
) -> Shortlist:
    """Return a shortlist that is not measured yet.

    A source token whose piece is also a piece of outputs gets this one as a further candidate, so
    that names and numbers can be copied.  Ties go to the lowest id.

    Args:
        weights: weights of pairs of a source and a target token, above 0.
        frequencies: how often each target token occurs; others occur never.
        tokenizers: of sources and of outputs.
        frequent: number of the most frequent target tokens that every output may contain.
        per_token: number of candidates of each source token.
        origin: from what the weights come, for people.
    """
    reads, writes = tokenizers
    by_source: dict[int, list[tuple[float, int]]] = defaultdict(list)
    for (source, target), weight in weights.items():
        if weight > 0:
            by_source[source].append((-weight, target))
    same = _numbers(writes)
    rows = []
    for source, piece in enumerate(reads.pieces(range(reads.vocab_size))):
        best = [target for _, target in sorted(by_source[source])[:per_token]]
        copied = same.get(piece)
        rows.append(best if copied is None or copied in best else [*best, copied])
    ends = torch.tensor([0, *map(len, rows)]).cumsum(0)
    tokens = range(writes.vocab_size)
    most = sorted(tokens, key=lambda token: (-frequencies.get(token, 0), token))[:frequent]
    about = About(
        format=FORMAT,
        source=reads.digest,
        target=writes.digest,
        made={**origin, "frequent": frequent, "each": per_token},
    )
    candidates = [token for row in rows for token in row]
    return Shortlist(
        about,
        ends,
        torch.tensor(candidates, dtype=torch.int32),
        torch.tensor(most, dtype=torch.int32),
    )


def read_table(
    path: str, tokenizers: tuple[Vocabulary, Vocabulary], first: Order
) -> dict[tuple[int, int], float]:
    """Return the weights of a text file: two pieces and a probability on each line.

    Pairs with a piece that is not in a vocabulary, such as `NULL`, are left out; a pair that occurs
    again has the probability of its last line.

    Args:
        path: the file, plain or compressed.
        tokenizers: of sources and of outputs.
        first: which piece comes first; Marian's `lex.s2t` begins with the target piece.

    Raises:
        InputError: a line is wrong, or no line has pieces of the vocabularies.
    """
    numberings = [_numbers(tokenizer) for tokenizer in tokenizers]
    probabilities: dict[tuple[int, int], float] = {}
    for number, line in enumerate(read_lines(path), 1):
        fields = line.split()
        if not fields:
            continue
        probability = _probability(fields)
        if probability is None:
            raise InputError(
                "the line is not two pieces and a probability",
                location=f"{path}:{number}",
                help=f"write '{first}-piece {'target' if first == 'source' else 'source'}-piece "
                "probability', separated by spaces",
            )
        pair = fields[:2] if first == "source" else fields[1::-1]
        ids = [names.get(piece) for names, piece in zip(numberings, pair, strict=True)]
        if ids[0] is not None and ids[1] is not None:
            probabilities[ids[0], ids[1]] = probability
    if not probabilities:
        raise InputError(
            "no line has pieces of the checkpoint's tokenizers",
            location=path,
            help="split the text with these tokenizers before aligning it; --table expects the"
            " source piece first, --lex the target piece",
        )
    return probabilities


def _probability(fields: Sequence[str]) -> float | None:
    """Return the probability of a line; None if the line is wrong."""
    if len(fields) != _FIELDS:
        return None
    try:
        probability = float(fields[2])
    except ValueError:
        return None
    return probability if math.isfinite(probability) and probability >= 0 else None


def _numbers(vocabulary: Vocabulary) -> dict[str, int]:
    """Return the id of each piece that is not a special token."""
    special = {vocabulary.pad, vocabulary.eos, vocabulary.unk, vocabulary.bos}
    pieces = enumerate(vocabulary.pieces(range(vocabulary.vocab_size)))
    return {piece: number for number, piece in pieces if number not in special}
