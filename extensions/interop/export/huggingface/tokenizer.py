"""Tokenizer files of an export, in the form that Hugging Face's library reads."""

from __future__ import annotations

import base64
import json
import re
import unicodedata
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from .....plugin import Checkpoint, InputError, Tokenizer, Vocabulary
from .....runtime.data.piece_model import BPE, BYTE, NORMAL, UNIGRAM, USER, PieceModel
from .....runtime.data.settings import HUB
from ...importing.table import ImportTable

_SPACE = "\u2581"


def tokenizer_json(model: bytes, *, before: str | None, after: str | None) -> str | None:
    """Return the content of `tokenizer.json`, or None if it cannot express the model.

    Args:
        model: content of a `.model` file, with the special ids of models trained here.
        before: special piece before each text, if any.
        after: special piece after each text, if any.
    """
    read = PieceModel.read(model)
    if read.kind not in (UNIGRAM, BPE) or not _separable(read):
        return None
    ids = {piece: number for number, (piece, _, _) in enumerate(read.pieces)}
    tokenizer = Tokenizer.from_bytes(model)
    special = [
        read.pieces[i][0] for i in (tokenizer.pad, tokenizer.eos, tokenizer.unk, tokenizer.bos)
    ]
    bytes_too = any(kind == BYTE for _, _, kind in read.pieces)
    spaces: dict[str, Any] = {
        "type": "Metaspace",
        "replacement": _SPACE,
        "prepend_scheme": "always" if read.prefixed else "never",
        "split": True,
    }
    decoder: dict[str, Any] = spaces
    if bytes_too:
        decoder = {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, spaces]}
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [added_token(piece, ids[piece]) for piece in special],
        "normalizer": _normalizer(read),
        "pre_tokenizer": _words(read, spaces),
        "post_processor": template(before, after, ids),
        "decoder": decoder,
        "model": _segmentation(read, ids, special[2], bytes_too=bytes_too),
    }
    return json.dumps(content, ensure_ascii=False)


def added_token(piece: str, number: int) -> dict[str, Any]:
    """Return a special token as `tokenizer.json` lists it."""
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": number, "content": piece, **flags, "special": True}


def _normalizer(read: PieceModel) -> dict[str, Any]:
    steps: list[dict[str, Any]] = []
    if read.characters:
        compiled = base64.b64encode(read.characters).decode()
        steps.append({"type": "Precompiled", "precompiled_charsmap": compiled})
    if read.trimmed:
        steps.append({"type": "Strip", "strip_left": True, "strip_right": True})
        steps.append({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "})
    return {"type": "Sequence", "normalizers": steps}


def _words(read: PieceModel, spaces: dict[str, Any]) -> dict[str, Any]:
    """Return how a text is cut before the segmentation: at spaces, and around pieces of users.

    Of several such pieces at one place, SentencePiece takes the longest.
    """
    if not read.users:
        return spaces
    pattern = "|".join(re.escape(piece) for piece in sorted(read.users, key=len, reverse=True))
    around = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated"}
    return {"type": "Sequence", "pretokenizers": [spaces, {**around, "invert": False}]}


def _separable(read: PieceModel) -> bool:
    """Return whether pieces of users can be cut out of a normalized text as whole words.

    SentencePiece finds them before the normalization, which must not change them.  A BPE model then
    takes every word that is a piece without merging, which must give the same.
    """
    stable = (unicodedata.normalize("NFKC", piece) == piece for piece in read.users)
    if not all(stable) or any(_SPACE in piece for piece in read.users):
        return False
    if not read.users or read.kind == UNIGRAM:
        return True
    ranks = {(first, second): rank for rank, (first, second) in enumerate(_merges(read))}
    return all(_merged(piece, ranks) == [piece] for piece, _, kind in read.pieces if kind == NORMAL)


def _merged(word: str, ranks: Mapping[tuple[str, str], int]) -> list[str]:
    """Return the pieces of a word: of all neighbors, those with the best merge are joined first."""
    parts = list(word)
    while pairs := [pair for pair in pairwise(parts) if pair in ranks]:
        at = list(pairwise(parts)).index(min(pairs, key=lambda pair: ranks[pair]))
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts


def template(before: str | None, after: str | None, ids: dict[str, int]) -> dict[str, Any]:
    """Return the special pieces around a text; a pair of texts is written in one."""

    def around(*texts: str) -> list[dict[str, Any]]:
        inner = [{"Sequence": {"id": text, "type_id": 0}} for text in texts]
        start, two = (
            [{"SpecialToken": {"id": piece, "type_id": 0}}] if piece else []
            for piece in (before, after)
        )
        return [*start, *inner, *two]

    special = {
        piece: {"id": piece, "ids": [ids[piece]], "tokens": [piece]}
        for piece in (before, after)
        if piece
    }
    return {
        "type": "TemplateProcessing",
        "single": around("A"),
        "pair": around("A", "B"),
        "special_tokens": special,
    }


def _segmentation(
    read: PieceModel, ids: dict[str, int], unknown: str, *, bytes_too: bool
) -> dict[str, Any]:
    if read.kind == UNIGRAM:
        return {
            "type": "Unigram",
            "unk_id": ids[unknown],
            "vocab": [
                [piece, 0.0 if kind == USER else score] for piece, score, kind in read.pieces
            ],
            "byte_fallback": bytes_too,
        }
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": unknown,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": True,
        "byte_fallback": bytes_too,
        "ignore_merges": bool(read.users),
        "vocab": ids,
        "merges": _merges(read),
    }


def _merges(read: PieceModel) -> list[list[str]]:
    """Return the merges of a BPE model: all splits of each piece into two, best pieces first."""
    normal = {piece for piece, _, kind in read.pieces if kind == NORMAL}
    splits = [
        (-score, cut, [piece[:cut], piece[cut:]])
        for piece, score, kind in read.pieces
        if kind == NORMAL
        for cut in range(1, len(piece))
        if piece[:cut] in normal and piece[cut:] in normal
    ]
    return [pair for _, _, pair in sorted(splits, key=lambda split: split[:2])]


_MARIAN = "marian"
SETTINGS = "tokenizer_config.json"
"""File with the class and the special tokens of a tokenizer."""


def tokenizer_files(
    checkpoint: Checkpoint, table: ImportTable, vocab: int
) -> tuple[dict[str, bytes], list[str]]:
    """Return the tokenizer files of an export by name, and notes for the user.

    Args:
        checkpoint: the exported checkpoint.
        table: the table of the export.
        vocab: number of ids of the model.
    """
    files = dict(checkpoint.tokenizers)
    if HUB in files:
        return hub_files(files[HUB]), []
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
        "vocab.json": json_bytes({word: number for number, word in enumerate(words)}),
        SETTINGS: json_bytes(settings),
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
    begin, end = tokenizer.pieces((tokenizer.bos, tokenizer.eos))
    prompts = sum(type_.kind == "ids" for type_ in graph.inputs.values()) == 1
    text = tokenizer_json(model, before=begin if prompts else None, after=None if prompts else end)
    if text is None:
        return {}
    return {HUB: text.encode(), SETTINGS: json_bytes(settings_of(tokenizer))}


def settings_of(vocabulary: Vocabulary) -> dict[str, Any]:
    """Return the settings beside a `tokenizer.json`: its class and its special tokens."""
    special = (vocabulary.bos, vocabulary.eos, vocabulary.pad, vocabulary.unk)
    names = ("bos_token", "eos_token", "pad_token", "unk_token")
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **dict(zip(names, vocabulary.pieces(special), strict=True)),
        "clean_up_tokenization_spaces": False,
    }


def hub_files(data: bytes) -> dict[str, bytes]:
    """Return an imported `tokenizer.json` with its settings."""
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", **_special(data)}
    return {HUB: data, SETTINGS: json_bytes(settings)}


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


def json_bytes(value: Any) -> bytes:
    """Return a value as the content of a JSON file."""
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()
