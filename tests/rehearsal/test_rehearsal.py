"""Training and decoding on a GPU, rehearsed without one: `make test-rehearsal`.

Fake tensors on the device `cuda` run through every shipped spec and objective.  Nothing may be
computed on the CPU, the host may not wait for the device, and the numbers of kernels and bytes are
those of `budgets.json`; `make rehearsal-budgets` writes them again.

There are no values and no times here: wrong numbers are found by the tests that run the same
branches on the CPU.
"""

from __future__ import annotations

import json
import os
import runpy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import weft
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from weft.graphs.ir.execution import KernelChoice
from weft.graphs.ir.graph import Graph
from weft.graphs.passes.pipeline import PassSettings, after
from weft.runtime.codegen.build import build_empty
from weft.runtime.data.table import Batch
from weft.runtime.decode.graphed import GraphedStepper
from weft.runtime.decode.stepper import ModelStepper
from weft.runtime.spec.check import graph_of
from weft.runtime.train.losses import ObjectiveLosses
from weft.runtime.train.recipe.optimize import clip_gradient
from weft.specs.load import load, loaded
from weft.specs.reader import shipped_names

from .recorder import Recorder

BUDGETS = Path(__file__).parent / "budgets.json"
UPDATE = bool(os.environ.get("WEFT_UPDATE_BUDGETS"))
BATCH, LENGTH = 4, 24
WITHOUT: Any = tuple(os.environ.get("WEFT_REHEARSE_WITHOUT", "").split())
"""Passes that updates leave out, to compare the numbers with those of the budgets."""
NOT_REHEARSED = {
    "CUDNN_STATUS_NOT_INITIALIZED": "recurrent layers start cuDNN, which needs a GPU",
    "cudaErrorInsufficientDriver": "torch's CTC has no form for fake tensors, so it runs itself",
}
"""Part of an error message to the reason why fake tensors cannot go on."""
SIZES: dict[str, dict[str, int]] = {}
for _file in sorted((Path(__file__).parents[1] / "runtime/models").glob("[!_]*.py")):
    _names = runpy.run_path(str(_file))
    for _name, _entry in {**_names.get("MODELS", {}), **_names.get("VARIANTS", {})}.items():
        SIZES[_name] = _entry.get("sizes", {})

pytestmark = pytest.mark.rehearsal


@pytest.fixture(autouse=True)
def _fake() -> Iterator[None]:
    """Make every tensor of the test a fake one."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        yield


@contextmanager
def rehearsed() -> Iterator[None]:
    """Skip the test where fake tensors cannot go on."""
    try:
        yield
    except (RuntimeError, NotImplementedError) as error:
        for part, reason in NOT_REHEARSED.items():
            if part in str(error):
                pytest.skip(reason)
        raise


def budget_is_kept(name: str, found: dict[str, int]) -> None:
    """Compare numbers with those in the file, or write them."""
    known: dict[str, dict[str, int]] = json.loads(BUDGETS.read_text()) if BUDGETS.exists() else {}
    if UPDATE:
        known[name] = found
        BUDGETS.write_text(json.dumps(dict(sorted(known.items())), indent=2) + "\n")
    assert found == known.get(name), "run make rehearsal-budgets, and read the diff"


def sizes_of(graph: Graph) -> dict[str, int]:
    """Return the sizes of the axes of a graph."""
    kinds = graph.spec.axes.items()
    sizes = {axis: BATCH if kind == "batch" else LENGTH for axis, kind in kinds}
    return {**sizes, **SIZES.get(graph.name, {})}


def refuse(recorder: Recorder) -> None:
    """Check that nothing ran on the CPU, and that nothing waited for the device."""
    assert (dict(recorder.on_cpu), dict(recorder.waits)) == ({}, {})


def learnt(model: nn.Module, loss: Tensor, recorder: Recorder) -> int:
    """Run the backward pass and a step of Adam; return the kernels of the backward pass."""
    before = recorder.kernels.total()
    loss.backward()
    count = recorder.kernels.total() - before
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    torch.optim.Adam(weights, lr=1e-3, fused=True).step()
    return count


@pytest.mark.parametrize(
    "name", [*shipped_names("models"), *shipped_names("variants"), *shipped_names("pretrained")]
)
def test_a_spec_trains_and_decodes_on_the_device(name: str) -> None:
    """Forward and backward pass in bfloat16, a step of Adam, and three steps of decoding."""
    graph = graph_of(load(name))
    model: Any = build_empty(graph, device="cuda").train()
    inputs = weft.example_inputs(graph, sizes_of(graph), device="cuda")
    with rehearsed(), Recorder() as recorder:
        with torch.autocast("cuda", torch.bfloat16):
            outputs = model(**inputs)
        forward = recorder.kernels.total()
        floats = [one.float().sum() for one in outputs.values() if one.requires_grad]
        backward = learnt(model, torch.stack(floats).sum(), recorder)
    refuse(recorder)
    found = {"forward": forward, "backward": backward, "bytes": recorder.bytes}
    if graph.step_axis is not None:
        found |= _step(graph, model.eval(), inputs)
    budget_is_kept(name, found)


def test_a_step_with_a_beam_of_four_runs_on_the_device() -> None:
    """Four hypotheses of each sentence read the memory of one; the search around is not counted."""
    name = "transformer-base"
    graph = graph_of(load(name))
    model = build_empty(graph, device="cuda").eval()
    inputs = weft.example_inputs(graph, sizes_of(graph), device="cuda")
    budget_is_kept(f"{name}, beam 4", _step(graph, model, inputs, beams=4))


def _step(
    graph: Graph, model: nn.Module, inputs: dict[str, Tensor], beams: int = 1
) -> dict[str, int]:
    """Return the kernels and bytes of the third decoding step, after checking three of them."""
    moving = next(
        name
        for name, type_ in graph.inputs.items()
        if type_.kind == "ids" and graph.step_axis in map(str, type_.axes)
    )
    fixed = {
        name: value
        for name, value in inputs.items()
        if graph.step_axis not in map(str, graph.inputs[name].axes)
    }
    masks = [n for n in inputs if n not in fixed and graph.inputs[n].kind == "mask"]
    output = next(
        name for name, type_ in graph.outputs.items() if graph.step_axis in map(str, type_.axes)
    )
    with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
        stepper = ModelStepper(
            model,
            fixed,
            beams=beams,
            length=LENGTH,
            moving=moving,
            output=output,
            masks=masks,
            sentences=BATCH,
        )
        tokens = torch.ones(BATCH * beams, dtype=torch.int64, device="cuda")
        with Recorder() as recorder:
            for place in range(3):
                recorder.kernels.clear()
                recorder.bytes = 0
                stepper.step(tokens, place)
    refuse(recorder)
    return {"step": recorder.kernels.total(), "step bytes": recorder.bytes}


@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")
def test_a_recorded_step_launches_few_more_kernels_than_a_plain_one() -> None:
    """What a CUDA graph would record: the step, and a copy of its logits to their address."""
    name = "transformer-base"
    graph = graph_of(load(name))
    model: Any = build_empty(graph, device="cuda").eval()
    fixed = weft.example_inputs(graph, sizes_of(graph), device="cuda")
    del fixed["target"]
    recorded: list[Recorder] = []

    class Counted:
        def __init__(self, run: Callable[[], None]) -> None:
            with Recorder() as recorder:
                run()
            refuse(recorder)
            recorded.append(recorder)

        def replay(self) -> None:
            """Launch the graph, which is no kernel of its own."""

    with torch.inference_mode(), torch.autocast("cuda", torch.bfloat16):
        for _ in range(2):
            stepper = GraphedStepper(model, fixed, beams=1, length=LENGTH, record=Counted)
            for place in range(3):
                with Recorder() as around:
                    stepper.step(torch.ones(BATCH, dtype=torch.int64, device="cuda"), place)
                refuse(around)
            del stepper
    budget_is_kept(
        f"{name}, recorded step",
        {
            "step": recorded[-1].kernels.total(),
            "step bytes": recorded[-1].bytes,
            "around": around.kernels.total() - recorded[-1].kernels.total(),
        },
    )


@pytest.mark.parametrize("name", shipped_names("objectives"))
def test_an_update_of_an_objective_runs_on_the_device(name: str) -> None:
    """With all passes: the weights of the losses, the losses, gradients, clipping, Adam."""
    graph = graph_of(load(str(shipped_names("objectives")[name])))
    budget_is_kept(f"objective {name}", _update(graph, sizes_of(graph)))


def test_an_update_of_the_paper_runs_on_the_device() -> None:
    """Transformer base with 25,000 source and 25,000 target tokens (Vaswani et al. 2017, 5.1)."""
    model = {"spec": "transformer-base", "params": {"vocab": 37000}}
    file = str(shipped_names("objectives")["translation"])
    graph = graph_of(load(file, {"model": model, "vocab": 37000, "source_vocab": 37000}))
    budget_is_kept("25,000 tokens", _update(graph, {"B": 833, "S": 30, "T": 30}))


def test_weights_are_cast_once_for_all_micro_batches_of_an_update() -> None:
    """As above, in 8 micro-batches: each adds only what does not depend on weights alone."""
    model = {"spec": "transformer-base", "params": {"vocab": 37000}}
    file = str(shipped_names("objectives")["translation"])
    graph = graph_of(load(file, {"model": model, "vocab": 37000, "source_vocab": 37000}))
    found = _update(graph, {"B": 104, "S": 30, "T": 30}, micro_batches=8)
    budget_is_kept("25,000 tokens in 8 micro-batches", found)


def test_the_loss_of_the_paper_runs_on_the_device() -> None:
    """The map to the logits and the loss of 25,000 target tokens, without the layers before."""
    nodes = {
        "head": {
            "use": "linear@1",
            "params": {"d_out": 37000, "bias": False},
            "in": {"x": "states"},
        },
        "loss": {
            "use": "cross_entropy@1",
            "params": {"label_smoothing": 0.1},
            "in": {"logits": "head.y", "labels": "labels"},
        },
    }
    spec = {
        "format": 1,
        "name": "loss-alone",
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"states": "f[B T 512]", "labels": "ids:37000[B T]"},
        "nodes": nodes,
        "outputs": {"loss": "loss.loss", "nll": "loss.nll"},
    }
    found = _update(graph_of(loaded(spec)), {"B": 833, "T": 30}, inner=True)
    budget_is_kept("25,000 tokens, loss alone", found)


def _update(
    graph: Graph, sizes: dict[str, int], micro_batches: int = 1, *, inner: bool = False
) -> dict[str, int]:
    """Return the kernels and bytes of an update; `inner` nodes also return gradients of inputs."""
    chosen = KernelChoice("torch", {"*": "fused"}, "triton")
    planned = after(graph, PassSettings(kernels=chosen, precision="bfloat16", without=WITHOUT))
    model = build_empty(planned, device="cuda").train()
    inputs = weft.example_inputs(graph, sizes, device="cuda")
    if inner:
        inputs = {n: one.requires_grad_(one.is_floating_point()) for n, one in inputs.items()}
    batch = Batch(inputs, np.arange(BATCH), _tokens(inputs), _tokens(inputs))
    losses = ObjectiveLosses(graph, 0.01)
    with rehearsed(), Recorder() as recorder:
        losses._first[batch.rows.tobytes()] = losses.weights(model, batch)[losses.losses[0]]
        counts = [torch.ones((), device="cuda") for _ in losses.losses]
        losses._set_ratios(counts, counts[0])
        forward, backward = recorder.kernels.total(), 0
        for number in range(micro_batches):
            before = recorder.kernels.total()
            with torch.autocast("cuda", torch.bfloat16):
                sums = losses.loss(model, batch)
            forward += recorder.kernels.total() - before
            if number < micro_batches - 1:
                before = recorder.kernels.total()
                sums.loss.backward()
                backward += recorder.kernels.total() - before
        backward += learnt(model, sums.loss, recorder)
        clip_gradient(model.parameters(), 1.0)
    refuse(recorder)
    return {"forward": forward, "backward": backward, "bytes": recorder.bytes}


def _tokens(inputs: dict[str, Tensor]) -> dict[str, int]:
    """Return the number of tokens of each input without padding, as the data know it."""
    return {n: one.size(0) * one.size(1) for n, one in inputs.items() if one.dim() > 1}
