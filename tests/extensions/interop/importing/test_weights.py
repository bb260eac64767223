"""Reordering of rotary weights, and errors of the import command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from weft.blocks.position.rotary_module import rotated
from weft.runtime.checkpoint.mapping.layout import TensorLayout
from weft.runtime.cli.main import main

Capture = pytest.CaptureFixture[str]


def turned_by_halves(x_BHTK: Tensor, base: float) -> Tensor:
    """Rotate numbers i and i + K/2 as one pair, as a complex number times e^(i angle)."""
    half = x_BHTK.size(-1) // 2
    first, second = x_BHTK[..., :half].double(), x_BHTK[..., half:].double()
    time = torch.arange(x_BHTK.size(2), dtype=torch.float64)
    angle = torch.stack([time * base ** (-i / half) for i in range(half)], -1)
    made = torch.complex(first, second) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat((made.real, made.imag), -1)


def pairs(heads: int) -> TensorLayout:
    """Return the layout of the shipped tables for rotary positions of adjacent pairs."""
    return TensorLayout(split=((heads, 2, -1),), permute=(0, 2, 1))


def test_rows_in_another_order_turn_as_theirs_do() -> None:
    """The scores of queries and keys are equal for both pairings."""
    heads, width, d_model, base = 3, 6, 5, 100.0
    query, key = torch.randn(2, heads * width, d_model)
    x = torch.randn(2, 7, d_model)

    def split(weight: Tensor) -> Tensor:
        return (x @ weight.T).unflatten(-1, (heads, width)).transpose(1, 2)

    theirs = [turned_by_halves(split(w), base) for w in (query, key)]
    ours = [
        rotated(split(pairs(heads).result(w, w.shape)), torch.arange(7), base) for w in (query, key)
    ]

    found, expected = ((q @ k.transpose(-1, -2)).double() for q, k in (ours, theirs))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(
        rotated(split(query), torch.arange(7), base).double(), theirs[0], atol=1e-3
    )


def test_pairs_of_a_head_become_neighbours() -> None:
    """For two heads of width 4: rows 0, 2, 1, 3 and the same for the second head; also biases."""
    assert pairs(2).result(torch.arange(8), (8,)).tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


WRONG: list[tuple[dict[str, Any] | None, list[str], str]] = [
    (None, [], "the folder does not exist or has no 'config.json'"),
    ({"model_type": "bert"}, ["--as", "bret"], "'hf-bret' is neither a file nor shipped with weft"),
    ({"model_type": "parser"}, [], "no table supports models of type 'parser'"),
    ({}, [], "no table supports models of type 'None'"),
    ({"model_type": "bert"}, [], "the configuration has no 'hidden_size'"),
    ({"model_type": "t5"}, [], "several tables support models of type 't5'"),
    ({"model_type": "bert", "architectures": "BertForMaskedLM"}, [], "has no 'hidden_size'"),
]


@pytest.mark.parametrize(("config", "more", "problem"), WRONG)
def test_a_folder_that_cannot_be_imported_says_why(
    tmp_path: Path, capsys: Capture, config: dict[str, Any] | None, more: list[str], problem: str
) -> None:
    """The exit code is 1, and nothing is written."""
    theirs, out = tmp_path / "theirs", tmp_path / "out"
    if config is not None:
        theirs.mkdir()
        (theirs / "config.json").write_text(json.dumps(config))

    assert main(["import", "hf", str(theirs), *more, "--out", str(out)]) == 1

    output = capsys.readouterr().err
    assert problem in output
    assert "help: " in output
    assert not out.exists()


def test_sizes_that_a_spec_refuses_are_findings_of_the_spec(
    tmp_path: Path, capsys: Capture
) -> None:
    """Such as a number of heads that does not divide the width."""
    sizes = {"n_embd": 10, "n_head": 3, "n_layer": 1, "n_positions": 8, "vocab_size": 9}
    rates = {"resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0, "layer_norm_epsilon": 1e-5}
    config = {"model_type": "gpt2", "activation_function": "relu", **sizes, **rates}
    (tmp_path / "config.json").write_text(json.dumps(config))

    assert main(["import", "hf", str(tmp_path), "--out", str(tmp_path / "out")]) == 1

    assert "'d_model % heads == 0' does not hold" in capsys.readouterr().err
