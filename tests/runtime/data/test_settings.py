"""Data settings: validation of a run file."""

from __future__ import annotations

import pytest
from pydantic import ValidationError
from weft.runtime.data.settings import BatchSettings, DataSettings, Files, TokenizerSettings


def test_source_files_need_as_many_target_files() -> None:
    """A file without a counterpart, and missing files, are errors before reading."""
    with pytest.raises(ValidationError, match="2 source files for 1 target files"):
        Files(source=("a", "b"), target=("c",))
    with pytest.raises(ValidationError, match="there are no files"):
        Files(source=(), target=())


@pytest.mark.parametrize("symbols", [("",), ("a b",), ("\u00a0",), ("<pad>",), ("x", "x")])
def test_user_symbols_that_would_break_the_model_are_refused(symbols: tuple[str, ...]) -> None:
    """`<pad>` as a user symbol would leave the model without padding."""
    with pytest.raises(ValidationError, match="user symbol"):
        TokenizerSettings(vocab_size=100, user_symbols=symbols)


def test_unknown_keys_are_refused() -> None:
    """A misspelled setting must not silently use the default."""
    with pytest.raises(ValidationError, match="max_sentence\n"):
        BatchSettings.model_validate({"max_sentence": 3})


def test_a_run_file_may_omit_settings_with_defaults() -> None:
    """The minimum of a run: two sides, two splits."""
    files = {"source": ["a"], "target": ["b"]}

    data = DataSettings.model_validate({"train": files, "valid": files})

    assert data.filter.max_length == 250
    assert data.test == {}
