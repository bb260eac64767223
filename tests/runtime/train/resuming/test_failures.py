"""Tests of the errors of trainings that cannot continue."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from weft.runtime.train.plan import load_run
from weft.runtime.train.trainer import enough_memory, too_large
from weft.specs.findings import InputError


def context_of(name: str, changes: dict[str, Any], folder: Path) -> Any:
    """Return what the errors read of the context of a shipped run on a GPU."""
    context = MagicMock(folder=folder)
    context.run, _ = load_run(name, changes)
    context.placement.device = torch.device("cuda")
    return context


@pytest.mark.parametrize(
    ("name", "changes", "help_"),
    [
        (
            "multi30k-en-de",
            {"batch.tokens": 1000, "accumulate": 3},
            (
                "set 'batch.tokens' to 500 and 'accumulate' to 6, which keeps the tokens of an"
                " update, or set 'activation_checkpointing'"
            ),
        ),
        (
            "multi30k-en-de",
            {"batch.max_sentences": 30},
            (
                "set 'batch.tokens' to 1050, 'batch.max_sentences' to 15 and 'accumulate' to 2,"
                " which keeps the tokens of an update, or set 'activation_checkpointing'"
            ),
        ),
        (
            "image-classification-digits",
            {},
            (
                "set 'batch.max_sentences' to 32 and 'accumulate' to 2, which keeps the rows of an"
                " update, or set 'activation_checkpointing'"
            ),
        ),
        # Texts have up to 250 tokens and an end token, which a batch of half the size cannot have.
        ("multi30k-en-de", {"batch.tokens": 500}, "set 'activation_checkpointing'"),
        (
            "image-classification-digits",
            {"batch.max_sentences": 1},
            "set 'activation_checkpointing'",
        ),
        (
            "image-classification-digits",
            {"batch.max_sentences": 1, "activation_checkpointing": "model.layer.*"},
            "train a smaller model",
        ),
    ],
)
def test_advice_on_memory_names_settings_that_the_run_may_have(
    name: str, changes: dict[str, Any], help_: str, tmp_path: Path
) -> None:
    """Rows of images have no tokens; a batch has room for the longest text, or for one row."""
    found = too_large(context_of(name, changes, tmp_path), 7)

    assert found.problem == "the memory of cuda is too small for update 8"
    assert found.help == help_


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("multi30k-en-de", ", or give the predictor a smaller 'beam'"),
        ("masked-language-model-multi30k", ", or train a smaller model"),
    ],
)
def test_a_validation_that_does_not_fit_is_no_update(name: str, more: str, tmp_path: Path) -> None:
    """It follows an update that fitted; checkpointing would not help, as it has no backward."""
    context = context_of(name, {}, tmp_path)

    with (
        pytest.raises(InputError, match="too small for the validation after update 7") as caught,
        enough_memory(context, MagicMock(update=7), "validation"),
    ):
        raise torch.OutOfMemoryError
    assert caught.value.help.endswith(f"which keeps the tokens of an update{more}")
    assert "activation_checkpointing" not in caught.value.help
