"""The pieces of a SentencePiece model, and texts that are split into them at random.

SentencePiece draws its own random splits with a salt that differs in each process, whatever the
seed, so equal runs would read other ids.  These are determined by the seed alone.
"""

from __future__ import annotations

import heapq
import math
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from random import Random
from typing import Any

NORMAL, USER, BYTE = 1, 4, 6
"""Types of pieces."""
UNIGRAM, BPE = 1, 2
"""Types of models."""
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
"""Wire types of protocol buffers."""
_PIECES, _TRAINING, _RULES = 1, 2, 3
"""Fields of a model."""
_MORE = 0x80
"""Bit of a byte that another one of the same number follows."""
_UNKNOWN_PENALTY = 10.0
"""How much less than the worst piece an unknown character scores, as in SentencePiece."""


@dataclass
class PieceModel:
    """What a SentencePiece model says."""

    pieces: list[tuple[str, float, int]] = field(default_factory=list)
    """Text, score and type of each id."""
    kind: int = UNIGRAM
    characters: bytes = b""
    """The compiled normalization."""
    prefixed: bool = True
    """Whether a text begins with a space."""
    trimmed: bool = True
    """Whether spaces are removed at the ends and after another one."""

    @classmethod
    def read(cls, data: bytes) -> PieceModel:
        """Read the fields that define the segmentation from the content of a `.model` file."""
        model = cls()
        for number, value in _fields(data):
            if number == _PIECES:
                fields = {1: b"", 2: struct.pack("<f", 0.0), 3: NORMAL, **dict(_fields(value))}
                score = struct.unpack("<f", fields[2])[0]
                model.pieces.append((fields[1].decode(), score, fields[3]))
            elif number == _TRAINING:
                model.kind = dict(_fields(value)).get(3, UNIGRAM)
            elif number == _RULES:
                rules = dict(_fields(value))
                model.characters = rules.get(2, b"")
                model.prefixed, model.trimmed = bool(rules.get(3, 1)), bool(rules.get(4, 1))
        return model

    @cached_property
    def users(self) -> list[str]:
        """The pieces that users define, which are never cut."""
        return [piece for piece, _, kind in self.pieces if kind == USER]

    @cached_property
    def ids(self) -> dict[str, int]:
        """Id of each piece that a text may contain."""
        listed = enumerate(self.pieces)
        return {piece: number for number, (piece, _, kind) in listed if kind in (NORMAL, USER)}

    @cached_property
    def scores(self) -> dict[str, float]:
        """Score of each piece that a split may create."""
        return {piece: score for piece, score, kind in self.pieces if kind == NORMAL}

    @cached_property
    def _user_pattern(self) -> re.Pattern[str]:
        longest_first = sorted(self.users, key=len, reverse=True)
        return re.compile(f"({'|'.join(map(re.escape, longest_first))})")

    @cached_property
    def _unknown_score(self) -> float:
        return min(self.scores.values(), default=0.0) - _UNKNOWN_PENALTY

    @cached_property
    def _beginnings(self) -> set[str]:
        """Every text that a longer piece begins with."""
        return {piece[:end] for piece in self.scores for end in range(1, len(piece))}

    def sample(self, text: str, amount: float, seed: int) -> list[str]:
        """Split a text at random, determined by the seed.

        Sources: Provilkov et al. 2020, BPE-dropout; Kudo 2018, Subword Regularization.

        Args:
            text: normalized text, in which U+2581 stands for a space.
            amount: of BPE, the probability of skipping a merge; of a unigram model, the exponent
                of the probabilities of all splits.
            seed: seed of the split.

        Returns:
            Pieces, and single characters that the model lacks.
        """
        random = Random(seed)
        split = self._merged if self.kind == BPE else self._drawn
        parts = self._user_pattern.split(text) if self.users else [text]
        pieces = list[str]()
        for number, part in enumerate(parts):  # every second part is a piece of the user
            pieces += [part] if number % 2 else split(part, amount, random)
        return pieces

    def _merged(self, text: str, drop: float, random: Random) -> list[str]:
        """Merge the best pair again and again; each merge is skipped with a probability."""
        symbols, scores = list(text), self.scores
        end = len(symbols)
        before, after = list(range(-1, end - 1)), list(range(1, end + 1))
        agenda: list[tuple[float, int, int, str]] = []

        def add(first: int, second: int) -> None:
            if first >= 0 and second < end:
                pair = symbols[first] + symbols[second]
                if pair in scores:
                    heapq.heappush(agenda, (-scores[pair], first, second, pair))

        for second in range(1, end):
            add(second - 1, second)
        while agenda:
            _, first, second, pair = heapq.heappop(agenda)
            current = (
                symbols[first] and symbols[second] and symbols[first] + symbols[second] == pair
            )
            if not current or random.random() < drop:
                continue
            symbols[first], symbols[second] = pair, ""
            after[first] = following = after[second]
            if following < end:
                before[following] = first
            add(before[first], first)
            add(first, following)
        return [symbol for symbol in symbols if symbol]

    def _drawn(self, text: str, exponent: float, random: Random) -> list[str]:
        """Draw a split with its probability to a power, by sums over all splits of each prefix."""
        scores, beginnings = self.scores, self._beginnings
        unknown = self._unknown_score
        last_pieces: list[list[tuple[float, int]]] = [[] for _ in range(len(text) + 1)]
        sums = list[float]()  # logarithms
        for start, choices in enumerate(last_pieces):
            largest = max(choices)[0] if choices else 0.0
            total = sum(math.exp(weight - largest) for weight, _ in choices)
            sums.append(largest + math.log(total or 1.0))
            for end in range(start + 1, len(text) + 1):
                piece = text[start:end]
                score = scores.get(piece, unknown if end == start + 1 else None)
                if score is not None:
                    last_pieces[end].append((sums[start] + exponent * score, start))
                if piece not in beginnings:
                    break
        pieces, end = list[str](), len(text)
        while end:
            weights, starts = zip(*last_pieces[end], strict=True)
            chances = [math.exp(weight - sums[end]) for weight in weights]
            start = random.choices(starts, chances)[0]
            pieces.append(text[start:end])
            end = start
        return pieces[::-1]


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the number and the value of each field of a protocol buffer."""
    offset = 0
    while offset < len(data):
        key, offset = _varint(data, offset)
        kind = key & 7
        value: Any
        if kind == _VARINT:
            value, offset = _varint(data, offset)
        else:
            size = {_FIXED64: 8, _FIXED32: 4}.get(kind, 0)
            if kind == _BYTES:
                size, offset = _varint(data, offset)
            value, offset = data[offset : offset + size], offset + size
        yield key >> 3, value


def _varint(data: bytes, offset: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[offset]
        offset += 1
        value |= (byte & ~_MORE) << shift
        shift += 7
        if not byte & _MORE:
            return value, offset
