"""Encodings of trees as arrays, one for each decoder, and of arrays as batches.

`types.py` has the types of the tensors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .....plugin import Symbols, Vocabulary
from ..charts import Labels, chart_of, tree_of
from ..linearization import LINEARIZATIONS, Linearization
from ..parsing_settings import ParsingSettings
from ..tetra import POS, TAGS, TagSets, spans_of
from ..trees import Leaf, Tree, escaped
from ..words import Words
from .padding import Array, mask_of, padded, padded_groups

_WORD_DTYPES = {
    "pieces": "<i4",
    "pieces_counts": "|u1",
    "characters": "<u2",
    "characters_counts": "|u1",
    "tokens": "<i4",
    "symbols": "<i4",
}
SPANS = ("first", "last", "label")
"""Names of the arrays of labeled spans."""
Arrays = dict[str, Array]
"""Encoded tree: arrays with one axis, by name."""
Prediction = Mapping[str, Sequence[int]]
"""Prediction for one sentence, by the names of the arrays that encode its tree."""


class Encoding(Protocol):
    """How the trees of one decoder are encoded."""

    dtypes: Mapping[str, str]
    """Type of the numbers of each array, little-endian, as they are stored."""

    @property
    def sizes(self) -> dict[str, int]:
        """Params of a spec that the vocabularies determine, by their usual names."""

    def encode(self, ids: Sequence[int], target: Sequence[int]) -> Arrays:
        """Return the arrays of a tree.

        Args:
            ids: source ids of the words.
            target: ids of the symbols of the tree.
        """

    def collate(self, rows: Sequence[Mapping[str, Array]]) -> dict[str, Tensor]:
        """Return the padded tensors of a batch."""

    def lengths(self, row: Mapping[str, Array]) -> dict[str, int]:
        """Return the number of tokens of both sides, with their end tokens."""

    def decode(self, prediction: Prediction, leaves: Sequence[Leaf]) -> Tree:
        """Return the tree of a prediction over leaves."""


class _WordEncoding:
    """Words of a tree: their pieces and characters."""

    dtypes: Mapping[str, str] = _WORD_DTYPES

    def __init__(self, source: Vocabulary, target: Vocabulary) -> None:
        """Find the symbols of the vocabulary."""
        self.vocab = source.vocab_size
        self.target = target
        self.texts = target.pieces(range(target.vocab_size))
        self._words = Words(source)

    def words(self, ids: Sequence[int], target: Sequence[int]) -> Arrays:
        """Return the arrays of the words, and the tokens of both sides with their end tokens."""
        words = self._words.parts(ids)
        arrays: Arrays = {}
        for index, name in enumerate(("pieces", "characters")):
            arrays[name] = _integers(value for word in words for value in word[index])
            arrays[f"{name}_counts"] = _integers(len(word[index]) for word in words)
        return {
            **arrays,
            "tokens": _integers([len(ids) + 1]),
            "symbols": _integers([len(target) + 1]),
        }

    def collate_words(self, rows: Sequence[Mapping[str, Array]]) -> dict[str, Tensor]:
        """Return the tensors of the words of a batch."""
        counts: list[Any] = [row["pieces_counts"] for row in rows]
        counts_B = np.array([len(row_counts) for row_counts in counts])
        tensors = {"mask": torch.from_numpy(mask_of(counts_B, max(1, int(counts_B.max()))))}
        for name in ("pieces", "characters"):
            counts = [row[f"{name}_counts"] for row in rows]
            values = padded_groups([row[name] for row in rows], counts)
            tensors[name], tensors[f"{name}_mask"] = values
        symbols_B = np.concatenate([row["symbols"] for row in rows])
        tensors["symbols"] = torch.from_numpy(symbols_B).long()
        return tensors

    def lengths(self, row: Mapping[str, Array]) -> dict[str, int]:
        """Return the number of tokens of both sides, with their end tokens."""
        return {"source": int(row["tokens"][0]), "target": int(row["symbols"][0])}


class _ChartEncoding(_WordEncoding):
    """Words, labeled spans and tags."""

    dtypes: Mapping[str, str] = {
        **_WORD_DTYPES,
        **dict.fromkeys((*SPANS, "tags"), "<i4"),
        "binary": "<f4",
        "known": "|b1",
    }

    def __init__(self, source: Vocabulary, target: Vocabulary) -> None:
        """Find the labels and tags of the vocabulary."""
        super().__init__(source, target)
        self.labels = Labels.among(self.texts)

    @property
    def sizes(self) -> dict[str, int]:
        """Pieces, labels and tags; at least one of each, though single words have no labels."""
        counts = {"labels": len(self.labels.chains), "tags": len(self.labels.tags)}
        return {"vocab": self.vocab, **{name: max(1, count) for name, count in counts.items()}}

    def encode(self, ids: Sequence[int], target: Sequence[int]) -> Arrays:
        """Return the arrays of a tree; one with an unknown label or tag is not known."""
        arrays = self.words(ids, target)
        spans: list[tuple[int, int, int]] = []
        tags: list[int] = []
        binary = 0.0
        try:
            chart = chart_of(self.target.decode(target).split(" "))
        except ValueError:
            chart = None
        words = len(arrays["pieces_counts"])
        is_known = chart is not None and len(chart.tags) == words and self.labels.know(chart)
        if chart is not None and is_known:
            number = self.labels.chain_number
            spans = [(*span, number[chain]) for span, chain in chart.spans.items()]
            tags = [self.labels.tag_number[tag] for tag in chart.tags]
            binary = chart.binary
        for index, name in enumerate(SPANS):
            arrays[name] = _integers(span[index] for span in spans)
        arrays["tags"] = _integers(tags)
        arrays["binary"] = np.array([binary], np.float32)
        arrays["known"] = np.array([is_known])
        return arrays

    def collate(self, rows: Sequence[Mapping[str, Array]]) -> dict[str, Tensor]:
        """Return the padded tensors of a batch."""
        tensors = self.collate_words(rows)
        for name in SPANS:
            tensors[name] = padded([row[name] for row in rows], -1)
        tensors["tags"] = padded([row["tags"] for row in rows], -1, longest=tensors["mask"].size(1))
        for name in ("binary", "known"):
            tensors[name] = torch.from_numpy(np.concatenate([row[name] for row in rows]))
        return tensors

    def decode(self, prediction: Prediction, leaves: Sequence[Leaf]) -> Tree:
        """Return the tree of labeled spans, which must not cross.

        Raises:
            ValueError: a number is not that of a label or tag.
        """
        labeled = [index for index, label in enumerate(prediction["label"]) if label >= 0]
        first, last, label = ([prediction[name][at] for at in labeled] for name in SPANS)
        chains = _chosen(self.labels.chains, label)
        spans = {(int(i), int(j)): chain for i, j, chain in zip(first, last, chains, strict=True)}
        tags = _chosen(self.labels.tags, prediction["tags"][: len(leaves)])
        return tree_of(spans, _tagged(leaves, tags))


class _TagEncoding(_WordEncoding):
    """Words, and three tags for each: part of speech, leaf and node."""

    dtypes: Mapping[str, str] = {**_WORD_DTYPES, **dict.fromkeys(TAGS, "<i4")}

    def __init__(self, source: Vocabulary, target: Vocabulary) -> None:
        """Find the tags of the vocabulary."""
        super().__init__(source, target)
        sets = TagSets.among(self.texts)
        self.sets = (sets.pos, sets.leaves, sets.nodes)
        """Symbols of each kind, in the order of `TAGS`."""
        places = {symbol: index for kind in self.sets for index, symbol in enumerate(kind)}
        self.numbers = np.array([places.get(text, -1) for text in self.texts])

    @property
    def sizes(self) -> dict[str, int]:
        """Pieces and tags; at least one node, though a treebank of single words has none."""
        counts = (max(1, len(symbols)) for symbols in self.sets)
        return {"vocab": self.vocab, **dict(zip(TAGS, counts, strict=True))}

    def encode(self, ids: Sequence[int], target: Sequence[int]) -> Arrays:
        """Return the arrays of a tree; the last word has no node."""
        arrays = self.words(ids, target)
        numbers = np.full(3 * len(arrays["pieces_counts"]), -1, np.int32)
        encoded = self.numbers[np.array(target, np.int64)][: len(numbers)]
        numbers[: len(encoded)] = encoded
        return {**arrays, **{name: numbers[index::3] for index, name in enumerate(TAGS)}}

    def collate(self, rows: Sequence[Mapping[str, Array]]) -> dict[str, Tensor]:
        """Return the padded tensors of a batch."""
        return {
            **self.collate_words(rows),
            **{name: padded([row[name] for row in rows], -1) for name in TAGS},
        }

    def decode(self, prediction: Prediction, leaves: Sequence[Leaf]) -> Tree:
        """Return the tree of tags.

        Raises:
            ValueError: the tags do not form a tree.
        """
        counts = (len(leaves), len(leaves), len(leaves) - 1)
        pos, leaf, node = (
            _chosen(symbols, prediction[name][:count])
            for name, symbols, count in zip(TAGS, self.sets, counts, strict=True)
        )
        tags = [tag.removeprefix(POS) for tag in pos]
        if len(leaf) < len(leaves) or len(node) < len(leaves) - 1:
            raise ValueError("there are fewer tags than words")
        return tree_of(spans_of(leaf, node), _tagged(leaves, tags))


class _SequenceEncoding:
    """Ids of words and of linearized trees."""

    dtypes: Mapping[str, str] = dict.fromkeys(("source", "target"), "<i4")

    def __init__(self, source: Vocabulary, target: Vocabulary, form: Linearization) -> None:
        """Keep the vocabularies and the form."""
        self._source, self._target = source, target
        self._form = form

    @property
    def sizes(self) -> dict[str, int]:
        """Ids of both sides; `vocab` serves both if targets may contain the source's pieces."""
        source, target = self._source.vocab_size, self._target.vocab_size
        spelled = isinstance(self._target, Symbols) and self._target.spelling is not None
        shared = max(source, target) if spelled else source
        return {"vocab": shared, "source_vocab": source, "target_vocab": target}

    def encode(self, ids: Sequence[int], target: Sequence[int]) -> Arrays:
        """Return the ids of both sides, without end tokens."""
        return {"source": _integers(ids), "target": _integers(target)}

    def collate(self, rows: Sequence[Mapping[str, Array]]) -> dict[str, Tensor]:
        """Return the padded ids of both sides, with end tokens."""
        tensors = {}
        for name, vocabulary in (("source", self._source), ("target", self._target)):
            ended = [np.append(row[name], vocabulary.eos) for row in rows]
            tensors[name] = padded(ended, vocabulary.pad)
        return tensors

    def lengths(self, row: Mapping[str, Array]) -> dict[str, int]:
        """Return the number of tokens of both sides, with their end tokens."""
        return {name: len(row[name]) + 1 for name in ("source", "target")}

    def decode(self, prediction: Prediction, leaves: Sequence[Leaf]) -> Tree:
        """Return the tree of symbols.

        Raises:
            ValueError: the symbols do not form a tree.
        """
        symbols = symbols_of(self._target, [int(number) for number in prediction["target"]])
        tree = self._form.read(symbols, leaves)
        if self._form.tag is None:
            return tree
        actions = self._form.actions([*symbols, *getattr(self._target, "symbols", ())])
        pairs = zip(symbols, actions, strict=False)
        tags = [
            self._form.tag(symbol)
            for symbol, action in pairs
            if action is not None and action.kind == "leaf"
        ]
        return self._form.read(symbols, _tagged(leaves, tags))


def encoding_of(source: Vocabulary, target: Vocabulary, settings: ParsingSettings) -> Encoding:
    """Return the encoding of trees for a decoder.

    Args:
        source: tokenizer of the words.
        target: vocabulary of the symbols of trees.
        settings: decoder and linearization.
    """
    if settings.decoder == "sequence":
        return _SequenceEncoding(source, target, LINEARIZATIONS[settings.linearization])
    if settings.decoder == "chart":
        return _ChartEncoding(source, target)
    return _TagEncoding(source, target)


def symbols_of(target: Vocabulary, ids: Sequence[int]) -> list[str]:
    """Return the symbols of an output; brackets of copied words are escaped."""
    if isinstance(target, Symbols):
        return [escaped(text) if copied else text for text, copied in target.tokens(ids)]
    return target.decode(ids).split()


def _integers(values: Iterable[int]) -> NDArray[np.int32]:
    return np.fromiter(values, np.int32)


def _chosen(symbols: Sequence[str], numbers: Sequence[int]) -> list[str]:
    """Return the symbols with these numbers.

    Raises:
        ValueError: a number is not that of a symbol.
    """
    wrong = [number for number in numbers if not 0 <= number < len(symbols)]
    if wrong:
        msg = f"{wrong[0]} is not the number of one of {len(symbols)} symbols"
        raise ValueError(msg)
    return [symbols[number] for number in numbers]


def _tagged(leaves: Sequence[Leaf], tags: Sequence[str]) -> list[Leaf]:
    """Return leaves with their own tags, or the predicted ones where they have none.

    Raises:
        ValueError: there are fewer tags than words.
    """
    if len(tags) < len(leaves):
        raise ValueError("there are fewer tags than words")
    return [Leaf(leaf.tag or tag, leaf.word) for leaf, tag in zip(leaves, tags, strict=False)]
