"""Losses of shipped objectives equal those of Hugging Face on the same batch and weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.runtime.codegen.build import build
from weft.runtime.codegen.generated import program_of
from weft.specs.load import load
from weft.specs.reader import SHIPPED

VOCAB, SENTINELS, SEPARATOR = 40, 8, 5
ROWS, LENGTH = 3, 9
UNCOUNTED = -100
"""Label that Hugging Face does not count."""


@pytest.fixture
def ids(padded: Callable[..., tuple[Tensor, Tensor]]) -> Tensor:
    """Return rows of words with end tokens and padding."""
    words, mask = padded(ROWS, LENGTH, VOCAB, first=6)
    rows = words * mask
    rows[torch.arange(ROWS), mask.sum(1) - 1] = 1
    return rows


def objective(name: str, model: nn.Module, **params: Any) -> Any:
    """Return a shipped objective with the weights of an imported model."""
    graph = program_of(model).graph
    held = {"spec": params.pop("spec", graph.name), "params": dict(graph.params)}
    file = SHIPPED / "objectives" / f"{name}.json"
    made: Any = build(check(load(file).form, registry(), {"model": held, "vocab": VOCAB, **params}))
    made.get_submodule("model").load_state_dict(model.state_dict())
    return made.eval()


def mean_loss(made: Any, text: Tensor) -> Tensor:
    """Return the loss of a batch for each item."""
    with torch.no_grad():
        outputs, weights = made(text=text), made.weights(text=text)
        found: Tensor = outputs["loss"] / weights["loss"]
        torch.testing.assert_close(outputs["nll"], outputs["loss"])
    return found


def begun(text: Tensor) -> Tensor:
    """Return rows with the beginning token, from which all of the text is predicted."""
    return torch.cat([torch.full((len(text), 1), 3), text], 1)


def gpt2(hf: Any) -> Any:
    """Return a tiny GPT-2."""
    sizes = {"vocab_size": VOCAB, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 20}
    return hf.GPT2LMHeadModel(hf.GPT2Config(**sizes))


def test_language_model(hf: Any, imported: Callable[..., Any], ids: Tensor) -> None:
    """Hugging Face shifts the labels; the beginning token takes the first place."""
    theirs = gpt2(hf)
    made = objective("language-model", imported(theirs))
    tokens = begun(ids)
    labels = tokens.masked_fill(tokens == 0, UNCOUNTED)

    with torch.no_grad():
        expected = theirs(tokens, labels=labels).loss

    torch.testing.assert_close(mean_loss(made, ids), expected, rtol=1e-5, atol=1e-5)


def test_prefix_language_model(hf: Any, imported: Callable[..., Any], ids: Tensor) -> None:
    """The mask of pairs is written by hand; row 2 has no prefix."""
    theirs = gpt2(hf)
    made = objective("prefix-language-model", imported(theirs), spec="gpt2-prefix", separator=5)
    ids[0, 3] = ids[1, 2] = SEPARATOR
    tokens, ends = begun(ids), (4, 3, -1)
    allowed = torch.ones(LENGTH + 1, LENGTH + 1, dtype=torch.bool).tril().repeat(ROWS, 1, 1)
    labels = tokens.masked_fill(tokens == 0, UNCOUNTED)
    for row, end in enumerate(ends):
        allowed[row, :, : end + 1] = True
        labels[row, : end + 1] = UNCOUNTED
    bias = torch.zeros(allowed.shape).masked_fill(~allowed, torch.finfo(torch.float32).min)

    with torch.no_grad():
        expected = theirs(tokens, attention_mask=bias[:, None], labels=labels).loss

    torch.testing.assert_close(mean_loss(made, ids), expected, rtol=1e-5, atol=1e-5)


def test_masked_language_model(hf: Any, imported: Callable[..., Any], ids: Tensor) -> None:
    """On the noise of the objective, which evaluation always draws alike."""
    config = hf.BertConfig(
        vocab_size=VOCAB,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=20,
    )
    theirs = hf.BertForMaskedLM(config)
    made = objective("masked-language-model", imported(theirs, "bert"), rate=0.4)
    noisy, selected = made.noise(ids)
    assert 0 < selected.sum() < (ids > 1).sum()
    labels = ids.masked_fill(~selected, UNCOUNTED)

    with torch.no_grad():
        expected = theirs(noisy, attention_mask=(ids != 0).long(), labels=labels).loss

    torch.testing.assert_close(mean_loss(made, ids), expected, rtol=1e-5, atol=1e-5)


def test_span_corruption(hf: Any, imported: Callable[..., Any], ids: Tensor) -> None:
    """T5 begins outputs with the padding token, and makes its input from the labels."""
    config = hf.T5Config(
        vocab_size=VOCAB + SENTINELS,
        d_model=16,
        d_kv=8,
        d_ff=24,
        num_layers=2,
        num_heads=2,
        decoder_start_token_id=0,
    )
    theirs = hf.T5ForConditionalGeneration(config)
    made = objective("span-corruption", imported(theirs), sentinels=SENTINELS, begin=0, rate=0.4)
    source, target = made.noise(ids)
    assert (source >= VOCAB).sum() == (target >= VOCAB).sum() > 0
    labels = target.masked_fill(target == 0, UNCOUNTED)

    with torch.no_grad():
        expected = theirs(source, attention_mask=(source != 0).long(), labels=labels).loss

    torch.testing.assert_close(mean_loss(made, ids), expected, rtol=1e-5, atol=1e-5)
