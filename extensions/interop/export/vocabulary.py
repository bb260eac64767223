"""Vocabularies of an export, and the ids of its special tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .... import SpecialTokens
from ....plugin import (
    Checkpoint,
    Graph,
    InputError,
    Vocabulary,
    ends_of,
    is_trained,
    special_tokens_of,
    tokenizers_of,
    written_by,
)


@dataclass(frozen=True, slots=True)
class VocabularyTokens:
    """The token string of each id, for source and target."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    special_tokens: SpecialTokens
    unknown: int
    """Id of the unknown token in the target vocabulary; the padding id if there is none."""
    ends_source: bool
    """Whether the end token is appended to every source."""
    reads: Vocabulary | None = None
    """Tokenizer of the source; None if the checkpoint has none."""
    writes: Vocabulary | None = None
    """Tokenizer of the target."""
    tokenizers: Mapping[str, bytes] = field(default_factory=dict)
    """Content of the tokenizers by file name; empty if the checkpoint has none."""

    def file_of(self, vocabulary: Vocabulary) -> str:
        """Return the name of the file of one of the tokenizers."""
        return next(name for name, data in self.tokenizers.items() if data == vocabulary.bytes)


def words_of(checkpoint: Checkpoint, source: str | None, target: str) -> VocabularyTokens:
    """Return the vocabularies of a checkpoint; ids as text if it has no tokenizer.

    Args:
        checkpoint: the checkpoint.
        source: name of the source input; None for a decoder-only model.
        target: name of the target input.

    Raises:
        InputError: the checkpoint does not define the ids that begin and end an output, or its
            tokenizer has more pieces than the graph has ids.
    """
    of_text = "imported" not in checkpoint.state and bool(checkpoint.tokenizers)
    reads: Vocabulary | None = None
    writes: Vocabulary | None = None
    if of_text and source is None and is_trained(checkpoint):
        reads = writes = written_by(checkpoint)
    elif of_text:
        reads, writes = tokenizers_of(checkpoint)
    if writes is not None:
        special_tokens, unknown = SpecialTokens.of(writes), writes.unk
    else:
        special_tokens = _special_tokens(checkpoint, decoder_only=source is None)
        unknown = special_tokens.pad
    return VocabularyTokens(
        source=_words(reads, checkpoint.graph, source or target),
        target=_words(writes, checkpoint.graph, target),
        special_tokens=special_tokens,
        unknown=unknown,
        ends_source=of_text,
        reads=reads,
        writes=writes,
        tokenizers=checkpoint.tokenizers if of_text else {},
    )


def _special_tokens(checkpoint: Checkpoint, *, decoder_only: bool) -> SpecialTokens:
    """Return the special ids of a model without text; decoder-only models have no begin id."""
    if not decoder_only:
        return special_tokens_of(checkpoint)
    ends = ends_of(checkpoint)
    if not ends:
        raise InputError(
            "the checkpoint does not define the id that ends an output",
            location=str(checkpoint.folder),
            help="add its tokenizer.model to the folder",
        )
    end = min(ends)
    return SpecialTokens(end, end, end)


def _words(tokenizer: Vocabulary | None, graph: Graph, name: str) -> tuple[str, ...]:
    size = int(graph.inputs[name].size or 0)
    if tokenizer is None:
        return tuple(str(index) for index in range(size))
    pieces = tokenizer.pieces(range(tokenizer.vocab_size))
    if len(pieces) > size:
        raise InputError(
            f"the tokenizer has {len(pieces)} pieces, but '{name}' has {size} ids",
            location=graph.source,
            help="use the tokenizer that the model was trained with",
        )
    return apart([*pieces, *(f"<unused_{index}>" for index in range(len(pieces), size))])


def apart(words: Sequence[str]) -> tuple[str, ...]:
    """Return unique words: of equal words, all but the last get `#` and their id appended.

    A parser's vocabulary may contain a bracket both as a symbol and as a copied word's piece.
    """
    last = {word: index for index, word in enumerate(words)}
    distinct: list[str] = []
    for index, word in enumerate(words):
        unique = word if last[word] == index else f"{word}#{index}"
        while unique != word and unique in last:
            unique += "#"
        distinct.append(unique)
    return tuple(distinct)


def tokens_of(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the begin, end and padding ids of a checkpoint, as far as they are known."""
    tokens = checkpoint.state.get("imported", {}).get("tokens")
    if tokens is not None:
        return {
            name: tokens[name] for name in SpecialTokens._fields[:3] if _is_ids(tokens.get(name))
        }
    try:
        special: SpecialTokens = special_tokens_of(checkpoint)
    except InputError:
        ends = sorted(ends_of(checkpoint))
        return {"end": ends[0] if len(ends) == 1 else ends} if ends else {}
    return {"begin": special.begin, "end": special.end, "pad": special.pad}


def original_config(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the keys of the configuration that a checkpoint was imported with; else none."""
    imported = checkpoint.state.get("imported", {})
    config = imported.get("config") if isinstance(imported, dict) else None
    return config if isinstance(config, dict) else {}


def original_names(checkpoint: Checkpoint, table: str) -> dict[str, list[str]]:
    """Return the names of tensors that an import by a table recorded.

    Args:
        checkpoint: the checkpoint.
        table: name of the table; the names of another one have no meaning for it.
    """
    imported = checkpoint.state.get("imported", {})
    if not isinstance(imported, dict) or imported.get("table") != table:
        return {}
    names = imported.get("names")
    if not isinstance(names, dict):
        return {}
    return {name: stored for name, stored in names.items() if isinstance(stored, list)}


def _is_ids(value: Any) -> bool:
    """Return whether a value of a file is an id, or a list of ids."""
    return all(type(number) is int for number in (value if isinstance(value, list) else [value]))
