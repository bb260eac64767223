"""Fixtures of the parity tests: tiny Hugging Face models with perturbed weights."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import weft
from torch import Tensor, nn

os.environ["HF_HUB_OFFLINE"] = "1"


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests of this folder, and do not fail on warnings of the other library."""
    item.add_marker(pytest.mark.parity)
    item.add_marker(pytest.mark.filterwarnings("default"))


@pytest.fixture
def hf() -> Any:
    """Return the `transformers` module, or skip the test if it is not installed."""
    return pytest.importorskip("transformers", reason="needs transformers: make test-parity")


def scatter(model: nn.Module, by: float) -> nn.Module:
    """Perturb every weight and the logit bias, so that no bias is zero and no norm is one."""
    generator = torch.Generator().manual_seed(1)
    biases = [b for name, b in model.named_buffers() if name.endswith("final_logits_bias")]
    with torch.no_grad():
        for tensor in [*(w for w in model.parameters() if w.requires_grad), *biases]:
            tensor.add_(by * torch.randn(tensor.shape, generator=generator))
    return model.eval()


@pytest.fixture
def imported(tmp_path: Path) -> Callable[..., Any]:
    """Return a function that perturbs a Hugging Face model, saves it and imports the folder."""

    def through_a_folder(theirs: Any, table: str | None = None, *, by: float = 0.2) -> Any:
        scatter(theirs, by).save_pretrained(tmp_path / "theirs")
        return weft.import_hf(tmp_path / "theirs", table).build()

    return through_a_folder


@pytest.fixture
def padded() -> Callable[..., tuple[Tensor, Tensor]]:
    """Return a factory of ids [B, T] >= `first` and their mask; row 0 has no padding."""

    def make(rows: int, length: int, vocab: int, *, first: int = 3) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(2)
        ids = torch.randint(first, vocab, (rows, length), generator=generator)
        return ids, torch.arange(length) < length - 2 * torch.arange(rows)[:, None]

    return make


@pytest.fixture
def close() -> Callable[[Tensor, Tensor], None]:
    """Return a function that compares float32 logits and checks that they vary."""

    def compare(ours: Tensor, theirs: Tensor) -> None:
        assert theirs.std() > 0.1
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)

    return compare
