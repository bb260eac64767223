"""Weights that are cast once an update: the same numbers as autocast, with fewer casts."""

from __future__ import annotations

import copy
import pickle
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
import torch
import weft
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from weft.blocks.feed_forward.mixture_of_experts_module import MixtureOfExperts
from weft.blocks.kernels.linear import LinearMap
from weft.blocks.recurrent.recurrent_module import _Recurrent
from weft.graphs.ir.graph import Graph
from weft.graphs.passes.pipeline import PassSettings, after
from weft.runtime.codegen.build import build
from weft.runtime.codegen.generated import program_of
from weft.runtime.spec.check import graph_of
from weft.specs.findings import InputError
from weft.specs.load import load
from weft.specs.reader import shipped_names

SMALL = {"d_model": 16, "heads": 2, "d_ff": 24, "layers": 2}
MODELS: dict[str, dict[str, Any]] = {
    "translation": {"spec": "transformer-tiny", "params": SMALL},
    "experts": {"spec": "moe-transformer", "params": SMALL | {"experts": 3}},
    "recurrent": {"spec": "gru-attention", "params": {"d_model": 16, "d_hidden": 16}},
    "language-model": {"spec": "gpt2", "params": {"d_model": 16, "heads": 2, "layers": 2}},
}
LOW = {"bfloat16": torch.bfloat16, "float16": torch.float16}
BATCH, LENGTH = 3, 7


def objective(name: str, **model: Any) -> Graph:
    """Return a shipped objective, or translation, with a small model."""
    file = shipped_names("objectives").get(name, shipped_names("objectives")["translation"])
    return graph_of(load(str(file), {"model": model or MODELS[name]}))


def inputs_of(graph: Graph, number: int) -> dict[str, Tensor]:
    """Return inputs of one micro-batch."""
    sizes = {axis: BATCH if kind == "batch" else LENGTH for axis, kind in graph.spec.axes.items()}
    torch.manual_seed(number)
    return weft.example_inputs(graph, sizes)


class Casts(TorchDispatchMode):
    """Counts how often each shape of at least two axes becomes a low-precision tensor."""

    def __init__(self, dtype: torch.dtype) -> None:
        """Count casts to a dtype."""
        super().__init__()
        self.dtype, self.shapes = dtype, Counter[torch.Size]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Record an operator and run it."""
        del types
        made = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name == "_to_copy" and made.dtype == self.dtype and args[0].dtype == torch.float32:
            self.shapes[made.shape] += 1
        if name == "_foreach_copy_":
            self.shapes.update(one.shape for one in args[0])
        return made


def trained(
    model: nn.Module, batches: Sequence[Sequence[dict[str, Tensor]]], dtype: torch.dtype
) -> list[Tensor]:
    """Return the losses, and the gradients and weights at the end, of some updates."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, fused=True)
    found = []
    for update in batches:
        optimizer.zero_grad()
        for number, inputs in enumerate(update):
            torch.manual_seed(number)
            with torch.autocast("cpu", dtype):
                outputs = model(**inputs)
            loss = torch.stack([one.float().sum() for one in outputs.values()]).sum()
            loss.backward()
            found.append(loss.detach())
        optimizer.step()
    found += [w.grad.clone() for w in model.parameters() if w.grad is not None]
    return found + [w.detach().clone() for w in model.parameters()]


@pytest.mark.integration
@pytest.mark.parametrize("precision", LOW)
@pytest.mark.parametrize("name", MODELS)
def test_losses_gradients_and_weights_are_bitwise_those_of_autocast(
    name: str, precision: Any
) -> None:
    """Over three updates of two micro-batches, with all other passes, and dropout.

    Here losses compute the output projection, so gradients of it do not pass through a cast.
    """
    graph = objective(name)
    batches = [[inputs_of(graph, 2 * n + k) for k in range(2)] for n in range(3)]
    found = []
    for without in ((), ("casts",)):
        planned = after(graph, PassSettings(precision=precision, without=without))
        model = build(planned).train()
        assert hasattr(model, "casts") == (not without)
        found.append(trained(model, batches, LOW[precision]))

    assert len(found[0]) == len(found[1]) > 6
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("name", ["experts", "recurrent"])
def test_experts_and_recurrent_networks_cast_their_weights_once(name: str) -> None:
    """Besides linear maps; the count is that of the matrices, each cast by the one copy."""
    graph = objective(name)
    model: Any = build(after(graph, PassSettings(precision="bfloat16"))).train()
    owners = {MixtureOfExperts, _Recurrent}
    kind = next(k for k in owners if any(isinstance(m, k) for m in model.modules()))
    weights = [
        getattr(module, weight)
        for module in model.modules()
        if isinstance(module, kind)
        for weight in module.copied
        if getattr(module, weight, None) is not None and getattr(module, weight).dim() > 1
    ]
    with Casts(torch.bfloat16) as casts:
        trained(model, [[inputs_of(graph, number) for number in range(2)]], torch.bfloat16)

    others = Counter(m.weight.shape for m in model.modules() if isinstance(m, LinearMap))
    expected = Counter(weight.shape for weight in weights)
    assert expected
    for shape, count in expected.items():
        assert casts.shapes[shape] <= count + others[shape]


def test_only_the_order_of_a_sum_differs_where_a_tied_weight_has_two_gradients() -> None:
    """The embedding is also the output projection, which the loss of R-Drop does not compute."""
    model = {"spec": "transformer-tiny", "params": SMALL}
    graph = objective("r-drop-translation", **model)
    gradients = []
    for without in ((), ("casts",)):
        planned = after(graph, PassSettings(precision="bfloat16", without=without))
        one = build(planned).train()
        trained(one, [[inputs_of(graph, 0)]], torch.bfloat16)
        gradients.append({name: w.grad for name, w in one.named_parameters()})

    different = {n for n, g in gradients[0].items() if not torch.equal(g, gradients[1][n])}
    assert different <= {"model.source_embedding.weight"}
    for name in different:
        torch.testing.assert_close(gradients[0][name], gradients[1][name], rtol=1e-5, atol=1e-6)


@pytest.mark.integration
def test_every_weight_is_cast_once_an_update() -> None:
    """Also with two micro-batches and activation checkpointing; without the pass it is not."""
    graph = objective("translation")
    batches = [[inputs_of(graph, number) for number in range(2)]]
    selected = PassSettings(precision="bfloat16", activation_checkpointing=("model.encoder.*",))
    counts = []
    for without in ((), ("casts",)):
        planned = after(graph, PassSettings(**{**vars_of(selected), "without": without}))
        model = build(planned).train()
        with Casts(torch.bfloat16) as casts:
            trained(model, batches, torch.bfloat16)
        counts.append(casts.shapes)

    d_model, d_ff, vocab = 16, 24, 1000
    inner = torch.Size((d_ff, d_model))
    assert counts[0][inner] == 4  # two encoder layers and two decoder layers
    assert counts[1][inner] == 2 * (2 + 2 * 2)  # two micro-batches; the encoder runs twice
    embedding = torch.Size((vocab, d_model))
    assert (counts[0][embedding], counts[1][embedding]) == (1, 2)


def vars_of(settings: PassSettings) -> dict[str, Any]:
    """Return the values of settings by name."""
    return {name: getattr(settings, name) for name in settings.__dataclass_fields__}


def small(**more: Any) -> nn.Module:
    """Return a model whose weights are copied."""
    spec = weft.load("transformer-tiny", vocab=50, dropout=0.0, **SMALL, **more)
    return build(weft.cast_weights(spec, "bfloat16"))


def given() -> dict[str, Tensor]:
    """Return inputs of the model."""
    ids = torch.arange(BATCH * LENGTH).view(BATCH, LENGTH) % 40 + 4
    return {"source": ids, "source_mask": ids > 0, "target": ids}


def test_copies_follow_changes_in_place_and_new_parameters() -> None:
    """Also where only the version counter, or only the parameter, tells of the change."""
    model, plain = small().train(), build(weft.load("transformer-tiny", vocab=50, **SMALL))
    for change in ("none", "in place", "new"):
        weight: Any = model.get_parameter("encoder.0.feed_forward.f.inner.weight")
        if change == "in place":
            with torch.no_grad():
                weight.mul_(3.0)
        elif change == "new":
            layer: Any = model.get_submodule("encoder.0.feed_forward.f.inner")
            layer.weight = nn.Parameter(weight.detach() * -2.0)
        plain.load_state_dict(model.state_dict())
        for module in (model.train(), plain.eval()):  # without dropout, for both
            module.requires_grad_(True)
        with torch.autocast("cpu", torch.bfloat16):
            found, expected = model(**given())["logits"], plain(**given())["logits"]
        assert torch.equal(found, expected), change


def test_a_copy_that_is_out_of_date_is_not_used() -> None:
    """A part of a model that is called alone reads the weights themselves then."""
    model = small().train()
    layer: Any = model.get_submodule("encoder.0.feed_forward.f.inner")
    x = torch.randn(2, 16)
    with torch.autocast("cpu", torch.bfloat16):
        model(**given())
        copy = layer.copies.by_name["weight"].tensor
        before = layer(x)
        with torch.no_grad():
            layer.weight.mul_(2.0)
            layer.bias.mul_(2.0)
        after_ = layer(x)

    assert copy.dtype == torch.bfloat16
    assert torch.equal(after_, before * 2)


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
def test_compiled_layers_evaluate_the_weights_of_the_last_update() -> None:
    """Copies are written again only in training, and compiled code cannot see that they are old."""
    model = small().train()
    layer: Any = model.get_submodule("encoder.0.feed_forward.f.inner")
    compiled = torch.compile(layer, backend="eager")
    x = torch.randn(2, 16)
    with torch.autocast("cpu", torch.bfloat16):
        model(**given())
        before = compiled(x)
        with torch.no_grad():
            layer.weight.mul_(2.0)
            layer.bias.mul_(2.0)
        model.eval()
        after_ = compiled(x)

    assert torch.equal(after_, before * 2)


def test_without_autocast_the_weights_themselves_are_used() -> None:
    """In float32, and in autocast to another dtype."""
    model = small().train()
    plain = build(weft.load("transformer-tiny", vocab=50, **SMALL)).eval()
    with torch.autocast("cpu", torch.bfloat16):
        model(**given())
    for options in ({"enabled": False}, {"dtype": torch.float16}):
        with torch.autocast("cpu", **options):  # type: ignore[arg-type]
            found, expected = (one(**given())["logits"] for one in (model, plain))
        assert torch.equal(found, expected)


def test_frozen_weights_are_copied_once_and_get_no_gradient() -> None:
    """Until they change; a weight that is no longer frozen gets its gradient again."""
    model = small().train()
    weight: Any = model.get_parameter("encoder.0.feed_forward.f.inner.weight")
    weight.requires_grad_(False)
    for trains in (False, True):
        weight.requires_grad_(trains)
        with torch.autocast("cpu", torch.bfloat16):
            model(**given())["logits"].float().sum().backward()
        assert (weight.grad is not None) == trains


def test_copies_and_pickles_of_a_model_write_their_own_copies() -> None:
    """After an update of one of them, the other one computes as before."""
    model = small().train()
    with torch.autocast("cpu", torch.bfloat16):
        model(**given())
    others = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
    with torch.autocast("cpu", torch.bfloat16):
        before = model(**given())["logits"]
        with torch.no_grad():
            for weight in model.parameters():
                weight.mul_(2.0)
        changed = model(**given())["logits"]
        for other in others:
            assert torch.equal(other(**given())["logits"], before)
    assert not torch.equal(changed, before)


def test_the_code_shows_the_casts() -> None:
    """The loss gets the weight, for the gradient, and the copy, for the products."""
    planned = after(objective("translation"), PassSettings(precision="bfloat16"))
    source = program_of(build(planned)).source

    assert "self.casts = Casts(torch.bfloat16)" in source
    assert "self.casts.refresh()" in source
    assert 'operand(self.model.head, "weight")' in source


def test_another_dtype_is_an_error() -> None:
    """Float32 is no lower precision."""
    with pytest.raises(InputError, match="weights cannot be cast to 'float32'"):
        weft.cast_weights("transformer-tiny", "float32")  # type: ignore[arg-type]
