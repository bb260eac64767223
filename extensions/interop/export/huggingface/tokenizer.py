"""Tokenizer files of an export, in the form that Hugging Face's library reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .....plugin import Checkpoint, InputError, Tokenizer
from .....runtime.data.hub import HUB
from ...importing.table import Table
from .fast_tokenizer import tokenizer_json

_MARIAN = "marian"
_SETTINGS = "tokenizer_config.json"


def tokenizer_files(
    checkpoint: Checkpoint, table: Table, vocab: int
) -> tuple[dict[str, bytes], list[str]]:
    """Return the tokenizer files of an export by name, and notes for the user.

    Args:
        checkpoint: the exported checkpoint.
        table: the table of the export.
        vocab: number of ids of the model.
    """
    files = dict(checkpoint.tokenizers)
    if HUB in files:
        settings = {"tokenizer_class": "PreTrainedTokenizerFast", **_special(files[HUB])}
        return {HUB: files[HUB], _SETTINGS: _json(settings)}, []
    pieces = [name for name in files if name.endswith(".model")]
    if not pieces:
        return {}, ["there is no tokenizer: the model reads and writes ids"]
    model = _trained_here(files)
    if model and _MARIAN in table.model_type:
        return _marian(model, vocab), []
    if model and (fast := _fast(checkpoint, model)):
        return fast, []
    if table.tokenizers and len(pieces) == 1:
        return {table.tokenizers[0]: files[pieces[0]]}, []
    why = "their library has no tokenizer of this kind for the architecture"
    return {name: files[name] for name in pieces}, [f"{', '.join(pieces)} copied: {why}"]


def _trained_here(files: Mapping[str, bytes]) -> bytes | None:
    """Return the only tokenizer of a checkpoint, if its special ids are those of Weft.

    A run gives it any name.
    """
    if len(files) != 1:
        return None
    [model] = files.values()
    try:
        return Tokenizer(model).bytes
    except InputError:
        return None


def _marian(model: bytes, vocab: int) -> dict[str, bytes]:
    """Return the files of MarianTokenizer: SentencePiece models, and the id of each piece."""
    tokenizer = Tokenizer.from_bytes(model)
    words = list(tokenizer.pieces(range(tokenizer.vocab_size)))
    words += [f"<unused_{number}>" for number in range(len(words), vocab)]
    end, pad, unknown = (words[i] for i in (tokenizer.eos, tokenizer.pad, tokenizer.unk))
    settings = {
        "tokenizer_class": "MarianTokenizer",
        "eos_token": end,
        "pad_token": pad,
        "unk_token": unknown,
        "separate_vocabs": False,
    }
    return {
        "source.spm": model,
        "target.spm": model,
        "vocab.json": _json({word: number for number, word in enumerate(words)}),
        _SETTINGS: _json(settings),
    }


def _fast(checkpoint: Checkpoint, model: bytes) -> dict[str, bytes]:
    """Return `tokenizer.json` of a model that decodes, and its settings; nothing of another one.

    A source ends with the end piece, and a prompt of a decoder-only model begins with the begin
    piece.
    """
    graph = checkpoint.graph
    if graph.step_axis is None:
        return {}
    tokenizer = Tokenizer.from_bytes(model)
    special = (tokenizer.bos, tokenizer.eos, tokenizer.pad, tokenizer.unk)
    begin, end, pad, unknown = tokenizer.pieces(special)
    prompts = sum(type_.kind == "ids" for type_ in graph.inputs.values()) == 1
    text = tokenizer_json(model, before=begin if prompts else None, after=None if prompts else end)
    if text is None:
        return {}
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": begin,
        "eos_token": end,
        "pad_token": pad,
        "unk_token": unknown,
        "clean_up_tokenization_spaces": False,
    }
    return {HUB: text.encode(), _SETTINGS: _json(settings)}


def _special(data: bytes) -> dict[str, Any]:
    """Return the special tokens that a tokenizer.json names."""
    try:
        added = json.loads(data).get("added_tokens", [])
        words = {str(token["content"]) for token in added}
    except (ValueError, AttributeError, TypeError, KeyError):
        return {}
    roles = {
        "bos_token": ("<s>", "<|begin_of_text|>", "<bos>", "<|endoftext|>"),
        "eos_token": ("</s>", "<|end_of_text|>", "<eos>", "<|endoftext|>"),
        "unk_token": ("<unk>",),
        "pad_token": ("<pad>",),
    }
    return {
        name: next(word for word in options if word in words)
        for name, options in roles.items()
        if words & set(options)
    }


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()
