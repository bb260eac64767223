"""Tokenizers and special tokens of a checkpoint."""

from __future__ import annotations

from ...specs.findings import InputError
from ..data.hub import HUB, HubTokenizer, Prompts
from ..data.symbols import SYMBOLS, Symbols, Vocabulary
from ..data.tokenizer import Tokenizer
from ..decode.decode import SpecialTokens
from .checkpoint import Checkpoint


def ends_of(checkpoint: Checkpoint) -> frozenset[int]:
    """Return the end tokens of outputs; empty if the checkpoint does not define them."""
    end = checkpoint.state.get("imported", {}).get("tokens", {}).get("end")
    if end is not None:
        return frozenset(end if isinstance(end, list) else [end])
    if "tokenizer.model" in checkpoint.tokenizers:
        eos = Tokenizer(checkpoint.tokenizers["tokenizer.model"], own_ids=False).eos
        return frozenset({eos} - {-1})
    return frozenset()


def special_tokens_of(checkpoint: Checkpoint) -> SpecialTokens:
    """Return the special tokens of outputs.

    Raises:
        InputError: the checkpoint does not define them.
    """
    tokens = checkpoint.state.get("imported", {}).get("tokens", {})
    ids = [tokens.get(name) for name in SpecialTokens._fields[:3]]
    ids = [value[0] if isinstance(value, list) and len(value) == 1 else value for value in ids]
    if all(isinstance(value, int) for value in ids):
        return SpecialTokens(*ids)
    if "imported" in checkpoint.state:
        raise InputError(
            "the checkpoint does not define the begin, end and padding ids of outputs",
            place=str(checkpoint.folder),
            help="give them: decode(sources, SpecialTokens(begin, end, pad))",
        )
    return SpecialTokens.of(tokenizers_of(checkpoint)[1])


def tokenizers_of(checkpoint: Checkpoint) -> tuple[Tokenizer, Vocabulary]:
    """Return the source and target tokenizers of a checkpoint.

    Raises:
        InputError: the checkpoint has no tokenizer.
    """
    files = checkpoint.tokenizers
    if "tokenizer.model" in files:
        both = Tokenizer.from_bytes(files["tokenizer.model"])
        return both, both
    if {"source.model", SYMBOLS} <= files.keys():
        source = Tokenizer.from_bytes(files["source.model"])
        return source, Symbols.from_bytes(files[SYMBOLS], source, str(checkpoint.folder / SYMBOLS))
    if {"source.model", "target.model"} <= files.keys():
        return tuple(Tokenizer.from_bytes(files[f"{side}.model"]) for side in ("source", "target"))  # type: ignore[return-value]
    raise InputError(
        "the checkpoint has no tokenizer",
        place=str(checkpoint.folder),
        help="restore tokenizer.model",
    )


def prompts_of(checkpoint: Checkpoint) -> Prompts:
    """Return the prompt tokenizer of a checkpoint, which may have its own special tokens.

    Raises:
        InputError: there is no tokenizer, it is invalid, or it does not fit the model.
    """
    if not checkpoint.tokenizers:
        raise InputError(
            "the checkpoint has no tokenizer",
            place=str(checkpoint.folder),
            help="give token ids: weft generate --ids, or generate() in Python",
        )
    name, data = sorted(checkpoint.tokenizers.items())[-1]
    place = str(checkpoint.folder / name)
    tokenizer: Prompts
    if name == HUB:
        tokenizer = HubTokenizer(data, ends=ends_of(checkpoint), place=place)
    else:
        tokenizer = Tokenizer(data, place=place, own_ids=False)
    sizes = [
        int(type_.size or 0) for type_ in checkpoint.graph.inputs.values() if type_.kind == "ids"
    ]
    size = min(sizes, default=0)
    if tokenizer.vocab_size > size:
        raise InputError(
            f"the tokenizer has {tokenizer.vocab_size} pieces, but the model has {size}",
            place=place,
            help="use the tokenizer of the model, or give token ids: weft generate --ids",
        )
    return tokenizer
