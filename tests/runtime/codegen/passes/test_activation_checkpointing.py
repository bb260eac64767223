"""Tests of activation checkpointing: the same results with less memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from weft.blocks.kernels import unpad as unpad_kernels
from weft.graphs.ir.graph import Graph
from weft.graphs.passes.checkpoint import checkpoint_activations, checkpointed
from weft.runtime import api
from weft.runtime.checkpoint.checkpoint import read_tensors
from weft.runtime.codegen.build import build
from weft.runtime.compile.torch_compile import compile_model
from weft.runtime.spec.check import graph_of
from weft.runtime.train.run import Run
from weft.specs.findings import InputError
from weft.specs.load import load

pytestmark = pytest.mark.integration


def tiny(layers: int = 3) -> Graph:
    """Return a small model with a dropout of one third."""
    params = {"d_model": 16, "heads": 2, "d_ff": 64, "vocab": 30, "dropout": 0.3}
    return graph_of(load("transformer-tiny", {**params, "layers": layers}))


def inputs() -> dict[str, Tensor]:
    """Return a batch."""
    generator = torch.Generator().manual_seed(3)
    source = torch.randint(4, 30, (4, 9), generator=generator)
    target = torch.randint(4, 30, (4, 7), generator=generator)
    return {"source": source, "source_mask": source > 0, "target": target}


def trained(model: nn.Module) -> tuple[Tensor, dict[str, Tensor], int]:
    """Return a loss, its gradients, and the number of elements saved for the backward pass."""
    kept: dict[tuple[int, int], int] = {}

    def mask(tensor: Tensor) -> Tensor:
        kept[tensor.data_ptr(), tensor.numel()] = tensor.numel()
        return tensor

    model.zero_grad()
    torch.manual_seed(5)
    with saved_tensors_hooks(mask, lambda tensor: tensor):
        loss = model(**inputs())["logits"].square().mean()
        numbers = sum(kept.values())
    loss.backward()
    return loss.detach(), {n: p.grad for n, p in model.named_parameters()}, numbers  # type: ignore[misc]


@pytest.mark.parametrize(
    "text", ["encoder.*", "decoder.*", "**/f[use=feed_forward@1]", "encoder.0-1"]
)
def test_gradients_are_the_same_and_less_is_kept(text: str) -> None:
    """Results are bitwise the same, also with dropout."""
    graph = tiny()
    changed = checkpoint_activations(graph, [text])
    plain, again = build(graph).train(), build(changed).train()
    paths = checkpointed(changed)

    loss, gradients, kept = trained(plain)
    loss_again, gradients_again, kept_again = trained(again)
    assert paths
    assert torch.equal(loss, loss_again)
    assert all(torch.equal(gradients[name], gradients_again[name]) for name in gradients)
    assert kept_again < 0.95 * kept
    assert list(again.state_dict()) == list(plain.state_dict())


def test_checkpointed_layers_save_only_their_inputs() -> None:
    """With six layers, less than a third of the elements is saved."""
    graph = tiny(6)
    changed = checkpoint_activations(graph, ["encoder.*", "decoder.*"])
    plain, again = build(graph).train(), build(changed).train()

    assert trained(again)[2] < trained(plain)[2] / 3


@pytest.mark.slow
@pytest.mark.filterwarnings(r"ignore:.*torch\.jit\.:DeprecationWarning")
@pytest.mark.filterwarnings(r"ignore:The \.grad attribute:UserWarning")
def test_copies_are_still_compiled_once() -> None:
    """Two templates need two graphs for any number of layers."""
    graph = tiny(4)
    changed = checkpoint_activations(graph, ["encoder.*", "decoder.*"])
    plain, again = build(graph).train(), build(changed).train()
    for model in (plain, again):
        for module in model.modules():
            if isinstance(getattr(module, "dropout", None), float):
                module.dropout = 0.0  # type: ignore[assignment]
    loss, gradients, _ = trained(plain)

    report = compile_model(again, "layers")
    with torch._dynamo.config.patch(fail_on_recompile_limit_hit=True):
        loss_again, gradients_again, _ = trained(again)

    assert report.found == report.expected == 2
    torch.testing.assert_close(loss_again, loss)
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradients_again[name], gradient, atol=1e-6, rtol=1e-4)


def test_a_run_with_activation_checkpointing_gives_equal_results(
    toy_run: Callable[..., Run], tmp_path: Path
) -> None:
    """A run file selects modules; an invalid selection is an error with the nearest path."""
    messages: list[str] = []

    class LogListener(api.Silent):
        def log(self, text: str) -> None:
            messages.append(text)

    plain = toy_run(updates=4)
    again = plain.model_copy(update={"activation_checkpointing": "model.*coder.*"})
    results: list[Any] = [
        api.train(run, out=tmp_path / name, listener=LogListener())
        for name, run in (("plain", plain), ("again", again))
    ]

    left, right = (read_tensors(r.checkpoint / "weights.safetensors") for r in results)
    assert all(torch.equal(left[name], right[name]) for name in left)
    assert "checkpoint: 2 modules, from model.decoder.0" in messages
    wrong = {"activation_checkpointing": ("model.encoder.*", "model.decodr.*")}
    with pytest.raises(InputError, match="selects nothing"):
        api.train(plain.model_copy(update=wrong), out=tmp_path)


def test_a_whole_unpadded_model_is_checkpointed_where_counting_would_wait(
    toy_run: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The backward pass has the numbers of tokens of the forward pass, so it unpads alike."""
    monkeypatch.setattr(unpad_kernels, "counting_is_free", lambda _: False)
    small = {"d_model": 16, "heads": 2, "d_ff": 32, "layers": 1, "dropout": 0.0}
    plain = toy_run("transformer-tiny", small, updates=2, padding="unpadded")
    again = plain.model_copy(update={"activation_checkpointing": ("model",)})

    results: list[Any] = [
        api.train(run, out=tmp_path / name) for name, run in (("plain", plain), ("again", again))
    ]

    left, right = (read_tensors(r.checkpoint / "weights.safetensors") for r in results)
    assert all(torch.equal(left[name], right[name]) for name in left)
