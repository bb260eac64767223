"""Special: what a checkpoint says of its tokenizers, and of the ids that are no words."""

from __future__ import annotations

from ...specs.findings import InputError
from ..data.hub import HUB, HubTokenizer, Prompts
from ..data.symbols import SYMBOLS, Symbols, Vocabulary
from ..data.tokenizer import Tokenizer
from ..decode.decode import SpecialTokens
from .checkpoint import Checkpoint


def ends_of(held: Checkpoint) -> frozenset[int]:
    """Return the tokens that end an output, as far as a checkpoint says."""
    said = held.state.get("imported", {}).get("tokens", {}).get("end")
    if said is not None:
        return frozenset(said if isinstance(said, list) else [said])
    if "tokenizer.model" in held.tokenizers:
        eos = Tokenizer(held.tokenizers["tokenizer.model"], own_ids=False).eos
        return frozenset({eos} - {-1})
    return frozenset()


def special_tokens_of(held: Checkpoint) -> SpecialTokens:
    """Return the special ids of an output.

    Raises:
        InputError: the checkpoint does not say what they are.
    """
    said = held.state.get("imported", {}).get("tokens", {})
    ids = [said.get(name) for name in SpecialTokens._fields[:3]]
    ids = [one[0] if isinstance(one, list) and len(one) == 1 else one for one in ids]
    if all(isinstance(one, int) for one in ids):
        return SpecialTokens(*ids)
    if "imported" in held.state:
        raise InputError(
            "the checkpoint does not say which ids begin and end an output and fill rows",
            place=str(held.folder),
            help="give them: decode(sources, Special(begin, end, pad))",
        )
    return SpecialTokens.of(tokenizers_of(held)[1])


def tokenizers_of(held: Checkpoint) -> tuple[Tokenizer, Vocabulary]:
    """Return the source and target tokenizers of a checkpoint.

    Raises:
        InputError: there is none.
    """
    files = held.tokenizers
    if "tokenizer.model" in files:
        both = Tokenizer.from_bytes(files["tokenizer.model"])
        return both, both
    if {"source.model", SYMBOLS} <= files.keys():
        source = Tokenizer.from_bytes(files["source.model"])
        return source, Symbols.from_bytes(files[SYMBOLS], source, str(held.folder / SYMBOLS))
    if {"source.model", "target.model"} <= files.keys():
        return tuple(Tokenizer.from_bytes(files[f"{side}.model"]) for side in ("source", "target"))  # type: ignore[return-value]
    raise InputError(
        "the checkpoint has no tokenizer", place=str(held.folder), help="put tokenizer.model back"
    )


def prompts_of(held: Checkpoint) -> Prompts:
    """Return what cuts prompts for a checkpoint, also with special ids of its own.

    Raises:
        InputError: there is none, or it cannot be read, or is not the model's.
    """
    if not held.tokenizers:
        raise InputError(
            "the checkpoint has no tokenizer",
            place=str(held.folder),
            help="give ids: weft generate --ids, or generate() from Python",
        )
    name, data = sorted(held.tokenizers.items())[-1]
    place = str(held.folder / name)
    tokenizer: Prompts
    if name == HUB:
        tokenizer = HubTokenizer(data, ends=ends_of(held), place=place)
    else:
        tokenizer = Tokenizer(data, place=place, own_ids=False)
    sizes = [int(one.size or 0) for one in held.graph.inputs.values() if one.kind == "ids"]
    size = min(sizes, default=0)
    if tokenizer.vocab_size > size:
        raise InputError(
            f"the tokenizer has {tokenizer.vocab_size} pieces, and the model {size}",
            place=place,
            help="put the model's own tokenizer there, or give ids: weft generate --ids",
        )
    return tokenizer
