"""Tables of a source and a target text, for tests of the preparation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.runtime.data.settings import PieceSettings
from weft.runtime.data.table_settings import DataSettings, Tokenizers

if TYPE_CHECKING:
    from weft.runtime.data.prepare import Prepared

SIDES = ("source", "target")


def lines(source: Sequence[str], target: Sequence[str]) -> dict[str, Any]:
    """Return a split of aligned text files."""
    return {"lines": {"source": list(source), "target": list(target)}}


def pairs(
    root: str | Path, train: dict[str, Any], valid: dict[str, Any], **more: Any
) -> DataSettings:
    """Return the settings of pairs whose sides share one tokenizer, named `tokenizer`."""
    columns = {side: {"type": "text", "tokenizer": "tokenizer"} for side in SIDES}
    value = {"root": str(root), "columns": columns, "train": train, "valid": valid, **more}
    return DataSettings.model_validate(value)


def changed(data: DataSettings, **keys: Any) -> DataSettings:
    """Return settings with other top-level keys, checked as those of a run file."""
    return DataSettings.model_validate({**data.model_dump(exclude_unset=True), **keys})


def bpe(vocab_size: int) -> Tokenizers:
    """Return the tokenizer that both sides share."""
    return {"tokenizer": PieceSettings(vocab_size=vocab_size)}


def texts(prepared: Prepared, side: str) -> list[str]:
    """Return the decoded training texts of one side, in the order in which they are stored."""
    ids = prepared.train.corpus.arrays[side]
    decode = prepared.columns[side].decode
    return [decode(ids.row(row).tolist()) for row in range(len(prepared.train))]
