"""The kernels of a model: set once in the generated code, apart from those of other models."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import weft
from weft.blocks.kernels import kernel_choice
from weft.blocks.kernels import linear as product
from weft.graphs.ir.execution import KernelChoice
from weft.graphs.passes.pipeline import PassSettings, after
from weft.runtime.codegen.build import build
from weft.runtime.codegen.generated import program_of
from weft.runtime.spec.check import graph_of

SMALL = {"vocab": 11, "d_model": 16, "heads": 2, "d_ff": 24, "layers": 1, "dropout": 0.0}


def chosen(product_kernel: str, core: str) -> Any:
    """Return a small model whose graph names its kernels."""
    graph = graph_of(weft.load("transformer-tiny", **SMALL))
    kernels = KernelChoice(product_kernel, {"*": core})
    return build(after(graph, replace(PassSettings(unpad=False), kernels=kernels)))


@pytest.mark.needs("oneDNN")
def test_two_models_with_other_kernels_do_not_disturb_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each uses its own, in turns, and both compute the same."""
    used = []
    onednn = product._Onednn.apply
    monkeypatch.setattr(
        product._Onednn, "apply", lambda *given: [used.append("onednn"), onednn(*given)][1]
    )
    one, two = chosen("onednn", "plain"), chosen("torch", "fused")
    inputs = {
        "source": torch.ones(4, 40, dtype=torch.int64),
        "source_mask": torch.ones(4, 40, dtype=torch.bool),
        "target": torch.ones(4, 40, dtype=torch.int64),
    }

    found = []
    for model in (one, two, one, two):
        used.clear()
        found.append(model(**inputs)["logits"])
        assert bool(used) == (model is one)

    for other in found[1:]:
        torch.testing.assert_close(other, found[0])
    assert "use_kernels(self, product='onednn', attention={'*': 'plain'})" in program_of(one).source


def test_a_kernel_that_this_torch_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model is not built."""
    monkeypatch.setattr(kernel_choice, "has_onednn", lambda: False)
    with pytest.raises(ValueError, match="onednn"):
        chosen("onednn", "plain")
