"""Data settings: validation of a run file."""

from __future__ import annotations

import pytest
from pydantic import ValidationError
from weft.runtime.data.readers.split import Split
from weft.runtime.data.settings import BatchSettings, PieceSettings
from weft.runtime.data.table_settings import DataSettings

from .pairs import lines


def test_source_files_need_as_many_target_files() -> None:
    """A file without a counterpart, and missing files, are errors before reading."""
    with pytest.raises(ValidationError, match="2 source files for 1 target files"):
        Split.model_validate(lines(["a", "b"], ["c"]))
    with pytest.raises(ValidationError, match="at least 1 item"):
        Split.model_validate(lines([], []))


@pytest.mark.parametrize("symbols", [("",), ("a b",), ("\u00a0",), ("<pad>",), ("x", "x")])
def test_user_symbols_that_would_break_the_model_are_refused(symbols: tuple[str, ...]) -> None:
    """`<pad>` as a user symbol would leave the model without padding."""
    with pytest.raises(ValidationError, match="user symbol"):
        PieceSettings(vocab_size=100, user_symbols=symbols)


def test_unknown_keys_are_refused() -> None:
    """A misspelled setting must not silently use the default."""
    with pytest.raises(ValidationError, match="max_sentence\n"):
        BatchSettings.model_validate({"max_sentence": 3})


def test_a_run_file_may_omit_settings_with_defaults() -> None:
    """The minimum of a run: one column, two splits; no row is dropped for its length."""
    files = {"lines": {"source": ["a"]}}
    columns = {"source": {"type": "text", "tokenizer": "words"}}

    data = DataSettings.model_validate({"columns": columns, "train": files, "valid": files})

    assert data.filter.max_length is None
    assert data.test == {}
