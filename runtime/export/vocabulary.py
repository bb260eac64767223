"""Words: the vocabularies of an export, and the ids that are no words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...graphs.ir.graph import Graph
from ...specs.findings import InputError
from ..checkpoint.checkpoint import Checkpoint
from ..checkpoint.tokenizers import ends_of, special_tokens_of, tokenizers_of
from ..data.symbols import Vocabulary
from ..decode.decode import SpecialTokens


@dataclass(frozen=True, slots=True)
class Words:
    """What stands for each id, on either side."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    special_tokens: SpecialTokens
    unknown: int
    """Id in the target vocabulary of what has no id; that of padding where none is known."""
    ends_source: bool
    """Whether the end token is put behind every source."""
    tokenizers: Mapping[str, bytes] = field(default_factory=dict)
    """File name to SentencePiece model; empty when ids are all there is."""


def words_of(held: Checkpoint, source: str | None, target: str) -> Words:
    """Return the words of a checkpoint; the numbers of its ids when it has no tokenizer.

    Args:
        held: the checkpoint.
        source: the input that is read; None for a decoder alone.
        target: the input that is written.

    Raises:
        InputError: the checkpoint does not say which ids begin and end an output, or its
            tokenizer has more pieces than the graph has ids.
    """
    of_text = "imported" not in held.state and bool(held.tokenizers)
    reads, writes = tokenizers_of(held) if of_text else (None, None)
    if writes is not None:
        special_tokens, unknown = SpecialTokens.of(writes), writes.unk
    else:
        special_tokens = _special_tokens(held, alone=source is None)
        unknown = special_tokens.pad
    return Words(
        source=_words(reads, held.graph, source or target),
        target=_words(writes, held.graph, target),
        special_tokens=special_tokens,
        unknown=unknown,
        ends_source=of_text,
        tokenizers=held.tokenizers if of_text else {},
    )


def _special_tokens(held: Checkpoint, *, alone: bool) -> SpecialTokens:
    """Return the special ids of a model without text; a decoder alone begins with its prompt."""
    if not alone:
        return special_tokens_of(held)
    ends = ends_of(held)
    if not ends:
        raise InputError(
            "the checkpoint does not say which id ends an output",
            place=str(held.folder),
            help="put its tokenizer.model into the folder",
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
            f"the tokenizer has {len(pieces)} pieces and '{name}' {size} ids",
            place=graph.source,
            help="put the tokenizer back that the model was trained with",
        )
    return apart([*pieces, *(f"<unused_{index}>" for index in range(len(pieces), size))])


def apart(words: Sequence[str]) -> tuple[str, ...]:
    """Return words of which no two are alike: all but the last of a kind get their id behind them.

    A parser may write a bracket as a symbol, and spell one that it copies.
    """
    last = {word: index for index, word in enumerate(words)}
    found: list[str] = []
    for index, word in enumerate(words):
        unique = word if last[word] == index else f"{word}#{index}"
        while unique != word and unique in last:
            unique += "#"
        found.append(unique)
    return tuple(found)
