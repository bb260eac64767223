"""Casts, kernels and activation checkpointing leave the results of shipped specs.

`test_unpad.py` compares unpadding, and `test_objectives.py` all passes on every objective.  Models
are small, and rows end in padding; those that are not slow have all blocks among them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from weft.blocks.kernels import attention as blocks
from weft.blocks.kernels import attention as dispatch
from weft.blocks.kernels import attention_backends as backends
from weft.blocks.kernels import linear as product
from weft.graphs.ir.execution import KernelChoice
from weft.graphs.ir.graph import Graph, RepeatNode
from weft.graphs.passes.pipeline import NAMES, PassName, PassSettings, after
from weft.graphs.passes.unpad import plan_unpad
from weft.runtime.codegen.build import build

from ...entries import ENTRIES, attention_of, few_fast, small
from .test_unpad import batch_of, models_of, varlen_attn

pytestmark = pytest.mark.integration
KERNELS = [("torch", "fused"), ("torch", "blocked"), ("onednn", "plain")]
"""Kernels that compute gradients on the CPU, of products and of attention; Triton needs CUDA."""
WITHOUT_ATTENTION = {
    "bytenet",
    "extended-neural-gpu",
    "gla",
    "gnmt-small",
    "gru-attention",
    "linear-transformer",
    "lstm-tagger",
    "mamba",
    "modded-nanogpt",
    "parsing-span-lstm",
    "parsing-tags",
}
"""Specs in which nothing is computed by an attention backend unless nodes are merged."""
WITHOUT_ROWS = {"gpt2-prefix", "mistral"}
"""Specs whose only attention has a mask of pairs, so `fused` computes it, not `varlen`."""
ATTENDING = [name for name in ENTRIES if name not in WITHOUT_ATTENTION]
Results = dict[str, Tensor]


def only(name: PassName, **settings: Any) -> PassSettings:
    """Return settings under which one pass runs."""
    return PassSettings(without=tuple(one for one in NAMES["train"] if one != name), **settings)


@functools.cache
def inputs_of(name: str, dtype: torch.dtype = torch.float32) -> Results:
    """Return a batch of a spec."""
    inputs, _ = batch_of(name, plan_unpad(small(name)))
    return {p: x.to(dtype) if x.is_floating_point() else x for p, x in inputs.items()}


def learnt(
    graph: Graph,
    name: str,
    dtype: torch.dtype = torch.float32,
    *,
    autocast: bool = False,
    dropout: bool = False,
) -> Results:
    """Return the outputs of a graph and the gradients of its weights, by name."""
    [model] = [build(graph).train()] if dropout else models_of(graph)
    model.to(dtype)
    torch.manual_seed(7)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        outputs = {f"output {p}": x for p, x in model(**inputs_of(name, dtype)).items()}
    outputs = {port: x for port, x in outputs.items() if x.is_floating_point()}
    losses = [x.to(dtype).square().sum() for x in outputs.values()]
    torch.stack(losses).sum().backward()
    gradients = {path: w.grad for path, w in model.named_parameters() if w.grad is not None}
    assert gradients
    return {port: x.detach() for port, x in outputs.items()} | gradients


def with_kernels(name: str, kind: str, core: str, dtype: torch.dtype = torch.float32) -> Results:
    """Return the results of a spec with kernels of products and of attention."""
    settings = only("kernels", kernels=KernelChoice(kind, {"*": core}))
    return learnt(after(small(name), settings), name, dtype)


@functools.cache
def plain(name: str, dtype: torch.dtype = torch.float32) -> Results:
    """Return the results of a spec with torch's products and plain attention."""
    return with_kernels(name, "torch", "plain", dtype)


def tied(graph: Graph) -> set[str]:
    """Return the weights that an embedding and a linear map share."""
    [model] = models_of(graph)
    paths: dict[int, list[str]] = {}
    for path, weight in model.named_parameters(remove_duplicate=False):
        paths.setdefault(id(weight), []).append(path)
    return {found[0] for found in paths.values() if len(found) > 1}


def assert_equal_but_for(sums: set[str], found: Results, expected: Results) -> None:
    """Compare results to the bit; gradients of `sums` may be added in another order."""
    assert found.keys() == expected.keys()
    different = {path for path, x in found.items() if not torch.equal(x, expected[path])}
    assert different <= sums
    for path in different:
        largest = float(expected[path].abs().max())
        torch.testing.assert_close(found[path], expected[path], rtol=0, atol=1e-6 * largest)


@few_fast()
def test_weights_that_are_cast_once_give_the_results_of_autocast(name: str) -> None:
    """In bfloat16, to the bit: the same numbers are multiplied.

    Only a tied weight has two gradients, of its copy and of itself.  They are added in float32 in
    another order, so they may differ by the rounding of the sum: 1e-6 is 8 units of the last place.
    """
    made = small(name)
    graph = after(made, only("casts", precision="bfloat16"))
    assert graph.execution.casts is not None

    found, expected = (learnt(one, name, autocast=True) for one in (graph, made))

    assert_equal_but_for(tied(made), found, expected)


@few_fast()
def test_activation_checkpointing_gives_the_same_results(name: str) -> None:
    """Of the layers of all repeats, or of all nodes where nothing repeats; with dropout.

    Equal to the bit, because the backward pass computes the same numbers again.
    """
    made = small(name)
    repeats = [one.name for one in made.root.nodes if isinstance(one, RepeatNode)]
    selections = tuple(f"{one}.*" for one in repeats) or ("*",)
    graph = after(made, only("checkpoint", activation_checkpointing=selections))
    assert graph.execution.checkpointed

    found, expected = (learnt(one, name, dropout=True) for one in (graph, made))

    assert found.keys() == expected.keys()
    for path, value in found.items():
        assert torch.equal(value, expected[path]), path


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return the kernels that run during the test: also for few rows, and several blocks."""
    found: set[str] = set()

    def record(owner: Any, name: str, kernel: str) -> None:
        run: Callable[..., Any] = getattr(owner, name)
        monkeypatch.setattr(
            owner, name, lambda *given, **named: [found.add(kernel), run(*given, **named)][1]
        )

    record(product._Onednn, "apply", "onednn")
    record(blocks._Blocked, "apply", "blocked")
    record(dispatch, "fused_attend", "fused")
    record(dispatch, "flex_attend", "flex")
    record(dispatch, "varlen_attend", "varlen")
    monkeypatch.setattr(product, "ROWS", 1)
    monkeypatch.setattr(blocks, "QUERIES", {torch.float32: 3})
    return found


@pytest.mark.needs("oneDNN")
@pytest.mark.parametrize("kernels", KERNELS, ids="-".join)
@few_fast()
def test_kernels_give_the_results_of_plain_products(
    name: str, kernels: tuple[str, str], used: set[str]
) -> None:
    """Of `plain` attention and torch's products, in float32, whose unit roundoff is 6e-8.

    A sum of some hundred terms and a few layers allow 300 units relative to the largest number of a
    value.  Gradients that are zero in exact arithmetic (of key biases) have rounding errors of the
    other gradients, so each value may differ by 17 units of the largest gradient besides.
    Measured: 8e-6 of a value (T5 1.1, whose scores have no scale), 1.2e-5 without AVX, where
    sums have another order; otherwise 2e-6.
    """
    kernel = kernels[0] if kernels[1] == "plain" else kernels[1]
    found = with_kernels(name, *kernels)
    assert (kernel in used) == (kernel == "onednn" or name not in WITHOUT_ATTENTION)

    expected = plain(name)

    assert found.keys() == expected.keys()
    largest = max(float(x[x.isfinite()].abs().max()) for x in expected.values())
    for path, value in expected.items():
        size = float(value[value.isfinite()].abs().max())
        torch.testing.assert_close(
            found[path], value, rtol=0, atol=1.8e-5 * size + 1e-6 * largest, msg=path
        )


@few_fast(ATTENDING, what=attention_of)
def test_the_varlen_backend_gives_the_results_of_padded_rows(
    name: str, used: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of `plain` attention, in double precision; the kernel needs CUDA, so another one stands in.

    This compares what the backend gives to the kernel, and what it makes of the result.
    """
    varlen = pytest.importorskip("torch.nn.attention.varlen")
    monkeypatch.setattr(varlen, "varlen_attn", varlen_attn)
    monkeypatch.setattr(backends, "_varlen_runs", lambda *_, dropout: dropout == 0.0)

    found = with_kernels(name, "torch", "varlen", torch.float64)

    assert ("varlen" in used) == (name not in WITHOUT_ROWS)
    expected = plain(name, torch.float64)
    assert found.keys() == expected.keys()
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@few_fast(ATTENDING, what=attention_of)
def test_flex_attention_gives_the_outputs_of_plain_attention(name: str, used: set[str]) -> None:
    """In double precision and without gradients, which FlexAttention does not have on a CPU."""
    outputs = []
    for core in ("plain", "flex"):
        settings = only("kernels", kernels=KernelChoice("torch", {"*": core}))
        [model] = models_of(after(small(name), settings))
        with torch.no_grad():
            outputs.append(dict(model.eval()(**inputs_of(name, torch.float64))))
        assert ("flex" in used) == (core == "flex")

    torch.testing.assert_close(*outputs, rtol=1e-8, atol=1e-8)
