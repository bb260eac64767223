"""Tokenizer files that AutoTokenizer opens, of the vocabularies of a checkpoint."""

from __future__ import annotations

import json
from typing import Any

from .....graphs.passes.objective import feeds_of
from .....plugin import (
    Checkpoint,
    InputError,
    Tokenizer,
    Vocabulary,
    is_trained,
    tokenizers_of,
    vocabularies_by_column,
)
from .....runtime.data.settings import HUB
from ..huggingface.tokenizer import (
    SETTINGS,
    added_token,
    hub_files,
    json_bytes,
    settings_of,
    template,
    tokenizer_json,
)
from .interface import Interface

TARGET = "target"
"""Folder of the tokenizer of outputs, if it is not that of the source."""


def files_of(checkpoint: Checkpoint, interface: Interface) -> tuple[dict[str, bytes], list[str]]:
    """Return the tokenizer files of an export by path, and notes for the user.

    Args:
        checkpoint: the exported checkpoint.
        interface: how transformers calls it.
    """
    files = checkpoint.tokenizers
    if HUB in files:
        return hub_files(files[HUB]), []
    reads, writes, notes = _vocabularies(checkpoint, interface)
    if reads is None:
        return {}, [*notes, "there is no tokenizer of the main input: give ids"]
    before, after = _ends(checkpoint, interface)
    content = _files(reads, before=before, after=after)
    if content is None:
        return {}, ["AutoTokenizer has no tokenizer of this kind: give ids"]
    if writes is None or writes.bytes == reads.bytes:
        return content, notes
    target = _files(writes, before=False, after=True)
    if target is None:
        return content, [*notes, "AutoTokenizer has no tokenizer of the kind of the outputs"]
    content |= {f"{TARGET}/{name}": data for name, data in target.items()}
    note = f'outputs have a tokenizer: AutoTokenizer.from_pretrained(".", subfolder="{TARGET}")'
    return content, [*notes, note]


def _vocabularies(
    checkpoint: Checkpoint, interface: Interface
) -> tuple[Vocabulary | None, Vocabulary | None, list[str]]:
    """Return the vocabularies of the main input and of outputs, if there are such."""
    if checkpoint.graph.inputs[interface.main].kind == "ids" and is_trained(checkpoint):
        columns = vocabularies_by_column(checkpoint)
        reads = columns.get(_column(checkpoint, interface.main))
        written = [name for name in interface.arguments if name in interface.moving]
        writes = columns.get(_column(checkpoint, written[0])) if written else None
        if reads is not None:
            return reads, writes, []
    try:
        reads, writes = tokenizers_of(checkpoint)
    except InputError:
        return None, None, []
    return reads, writes, []


def _column(checkpoint: Checkpoint, port: str) -> str:
    """Return the column that fills an input of the model."""
    objective = checkpoint.objective
    if objective is None or objective.deploy is None:
        return port
    return feeds_of(objective).get(port, port)


def _ends(checkpoint: Checkpoint, interface: Interface) -> tuple[bool, bool]:
    """Return whether a special token comes before, and another one after, each text."""
    if interface.head == "CausalLM":
        return True, False  # a prompt begins, and does not end
    columns = checkpoint.run.get("data", {}).get("columns", {})
    column = columns.get(_column(checkpoint, interface.main), {})
    return bool(column.get("begin", False)), bool(column.get("end", True))


def _files(vocabulary: Vocabulary, *, before: bool, after: bool) -> dict[str, bytes] | None:
    """Return `tokenizer.json` and its settings; None if the form cannot express a vocabulary."""
    begin, end = vocabulary.pieces((vocabulary.bos, vocabulary.eos))
    around = {"before": begin if before else None, "after": end if after else None}
    if isinstance(vocabulary, Tokenizer):
        text = tokenizer_json(vocabulary.bytes, **around)
    else:
        text = _symbols(vocabulary, **around)
    if text is None:
        return None
    return {HUB: text.encode(), SETTINGS: json_bytes(settings_of(vocabulary))}


def _symbols(vocabulary: Vocabulary, *, before: str | None, after: str | None) -> str | None:
    """Return `tokenizer.json` of whole symbols between spaces; None if others are spelled."""
    if getattr(vocabulary, "spelling", None) is not None:
        return None
    pieces = vocabulary.pieces(range(vocabulary.vocab_size))
    ids = {piece: number for number, piece in enumerate(pieces)}
    special = (vocabulary.pad, vocabulary.eos, vocabulary.unk, vocabulary.bos)
    content: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [added_token(pieces[number], number) for number in special],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": template(before, after, ids),
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": ids, "unk_token": pieces[vocabulary.unk]},
    }
    return json.dumps(content, ensure_ascii=False)
